"""`SQLiteMemoryStore`: one file, many processes, nothing acknowledged is lost.

`_sql.py` says what the statements mean, `_sqlite/dialect.py` how SQLite spells them, and
`_sqlite/file.py` which thread runs them.
"""

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeVar

from orbiter.memory.backends._rows import Row
from orbiter.memory.backends._sql import Operations, Rows, Steps
from orbiter.memory.backends._sql_store import SQLMemoryStore
from orbiter.memory.backends._sqlite import upkeep
from orbiter.memory.backends._sqlite.dialect import SQLiteDialect
from orbiter.memory.backends._sqlite.file import SQLiteFile, call_each
from orbiter.memory.backends._sqlite.threads import Work
from orbiter.memory.backends._sqlite.words import check, index_some, merge_some, rebuild
from orbiter.memory.reports import StoreStats

__all__ = ["SQLiteMemoryStore"]

_T = TypeVar("_T")

_DIALECT = SQLiteDialect()


class SQLiteMemoryStore(SQLMemoryStore):
    """Keeps items in a SQLite file that many tasks, threads and processes may share.

    `durability="full"` syncs every commit to disk before it is acknowledged. `"normal"` survives
    the death of the process all the same, but a power cut may take the newest commits with it.
    *busy_timeout* is how many seconds a write waits for another process's.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] = ":memory:",
        *,
        durability: Literal["full", "normal"] = "full",
        busy_timeout: float = 5.0,
        readers: int = 4,
    ) -> None:
        self.db_path = _check_path(db_path)
        self._operations = Operations(_DIALECT)
        self._file = SQLiteFile(
            self.db_path,
            owner=repr(self),
            durability=durability,
            busy_timeout=busy_timeout,
            readers=readers,
            group=_run_group,
        )

    def __repr__(self) -> str:
        return f"SQLiteMemoryStore({self.db_path!r})"

    # Opening and closing

    async def init(self) -> None:
        """Open the file, creating it if there is none, and bring its tables up to date.

        A file that is not ours, is damaged, or was written by a newer version is refused with a
        `StorageError`, its bytes unchanged.
        """
        await self._file.init()

    async def close(self) -> None:
        """Finish what is under way and close the file; `init` opens it again."""
        await self._file.close()

    # Running steps

    async def _put(self, row: Row) -> None:
        await self._file.write(row)

    async def _write(self, steps: Callable[[], Steps[_T]]) -> _T:
        work: Work[_T] = lambda connection: _run(connection, steps())  # noqa: E731 - says what it is
        return await self._file.write(work)  # type: ignore[no-any-return]

    async def _read(self, steps: Callable[[], Steps[_T]], *, alone: bool = False) -> _T:
        run = _run if alone else _run_as_one
        return await self._file.read(lambda connection: run(connection, steps()))

    # Looking after the file

    async def stats(self) -> StoreStats:
        """Return how much the store holds, and how much of it is still to be indexed."""
        return await self._file.read(upkeep.stats)

    async def optimize(self) -> None:
        """Index what is not indexed yet, merge the index, and write the journal back."""
        await self._index_all()
        anew = True
        while await self._file.read(partial(merge_some, anew=anew), writing=True):
            anew = False
        await self._file.read(upkeep.checkpoint, writing=True)

    async def _index_all(self) -> None:
        while await self._file.read(index_some, writing=True):
            pass

    async def vacuum(self) -> None:
        """Give the room of what was purged back to the file system."""
        await self._file.read(upkeep.vacuum, writing=True)

    async def backup(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Copy the store to a new file while others go on reading and writing.

        The file appears under its name when it is complete. *progress* is called, on a thread of
        the store's, with pages done and pages in all. Open it like any other store.
        """
        await self._file.read(lambda connection: upkeep.backup(connection, Path(path), progress))

    async def _check(self, repair: bool) -> list[str]:  # noqa: FBT001
        if repair:
            await self._file.write(rebuild)
            await self._index_all()
        return await self._file.read(check)


def _check_path(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text or "://" in text:
        raise ValueError(f"`db_path` must be a path or `:memory:`, not {path!r}")
    return text


def _run_group(connection: sqlite3.Connection, group: list[Any]) -> list[Any]:
    """Carry out writes in order: rows to put, neighbours together, and functions to call."""
    values: list[Any] = []
    for is_row, together in groupby(group, key=lambda work: type(work) is Row):
        works = list(together)
        if not is_row:
            values += call_each(connection, works)
            continue
        _run(connection, _DIALECT.upsert(works[0]) if len(works) == 1 else _DIALECT.add_many(works))
        values += [None] * len(works)
    return values


def _run(connection: sqlite3.Connection, steps: Steps[_T]) -> _T:
    try:
        statement = next(steps)
        while True:
            rows: Rows = ()
            if statement.many:
                connection.executemany(statement.sql, statement.args)
            else:
                rows = connection.execute(statement.sql, statement.args).fetchall()
            statement = steps.send(rows)
    except StopIteration as done:
        value: _T = done.value
        return value


def _run_as_one(connection: sqlite3.Connection, steps: Steps[_T]) -> _T:
    """Run steps that all see the same moment."""
    connection.execute("BEGIN")
    try:
        return _run(connection, steps)
    finally:
        # An error of the disk ends the transaction, and must be the one that is told.
        _end(connection)


def _end(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("COMMIT")
