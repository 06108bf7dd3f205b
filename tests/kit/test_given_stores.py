"""Stores of other packages under `AgentMemory(store=…)`: order, errors, opening and closing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from examples.toy_store import ToyStore

from orbiter.memory import (
    AgentMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    ShortTermMemory,
    VectorMemoryStore,
)
from orbiter.memory.backends.adapter import StoreAdapter
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
TALK = MemoryMetadata(user_id="ann", session_id="monday")


class OldestFirst:
    """A store of another package that returns the oldest first."""

    def __init__(self) -> None:
        inner = ShortTermMemory()
        self.add, self.get = inner.add, inner.get
        self.search, self.clear = inner.search, inner.clear


STORES: dict[str, Callable[[Path], MemoryStore]] = {
    "toy": lambda folder: ToyStore(f"toy://{folder}/notes.json"),
    "short-term": lambda _: ShortTermMemory(),
    "vector": lambda _: VectorMemoryStore(HashEmbeddings(8)),
}


@pytest.fixture(params=STORES)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryStore:
    return STORES[request.param](tmp_path)


# Order


def _of_one_instant(*ids: str, metadata: MemoryMetadata = ANN) -> list[MemoryItem]:
    first = HumanMemory(id=ids[0], content=ids[0], metadata=metadata)
    when = first.created_at
    others = [HumanMemory(id=i, content=i, metadata=metadata, created_at=when) for i in ids[1:]]
    return [first, *others]


@pytest.mark.parametrize("ids", [("c", "b", "a"), ("a", "b", "c"), ("b", "c", "a"), ("b", "a")])
async def test_items_of_one_instant_keep_the_order_of_insertion(
    any_store: MemoryStore, ids: tuple[str, ...]
) -> None:
    async with StoreAdapter(any_store) as store:
        for item in _of_one_instant(*ids):
            await store.add(item)

        assert [item.id for item in await store.search()] == [*reversed(ids)]
        assert [record.id for record in await store.records()] == [*ids]


async def test_a_store_that_returns_the_oldest_first_is_turned_round() -> None:
    store = StoreAdapter(OldestFirst())
    await store.add(HumanMemory(id="z", content="z", metadata=ANN))
    for item in _of_one_instant("c", "b", "a"):
        await store.add(item)

    assert [item.id for item in await store.search()] == ["a", "b", "c", "z"]


async def test_a_conversation_in_short_term_memory_is_in_the_order_of_insertion() -> None:
    store = StoreAdapter(ShortTermMemory())
    late, early = HumanMemory(content="first", metadata=TALK), HumanMemory(content="second")
    early = early.model_copy(update={"metadata": TALK, "created_at": late.created_at.replace(2020)})
    await store.add_many([late, early])

    said = await store.search(metadata=TALK, order="insertion")
    by_time = await store.search(metadata=TALK)

    assert [item.content for item in said] == ["second", "first"]
    assert [item.content for item in by_time] == ["first", "second"]


async def test_a_call_without_its_result_is_listed_and_erased_in_short_term_memory() -> None:
    store = ShortTermMemory()
    async with AgentMemory(store=store, embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        await ann.chat("c").add({"role": "assistant", "content": "hm", "tool_calls": [call]})
        assert [item.content for item in await ann.list()] == ["hm"]

        done = await memory.erase(user_id="ann")

        assert (done.items, len(store)) == (1, 0)
