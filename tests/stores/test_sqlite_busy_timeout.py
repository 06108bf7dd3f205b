"""How long a write waits for another process: `busy_timeout` in all, wherever it waited."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from orbiter.memory import HumanMemory, SQLiteMemoryStore
from orbiter.memory.backends.sqlite.writer_thread import Patience
from orbiter.memory.errors import MemoryTimeoutError

PATIENCE = 0.4


class Waits:
    """How many milliseconds SQLite was told to wait at each try to write."""

    def __init__(self, store: SQLiteMemoryStore) -> None:
        self.tries: list[int] = []
        self._loop, self._begun = asyncio.get_running_loop(), asyncio.Event()
        self._patience = round(PATIENCE * 1000)
        assert store._file._writer is not None
        connection = store._file._writer._guarded.connection
        assert connection is not None
        connection.set_trace_callback(self._saw)

    def _saw(self, statement: str) -> None:
        if statement.startswith("PRAGMA busy_timeout = "):
            self._patience = int(statement.rsplit(maxsplit=1)[-1])
        elif statement == "BEGIN IMMEDIATE":
            self.tries.append(self._patience)
            self._loop.call_soon_threadsafe(self._begun.set)

    async def begun(self) -> None:
        """Return when a write is tried that was not tried before."""
        await self._begun.wait()
        self._begun.clear()


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the lock that writes need, as another process would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def test_a_write_behind_a_blocked_one_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with SQLiteMemoryStore(path, busy_timeout=PATIENCE) as store:
        await store.add(HumanMemory(content="before"))
        waits = Waits(store)
        with locked(path):
            first = asyncio.create_task(store.add(HumanMemory(content="first")))
            await waits.begun()
            second = asyncio.create_task(store.add(HumanMemory(content="second")))

            ends = await asyncio.gather(first, second, return_exceptions=True)

        assert [type(end) for end in ends] == [MemoryTimeoutError, MemoryTimeoutError]
        of_first, of_second = waits.tries
        assert of_first == round(PATIENCE * 1000)
        # It has waited with the first, so only what it came later is left.
        assert of_second < of_first

        await store.add(HumanMemory(content="after"))
        assert waits.tries[-1] == round(PATIENCE * 1000)


async def test_a_write_behind_a_blocked_chore_waits_no_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.db"

    def chore(connection: sqlite3.Connection, *, is_idle: bool) -> bool:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        return False

    monkeypatch.setattr("orbiter.memory.backends.sqlite.connection_manager.chore", chore)
    async with SQLiteMemoryStore(path, busy_timeout=PATIENCE) as store:
        await store.add(HumanMemory(content="before"))
        waits = Waits(store)
        with locked(path):
            await waits.begun()  # the chore, as soon as the store is idle
            with pytest.raises(MemoryTimeoutError):
                await store.add(HumanMemory(content="behind it"))

        of_chore, of_write = waits.tries[:2]
        assert of_write < of_chore == round(PATIENCE * 1000)


async def test_writes_of_one_group_give_up_each_in_its_time_and_the_last_may_succeed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"
    async with SQLiteMemoryStore(path, busy_timeout=PATIENCE) as store:
        await store.add(HumanMemory(content="before"))
        waits = Waits(store)
        with locked(path) as other:
            first = asyncio.create_task(store.add(HumanMemory(content="first")))
            await waits.begun()
            with pytest.raises(MemoryTimeoutError):
                await first
            later = asyncio.create_task(store.add(HumanMemory(content="later")))
            await waits.begun()
            other.execute("ROLLBACK")
            await later

        assert await store.count() == 2


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def busy() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def test_only_time_that_another_process_took_counts() -> None:
    clock = Clock()
    patience = Patience(5.0, clock=clock)
    early = patience.begin()
    with closing(sqlite3.connect(":memory:")) as connection:
        with patience.spent(connection, early):
            clock.now += 60.0  # our own work

        assert patience.left(early) == 5.0

        with suppress(sqlite3.OperationalError), patience.spent(connection, early):
            clock.now += 1.0
            late = patience.begin()
            clock.now += 2.0
            raise busy()

    assert patience.left(early) == 2.0
    assert patience.left(late) == 3.0
    assert patience.left(patience.begin()) == 5.0


def test_sqlite_is_told_what_is_left_and_then_the_whole_again() -> None:
    clock = Clock()
    patience = Patience(5.0, clock=clock)
    told: list[str] = []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.set_trace_callback(told.append)
        waiting = patience.begin()
        with suppress(sqlite3.OperationalError), patience.spent(connection, waiting):
            clock.now += 4.0
            raise busy()
        assert told == []  # the whole is what the connection has anyway

        with patience.spent(connection, waiting):
            pass
        clock.now += 9.0
        with suppress(sqlite3.OperationalError), patience.spent(connection, waiting):
            clock.now += 9.0
            raise busy()
        with patience.spent(connection, waiting):
            pass

    assert told == [
        "PRAGMA busy_timeout = 1000",
        "PRAGMA busy_timeout = 5000",
        "PRAGMA busy_timeout = 1000",
        "PRAGMA busy_timeout = 5000",
        "PRAGMA busy_timeout = 0",
        "PRAGMA busy_timeout = 5000",
    ]
