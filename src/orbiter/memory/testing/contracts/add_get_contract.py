"""What `add` and `get` mean in every store: an upsert by id, and the versions it counts."""

import inspect
from datetime import timedelta
from typing import Any

import pytest

from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
)
from orbiter.memory.model.protocols import (
    BatchStore,
    BulkDeleteStore,
    InsertStore,
    Lifecycle,
    MemoryStore,
    VersionedStore,
)
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    HOSTILE_IDS,
    START,
    Contract,
    add_all,
    contents,
    of,
    person,
    stored,
    written,
)

__all__ = ["IMPOSSIBLE_IDS", "CoreContract"]

IMPOSSIBLE_IDS = ("", "a\0b", "\ud800", "x" * 5000)
"""No item has one of these: they are refused when an item is made."""


class CoreContract(Contract):
    """Writing, writing again, and reading by id."""

    async def test_the_store_has_what_it_declares_and_no_more(self, store: MemoryStore) -> None:
        assert isinstance(store, MemoryStore)
        opens = isinstance(store, Lifecycle)
        assert opens == self.capabilities.lifecycle, f"declare lifecycle={opens}"
        takes_many = isinstance(store, BatchStore)
        assert takes_many == self.capabilities.batch, f"declare batch={takes_many}"
        has_past = isinstance(store, VersionedStore)
        assert has_past == self.capabilities.versions, f"declare versions={has_past}"
        takes_cursors = "before" in inspect.signature(store.search).parameters
        assert takes_cursors == self.capabilities.paging, f"declare paging={takes_cursors}"
        takes_where = "where" in inspect.signature(store.search).parameters
        assert takes_where == self.capabilities.where, f"declare where={takes_where}"
        deletes_many = isinstance(store, BulkDeleteStore)
        declared = self.capabilities.bulk_delete
        assert deletes_many == declared, f"declare bulk_delete={deletes_many}"
        takes_order = "order" in inspect.signature(store.search).parameters
        declared = self.capabilities.insertion_order
        assert takes_order == declared, f"declare insertion_order={takes_order}"
        inserts = isinstance(store, InsertStore)
        assert inserts == self.capabilities.insert, f"declare insert={inserts}"

    @pytest.mark.parametrize("item_id", ["nobody", *IMPOSSIBLE_IDS], ids=ascii)
    async def test_an_absent_item_is_none(self, store: MemoryStore, item_id: str) -> None:
        await store.add(person("hi"))

        assert await store.get(item_id) is None

    async def test_get_takes_an_id_to_the_letter(self, store: MemoryStore) -> None:
        ids = [item_id for item_id in HOSTILE_IDS if item_id]
        await add_all(store, [person(f"of {item_id}", id=item_id) for item_id in ids])

        for item_id in ids:
            found = await store.get(item_id)
            assert found is not None, item_id
            assert (found.id, found.content) == (item_id, f"of {item_id}")
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
        found = await stored(store, second)

        kept = {"created_at": START, "version": 2}
        assert written(found) == written(second.model_copy(update=kept))
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
            found = await stored(store, person("hi", id="one", status=status))

            assert found.status is status
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
