"""Kinds of memories with computed fields: kept, found, changed and moved like any other."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, Field, computed_field

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.transfer import export_file, import_file

Open = Callable[..., AgentMemory]


class Line(BaseModel):
    """A part of an order, which computes something itself."""

    price: float
    count: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost(self) -> float:
        """What the whole line costs."""
        return self.price * self.count


class Order(HumanMemory):
    """A message that has its sum computed, and a label that is computed once."""

    memory_type: str = "test.order"
    lines: list[Line] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> float:
        """The sum of all lines."""
        return sum(line.cost for line in self.lines)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def label(self) -> str:
        """The text and its sum."""
        return f"{self.content}: {self.total:g}"


def order(content: str = "two books") -> Order:
    made = Order(content=content, lines=[Line(price=12.5, count=2)])
    assert made.label.endswith(": 25")  # from now on it stands in the object
    return made


def is_same(found: MemoryItem | None, content: str = "two books") -> bool:
    return isinstance(found, Order) and (found.content, found.total) == (content, 25.0)


async def test_computed_fields_come_back_computed_from_every_call(any_alice: ScopedMemory) -> None:
    item = await any_alice.remember(order())

    assert is_same(item)
    assert is_same(await any_alice.get(item.id))
    assert all(map(is_same, await any_alice.list()))
    assert is_same((await any_alice.recall("books"))[0].item)
    changed = await any_alice.update(item.id, "two pens")
    assert is_same(changed, "two pens")
    assert isinstance(changed, Order)
    assert changed.label == "two pens: 25"


async def test_computed_fields_are_no_obstacle_in_a_chat(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("orders")

    await chat.add([order(), order("three books")])

    first, second = await chat.items()
    assert is_same(first)
    assert is_same(second, "three books")


async def test_computed_fields_survive_an_export_and_an_import(
    any_local_alice: ScopedMemory, open_memory: Open, tmp_path: Path
) -> None:
    item = await any_local_alice.remember(order())
    target = open_memory("memory://").unscoped()

    await export_file(any_local_alice, tmp_path / "all.jsonl")
    found = await import_file(target, tmp_path / "all.jsonl")

    assert (found.stored, found.problem_count) == (1, 0)
    assert is_same(await target.get(item.id))
