"""What `add`, `get`, `search` and `clear` mean in every store."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest
from pydantic import Field

from orbiter.memory.errors import MemoryError
from orbiter.memory.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.protocols import BatchStore, Lifecycle, MemoryStore
from orbiter.memory.testing.capabilities import Capabilities, needs

START = datetime(2025, 1, 1, tzinfo=UTC)

TEXTS = (
    "plain",
    " leading and trailing \n",
    "line\r\nends\rof\nall\u2028kinds\u2029",
    "right-to-left \u202e mark, joiner \u200d, byte order mark \ufeff",
    "e\u0301 is not \u00e9",
    "emoji 👩‍👩‍👧 and noncharacter \uffff",
    "quotes ' \" and ; -- DROP TABLE memory_items",
    "{braces} %s %(name)s {0.__class__}",
    "\x1b[31mred\x1b[0m \t\x01",
    "",
)


class KitNote(MemoryItem):
    """A kind of item no store has ever heard of."""

    memory_type: str = "orbiter.kit-note"
    mood: str
    scores: list[float] = Field(default_factory=list)
    due: datetime | None = None


def person(content: str, seconds: float = 0, **fields: Any) -> HumanMemory:
    """Return what someone said, some seconds after the start."""
    created_at = START + timedelta(seconds=seconds)
    return HumanMemory(content=content, created_at=created_at, **fields)


def contents(items: list[MemoryItem]) -> list[str]:
    """Return the contents of *items*, in order."""
    return [item.content for item in items]


class CoreContract:
    """The meaning of the four methods."""

    capabilities: ClassVar[Capabilities]

    def _ordered(self, *oldest_first: str) -> list[str]:
        newest = self.capabilities.order == "newest"
        return list(reversed(oldest_first)) if newest else list(oldest_first)

    async def test_the_store_has_what_it_declares_and_no_more(self, store: MemoryStore) -> None:
        assert isinstance(store, MemoryStore)
        opens = isinstance(store, Lifecycle)
        assert opens == self.capabilities.lifecycle, f"declare lifecycle={opens}"
        takes_many = isinstance(store, BatchStore)
        assert takes_many == self.capabilities.batch, f"declare batch={takes_many}"

    async def test_an_item_comes_back_equal(self, store: MemoryStore) -> None:
        metadata = MemoryMetadata(
            user_id="u", session_id="s", task_id="t", agent_id="a", extra={"deep": [{"k": None}]}
        )
        items: list[MemoryItem] = [
            SystemMemory(content="be kind", metadata=metadata),
            HumanMemory(content="hi", status=MemoryStatus.DRAFT, metadata=metadata),
            AIMemory(
                content="",
                tool_calls=[{"id": "c1", "name": "f", "arguments": {"x": 1.5, "y": [True, "ü"]}}],
                native={"anthropic": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
            ),
            ToolMemory(content="42", tool_call_id="c1", tool_name="f", is_error=True),
            MemoryItem(content="a note", memory_type="note"),
        ]

        for item in items:
            await store.add(item)

        assert [await store.get(item.id) for item in items] == items

    @pytest.mark.parametrize("text", TEXTS)
    async def test_text_is_kept_code_point_for_code_point(
        self, store: MemoryStore, text: str
    ) -> None:
        item = person(text, metadata=MemoryMetadata(user_id=f"u{text}", extra={"k": text}))

        await store.add(item)

        assert await store.get(item.id) == item

    async def test_a_subclass_comes_back_as_itself_with_all_its_fields(
        self, store: MemoryStore
    ) -> None:
        note = KitNote(content="buy milk", mood="calm", scores=[0.5, 1e-9], due=START)

        await store.add(note)
        found = await store.get(note.id)

        assert type(found) is KitNote
        assert found == note
        assert [type(i) for i in await store.search(memory_type=note.memory_type)] == [KitNote]

    async def test_an_absent_item_is_none(self, store: MemoryStore) -> None:
        assert await store.get("nobody") is None

    async def test_adding_again_updates_all_but_the_time_of_creation(
        self, store: MemoryStore
    ) -> None:
        first = AIMemory(id="one", content="old", created_at=START)
        second = AIMemory(
            id="one",
            content="new",
            status=MemoryStatus.DRAFT,
            metadata=MemoryMetadata(user_id="ann", extra={"k": 1}),
            native={"gemini": [{"text": "new"}]},
            created_at=START + timedelta(days=1),
            updated_at=START + timedelta(days=2),
        )

        await store.add(first)
        await store.add(second)
        found = await store.get("one")

        assert found == second.model_copy(update={"created_at": START, "version": 2})
        assert len(await store.search()) == 1

    async def test_each_write_raises_the_version_by_one(self, store: MemoryStore) -> None:
        item = person("hi")

        for version in (1, 2, 3):
            await store.add(item)
            found = await store.get(item.id)

            assert found is not None
            assert found.version == version

    async def test_an_updated_item_leaves_its_old_place(self, store: MemoryStore) -> None:
        ann, bob = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
        await store.add(person("hers", id="one", metadata=ann))

        await store.add(person("his", id="one", metadata=bob))

        assert await store.search(metadata=ann) == []
        assert contents(await store.search(metadata=bob)) == ["his"]

    @needs(text="substring")
    async def test_an_updated_text_is_found_by_its_new_words_only(self, store: MemoryStore) -> None:
        await store.add(person("the old apples", id="one"))

        await store.add(person("the new pears", id="one"))

        assert await store.search(query="apples") == []
        assert contents(await store.search(query="pears")) == ["the new pears"]

    async def test_a_filter_field_that_is_none_asks_nothing(self, store: MemoryStore) -> None:
        await store.add(person("1", 1, metadata=MemoryMetadata(user_id="u", session_id="s")))
        await store.add(person("2", 2, metadata=MemoryMetadata(user_id="u")))
        await store.add(person("3", 3))

        assert contents(await store.search(metadata=MemoryMetadata(user_id="u"))) == self._ordered(
            "1", "2"
        )
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
        assert await store.search(memory_type="unheard-of") == []
        assert contents(await store.search(status=MemoryStatus.DRAFT)) == ["said"]
        assert contents(await store.search(status=MemoryStatus.ACCEPTED)) == ["answered"]
        assert await store.search(status=MemoryStatus.DISCARD) == []
        assert len(await store.search()) == 2
        assert await store.search(memory_type="ai", status=MemoryStatus.DRAFT) == []

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
        ],
    )
    async def test_a_query_is_a_literal_substring_in_any_case(
        self, store: MemoryStore, text: str, query: str
    ) -> None:
        await store.add(person(text))
        await store.add(person("something else entirely"))

        assert contents(await store.search(query=query)) == [text]

    @needs(text="substring")
    async def test_wildcards_match_only_themselves(self, store: MemoryStore) -> None:
        await store.add(person("plain words"))

        for query in ("%", "_", "\\", "*", "?", "pl_in", "p%n", ".", "p.*"):
            assert await store.search(query=query) == [], query

    async def test_a_limit_of_nothing_gives_nothing(self, store: MemoryStore) -> None:
        await store.add(person("hi"))

        assert await store.search(limit=0) == []

    @pytest.mark.parametrize("limit", [-1, -(2**40), True, 1.5])
    async def test_a_senseless_limit_is_refused(self, store: MemoryStore, limit: Any) -> None:
        with pytest.raises(ValueError, match="limit") as caught:
            await store.search(limit=limit)

        assert isinstance(caught.value, MemoryError)

    async def test_a_huge_limit_is_allowed(self, store: MemoryStore) -> None:
        await store.add(person("hi"))

        assert contents(await store.search(limit=2**40)) == ["hi"]

    async def test_ten_items_are_returned_unless_asked_otherwise(self, store: MemoryStore) -> None:
        for number in range(12):
            await store.add(person(str(number), number))

        assert len(await store.search()) == 10

    async def test_order_is_by_instant_then_by_insertion(self, store: MemoryStore) -> None:
        east = timezone(timedelta(hours=9))
        await store.add(person("third", 30))
        await store.add(
            HumanMemory(content="first", created_at=(START + timedelta(seconds=1)).astimezone(east))
        )
        await store.add(person("second", 20))
        await store.add(person("fourth", 30))
        await store.add(person("fifth", 30.000001))

        found = contents(await store.search())

        assert found == self._ordered("first", "second", "third", "fourth", "fifth")

    async def test_a_limit_keeps_the_newest(self, store: MemoryStore) -> None:
        for seconds in (3, 1, 2, 4):
            await store.add(person(str(seconds), seconds))

        assert contents(await store.search(limit=2)) == self._ordered("3", "4")

    async def test_clear_removes_everything_and_counts_it(self, store: MemoryStore) -> None:
        items = [person(str(number)) for number in range(3)]
        for item in items:
            await store.add(item)

        assert await store.clear() == 3
        assert await store.search() == []
        assert await store.get(items[0].id) is None
        assert await store.clear() == 0

    async def test_clear_removes_what_matches_and_nothing_else(self, store: MemoryStore) -> None:
        ann, bob = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
        for who in (ann, bob, ann):
            await store.add(person("hi", metadata=who))

        assert await store.clear(metadata=ann) == 2
        assert await store.clear(metadata=ann) == 0
        assert len(await store.search()) == 1
        assert len(await store.search(metadata=bob)) == 1

    @pytest.mark.parametrize("extra", [{}, {"user_id": "ann"}])
    async def test_clear_refuses_a_filter_that_names_nobody(
        self, store: MemoryStore, extra: dict[str, Any]
    ) -> None:
        await store.add(person("hi", metadata=MemoryMetadata(user_id="ann")))

        with pytest.raises(ValueError, match="filter") as caught:
            await store.clear(metadata=MemoryMetadata(extra=extra))

        assert isinstance(caught.value, MemoryError)
        assert len(await store.search()) == 1

    async def test_a_cleared_item_comes_back_when_added_again(self, store: MemoryStore) -> None:
        item = person("hi")
        await store.add(item)
        await store.clear()

        await store.add(item)

        assert contents(await store.search()) == ["hi"]
        assert await store.get(item.id) is not None

    async def test_an_item_spoilt_in_place_is_refused_and_the_old_one_kept(
        self, store: MemoryStore
    ) -> None:
        item = AIMemory(content="hi", metadata=MemoryMetadata(extra={"ok": 1}))
        await store.add(item)
        item.metadata.extra["bad"] = float("nan")

        with pytest.raises(ValueError, match="bad") as caught:
            await store.add(item)

        assert isinstance(caught.value, MemoryError)
        found = await store.get(item.id)
        assert found is not None
        assert found.metadata.extra == {"ok": 1}
        assert found.version == 1

    async def test_what_is_not_an_item_is_refused(self, store: MemoryStore) -> None:
        with pytest.raises(ValueError, match="not a memory item") as caught:
            await store.add("hi")  # type: ignore[arg-type]  # the mistake under test

        assert isinstance(caught.value, MemoryError)

    @needs(batch=True)
    async def test_add_many_keeps_all_in_order(self, store: Any) -> None:
        await store.add_many([person("1", 1), person("2", 1), person("3", 1)])
        await store.add_many([])

        assert contents(await store.search()) == self._ordered("1", "2", "3")

    @needs(batch=True)
    async def test_add_many_keeps_all_or_none(self, store: Any) -> None:
        spoilt = person("spoilt", metadata=MemoryMetadata(extra={"k": []}))
        spoilt.metadata.extra["k"].append(object())

        with pytest.raises(ValueError, match="object"):
            await store.add_many([person("good"), spoilt])

        assert await store.search() == []

    @needs(batch=True)
    async def test_add_many_of_one_id_counts_each_write(self, store: Any) -> None:
        await store.add_many([person("a", id="one"), person("b", id="one")])
        found = await store.get("one")

        assert (found.content, found.version) == ("b", 2)
