"""For stores that erase by themselves: what is named is gone for good, and nothing else."""

from typing import Any

import pytest

from orbiter.memory.errors import EmptyFilterError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.add_get_contract import IMPOSSIBLE_IDS
from orbiter.memory.testing.contracts.base_contract import (
    HOSTILE_IDS,
    Contract,
    add_all,
    contents,
    of,
    person,
)

__all__ = ["EraseContract"]

ANN = of("ann")
_MANY = 1_200
"""Items of one call: more than are removed in one step."""


class EraseContract(Contract):
    """Nobody finds what was erased, by whatever way; everybody else finds theirs."""

    @needs(erase=True)
    async def test_erase_removes_a_scope_and_nothing_else(self, store: Any) -> None:
        session = MemoryMetadata(user_id="ann", session_id="s")
        mine = [person("one", 1, metadata=ANN), person("two", 2, metadata=session)]
        others = [
            person(f"{number}", 3, metadata=of(name)) for number, name in enumerate(HOSTILE_IDS)
        ]
        await add_all(store, [*mine, *others])

        done = await store.erase(metadata=ANN)

        assert (bool(done), done.items) == (True, 2)
        assert await store.count() == len(others)
        assert [await store.get(item.id) for item in mine] == [None, None]

    @needs(erase=True)
    async def test_erase_of_nobody_is_refused(self, store: Any) -> None:
        await store.add(person("kept", metadata=ANN))

        for metadata in (None, MemoryMetadata()):
            with pytest.raises(EmptyFilterError):
                await store.erase(metadata=metadata)

        assert await store.count() == 1

    @needs(erase=True)
    async def test_erase_of_ids_removes_these_items_and_no_others(self, store: Any) -> None:
        said = [person(f"saffron {name}", metadata=ANN) for name in ("tea", "bread", "soup")]
        await add_all(store, [*said])
        tea, bread, soup = said

        done = await store.erase(metadata=ANN, item_ids=[tea.id, soup.id, tea.id, *IMPOSSIBLE_IDS])

        assert (bool(done), done.items) == (True, 2)
        assert contents(await store.search(query="saffron")) == ["saffron bread"]
        assert await store.get(tea.id) is None
        assert (await store.get(bread.id)).version == 1
        assert (await store.erase(metadata=ANN, item_ids=[])).items == 0
        assert await store.count() == 1

    @needs(erase=True)
    async def test_erase_of_ids_leaves_those_of_anybody_else(self, store: Any) -> None:
        session = MemoryMetadata(user_id="ann", session_id="s")
        theirs = [person(name, metadata=of(name)) for name in HOSTILE_IDS]
        mine = person("mine", metadata=session)
        await add_all(store, [*theirs, mine])
        ids = [mine.id, *(item.id for item in theirs)]

        done = await store.erase(
            metadata=MemoryMetadata(user_id="ann", session_id="t"), item_ids=ids
        )
        assert (bool(done), done.items) == (True, 0)
        done = await store.erase(metadata=session, item_ids=ids)

        assert (bool(done), done.items) == (True, 1)
        assert await store.count() == len(theirs)

    @needs(erase=True)
    async def test_erase_of_ids_without_a_scope_takes_anybodys(self, store: Any) -> None:
        items = [person(name, metadata=of(name)) for name in ("ann", "bob", "eve")]
        await add_all(store, [*items])

        done = await store.erase(item_ids=[items[0].id, items[1].id])

        assert (bool(done), done.items) == (True, 2)
        assert contents(await store.search()) == ["eve"]

    @needs(erase=True)
    async def test_erase_takes_many_ids_at_once(self, store: Any) -> None:
        items = [person(f"{number}", number, metadata=ANN) for number in range(_MANY)]
        await store.add_many(items[: _MANY // 2])
        await store.add_many(items[_MANY // 2 :])

        done = await store.erase(metadata=ANN, item_ids=[item.id for item in items[:-1]])

        assert (bool(done), done.items) == (True, _MANY - 1)
        assert contents(await store.search()) == [items[-1].content]

    @needs(erase=True)
    async def test_an_erased_id_begins_anew(self, store: Any) -> None:
        await store.add(person("first", id="a", metadata=ANN))
        await store.add(person("second", id="a", metadata=ANN))
        await store.erase(metadata=ANN, item_ids=["a"])

        await store.add(person("third", id="a", metadata=of("bob")))

        item = await store.get("a")
        assert (item.content, item.version) == ("third", 1)

    @needs(erase=True, insert=True)
    async def test_an_erased_id_is_not_used_any_more(self, store: Any) -> None:
        assert await store.insert([person("first", id="a", metadata=ANN)])
        await store.delete_many(["a"])
        assert await store.used_ids(["a"]) == {"a"}

        await store.erase(metadata=of("bob"), item_ids=["a"])
        assert await store.used_ids(["a"]) == {"a"}
        await store.erase(metadata=ANN, item_ids=["a"])

        assert await store.used_ids(["a"]) == set()
        assert await store.insert([person("second", id="a", metadata=ANN)])

    @needs(erase=True, versions=True)
    async def test_erase_of_ids_takes_every_version_and_what_was_deleted(self, store: Any) -> None:
        for text in ("cardamom", "cinnamon"):
            await store.add(person(text, id="a", metadata=ANN))
            await store.add(person(text, id="b", metadata=ANN))
            await store.add(person(text, id="c", metadata=ANN))
        await store.delete("b")

        done = await store.erase(metadata=ANN, item_ids=["a", "b"])

        assert (bool(done), done.items, done.forgotten) == (True, 1, 1)
        assert done.versions == 3
        for item_id in ("a", "b"):
            assert await store.history(item_id) == []
            assert not await store.restore(item_id)
        assert len(await store.history("c")) == 2
        assert await store.search(deleted=True) == []
