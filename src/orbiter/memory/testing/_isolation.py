"""No user ever sees another's memory, and no caller can reach into the store."""

from typing import ClassVar

from orbiter.memory.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.protocols import MemoryStore
from orbiter.memory.testing.capabilities import Capabilities

HOSTILE_IDS = (
    "alice", "Alice", "ALICE", "alice ", " alice", "alice1", "alic", "alice\n", "alice\t",
    "a%", "%", "_", "alic_", "al%e", "*", "?", "[a]lice", "alice*",
    "alice'", "alice''", 'alice"', "alice\\", "alice;--", "' OR '1'='1", '") OR ("1"="1',
    '{"user_id":"alice"}', '"alice"', "null", "None", "NULL", "", "0", "7", "007", "7.0",
    "true", "[]", "{}", "$1", ":id", "alicе", "ａlice", "al\u200bice", "alice\u0301",
    "user_id", "a" * 256, "alice/bob", "alice:bob", "alice|bob", "alice\x01",
)  # fmt: skip


def _one(value: str, name: str) -> MemoryMetadata:
    return MemoryMetadata.model_validate({name: value})


class IsolationContract:
    """Who may see what."""

    capabilities: ClassVar[Capabilities]

    async def test_no_id_finds_the_items_of_another(self, store: MemoryStore) -> None:
        for name in self.capabilities.scope:
            await store.clear()
            for value in HOSTILE_IDS:
                await store.add(HumanMemory(content=f"of {value}", metadata=_one(value, name)))
            await store.add(HumanMemory(content="of nobody"))

            for value in HOSTILE_IDS:
                found = await store.search(metadata=_one(value, name), limit=1000)
                assert [item.content for item in found] == [f"of {value}"], (name, value)

    async def test_no_id_clears_the_items_of_another(self, store: MemoryStore) -> None:
        for name in self.capabilities.scope:
            await store.clear()
            for value in HOSTILE_IDS:
                await store.add(HumanMemory(content=f"of {value}", metadata=_one(value, name)))

            for removed, value in enumerate(HOSTILE_IDS, start=1):
                assert await store.clear(metadata=_one(value, name)) == 1, (name, value)
                left = await store.search(limit=1000)
                assert len(left) == len(HOSTILE_IDS) - removed

    async def test_a_users_item_is_found_behind_many_of_others(self, store: MemoryStore) -> None:
        await store.add(HumanMemory(content="door code 1", metadata=_one("ann", "user_id")))
        for _ in range(300):
            await store.add(HumanMemory(content="door code 2", metadata=_one("bob", "user_id")))

        found = await store.search(query="door code", metadata=_one("ann", "user_id"), limit=1)

        assert [item.content for item in found] == ["door code 1"]

    async def test_a_query_does_not_cross_users(self, store: MemoryStore) -> None:
        await store.add(HumanMemory(content="door code", metadata=_one("ann", "user_id")))

        assert await store.search(query="door", metadata=_one("bob", "user_id")) == []

    async def test_changing_an_added_item_changes_nothing_stored(self, store: MemoryStore) -> None:
        item = AIMemory(content="hi", tool_calls=[], metadata=MemoryMetadata(extra={"k": ["v"]}))
        before = item.model_copy(deep=True)
        await store.add(item)

        item.content = "changed"
        item.tool_calls.append({"id": "x"})
        item.metadata.extra["k"].append("more")
        item.native["gemini"] = []

        assert await store.get(item.id) == before

    async def test_changing_a_returned_item_changes_nothing_stored(
        self, store: MemoryStore
    ) -> None:
        item = AIMemory(content="hi", metadata=MemoryMetadata(extra={"k": ["v"]}))
        before = item.model_copy(deep=True)
        await store.add(item)

        got = await store.get(item.id)
        found = (await store.search())[0]
        for returned in (got, found):
            assert isinstance(returned, AIMemory)
            _spoil(returned)

        assert await store.get(item.id) == before
        assert await store.search() == [before]


def _spoil(item: MemoryItem) -> None:
    item.content = "changed"
    item.metadata.extra["k"].append("more")
    item.native["gemini"] = []
