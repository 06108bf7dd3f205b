"""Writes of tasks that run at the same moment share one commit on SQLite; none fails another."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.timing import until

from orbiter.memory import AgentMemory, HumanMemory, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.backends.sqlite.writer_thread import IDLE
from orbiter.memory.errors import NotInitializedError, VersionConflict

MANY = 16
ANN = MemoryMetadata(user_id="ann")


async def commits(store: SQLiteMemoryStore, calls: Callable[[], list[Awaitable[object]]]) -> int:
    """Return how many transactions were committed while *calls* were made at once."""
    seen: list[str] = []
    await store._file.read(lambda c: c.set_trace_callback(seen.append), writing=True)
    await asyncio.gather(*calls())
    return seen.count("COMMIT")


@pytest.mark.parametrize("way", ["store.add", "remember", "chat.add", "chats"])
async def test_what_is_written_at_once_is_committed_once(tmp_path: Path, way: str) -> None:
    async with AgentMemory(f"sqlite:///{tmp_path / 'm.db'}", embeddings=None) as memory:
        store, ann = memory.store, memory.scope(user_id="ann")
        assert isinstance(store, SQLiteMemoryStore)
        texts = [f"text {number}" for number in range(MANY)]
        ways: dict[str, Callable[[str], Awaitable[object]]] = {
            "store.add": lambda text: store.add(HumanMemory(content=text, metadata=ANN)),
            "remember": ann.remember,
            "chat.add": ann.chat("one").add,
            "chats": lambda text: ann.chat(text).add(text),
        }
        assert await commits(store, lambda: [ways[way](text) for text in texts]) == 1
        assert await store.count(metadata=ANN) == MANY


async def test_one_that_is_refused_fails_none_of_those_beside_it(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db") as store:
        items = [HumanMemory(content=f"text {number}") for number in range(MANY)]
        outcomes = await asyncio.gather(
            *(
                store.add(item, expected_version=5 if n == 3 else None)
                for n, item in enumerate(items)
            ),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [VersionConflict]
        assert isinstance(outcomes[3], VersionConflict)
        assert await store.count() == MANY - 1


async def test_order_is_kept_where_writes_share_a_commit(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db") as store:
        item = HumanMemory(content="first")
        second = item.model_copy(update={"content": "second"})
        await asyncio.gather(store.add(item), store.delete(item.id), store.add(second))
        found = await store.get(item.id)
        assert found is not None
        assert (found.content, found.version) == ("second", 3)


async def test_what_is_written_while_the_store_is_closed_is_kept_or_refused(tmp_path: Path) -> None:
    store = SQLiteMemoryStore(tmp_path / "m.db")
    await store.init()
    items = [HumanMemory(content=f"text {number}") for number in range(MANY)]
    *outcomes, closed = await asyncio.gather(
        *map(store.add, items), store.close(), return_exceptions=True
    )
    assert closed is None
    kept = [item.id for item, outcome in zip(items, outcomes, strict=True) if outcome is None]
    assert all(outcome is None or isinstance(outcome, NotInitializedError) for outcome in outcomes)
    async with store:
        assert sorted(item.id for item in await store.search(limit=MANY)) == sorted(kept)


def test_what_a_loop_left_behind_when_it_ended_overwrites_nothing(tmp_path: Path) -> None:
    old = HumanMemory(content="old")
    new = old.model_copy(update={"content": "new"})
    store = SQLiteMemoryStore(tmp_path / "m.db")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(store.init())
    abandoned = loop.create_task(store.add(old))
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be
    loop.call_soon(loop.stop)  # between the write and its being handed over
    loop.run_forever()
    loop.close()

    async def write_again() -> str:
        await store.add(new)
        await store.close()
        async with SQLiteMemoryStore(tmp_path / "m.db") as again:
            found = await again.get(old.id)
        return "" if found is None else found.content

    assert asyncio.run(write_again()) == "new"


async def test_the_journal_is_written_back_when_nobody_writes(tmp_path: Path) -> None:
    path = tmp_path / "m.db"

    def in_file() -> int:
        """Return how many items the file holds by itself, without its journal.

        What is read while pages are being written back is torn: then none.
        """
        with (
            closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection,
            suppress(sqlite3.DatabaseError),
        ):
            return int(connection.execute("SELECT count(*) FROM memory_items").fetchone()[0])
        return 0

    async with SQLiteMemoryStore(path):
        pass  # whoever closes a file writes everything back
    async with SQLiteMemoryStore(path) as store:
        await asyncio.gather(*(store.add(HumanMemory(content=f"{n}")) for n in range(300)))
        await until(lambda: in_file() == 300, "writing back")


async def test_a_few_writes_leave_the_journal_as_it_is(tmp_path: Path) -> None:
    """Each time it is begun anew, the next commit syncs twice."""
    path = tmp_path / "m.db"
    begun = set[bytes]()
    async with SQLiteMemoryStore(path) as store:
        for number in range(80):
            await store.add(HumanMemory(content=f"{number}"))
            if number % 20 == 19:
                await asyncio.sleep(5 * IDLE)  # there is time to write it back
                begun.add(Path(f"{path}-wal").read_bytes()[:32])

    assert len(begun) == 1
