"""For stores whose `search` takes an order: a conversation is read as it was added."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import Recipe, needs
from orbiter.memory.testing.contracts.base_contract import START, Contract, contents, of, person

__all__ = ["TALK", "TIMES", "InsertionContract"]

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
            asked = {"metadata": scope, "where": where, "order": "insertion"}
            found = await store.search(**asked, limit=100)
            assert contents(found) == expected
            assert [item.created_at for item in reversed(found)] == [
                START + timedelta(seconds=seconds) for seconds in TIMES
            ]
            assert contents(await store.search(**asked, limit=3)) == expected[:3]
        since, until = START + timedelta(seconds=10), START + timedelta(seconds=30)
        bounded = await store.search(**asked, since=since, until=until)
        assert contents(bounded) == ["n6", "n5", "n2", "n1"]
        assert contents(await store.search(**asked, query="N5")) == ["n5"]

    @needs(insertion_order=True)
    @pytest.mark.parametrize("size", [1, 2, 3, 50])
    async def test_pages_of_a_conversation_are_the_whole_as_it_was_added(
        self, store: Any, size: int
    ) -> None:
        expected = await _fill(store)
        asked = {"metadata": TALK, "order": "insertion", "limit": size}

        back: list[MemoryItem] = []
        while page := await store.search(**asked, before=back[-1] if back else None):
            back += page
            assert len(back) <= len(expected), "the pages have no end"
        on: list[MemoryItem] = back[-1:]
        while page := await store.search(**asked, after=on[0].id):
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

        found = await store.search(metadata=TALK, order="insertion", limit=100)
        assert contents(found) == expected
        assert await store.search(metadata=moved, order="insertion") == []

    @needs(insertion_order=True, versions=True)
    async def test_a_message_that_is_restored_is_where_it_was_said(self, store: Any) -> None:
        expected = await _fill(store)
        for number in (2, 5):
            await store.delete(f"i{number}-None")
        left = await store.search(metadata=TALK, order="insertion", limit=100)
        for number in (5, 2):
            await store.restore(f"i{number}-None")

        found = await store.search(metadata=TALK, order="insertion", limit=100)

        assert contents(left) == [each for each in expected if each not in ("n2", "n5")]
        assert contents(found) == expected

    @needs(insertion_order=True, bulk_delete=True)
    async def test_what_is_removed_leaves_the_order_as_it_was(self, store: Any) -> None:
        expected = await _fill(store)
        await store.delete_many(["i0-None", "i6-None"])
        await store.clear(metadata=of("bob"))

        await store.add(_said(7, 5))

        found = await store.search(metadata=TALK, order="insertion", limit=100)
        assert contents(found) == ["n7", *expected[1:-1]]

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
    found = await store.search(metadata=TALK, order="insertion", limit=1000)
    return contents(found)[::-1]
