"""Time to live: at its `expires_at` an item is gone, from every read and for good."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
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

__all__ = ["LATER", "OVER", "ExpiryContract"]

LATER = datetime(2999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
OVER = datetime(2025, 6, 1, tzinfo=UTC)
"""An end that has come: an item may be added with it, and is gone at once."""


def _talk() -> list[MemoryItem]:
    """Return what two users said: all that is odd is over."""
    return [
        person(
            f"apple {number}",
            number,
            id=f"n{number}",
            metadata=MemoryMetadata(user_id="bob" if number > 7 else "ann", session_id="s"),
            expires_at=OVER if number % 2 else None if number % 4 else LATER,
        )
        for number in range(10)
    ]


async def _until(end: datetime) -> None:
    await asyncio.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds() + 0.005))


class ExpiryContract(Contract):
    """`expires_at`."""

    @needs(expiry=True)
    async def test_an_end_comes_back_as_it_was(self, store: MemoryStore) -> None:
        for item in (
            person("hi", expires_at=LATER, native={"openai": {"a": 1}}),
            KitNote(content="hi", mood="calm", expires_at=LATER, created_at=START),
            MemoryItem(content="hi", memory_type="odd", expires_at=LATER, created_at=START),
        ):
            assert written(await stored(store, item)) == written(item)

    @needs(expiry=True)
    async def test_what_is_over_is_found_by_no_read(self, store: MemoryStore) -> None:
        await add_all(store, _talk())

        assert [await store.get(f"n{n}") is None for n in range(10)] == [False, True] * 5
        items = await store.search(metadata=of("ann"))
        assert contents(items) == self._ordered(*(f"apple {n}" for n in (0, 2, 4, 6)))

    @needs(expiry=True)
    async def test_what_is_over_takes_no_room(self, store: MemoryStore) -> None:
        await add_all(store, _talk())

        items = await store.search(metadata=of("ann"), limit=3)

        assert contents(items) == self._ordered("apple 2", "apple 4", "apple 6")

    @needs(expiry=True, text="substring")
    async def test_what_is_over_is_found_by_no_text(self, store: MemoryStore) -> None:
        await add_all(store, _talk())

        assert await store.search(query="apple 7") == []
        items = await store.search(query="APPLE", limit=2)
        assert contents(items) == self._ordered("apple 6", "apple 8")

    @needs(expiry=True)
    async def test_what_is_over_is_not_cleared_once_more(self, store: MemoryStore) -> None:
        await add_all(store, _talk())

        assert await store.clear(metadata=of("ann")) == 4
        assert await store.clear() == 1

    @needs(expiry=True)
    async def test_an_item_is_over_when_its_time_comes(self, store: MemoryStore) -> None:
        end = datetime.now(UTC) + timedelta(seconds=0.1)
        await store.add(person("soon", id="soon", expires_at=end))
        await store.add(person("later", id="later", expires_at=LATER))

        await _until(end)

        assert await store.get("soon") is None
        assert contents(await store.search()) == ["later"]

    @needs(expiry=True)
    async def test_an_end_may_be_moved_and_taken_away(self, store: MemoryStore) -> None:
        item = person("hi", id="one", expires_at=LATER)
        first = await stored(store, item)
        moved = await stored(
            store, first.model_copy(update={"expires_at": LATER - timedelta(days=1)})
        )
        kept = await stored(store, moved.model_copy(update={"expires_at": None}))

        assert moved.expires_at == LATER - timedelta(days=1)
        assert (kept.expires_at, kept.version) == (None, 3)
        await store.add(kept.model_copy(update={"expires_at": OVER}))
        assert await store.get("one") is None
        assert await store.search() == []

    @needs(expiry=True)
    async def test_whoever_adds_an_id_that_is_over_adds_a_new_item(
        self, store: MemoryStore
    ) -> None:
        await store.add(person("old", id="one", metadata=of("ann"), expires_at=LATER))
        await store.add(person("older", id="one", metadata=of("ann"), expires_at=OVER))

        item = await stored(store, person("new", 60, id="one", metadata=of("bob")))

        assert (item.version, item.created_at) == (1, START + timedelta(seconds=60))
        assert contents(await store.search(metadata=of("bob"))) == ["new"]
        assert await store.search(metadata=of("ann")) == []
        assert (await stored(store, item)).version == 2

    @needs(expiry=True, batch=True)
    async def test_a_batch_ends_items_as_add_does(self, store: Any) -> None:
        await store.add(person("old", id="two"))

        await store.add_many(
            [
                person("over", id="one", expires_at=OVER),
                person("new", 5, id="one", expires_at=LATER),
                person("gone", id="two", expires_at=OVER),
                person("never", id="three"),
            ]
        )

        item = await store.get("one")
        assert (item.content, item.version, item.created_at) == (
            *("new", 1),
            START + timedelta(seconds=5),
        )
        assert sorted(contents(await store.search())) == ["never", "new"]

    @needs(expiry=True, paging=True)
    async def test_pages_are_filled_as_if_what_is_over_were_not_there(self, store: Any) -> None:
        await store.add_many(_talk())

        first = await store.search(limit=2)
        second = await store.search(limit=2, before=first[-1])

        assert [contents(page) for page in (first, second)] == [
            ["apple 8", "apple 6"],
            ["apple 4", "apple 2"],
        ]
        with pytest.raises(QueryError, match="`n5`"):
            await store.search(before="n5")

    @needs(expiry=True, versions=True)
    async def test_what_is_over_has_no_past_and_cannot_be_restored(self, store: Any) -> None:
        await store.add(person("first", id="n1", metadata=of("ann")))
        await store.add_many(_talk())
        await store.add(person("forgotten", id="two", expires_at=LATER))
        await store.add(person("forgotten", id="two", expires_at=OVER))
        for patience in (0.05, 0.5, 5):  # on a busy computer it is over before it is forgotten
            end = datetime.now(UTC) + timedelta(seconds=patience)
            await store.add(person("doomed", id="doomed", expires_at=end))
            if await store.delete("doomed"):
                break
        await _until(end)
        living, over = "n2", "n1"

        assert not await store.restore("doomed")
        assert await store.history(over) == []
        assert not await store.delete(over)
        assert not await store.restore(over)
        assert await store.delete(living)
        assert contents(await store.search(deleted=True)) == ["apple 2"]
        assert (await store.count(), await store.count(include_deleted=True)) == (4, 5)
        (ann,) = await store.conversations(metadata=of("ann"))
        assert (ann.items, ann.first_at) == (3, START)
        # Wherever a store keeps what is over for a while: an item that is not there is version 0.
        await store.add(
            HumanMemory(id=over, content="new"), expected_version=0, within=of("someone else")
        )
        assert [(each.item.version, each.change) for each in await store.history(over)] == [
            (1, "added")
        ]
