"""A place for memories, and beside it a bare table that is written and read by the driver alone."""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Self

from benchmarks._sql_data import BARE, INSERT, many_rows
from benchmarks._statements import Tally, counted_postgres, counted_sqlite
from tests.servers.databases import PostgresServer

ROWS = 10_000
LOOPS = 20
READ = "SELECT * FROM memory_items WHERE id = "
DURABLE = {"fsync": "on", "shared_buffers": "128MB"}


@dataclass
class Bare:
    """What the driver does by itself: one durable INSERT, and some SELECTs of one row each."""

    write: Callable[[], Awaitable[None]]
    read: Callable[[], Awaitable[None]]
    loops: int = LOOPS
    """How many SELECTs `read` makes, since one is too short for the clock."""


class Database(ABC):
    """Makes stores, one after the other."""

    name: str

    @abstractmethod
    def __enter__(self) -> Self:
        """Start what there is to start."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""

    @abstractmethod
    def new(self) -> str:
        """Return the address of a new, empty store."""

    @abstractmethod
    async def drop(self, url: str) -> None:
        """Remove a store."""

    @abstractmethod
    async def bytes_at(self, url: str) -> int:
        """Return what a closed store takes on disk."""

    @abstractmethod
    def bare(self) -> AbstractAsyncContextManager[Bare]:
        """Return bare calls to a table of their own, in the same place."""

    @abstractmethod
    def counted(self, url: str) -> AbstractContextManager[Tally]:
        """Count what is asked of the store at *url*, which must not be open."""


class SQLiteDatabase(Database):
    """Files in a folder, synced at every commit."""

    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The folder is the caller's."""

    def new(self) -> str:
        return str(self._folder / f"{next(self._numbers)}.db")

    async def drop(self, url: str) -> None:
        for path in _files(url):
            path.unlink()

    async def bytes_at(self, url: str) -> int:
        return sum(path.stat().st_size for path in _files(url))

    @asynccontextmanager
    async def bare(self) -> AsyncIterator[Bare]:
        path = self.new()
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(BARE)
        rows = list(many_rows(ROWS))
        connection.execute("BEGIN")
        connection.executemany(INSERT, rows)
        connection.execute("COMMIT")
        numbers = count(ROWS)

        async def write() -> None:
            number = next(numbers)
            connection.execute(INSERT, (f"{number:032x}", *rows[number % ROWS][1:]))

        async def read() -> None:
            for _ in range(LOOPS):
                row = rows[next(numbers) * 7 % ROWS]
                connection.execute(f"{READ}?", row[:1]).fetchone()

        yield Bare(write, read)
        connection.close()
        await self.drop(path)

    def counted(self, url: str) -> AbstractContextManager[Tally]:
        return counted_sqlite()


def _files(url: str) -> list[Path]:
    return [path for end in ("", "-wal", "-shm") if (path := Path(url + end)).exists()]


class PostgresDatabase(Database):
    """Databases of a server that lives as long as the run, with `fsync=on`."""

    name = "Postgres"

    def __enter__(self) -> Self:
        self._server = PostgresServer.start(settings=DURABLE)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def new(self) -> str:
        return self._server.create_database()

    async def drop(self, url: str) -> None:
        await asyncio.to_thread(self._server.drop_database, url)

    async def bytes_at(self, url: str) -> int:
        import asyncpg  # noqa: PLC0415 - only who measures a server needs it

        connection = await asyncpg.connect(url)
        size: int = await connection.fetchval(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        await connection.close()
        return size

    @asynccontextmanager
    async def bare(self) -> AsyncIterator[Bare]:
        import asyncpg  # noqa: PLC0415 - see above

        url = self.new()
        connection = await asyncpg.connect(url)
        await connection.execute(BARE.replace("_at TEXT", "_at TIMESTAMPTZ"))
        rows = [
            (*row[:6], datetime.fromisoformat(row[6]), datetime.fromisoformat(row[7]), 0, 1)
            for row in many_rows(ROWS)
        ]
        await connection.copy_records_to_table("memory_items", records=rows)
        await connection.execute("VACUUM ANALYZE memory_items")
        places = ", ".join(f"${place}" for place in range(1, 11))
        numbers = count(ROWS)

        async def write() -> None:
            number = next(numbers)
            row = (f"{number:032x}", *rows[number % ROWS][1:])
            await connection.execute(f"INSERT INTO memory_items VALUES ({places})", *row)

        async def read() -> None:
            for _ in range(LOOPS):
                await connection.fetchrow(f"{READ}$1", rows[next(numbers) * 7 % ROWS][0])

        yield Bare(write, read)
        await connection.close()
        await self.drop(url)

    def counted(self, url: str) -> AbstractContextManager[Tally]:
        return counted_postgres(url)
