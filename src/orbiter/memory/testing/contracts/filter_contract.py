"""What `search` and `clear` mean in every store: which items a filter finds."""

from typing import Any

import pytest

from orbiter.memory.model.items import (
    AIMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    ToolMemory,
)
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import Contract, add_all, contents, of, person

__all__ = ["FilterContract"]


class FilterContract(Contract):
    """Every filter given must hold, to the letter; what is not given asks nothing."""

    async def test_a_filter_field_that_is_none_asks_nothing(self, store: MemoryStore) -> None:
        await store.add(person("1", 1, metadata=MemoryMetadata(user_id="u", session_id="s")))
        await store.add(person("2", 2, metadata=of("u")))
        await store.add(person("3", 3))

        assert contents(await store.search(metadata=of("u"))) == self._ordered("1", "2")
        assert len(await store.search(metadata=MemoryMetadata())) == 3

    async def test_extra_never_filters(self, store: MemoryStore) -> None:
        await store.add(person("hi", metadata=MemoryMetadata(user_id="u", extra={"k": 1})))

        found = await store.search(metadata=MemoryMetadata(user_id="u", extra={"k": 2}))

        assert contents(found) == ["hi"]

    async def test_every_field_of_the_scope_must_be_equal(self, store: MemoryStore) -> None:
        for name in self.capabilities.scope:
            await store.clear()
            others = {other: "same" for other in self.capabilities.scope if other != name}
            await store.add(person("mine", metadata=MemoryMetadata(**others, **{name: "me"})))
            await store.add(person("other", metadata=MemoryMetadata(**others, **{name: "you"})))
            await store.add(person("nobody's", metadata=MemoryMetadata(**others)))

            found = await store.search(metadata=MemoryMetadata(**others, **{name: "me"}))

            assert contents(found) == ["mine"], name

    async def test_type_and_status_filter(self, store: MemoryStore) -> None:
        await store.add(person("said", status=MemoryStatus.DRAFT))
        await store.add(AIMemory(content="answered"))

        assert contents(await store.search(memory_type="human")) == ["said"]
        assert contents(await store.search(memory_type="ai")) == ["answered"]
        for unheard_of in ("unheard-of", "HUMAN", "human ", "hum", ""):
            assert await store.search(memory_type=unheard_of) == []
        assert contents(await store.search(status=MemoryStatus.DRAFT)) == ["said"]
        assert contents(await store.search(status=MemoryStatus.ACCEPTED)) == ["answered"]
        assert await store.search(status=MemoryStatus.DISCARD) == []
        assert len(await store.search()) == 2
        assert await store.search(memory_type="ai", status=MemoryStatus.DRAFT) == []

    async def test_a_status_may_be_given_as_text(self, store: MemoryStore) -> None:
        await store.add(person("drafted", status=MemoryStatus.DRAFT))
        await store.add(person("kept"))

        for status, found in (("draft", ["drafted"]), ("accepted", ["kept"]), ("discard", [])):
            assert contents(await store.search(status=status)) == found  # type: ignore[arg-type]  # as JSON has it

    @needs(text="substring")
    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("100% sure", "0%"),
            ("snake_case", "e_c"),
            (r"back\slash", "k\\s"),
            ("it's", "t's"),
            ('say "hi"', '"HI"'),
            ("[a-z]*?", "[A-Z]*"),
            ("C++ AND (node.js)", "c++ and (NODE.JS"),
            ("-bob x:y", "-BOB"),
            ("STRASSE", "straße"),
            ("Straße", "STRASSE"),
            ("ÄPFEL", "äpfel"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("東京タワー", "京タ"),
            ("a\nb", "A\nB"),
            ("x", "x"),
            ("two  blanks", "  "),
            ("an apple", " APPLE"),
            ("tail ", "L "),
        ],
        ids=ascii,
    )
    async def test_a_query_is_a_literal_substring_in_any_case(
        self, store: MemoryStore, text: str, query: str
    ) -> None:
        await store.add(person(text))
        await store.add(person("something else entirely"))

        assert contents(await store.search(query=query)) == [text]

    @needs(text="substring")
    async def test_a_query_finds_neither_more_nor_less_than_it_says(
        self, store: MemoryStore
    ) -> None:
        await store.add(person("plain words"))

        for query in ("%", "_", "\\", "*", "?", "pl_in", "p%n", ".", "p.*", "^p", "plain|x"):
            assert await store.search(query=query) == [], query
        for query in (" plain", "words ", "plain  words", "words plain", "\nplain", "\t"):
            assert await store.search(query=query) == [], query

    @needs(text="substring")
    async def test_a_query_looks_at_the_content_only(self, store: MemoryStore) -> None:
        needle = "needle"
        who = dict.fromkeys(self.capabilities.scope, needle)
        items: list[MemoryItem] = [
            person("hay", id=needle, metadata=MemoryMetadata(**who, extra={needle: needle})),
            AIMemory(content="hay", native={needle: [needle]}),
            AIMemory(content="", tool_calls=[{"id": needle, "name": needle}]),
            ToolMemory(content="", tool_call_id=needle, tool_name=needle),
            MemoryItem(content="hay", memory_type=needle),
        ]
        await add_all(store, items)

        for query in (needle, "human", "ai", "accepted", "2025", "user_id"):
            assert await store.search(query=query) == [], query
        assert await store.search(query=needle, memory_type=needle) == []

    @needs(text="substring")
    async def test_a_query_may_be_long(self, store: MemoryStore) -> None:
        query = "".join(f"{number} bottles, " for number in range(4500))
        assert len(query) > 60_000
        await store.add(person(f"sing: {query}and so on"))
        await store.add(person(query[:-10]))

        assert [item.content[:5] for item in await store.search(query=query.upper())] == ["sing:"]
        assert await store.search(query=f"{query}!") == []

    async def test_clear_removes_everything_and_counts_it(self, store: MemoryStore) -> None:
        items = [person(str(number)) for number in range(3)]
        for item in items:
            await store.add(item)

        assert await store.clear() == 3
        assert await store.search() == []
        assert await store.get(items[0].id) is None
        assert await store.clear() == 0

    async def test_clear_removes_what_matches_and_nothing_else(self, store: MemoryStore) -> None:
        ann, bob = of("ann"), of("bob")
        for who in (ann, bob, ann):
            await store.add(person("hi", metadata=who))

        assert await store.clear(metadata=ann) == 2
        assert await store.clear(metadata=ann) == 0
        assert len(await store.search()) == 1
        assert len(await store.search(metadata=bob)) == 1

    async def test_clear_knows_no_limit_and_no_status(self, store: MemoryStore) -> None:
        statuses: list[Any] = list(MemoryStatus)
        items: list[MemoryItem] = [
            person(str(number), metadata=of("ann"), status=statuses[number % 3])
            for number in range(40)
        ]
        await add_all(store, [*items, person("his", metadata=of("bob"))])

        assert await store.clear(metadata=of("ann")) == 40
        assert contents(await store.search()) == ["his"]

    async def test_a_cleared_item_comes_back_when_added_again(self, store: MemoryStore) -> None:
        item = person("hi", metadata=of("ann"))
        for cleared_by in (None, of("ann")):
            await store.add(item)
            await store.clear(metadata=cleared_by)
            assert await store.get(item.id) is None

            await store.add(item)

            found = await store.get(item.id)
            assert found is not None
            assert found.status is MemoryStatus.ACCEPTED
            assert await store.search(status=MemoryStatus.ACCEPTED) == [found]
            assert await store.search(metadata=of("ann")) == [found]
