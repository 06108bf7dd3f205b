"""Order contracts: by creation time, and by insertion where `search` takes an order."""

import asyncio
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import Recipe, needs
from orbiter.memory.testing.contracts.base_contract import (
    START,
    Contract,
    add_all,
    contents,
    of,
    person,
)

__all__ = ["TALK", "TIMES", "InsertionContract", "OrderContract"]


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

        texts = contents(await store.search())

        assert texts == self._ordered("first", "second", "third", "fourth", "fifth")

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

        texts = contents(await store.search())

        assert texts == self._ordered(*(str(number) for number in range(2, 12)))

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


TALK = MemoryMetadata(user_id="ann", session_id="s")
TIMES = (30, 10, 20, 0, 40, 10, 25)


def _said(number: int, seconds: float, metadata: MemoryMetadata = TALK) -> MemoryItem:
    return person(f"n{number}", seconds, id=f"i{number}-{metadata.task_id}", metadata=metadata)


async def _fill(store: Any, metadata: MemoryMetadata = TALK) -> list[str]:
    """Store a conversation whose clocks disagree; return its contents, the last added first."""
    other = MemoryMetadata(user_id="bob", session_id="s", task_id="t")
    for number, seconds in enumerate(TIMES):
        await store.add(_said(number, seconds, metadata))
        await store.add(person(f"his {number}", seconds, metadata=other))
    return [f"n{number}" for number in reversed(range(len(TIMES)))]


class InsertionContract(Contract):
    """The order of a conversation is that of its commits, whatever clocks say."""

    if TYPE_CHECKING:  # `StoreConformance` has it

        def recipe(self, store: MemoryStore) -> Recipe: ...

    @needs(insertion_order=True)
    @pytest.mark.parametrize(
        "who",
        [
            {"user_id": "ann", "session_id": "s"},
            {"session_id": "s", "agent_id": "a"},
            {"user_id": "ann", "task_id": "t"},
            {"user_id": "ann", "session_id": "s", "task_id": "t"},
            {"task_id": "t"},
        ],
        ids="+".join,
    )
    async def test_a_conversation_is_read_as_it_was_added(
        self, store: Any, who: dict[str, str]
    ) -> None:
        scope = MemoryMetadata.model_validate(who)
        expected = await _fill(store, scope)
        names = ("user_id", "session_id", "task_id", "agent_id")
        no_other = {name: None for name in names if name not in who}

        for where in (no_other, {"user_id": who.get("user_id")}):
            filters = {"metadata": scope, "where": where, "order": "insertion"}
            items = await store.search(**filters, limit=100)
            assert contents(items) == expected
            assert [item.created_at for item in reversed(items)] == [
                START + timedelta(seconds=seconds) for seconds in TIMES
            ]
            assert contents(await store.search(**filters, limit=3)) == expected[:3]
        since, until = START + timedelta(seconds=10), START + timedelta(seconds=30)
        bounded = await store.search(**filters, since=since, until=until)
        assert contents(bounded) == ["n6", "n5", "n2", "n1"]
        assert contents(await store.search(**filters, query="N5")) == ["n5"]

    @needs(insertion_order=True)
    @pytest.mark.parametrize("size", [1, 2, 3, 50])
    async def test_pages_of_a_conversation_are_the_whole_as_it_was_added(
        self, store: Any, size: int
    ) -> None:
        expected = await _fill(store)
        filters = {"metadata": TALK, "order": "insertion", "limit": size}

        back: list[MemoryItem] = []
        while page := await store.search(**filters, before=back[-1] if back else None):
            back += page
            assert len(back) <= len(expected), "the pages have no end"
        on: list[MemoryItem] = back[-1:]
        while page := await store.search(**filters, after=on[0].id):
            on = [*page, *on]
            assert len(on) <= len(expected), "the pages have no end"

        assert contents(back) == expected
        assert contents(on) == expected

    @needs(insertion_order=True)
    async def test_a_message_that_changes_stays_where_it_was_said(self, store: Any) -> None:
        expected = await _fill(store)

        for number in (3, 0, 6):
            await store.add(_said(number, 99))
        moved = MemoryMetadata(user_id="ann", session_id="other")
        await store.add(person("n4", id="i4-None", metadata=moved))
        await store.add(person("n4", id="i4-None", metadata=TALK))

        items = await store.search(metadata=TALK, order="insertion", limit=100)
        assert contents(items) == expected
        assert await store.search(metadata=moved, order="insertion") == []

    @needs(insertion_order=True, versions=True)
    async def test_a_message_that_is_restored_is_where_it_was_said(self, store: Any) -> None:
        expected = await _fill(store)
        for number in (2, 5):
            await store.delete(f"i{number}-None")
        left = await store.search(metadata=TALK, order="insertion", limit=100)
        for number in (5, 2):
            await store.restore(f"i{number}-None")

        items = await store.search(metadata=TALK, order="insertion", limit=100)

        assert contents(left) == [each for each in expected if each not in ("n2", "n5")]
        assert contents(items) == expected

    @needs(insertion_order=True, bulk_delete=True)
    async def test_what_is_removed_leaves_the_order_as_it_was(self, store: Any) -> None:
        expected = await _fill(store)
        await store.delete_many(["i0-None", "i6-None"])
        await store.clear(metadata=of("bob"))

        await store.add(_said(7, 5))

        items = await store.search(metadata=TALK, order="insertion", limit=100)
        assert contents(items) == ["n7", *expected[1:-1]]

    @needs(insertion_order=True)
    async def test_an_order_is_asked_for_by_name_and_of_a_conversation(self, store: Any) -> None:
        await _fill(store)

        for metadata in (None, of("ann"), of("a", "agent_id")):
            with pytest.raises(ValueError, match="session_id") as caught:
                await store.search(order="insertion", metadata=metadata)
            assert isinstance(caught.value, MemoryError)
        for order in ("", "newest", 1, None):
            with pytest.raises(ValueError, match="order"):
                await store.search(order=order, metadata=TALK)
        by_time = await store.search(order="time", metadata=TALK)
        assert by_time == await store.search(metadata=TALK)

    @needs(insertion_order=True, shared=True, insert=True)
    async def test_what_is_read_of_a_conversation_only_grows_at_its_end(self, store: Any) -> None:
        other: Any = self.recipe(store).make()
        await other.init()
        is_done = asyncio.Event()

        async def write(writer: int) -> None:
            used = (store, other)[writer % 2]
            for number in range(12):
                name = f"{writer}-{number}"
                # The later, the older, as they say.
                items = [person(f"{name}-{n}", -number, metadata=TALK) for n in range(3)]
                if number % 3 == 0:
                    await used.add(items[0])
                elif number % 3 == 1:
                    await used.add_many(items)
                else:
                    await used.insert(items)

        async def read(used: Any) -> list[list[str]]:
            seen: list[list[str]] = []
            while not is_done.is_set():
                seen.append(await _oldest_first(used))
            return [*seen, await _oldest_first(used)]

        try:
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(read(used)) for used in (store, other)]
                async with asyncio.TaskGroup() as writers:
                    for writer in range(4):
                        writers.create_task(write(writer))
                is_done.set()
        finally:
            await other.close()

        whole = readers[0].result()[-1]
        assert len(whole) == len(set(whole)) == 4 * (4 + 12 + 12)
        for reader in readers:
            for seen in reader.result():
                assert seen == whole[: len(seen)]
        for start in (f"{writer}-" for writer in range(4)):
            own = [each for each in whole if each.startswith(start)]
            assert own == sorted(own, key=_spoken)


def _spoken(text: str) -> list[int]:
    return [int(part) for part in text.split("-")]


async def _oldest_first(store: Any) -> list[str]:
    items = await store.search(metadata=TALK, order="insertion", limit=1000)
    return contents(items)[::-1]
