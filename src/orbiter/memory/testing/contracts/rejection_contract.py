"""What every store refuses, so that what one store accepts, all accept; and nothing is stored."""

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata, ToolMemory
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    Contract,
    KitNote,
    contents,
    of,
    person,
    written,
)

__all__ = ["SPOILT", "RefusalContract"]


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

        found = await store.get(item.id)
        assert found is not None
        assert found.created_at == naive.replace(tzinfo=UTC)

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

    @pytest.mark.parametrize(
        ("named", "asked"),
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
        self, store: MemoryStore, named: str, asked: dict[str, Any]
    ) -> None:
        await store.add(person("hi"))

        with pytest.raises(ValueError, match=named) as caught:
            await store.search(**asked)

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
