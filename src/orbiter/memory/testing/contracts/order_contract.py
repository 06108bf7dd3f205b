"""In which order `search` answers, and which items a limit keeps."""

from datetime import timedelta, timezone

import pytest

from orbiter.memory.model.items import HumanMemory, MemoryItem
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import needs
from orbiter.memory.testing.contracts.base_contract import (
    START,
    Contract,
    add_all,
    contents,
    of,
    person,
)

__all__ = ["OrderContract"]


class OrderContract(Contract):
    """By the instant of creation, then by insertion; a limit keeps the newest.

    A conversation is in the order of insertion alone.
    """

    @needs(conversation=False)
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

    async def test_neither_ids_nor_changes_play_a_part_in_the_order(
        self, store: MemoryStore
    ) -> None:
        later = START + timedelta(days=1)
        await store.add(person("1", 1, id="z", updated_at=later + timedelta(hours=2)))
        await store.add(person("2", 2, id="y", updated_at=later + timedelta(hours=1)))
        await store.add(person("3", 2, id="x", updated_at=later))

        assert contents(await store.search()) == self._ordered("1", "2", "3")
        assert contents(await store.search(limit=1)) == ["3"]

    @pytest.mark.parametrize("seconds", [(0, 0, 0), (1, 2, 3)], ids=["ties", "apart"])
    async def test_an_updated_item_stays_where_it_is(
        self, store: MemoryStore, seconds: tuple[int, ...]
    ) -> None:
        for number, second in enumerate(seconds):
            await store.add(person(str(number), second, id=f"i{number}"))

        for number in (1, 0, 2):
            moved = person(f"{number}!", 60, id=f"i{number}", metadata=of("ann"))
            await store.add(moved)

        assert contents(await store.search()) == self._ordered("0!", "1!", "2!")
        assert contents(await store.search(metadata=of("ann"))) == self._ordered("0!", "1!", "2!")

    async def test_a_cleared_item_that_comes_back_is_the_last_of_its_instant(
        self, store: MemoryStore
    ) -> None:
        hers = person("hers", metadata=of("ann"))
        await store.add(hers)
        await store.add(person("his", metadata=of("bob")))
        await store.clear(metadata=of("ann"))

        await store.add(hers)

        assert contents(await store.search()) == self._ordered("his", "hers")

    @needs(conversation=False)
    async def test_a_limit_keeps_the_newest(self, store: MemoryStore) -> None:
        for seconds in (3, 1, 2, 4):
            await store.add(person(str(seconds), seconds))

        assert contents(await store.search(limit=2)) == self._ordered("3", "4")

    @needs(conversation=True)
    async def test_a_limit_keeps_what_was_added_last(self, store: MemoryStore) -> None:
        for seconds in (4, 1, 3, 2):
            await store.add(person(str(seconds), seconds))

        assert contents(await store.search(limit=2)) == self._ordered("3", "2")

    async def test_a_limit_of_nothing_gives_nothing(self, store: MemoryStore) -> None:
        await store.add(person("hi"))

        assert await store.search(limit=0) == []

    async def test_ten_items_are_returned_unless_asked_otherwise(self, store: MemoryStore) -> None:
        for number in range(12):
            await store.add(person(str(number), number))

        found = contents(await store.search())

        assert found == self._ordered(*(str(number) for number in range(2, 12)))

    @pytest.mark.parametrize("limit", [2**31, 2**40, 2**62, 2**63, 2**70])
    async def test_a_huge_limit_is_allowed(self, store: MemoryStore, limit: int) -> None:
        await store.add(person("hi"))

        assert contents(await store.search(limit=limit)) == ["hi"]

    async def test_nothing_but_the_limit_limits(self, store: MemoryStore) -> None:
        # More than the thousand at which many a page, scan or bound parameter list ends.
        items: list[MemoryItem] = [
            person(f"n{number}", number, metadata=of("ann")) for number in range(1050)
        ]
        await add_all(store, items)

        everything = self._ordered(*contents(items))
        assert contents(await store.search(limit=5000)) == everything
        assert contents(await store.search(limit=5000, metadata=of("ann"))) == everything
        assert len(await store.search(limit=1030, metadata=of("ann"))) == 1030
        assert await store.clear(metadata=of("ann")) == 1050
