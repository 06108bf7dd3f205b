"""`add` and `get`: an upsert by id with counted versions, and what every store refuses."""

import inspect
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    ToolMemory,
)
from orbiter.memory.model.protocols import (
    HistoryStore,
    MemoryStore,
)
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    HOSTILE_IDS,
    START,
    Contract,
    KitNote,
    add_all,
    contents,
    of,
    person,
    stored,
    written,
)

__all__ = [
    "IMPOSSIBLE_IDS",
    "SPOILT",
    "CoreContract",
    "RefusalContract",
]

IMPOSSIBLE_IDS = ("", "a\0b", "\ud800", "x" * 5000)
"""No item has one of these: they are refused when an item is made."""


def _has(store: MemoryStore, *methods: str) -> bool:
    return all(getattr(store, name, None) is not None for name in methods)


class CoreContract(Contract):
    """Writing, writing again, and reading by id."""

    async def test_the_store_has_what_it_declares_and_no_more(self, store: MemoryStore) -> None:
        assert isinstance(store, MemoryStore)
        opens = _has(store, "init", "close")
        assert opens == self.capabilities.lifecycle, f"declare lifecycle={opens}"
        takes_many = _has(store, "add_many")
        assert takes_many == self.capabilities.batch, f"declare batch={takes_many}"
        has_past = isinstance(store, HistoryStore)
        assert has_past == self.capabilities.versions, f"declare versions={has_past}"
        takes_cursors = "before" in inspect.signature(store.search).parameters
        assert takes_cursors == self.capabilities.paging, f"declare paging={takes_cursors}"
        takes_where = "where" in inspect.signature(store.search).parameters
        assert takes_where == self.capabilities.where, f"declare where={takes_where}"
        deletes_many = _has(store, "delete_many")
        declared = self.capabilities.bulk_delete
        assert deletes_many == declared, f"declare bulk_delete={deletes_many}"
        takes_order = "order" in inspect.signature(store.search).parameters
        declared = self.capabilities.insertion_order
        assert takes_order == declared, f"declare insertion_order={takes_order}"
        inserts = _has(store, "insert", "used_ids")
        assert inserts == self.capabilities.insert, f"declare insert={inserts}"

    @pytest.mark.parametrize("item_id", ["nobody", *IMPOSSIBLE_IDS], ids=ascii)
    async def test_an_absent_item_is_none(self, store: MemoryStore, item_id: str) -> None:
        await store.add(person("hi"))

        assert await store.get(item_id) is None

    async def test_get_takes_an_id_to_the_letter(self, store: MemoryStore) -> None:
        ids = [item_id for item_id in HOSTILE_IDS if item_id]
        await add_all(store, [person(f"of {item_id}", id=item_id) for item_id in ids])

        for item_id in ids:
            item = await store.get(item_id)
            assert item is not None, item_id
            assert (item.id, item.content) == (item_id, f"of {item_id}")
        for near in ("aLICE", "alice  ", "\talice", "ALICE1", "a" * 255, "alice%"):
            assert await store.get(near) is None, near

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
        item = await stored(store, second)

        kept = {"created_at": START, "version": 2}
        assert written(item) == written(second.model_copy(update=kept))
        assert len(await store.search()) == 1

    async def test_each_write_raises_the_version_by_one(self, store: MemoryStore) -> None:
        item = person("hi")

        assert [(await stored(store, item)).version for _ in range(3)] == [1, 2, 3]

    async def test_the_version_is_the_stores_not_the_callers(self, store: MemoryStore) -> None:
        first = await stored(store, person("hi", id="one", version=7))
        second = await stored(store, person("hi", id="one", version=7))
        third = await stored(store, second.model_copy(update={"version": 1}))

        assert [item.version for item in (first, second, third)] == [1, 2, 3]
        assert [item.version for item in await store.search()] == [3]

    async def test_add_leaves_the_callers_item_as_it_was(self, store: MemoryStore) -> None:
        item = AIMemory(content="hi", tool_calls=[{"id": "c"}], metadata=of("ann"), version=5)
        before = written(item)

        await store.add(item)
        await store.add(item)
        await store.clear()

        assert written(item) == before

    async def test_an_updated_item_leaves_its_old_place(self, store: MemoryStore) -> None:
        await store.add(person("hers", id="one", metadata=of("ann")))

        await store.add(person("his", id="one", metadata=of("bob")))

        assert await store.search(metadata=of("ann")) == []
        assert contents(await store.search(metadata=of("bob"))) == ["his"]

    @needs(text="substring")
    async def test_an_updated_text_is_found_by_its_new_words_only(self, store: MemoryStore) -> None:
        await store.add(person("the old apples", id="one"))

        await store.add(person("the new pears", id="one"))

        assert await store.search(query="apples") == []
        assert contents(await store.search(query="pears")) == ["the new pears"]

    async def test_any_status_may_follow_any(self, store: MemoryStore) -> None:
        # The moves an item allows are the item's affair; a store writes what it is given.
        for status in (*MemoryStatus, *reversed(MemoryStatus)):
            item = await stored(store, person("hi", id="one", status=status))

            assert item.status is status
            assert contents(await store.search(status=status)) == ["hi"]

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
    async def test_add_many_counts_each_write_as_add_does(self, store: Any) -> None:
        old = person("old", id="two", metadata=of("ann"))
        await store.add(old)

        await store.add_many(
            [
                person("a", id="one", version=9),
                person("b", 5, id="one"),
                person("new", 5, id="two", version=9),
            ]
        )

        one, two = await store.get("one"), await store.get("two")
        assert (one.content, one.version, one.created_at) == ("b", 2, START)
        assert (two.content, two.version, two.created_at) == ("new", 2, START)
        assert two.metadata.user_id is None

    @needs(batch=True)
    async def test_add_many_takes_any_sequence_and_leaves_it_as_it_was(self, store: Any) -> None:
        items: tuple[MemoryItem, ...] = (person("a", id="one"), HumanMemory(content="b", version=4))
        before = [written(item) for item in items]

        await store.add_many(items)
        await store.add_many(items)

        assert [written(item) for item in items] == before
        assert len(await store.search()) == 2


def _metadata(**fields: Any) -> MemoryMetadata:
    return MemoryMetadata.model_construct(**fields)


def _good(kind: type[MemoryItem]) -> MemoryItem:
    own = {"mood": "calm"} if kind is KitNote else {}
    return kind.model_validate({"id": "one", "content": "hi", "metadata": of("ann"), **own})


def _behind_its_back(item: MemoryItem, fields: dict[str, Any]) -> list[MemoryItem]:
    """Return *item* with *fields* changed, by either way around pydantic's checks."""
    built = type(item).model_construct(**{**dict(item), **fields})
    return [item.model_copy(update=fields), built]


async def _refused(work: Coroutine[Any, Any, object]) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - each store words it its way
        await work
    assert isinstance(caught.value, MemoryError)


SPOILT: dict[str, tuple[type[MemoryItem], dict[str, Any]]] = {
    "U+0000 in content": (HumanMemory, {"content": "a\0b"}),
    "a lone surrogate in content": (HumanMemory, {"content": "\ud800"}),
    "content that is no text": (HumanMemory, {"content": 7}),
    "no content": (HumanMemory, {"content": None}),
    "too much content": (HumanMemory, {"content": "x" * (2**20 + 1)}),
    "an empty id": (HumanMemory, {"id": ""}),
    "an id that is no text": (HumanMemory, {"id": 7}),
    "an unknown status": (HumanMemory, {"status": "nope"}),
    "a time that is text": (HumanMemory, {"updated_at": "yesterday"}),
    "U+0000 in a scope id": (HumanMemory, {"metadata": _metadata(user_id="a\0")}),
    "a scope id that is no text": (HumanMemory, {"metadata": _metadata(user_id=7)}),
    "metadata that is a dict": (HumanMemory, {"metadata": {"user_id": "ann"}}),
    "NaN in extra": (HumanMemory, {"metadata": _metadata(extra={"k": float("nan")})}),
    "a huge integer in native": (HumanMemory, {"native": {"openai": 2**64}}),
    "calls that are no list": (AIMemory, {"tool_calls": "f()"}),
    "U+0000 in a call": (AIMemory, {"tool_calls": [{"id": "a\0"}]}),
    "U+0000 in a tool's name": (ToolMemory, {"tool_name": "a\0"}),
    "a lone surrogate in a call's id": (ToolMemory, {"tool_call_id": "\udfff"}),
    "U+0000 in a field of an own kind": (KitNote, {"mood": "a\0"}),
    "NaN in a field of an own kind": (KitNote, {"scores": [float("nan")]}),
    "U+0000 in a plain item": (MemoryItem, {"content": "a\0"}),
}


class RefusalContract(Contract):
    """Bad items and bad questions are told so, and leave no trace."""

    @pytest.mark.parametrize("spoilt", SPOILT)
    async def test_an_item_that_was_never_checked_is_refused(
        self, store: MemoryStore, spoilt: str
    ) -> None:
        kind, fields = SPOILT[spoilt]
        good = _good(kind)

        for bad in _behind_its_back(good, fields):
            await _refused(store.add(bad))
            assert await store.search(limit=1000) == []
            assert await store.get("one") is None

        await store.add(good)
        for bad in _behind_its_back(good, fields):
            await _refused(store.add(bad))
        assert written(await store.get("one")) == written(good)

    @needs(batch=True)
    async def test_a_batch_with_one_bad_item_is_refused_whole(self, store: Any) -> None:
        await store.add(person("old", id="one"))

        for spoilt, (kind, fields) in SPOILT.items():
            bad = _good(kind).model_copy(update={"id": "two", **fields})
            batch = [person("new", id="one"), person("good"), bad, person("better")]
            await _refused(store.add_many(batch))
            assert contents(await store.search()) == ["old"], spoilt

    async def test_a_naive_time_is_taken_as_utc(self, store: MemoryStore) -> None:
        naive = datetime(2025, 1, 1)  # noqa: DTZ001 - the case under test
        item = person("hi").model_copy(update={"created_at": naive})

        await store.add(item)

        kept = await store.get(item.id)
        assert kept is not None
        assert kept.created_at == naive.replace(tzinfo=UTC)

    async def test_an_item_spoilt_in_place_is_refused_and_the_old_one_kept(
        self, store: MemoryStore
    ) -> None:
        item = AIMemory(content="hi", metadata=MemoryMetadata(extra={"ok": 1}))
        await store.add(item)
        item.metadata.extra["bad"] = float("nan")

        with pytest.raises(ValueError, match="bad") as caught:
            await store.add(item)

        assert isinstance(caught.value, MemoryError)
        kept = await store.get(item.id)
        assert kept is not None
        assert kept.metadata.extra == {"ok": 1}
        assert kept.version == 1

    async def test_what_is_not_an_item_is_refused(self, store: MemoryStore) -> None:
        with pytest.raises(ValueError, match="not a memory item") as caught:
            await store.add("hi")  # type: ignore[arg-type]  # the mistake under test

        assert isinstance(caught.value, MemoryError)

    @pytest.mark.parametrize(
        ("named", "filters"),
        [
            ("limit", {"limit": -1}),
            ("limit", {"limit": -(2**70)}),
            ("limit", {"limit": True}),
            ("limit", {"limit": 1.5}),
            ("limit", {"limit": "3"}),
            ("limit", {"limit": None}),
            ("query", {"query": "a\0b"}),
            ("query", {"query": "\ud800"}),
            ("query", {"query": None}),
            ("query", {"query": b"hi"}),
            ("status", {"status": "nope"}),
            ("memory_type", {"memory_type": 7}),
            ("metadata", {"metadata": {"user_id": "ann"}}),
        ],
        ids=ascii,
    )
    async def test_a_question_that_means_nothing_is_refused(
        self, store: MemoryStore, named: str, filters: dict[str, Any]
    ) -> None:
        await store.add(person("hi"))

        with pytest.raises(ValueError, match=named) as caught:
            await store.search(**filters)

        assert isinstance(caught.value, MemoryError)
        assert contents(await store.search()) == ["hi"]

    @pytest.mark.parametrize("extra", [{}, {"user_id": "ann"}])
    async def test_clear_refuses_a_filter_that_names_nobody(
        self, store: MemoryStore, extra: dict[str, Any]
    ) -> None:
        await store.add(person("hi", metadata=of("ann")))

        with pytest.raises(ValueError, match="filter") as caught:
            await store.clear(metadata=MemoryMetadata(extra=extra))

        assert isinstance(caught.value, MemoryError)
        assert len(await store.search()) == 1

    async def test_a_filter_of_ignored_fields_alone_is_refused(self, store: MemoryStore) -> None:
        await store.add(person("hers", metadata=of("ann")))
        await store.add(person("his", metadata=of("bob")))
        ignored = [name for name in SCOPE_FIELDS if name not in self.capabilities.scope]

        for name in ignored:
            await _refused(store.search(metadata=of("x", name)))
            await _refused(store.clear(metadata=of("x", name)))
            both = MemoryMetadata(user_id="ann", **{name: "x"})
            assert contents(await store.search(metadata=both)) == ["hers"], name

        assert len(await store.search()) == 2
