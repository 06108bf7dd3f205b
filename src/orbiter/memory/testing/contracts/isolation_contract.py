"""No user ever sees another's memory, and no caller can reach into the store."""

from typing import Any

from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    ToolMemory,
)
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    HOSTILE_IDS,
    Contract,
    KitNote,
    add_all,
    of,
    written,
)

__all__ = ["IsolationContract"]


class IsolationContract(Contract):
    """Who may see what."""

    async def test_no_id_finds_the_items_of_another(self, store: MemoryStore) -> None:
        for name in self.capabilities.scope:
            await store.clear()
            for value in HOSTILE_IDS:
                await store.add(HumanMemory(content=f"of {value}", metadata=of(value, name)))
            await store.add(HumanMemory(content="of nobody"))

            for value in HOSTILE_IDS:
                found = await store.search(metadata=of(value, name), limit=1000)
                assert [item.content for item in found] == [f"of {value}"], (name, value)

    async def test_no_id_clears_the_items_of_another(self, store: MemoryStore) -> None:
        for name in self.capabilities.scope:
            await store.clear()
            for value in HOSTILE_IDS:
                await store.add(HumanMemory(content=f"of {value}", metadata=of(value, name)))

            for removed, value in enumerate(HOSTILE_IDS, start=1):
                assert await store.clear(metadata=of(value, name)) == 1, (name, value)
                left = await store.search(limit=1000)
                assert len(left) == len(HOSTILE_IDS) - removed

    async def test_a_users_item_is_found_behind_many_of_others(self, store: MemoryStore) -> None:
        await store.add(HumanMemory(content="door code 1", metadata=of("ann")))
        others = [HumanMemory(content="door code 2", metadata=of("bob")) for _ in range(300)]
        await add_all(store, [*others])

        found = await store.search(query="door code", metadata=of("ann"), limit=1)

        assert [item.content for item in found] == ["door code 1"]

    async def test_a_query_does_not_cross_users(self, store: MemoryStore) -> None:
        await store.add(HumanMemory(content="door code", metadata=of("ann")))

        assert await store.search(query="door", metadata=of("bob")) == []

    async def test_changing_an_added_item_changes_nothing_stored(self, store: MemoryStore) -> None:
        items = _changeable()
        before = [written(item) for item in items]
        for item in items:
            await store.add(item)

        for item in items:
            _change(item)

        assert [written(await store.get(item.id)) for item in items] == before

    @needs(batch=True)
    async def test_changing_an_item_of_a_batch_changes_nothing_stored(self, store: Any) -> None:
        items = _changeable()
        before = [written(item) for item in items]
        await store.add_many(items)

        for item in items:
            _change(item)

        assert [written(await store.get(item.id)) for item in items] == before

    async def test_changing_a_returned_item_changes_nothing_stored(
        self, store: MemoryStore
    ) -> None:
        items = _changeable()
        for item in items:
            await store.add(item)

        for item in items * 2:  # the second time, a cache may answer
            got = await store.get(item.id)
            assert written(got) == written(item)
            assert got is not None
            _change(got)
            (found,) = await store.search(memory_type=item.memory_type)
            assert written(found) == written(item)
            _change(found)

    async def test_a_returned_list_is_the_callers(self, store: MemoryStore) -> None:
        await store.add(HumanMemory(content="hi"))

        (await store.search()).clear()

        assert len(await store.search()) == 1


def _changeable() -> list[MemoryItem]:
    """Return a whole tool group and a note, with something to change at every depth."""

    def common() -> dict[str, Any]:
        extra = {"k": ["v"], "deep": {"er": {"k": ["v"]}}}
        return {"metadata": MemoryMetadata(extra=extra), "native": {"openai": [{"k": ["v"]}]}}

    call = {"id": "c", "name": "f", "arguments": {"k": ["v"]}}
    return [
        AIMemory(content="hi", tool_calls=[call], **common()),
        ToolMemory(content="hi", tool_call_id="c", **common()),
        KitNote(content="hi", mood="calm", scores=[0.5], **common()),
    ]


def _change(item: MemoryItem) -> None:
    item.metadata.extra["k"].append("more")
    item.metadata.extra["deep"]["er"]["k"].append("more")
    item.native["openai"][0]["k"].append("more")
    if isinstance(item, AIMemory):
        item.tool_calls[0]["arguments"]["k"].append("more")
        item.tool_calls.append({"id": "x"})
    if isinstance(item, KitNote):
        item.scores.append(1.0)
    item.content = "changed"
    item.status = MemoryStatus.DISCARD
