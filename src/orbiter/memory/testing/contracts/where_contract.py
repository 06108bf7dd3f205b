"""What `where=` and `delete_many` mean in every store that has them."""

import random
from typing import Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    HOSTILE_IDS,
    Contract,
    add_all,
    contents,
    of,
    person,
)
from orbiter.memory.testing.contracts.filter_fixtures import (
    confusable_items,
    random_where,
    telling_filters,
)

__all__ = ["WhereContract"]

_MEANINGLESS: tuple[Any, ...] = (
    [], "n = 1", {1: 1}, {"n": {}}, {"n": {"$near": 1}}, {"$nor": [{"n": 1}]}, {"$or": []},
    {"n": {"$gt": None}}, {"n": {"$gt": 2**53}}, {"n": {"$in": "abc"}}, {"n": {"$exists": 1}},
    {"n": [1]}, {"n": float("nan")}, {"n": "a\0"}, {"created_at": "yesterday"},
)  # fmt: skip


class WhereContract(Contract):
    """A filter finds exactly what `Query.matches` accepts; ids delete what they name."""

    @needs(where=True)
    async def test_where_finds_exactly_what_it_states(self, store: Any) -> None:
        await add_all(store, confusable_items(1))
        items = await store.search(limit=1000)
        dice = random.Random(1)  # noqa: S311 - to be repeated, not to be secret

        for where in (*telling_filters(), *(random_where(dice) for _ in range(90))):
            found = await store.search(where=where, limit=1000)

            asked = Query(where=where)
            expected = [item.id for item in items if asked.matches(item)]
            assert sorted(item.id for item in found) == sorted(expected), where

    @needs(where=True)
    async def test_where_applies_before_the_limit(self, store: Any) -> None:
        await store.add(person("old", metadata=MemoryMetadata(user_id="u", extra={"n": 7})))
        newer = [person(f"{n}", 1 + n, metadata=of("u")) for n in range(300)]
        await add_all(store, [*newer])

        for where in ({"n": 7}, {"n": {"$gt": 6.5}}, {"content": "old"}):
            found = await store.search(where=where, limit=1, metadata=of("u"))

            assert contents(found) == ["old"], where

    @needs(where=True)
    async def test_where_joins_the_other_filters(self, store: Any) -> None:
        for content, user, n in (("a", "u", 1), ("b", "u", 2), ("c", "v", 2)):
            who = MemoryMetadata(user_id=user, extra={"n": n})
            await store.add(person(content, metadata=who))

        found = await store.search(where={"n": 2}, metadata=of("u"), memory_type="human")

        assert contents(found) == ["b"]
        assert await store.search(where={"n": 2}, memory_type="ai") == []
        assert len(await store.search(where={})) == 3

    @needs(where=True)
    async def test_a_where_that_means_nothing_is_refused(self, store: Any) -> None:
        for where in _MEANINGLESS:
            with pytest.raises(ValueError, match=r"\$|where|time|`n`") as caught:
                await store.search(where=where)

            assert isinstance(caught.value, MemoryError), where

    @needs(bulk_delete=True)
    async def test_delete_many_removes_what_it_names_and_nothing_else(self, store: Any) -> None:
        ids = [item_id for item_id in HOSTILE_IDS if item_id]
        await add_all(store, [person(item_id, id=item_id) for item_id in ids])
        gone = ids[::2]

        removed = await store.delete_many([*gone, *gone, "nobody", "", "a\0b"])

        assert removed == len(gone)
        assert sorted(contents(await store.search(limit=1000))) == sorted(ids[1::2])
        assert await store.get(gone[0]) is None
        assert await store.delete_many(gone) == 0
        assert await store.delete_many([]) == 0

    @needs(bulk_delete=True)
    async def test_delete_many_knows_no_limit(self, store: Any) -> None:
        items: list[MemoryItem] = [person("hi", id=f"i{number}") for number in range(450)]
        await add_all(store, [*items, person("left")])

        assert await store.delete_many([item.id for item in items]) == 450
        assert contents(await store.search()) == ["left"]

    @needs(bulk_delete=True)
    async def test_delete_many_takes_a_list_of_ids_only(self, store: Any) -> None:
        await store.add(person("hi", id="i"))

        for ids in ("i", 7, None, [7]):
            with pytest.raises(ValueError, match="item_id") as caught:
                await store.delete_many(ids)

            assert isinstance(caught.value, MemoryError), ids
        assert len(await store.search()) == 1

    @needs(bulk_delete=True, versions=True)
    async def test_what_delete_many_removed_can_be_restored(self, store: Any) -> None:
        await add_all(store, [person("hi", id=f"i{number}") for number in range(3)])

        await store.delete_many(["i0", "i1"], by="ann")
        await store.restore("i1")

        assert {item.id for item in await store.search()} == {"i1", "i2"}
        deleted = (await store.history("i0"))[-1]
        assert (deleted.change, deleted.by) == ("deleted", "ann")
