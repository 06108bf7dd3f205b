"""Counting what a database is asked: statements at the driver, commits where they happen.

Nothing of the library is changed for it: connections are of a class, or have methods, that count.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Self

from orbiter.memory.backends.sqlite.file_checks import Connection

_READS = frozenset(("SELECT", "WITH", "VALUES"))
_WRITES = frozenset(("INSERT", "UPDATE", "DELETE", "REPLACE"))
_CHANGE = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\b")


@dataclass(frozen=True, slots=True)
class Counts:
    """How often a database was asked."""

    reads: int = 0
    writes: int = 0
    """Statements that may change rows; one for many rows is one."""
    commits: int = 0
    """Transactions that changed something."""
    synced: int = 0
    """Those of them that waited for the disk."""
    others: int = 0
    """BEGIN, COMMIT, PRAGMA and the like; on a server each is a round trip, too."""

    @property
    def statements(self) -> int:
        """All of them; on a server, the round trips."""
        return self.reads + self.writes + self.others

    def __sub__(self, other: Self) -> "Counts":
        return Counts(*(getattr(self, n) - getattr(other, n) for n in self.__slots__))

    def __add__(self, other: Self) -> "Counts":
        return Counts(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))


class Tally:
    """What was asked since the beginning, by any thread and connection."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._so_far = Counts()

    async def look(self) -> Counts:
        """Return what was asked so far."""
        return self._so_far

    def statement(self, sql: str) -> None:
        """Count one."""
        word = sql.split(None, 1)[0].upper().rstrip(";")
        is_write = word in _WRITES or (word == "WITH" and bool(_CHANGE.search(sql)))
        is_read = word in _READS and not is_write
        self.add(Counts(reads=is_read, writes=is_write, others=not (is_read or is_write)))

    def add(self, counts: Counts) -> None:
        """Count something more."""
        with self._lock:
            self._so_far += counts


class _SQLite(Connection):
    """A store's connection that counts its statements, and the commits that changed something."""

    tally: Tally
    committed = 0
    is_synced = True

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        answer = super().execute(sql, *args)
        if sql.startswith("PRAGMA synchronous ="):
            self.is_synced = sql.rsplit(None, 1)[-1].lower() in ("full", "2")
        self._note(sql)
        return answer

    def executemany(self, sql: str, args: Iterable[Any], /) -> sqlite3.Cursor:
        rows = list(args)
        answer = super().executemany(sql, rows)
        if rows:
            self._note(sql)
        return answer

    def _note(self, sql: str) -> None:
        self.tally.statement(sql)
        if sql.startswith("ROLLBACK"):
            self.committed = self.total_changes
        elif not self.in_transaction and self.total_changes > self.committed:
            self.committed = self.total_changes
            self.tally.add(Counts(commits=1, synced=self.is_synced))


@contextmanager
def counted_sqlite() -> Iterator[Tally]:
    """Count what is asked of each SQLite connection that is made within the block."""
    tally, connect = Tally(), sqlite3.connect

    def counting(*args: Any, **options: Any) -> sqlite3.Connection:
        made: _SQLite = connect(*args, **{**options, "factory": _SQLite})
        made.tally = tally
        return made

    sqlite3.connect = counting  # type: ignore[assignment]
    try:
        yield tally
    finally:
        sqlite3.connect = connect


class _ServerTally(Tally):
    """Asks the server how many transactions have changed something: each took a number."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn
        self.connection: Any = None

    async def look(self) -> Counts:
        import asyncpg  # noqa: PLC0415 - only who measures a server needs it

        if self.connection is None:
            self.connection = await asyncpg.connect(self._dsn)
        done: int = await self.connection.fetchval(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        )
        return self._so_far + Counts(commits=done, synced=done)


@contextmanager
def counted_postgres(dsn: str) -> Iterator[Tally]:
    """Count what is asked of any asyncpg connection within the block."""
    import asyncpg  # noqa: PLC0415 - see above

    tally = _ServerTally(dsn)
    names = ("execute", "executemany", "fetch", "fetchrow", "fetchval", "copy_records_to_table")
    before = {name: getattr(asyncpg.Connection, name) for name in names}

    def wrapped(name: str) -> Any:
        async def call(self: Any, sql: str, *args: Any, **options: Any) -> Any:
            answer = await before[name](self, sql, *args, **options)
            if self is not tally.connection:
                tally.statement("INSERT" if name.startswith("copy") else sql)
            return answer

        return call

    for name in names:
        setattr(asyncpg.Connection, name, wrapped(name))
    try:
        yield tally
    finally:
        for name in names:
            setattr(asyncpg.Connection, name, before[name])
        if tally.connection is not None:
            tally.connection.terminate()
