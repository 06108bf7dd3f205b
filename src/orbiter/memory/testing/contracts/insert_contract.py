"""Items that are stored only if they are new: in one step, and never in place of another."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import Recipe, needs
from orbiter.memory.testing.contracts.add_get_contract import IMPOSSIBLE_IDS
from orbiter.memory.testing.contracts.base_contract import Contract, contents, of, person

__all__ = ["RACES", "InsertContract"]

RACES = 10


def _batch(name: str, ids: Sequence[str]) -> list[MemoryItem]:
    return [person(f"{name} {item_id}", id=item_id, metadata=of(name)) for item_id in ids]


class InsertContract(Contract):
    """An id that was used once is used, also after its item was deleted."""

    if TYPE_CHECKING:

        def recipe(self, store: MemoryStore) -> Recipe: ...

    @needs(insert=True)
    async def test_insert_stores_what_is_new_in_order(self, store: Any) -> None:
        assert await store.insert([person("1", 1, version=7), person("2", 1), person("3", 1)])
        assert await store.insert([])

        items = await store.search()
        assert contents(items) == self._ordered("1", "2", "3")
        assert {item.version for item in items} == {1}

    @needs(insert=True)
    async def test_insert_stores_nothing_where_one_id_is_used(self, store: Any) -> None:
        await store.add(person("old", id="b"))

        assert not await store.insert(_batch("new", ["a", "b", "c"]))

        assert contents(await store.search()) == ["old"]
        assert (await store.get("b")).version == 1
        assert await store.used_ids(["a", "b", "c", *IMPOSSIBLE_IDS]) == {"b"}
        assert await store.used_ids([]) == set()
        assert await store.insert(_batch("new", ["a", "c"]))

    @needs(insert=True)
    async def test_of_inserts_that_race_one_stores_everything(self, store: Any) -> None:
        for race in range(RACES):
            ids = [f"{race}-{number}" for number in range(3)]
            # In another order each time: nobody waits for somebody who waits for them.
            orders = [ids, ids[::-1], ids[1:] + ids[:1], ids[:1]]
            results = await asyncio.gather(
                *(store.insert(_batch(str(n), order)) for n, order in enumerate(orders))
            )

            assert results.count(True) == 1
            winner = results.index(True)
            items = await store.search(metadata=of(str(winner)), limit=100)
            assert {item.id for item in items} >= set(orders[winner])
            there = [await store.get(item_id) for item_id in ids]
            assert {each.metadata.user_id for each in there if each} == {str(winner)}
            assert {each.version for each in there if each} == {1}

    @needs(insert=True)
    async def test_an_insert_that_races_with_an_add_never_replaces(self, store: Any) -> None:
        for race in range(RACES):
            ids = [f"{race}-{number}" for number in range(3)]
            added = person("added", id=ids[1], metadata=of("add"))
            is_stored, _ = await asyncio.gather(
                store.insert(_batch("insert", ids)), store.add(added)
            )

            item = await store.get(ids[1])
            assert (item.content, item.version) == ("added", 2 if is_stored else 1)
            others = [await store.get(item_id) is not None for item_id in (ids[0], ids[2])]
            assert others == [is_stored, is_stored]

    @needs(insert=True, bulk_delete=True)
    async def test_insert_brings_nothing_back_that_was_deleted(self, store: Any) -> None:
        await store.insert(_batch("ann", ["a", "b"]))
        await store.delete_many(["a"])

        assert await store.used_ids(["a", "b"]) == {"a", "b"}
        assert not await store.insert(_batch("bob", ["a"]))
        assert not await store.insert(_batch("bob", ["c", "a"]))

        assert await store.get("a") is None
        assert await store.get("c") is None
        assert contents(await store.search()) == ["ann b"]

    @needs(insert=True)
    async def test_insert_brings_nothing_back_that_was_cleared(self, store: Any) -> None:
        await store.insert(_batch("ann", ["a"]))
        await store.insert(_batch("bob", ["b"]))
        await store.clear(metadata=of("ann"))

        assert not await store.insert(_batch("ann", ["a"]))

        assert contents(await store.search()) == ["bob b"]

    @needs(insert=True, bulk_delete=True)
    async def test_adding_a_deleted_item_again_is_still_possible(self, store: Any) -> None:
        await store.insert(_batch("ann", ["a"]))
        await store.delete_many(["a"])

        await store.add(person("again", id="a"))

        assert contents(await store.search()) == ["again"]
        assert not await store.insert(_batch("ann", ["a"]))

    @needs(insert=True, versions=True)
    async def test_what_is_purged_leaves_its_id_unused(self, store: Any) -> None:
        await store.insert(_batch("ann", ["a"]))
        await store.delete("a")
        await store.purge()

        assert await store.used_ids(["a"]) == set()
        assert await store.insert(_batch("bob", ["a"]))

        assert contents(await store.search()) == ["bob a"]
        assert len(await store.history("a")) == 1

    @needs(insert=True, expiry=True)
    async def test_what_is_over_leaves_its_id_unused(self, store: Any) -> None:
        end = datetime.now(UTC) + timedelta(milliseconds=50)
        await store.insert([person("brief", id="a", expires_at=end)])
        while await store.get("a") is not None:  # noqa: ASYNC110 - a store tells nobody
            await asyncio.sleep(0.01)

        assert await store.used_ids(["a"]) == set()
        assert await store.insert(_batch("bob", ["a"]))

        assert contents(await store.search()) == ["bob a"]
        assert (await store.get("a")).version == 1

    @needs(insert=True)
    async def test_insert_refuses_what_cannot_be_stored_and_stores_nothing(
        self, store: Any
    ) -> None:
        spoilt = person("spoilt", metadata=MemoryMetadata(extra={"k": []}))
        spoilt.metadata.extra["k"].append(object())

        with pytest.raises(ValueError, match="object"):
            await store.insert([person("good"), spoilt])
        with pytest.raises(ValueError, match="twice") as caught:
            await store.insert([person("one", id="a"), person("two", id="a")])

        assert isinstance(caught.value, MemoryError)
        assert await store.search() == []

    @needs(insert=True, shared=True, lifecycle=True)
    async def test_an_insert_of_one_store_is_seen_by_another(self, store: Any) -> None:
        other: Any = self.recipe(store).make()
        await other.init()
        try:
            for race in range(RACES):
                ids = [f"{race}-{number}" for number in range(2)]
                results = await asyncio.gather(
                    store.insert(_batch("here", ids)), other.insert(_batch("there", ids))
                )

                assert sorted(results) == [False, True]
                name = "here" if results[0] else "there"
                for each in (store, other):
                    items = [await each.get(item_id) for item_id in ids]
                    assert [item.metadata.user_id for item in items] == [name, name]
        finally:
            await other.close()
