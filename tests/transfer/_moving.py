"""A store with everything in it that can get lost on the way to another."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    PostgresMemoryStore,
    SQLiteMemoryStore,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.records import Record
from orbiter.memory.transfer.movable_store import MovableStore
from orbiter.memory.transfer.native import pages_of

SQLStore = SQLiteMemoryStore | PostgresMemoryStore

_TEXTS = (
    "", " ", "plain words", "Straße", "天気は晴れです。", "🎉 \u2028 line\nbreak", 'quo"te \\ {}',
    "e\u0301", "x" * 3000,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    1e16,
    1.5,
    -0.0,
    0.1 + 0.2,
    5e-324,
    2**62,
    -1,
    True,
    None,
    "é",
    [],
    {"b": 1, "a": [{}]},
)
_BIRTH = datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)


def odd_items(count: int, *, seed: int = 0, users: int = 5) -> list[MemoryItem]:
    """Return items of every kind, dated now or long ago, with what JSON types tend to change.

    From some hundreds on they are plain, as most are.
    """
    dice = random.Random(seed)
    return [_item(dice, number, users, is_odd=number < _ODD) for number in range(count)]


_ODD = 250


def _item(dice: random.Random, number: int, users: int, *, is_odd: bool) -> MemoryItem:
    most = dice.choice((0, 0, 1, 3)) if is_odd else 0
    extra = {f"k{n}": dice.choice(_VALUES) for n in range(most)}
    who = MemoryMetadata(
        user_id=f"user-{number % users}",
        session_id=dice.choice((None, "s", "ü")),
        agent_id=dice.choice((None, "bot")),
        extra=extra,
    )
    common = {
        "id": dice.choice((f"{seed_id(dice)}-{number}", f"~{number}é{seed_id(dice)}")),
        "metadata": who,
        "status": dice.choice(list(MemoryStatus)),
    }
    if dice.random() < 0.5:
        born = _BIRTH + timedelta(seconds=dice.randrange(50))  # many at one instant
        common |= {"created_at": born, "updated_at": born + timedelta(microseconds=1)}
    text = dice.choice(_TEXTS) if is_odd else f"note {number}"
    kind = dice.randrange(7) if is_odd else 6
    if kind == 0:
        calls = [{"id": "c1", "name": "look", "arguments": {"z": 1e16, "a": 0.1}}]
        return AIMemory(content=text, tool_calls=calls, **common)
    if kind == 1:
        return ToolMemory(
            content=text, tool_call_id="c1", tool_name="look", is_error=True, **common
        )
    if kind == 2:
        native = {"openai": {"content": [{"type": "text", "text": "é"}], "n": 1.0}}
        return SystemMemory(content=text, native=native, **common)
    if kind == 3:
        return FactMemory(key="home_city", value={"city": "Köln", "n": 1e16}, **common)
    if kind == 4:
        return MemoryItem(content=text, memory_type="note", **common)
    end = datetime(2100, 1, 1, tzinfo=UTC) if kind == 5 else None
    return HumanMemory(content=text, expires_at=end, **common)


def seed_id(dice: random.Random) -> str:
    return f"{dice.getrandbits(40):x}"


async def fill(store: SQLStore, count: int, *, seed: int = 0) -> None:
    """Store items, change some several times, delete some and bring a few of these back."""
    items = odd_items(count, seed=seed)
    await store.add_many(items[: count // 2])
    await store.add_many(items[count // 2 :], by="importer")
    for turn, several in enumerate((items[::5], items[::9], items[::10])):
        changed = [item.model_copy(deep=True) for item in several]
        for item in changed:
            item.metadata = item.metadata.model_copy(update={"extra": {"turn": turn}})
        await store.add_many(changed, by=f"editor {turn}" if turn else None)
    ids = [item.id for item in items]
    await store.delete_many(ids[::4], by="cleaner")
    for item_id in ids[: count // 20 : 8]:
        await store.restore(item_id)
    await store.add_many(items[: count // 50 : 4])  # deleted ones that come again


async def everything(
    store: MovableStore, *, metadata: MemoryMetadata | None = None
) -> list[Record]:
    return [record async for page in pages_of(store, metadata=metadata) for record in page]


async def lines(store: MovableStore) -> list[str]:
    return [record.to_line() for record in await everything(store)]
