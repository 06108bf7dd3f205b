"""`SQLiteMemoryStore`: one file, many processes, nothing acknowledged is lost.

`_sql.py` says what the statements mean; here is how SQLite spells them, and which thread runs
them. Why a thread of our own and not aiosqlite: it runs one statement per hop, so that a task can
be cancelled between two statements of a transaction and leave the file locked, and it cannot let
concurrent writes share a commit.
"""

import os
import sqlite3
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from orbiter.memory.backends import _sqlite_schema as schema
from orbiter.memory.backends._rows import COLUMNS, READ, Row, iso
from orbiter.memory.backends._sql import Args, Dialect, Filter, Operations, Rows, Statement, Steps
from orbiter.memory.backends._sql_store import SQLMemoryStore
from orbiter.memory.backends._sqlite_words import (
    candidates,
    check,
    chore,
    index_all,
    rebuild,
    settle,
)
from orbiter.memory.backends._threads import Closed, Readers, Writer
from orbiter.memory.backends.reports import StoreStats
from orbiter.memory.errors import MemoryTimeoutError, NotInitializedError, StorageError

__all__ = ["SQLiteMemoryStore"]

_T = TypeVar("_T")

_UPSERT = f"""
INSERT INTO memory_items ({", ".join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 1)
ON CONFLICT (id) DO UPDATE SET
    content = excluded.content, memory_type = excluded.memory_type, status = excluded.status,
    metadata = excluded.metadata, extra_json = excluded.extra_json,
    updated_at = excluded.updated_at, deleted = 0, version = version + 1,
    rowid = CASE WHEN deleted THEN (SELECT max(rowid) + 1 FROM memory_items) ELSE rowid END
"""

LONGEST_PATTERN = 40_000
"""Characters above which LIKE may refuse a pattern, which it measures in bytes."""


class SQLiteDialect(Dialect):
    """How SQLite spells it."""

    place = "rowid"
    now = schema.NOW
    lock = ""  # a writing transaction has the file to itself

    def parameter(self, number: int) -> str:
        """Return the name of a bound value."""
        return f"?{number}"

    def instant(self, value: datetime) -> object:
        """Return a time as text of one width."""
        return iso(value)

    def upsert(self, row: Row, *, again: bool = False) -> Steps[int | None]:  # noqa: ARG002
        """Write a row. Nothing is ever tried again: a failed commit has changed nothing."""
        yield Statement(_UPSERT, _values(row))
        return None

    def scope(self, wanted: dict[Any, str], args: Args) -> list[str]:
        """Return equalities that the expression indexes serve."""
        return [f"{schema.field(name)} = {args.bind(value)}" for name, value in wanted.items()]

    def contains(self, needle: str, args: Args) -> str:
        """Return a condition that asks Python only about texts beyond ASCII."""
        if len(needle) > LONGEST_PATTERN or not needle.isascii():
            plain = f"instr(lower(content), {args.bind(needle)})"
        else:
            plain = f"content LIKE {args.bind(f'%{_escape(needle)}%')} ESCAPE '\\'"
        return (
            f"({plain} OR (length(content) <> length(CAST(content AS BLOB))"
            f" AND orbiter_has(content, {args.bind(needle)})))"
        )

    def find(self, needle: str, asked: Filter, tail: str) -> Steps[Rows]:
        """Ask the trigrams where that is cheaper than reading the filtered rows."""
        args = Args(self, asked.args)
        conditions = [*asked.scope, *asked.rest, self.contains(needle, args)]
        source = "memory_items"
        match = yield from candidates(needle, asked)
        if match is not None:
            source = "memory_items NOT INDEXED"  # by place; no other index may be preferred
            conditions.insert(
                0,
                "rowid IN (SELECT rowid FROM memory_words"
                f" WHERE memory_words MATCH {args.bind(match)}"
                " UNION ALL SELECT place FROM memory_unindexed"
                " UNION ALL SELECT rowid FROM memory_items WHERE rowid >"
                " (SELECT value FROM memory_meta WHERE key = 'indexed_to'))",
            )
        where = " AND ".join(conditions)
        return (
            yield Statement(f"SELECT {', '.join(READ)} FROM {source} WHERE {where} {tail}", args)
        )

    def add_many(self, rows: Sequence[Row], *, again: bool) -> Steps[None]:  # noqa: ARG002
        """Upsert *rows* in order."""
        yield Statement(_UPSERT, [_values(row) for row in rows], many=True)

    def by_id(self, args: Args, item_id: str) -> str:
        """Return the condition that picks the row of an id."""
        return f"id = {args.bind(item_id)}"

    def changes(self, sql: str, args: Sequence[Any]) -> Steps[int]:
        """Run a change and return how many rows it changed."""
        yield Statement(sql, args)
        rows = yield Statement("SELECT changes()")
        return int(rows[0][0])

    def purge(self, condition: str, args: Sequence[Any]) -> Steps[int]:
        """Remove rows; triggers take their versions along, and the words go at once."""
        removed = yield from self.changes(f"DELETE FROM memory_items WHERE {condition}", args)
        if removed:
            yield from settle()
        return removed


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
        path = os.fspath(db_path)
        if not path or "\0" in path:
            raise ValueError(f"`db_path` must name a file or be `:memory:`, not {db_path!r}")
        if durability not in ("full", "normal"):
            raise ValueError(f"`durability` must be `full` or `normal`, not {durability!r}")
        if busy_timeout <= 0 or readers < 1:
            raise ValueError("`busy_timeout` and `readers` must be more than 0")
        self.db_path = path
        # Absolute, so that no name is taken for a URI and no change of folder moves the file.
        self._path = path if path == ":memory:" else os.path.abspath(path)  # noqa: PTH100 - keeps the name
        self._durability = durability
        self._busy_timeout = busy_timeout
        self._most_readers = readers
        self._operations = Operations(SQLiteDialect())
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._process = 0

    def __repr__(self) -> str:
        return f"SQLiteMemoryStore({self.db_path!r})"

    # Opening and closing

    async def init(self) -> None:
        """Open the file, creating it if there is none, and bring its tables up to date.

        A file that is not ours, is damaged, or was written by a newer version is refused with a
        `StorageError`, its bytes unchanged.
        """
        while True:
            writer = self._writer if self._process == os.getpid() else None
            if writer is None:
                writer = self._start()
            try:
                await writer.run(lambda _: None, in_transaction=False)
            except Closed:
                self._forget(writer)
                continue
            except BaseException as exc:
                # Cancelled, or not to be opened: leave nothing behind.
                if self._forget(writer):
                    writer.stop()
                if isinstance(exc, sqlite3.Error):
                    raise self._translate(exc) from exc
                raise
            if self._writer is writer:
                return

    async def close(self) -> None:
        """Finish what is under way and close the file; `init` opens it again."""
        writer, readers = self._writer, self._readers
        if writer is None or self._process != os.getpid():
            return
        self._writer = self._readers = None
        if readers is not None:
            readers.stop()
        with suppress(Closed):
            # A last job, so that waiting for the end never blocks the event loop.
            last = writer.run(lambda _: None, in_transaction=False)
            try:
                await last
            finally:
                writer.stop()
        if readers is not None:
            readers.join()
        writer.join()

    def __del__(self) -> None:
        writer, readers = getattr(self, "_writer", None), getattr(self, "_readers", None)
        if writer is None or self._process != os.getpid():
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
        for threads in (readers, writer):
            if threads is not None:
                threads.stop()

    def _start(self) -> Writer:
        # A process that was forked has neither the threads nor the right to the connections.
        self._process = os.getpid()
        self._writer = Writer(self._connect_writer, chore, name=f"{self!r} writer")
        self._readers = None
        if self._path != ":memory:":
            self._readers = Readers(self._connect, most=self._most_readers, name=f"{self!r} reader")
        return self._writer

    def _forget(self, writer: Writer) -> bool:
        if self._writer is not writer:
            return False
        self._writer = self._readers = None
        return True

    def _connect_writer(self) -> sqlite3.Connection:
        if self._path != ":memory:":
            schema.prepare_file(self._path)
        connection = self._connect()
        try:
            schema.set_up(connection, self._path, patience=self._busy_timeout)
            connection.execute(f"PRAGMA synchronous = {self._durability}")
            connection.execute(f"PRAGMA journal_size_limit = {16 * 2**20}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=self._busy_timeout,
            isolation_level=None,
            cached_statements=256,
        )
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA cache_size = -8192")
        connection.create_function("orbiter_fold", 1, str.casefold, deterministic=True)
        connection.create_function("orbiter_has", 2, _has, deterministic=True)
        return connection

    # Running steps

    def _opened(self) -> Writer:
        if self._writer is None:
            raise NotInitializedError(self)
        return self._writer if self._process == os.getpid() else self._start()

    async def _write(self, steps: Callable[[bool], Steps[_T]], *, alone: bool = False) -> _T:  # noqa: ARG002
        return await self._on_writer(lambda connection: _run(connection, steps(False)))  # noqa: FBT003 - as named there

    async def _read(self, steps: Callable[[], Steps[_T]]) -> _T:
        return await self._on_reader(lambda connection: _run_as_one(connection, steps()))

    async def _on_writer(
        self, work: Callable[[sqlite3.Connection], _T], *, in_transaction: bool = True
    ) -> _T:
        try:
            return await self._opened().run(work, in_transaction=in_transaction)
        except Closed:
            raise NotInitializedError(self) from None
        except sqlite3.Error as exc:
            raise self._translate(exc) from exc

    async def _on_reader(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        writer = self._opened()
        try:
            if self._readers is None:
                return await writer.run(work, in_transaction=False)
            return await self._readers.run(work)
        except Closed:
            raise NotInitializedError(self) from None
        except sqlite3.Error as exc:
            raise self._translate(exc) from exc

    def _translate(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return MemoryTimeoutError(
                f"`{self._path}` was locked by another process for more than "
                f"{self._busy_timeout:g} s, so nothing was written; try again, or raise "
                "`busy_timeout`"
            )
        what = {
            sqlite3.SQLITE_FULL: "the disk is full, so nothing was written; make room",
            sqlite3.SQLITE_IOERR: "the disk cannot be read or written; see its health and room",
            sqlite3.SQLITE_READONLY: "it cannot be written; change the file's or folder's mode",
            sqlite3.SQLITE_CANTOPEN: "it cannot be opened; see that file and folder exist",
            sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a backup",
            sqlite3.SQLITE_NOTADB: "it is not a SQLite database; choose another file",
        }.get(code, "SQLite refused")
        return StorageError(f"`{self._path}`: {what} ({error})")

    # Looking after the file

    async def stats(self) -> StoreStats:
        """Return how much the store holds, and how much of it is still to be indexed."""
        return await self._on_reader(_stats)

    async def optimize(self) -> None:
        """Index what is not indexed yet, merge the index, and write the journal back."""
        while await self._on_writer(index_all, in_transaction=False):
            pass
        await self._on_writer(_checkpoint, in_transaction=False)

    async def vacuum(self) -> None:
        """Give the room of what was purged back to the file system."""
        await self._on_writer(_vacuum, in_transaction=False)

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
        await self._on_reader(lambda connection: _backup(connection, Path(path), progress))

    async def _check(self, repair: bool) -> list[str]:  # noqa: FBT001
        if repair:
            await self._on_writer(rebuild)
            while await self._on_writer(index_all, in_transaction=False):
                pass
        return await self._on_reader(check)


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
    if connection.in_transaction:
        return _run(connection, steps)
    connection.execute("BEGIN")
    try:
        return _run(connection, steps)
    finally:
        connection.execute("COMMIT")


def _values(row: Row) -> Sequence[Any]:
    return (*row[:6], iso(row.created_at), iso(row.updated_at))


def _has(content: str, needle: str) -> bool:
    return needle in content.casefold()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _checkpoint(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _vacuum(connection: sqlite3.Connection) -> None:
    connection.execute("VACUUM")
    _checkpoint(connection)


def _stats(connection: sqlite3.Connection) -> StoreStats:
    def number(sql: str) -> int:
        return int(connection.execute(sql).fetchone()[0])

    items = number("SELECT count(*) FROM memory_items WHERE deleted = 0")
    pages = number("PRAGMA page_count") * number("PRAGMA page_size")
    file = connection.execute("PRAGMA database_list").fetchone()[2]
    journal = Path(f"{file}-wal")
    return StoreStats(
        items=items,
        deleted=number("SELECT count(*) FROM memory_items WHERE deleted = 1"),
        versions=number("SELECT count(*) FROM memory_versions WHERE memory_type IS NOT NULL"),
        bytes=pages + (journal.stat().st_size if file and journal.exists() else 0),
        unindexed=number(
            "SELECT (SELECT count(*) FROM memory_unindexed) + count(*) FROM memory_items"
            " WHERE rowid > (SELECT value FROM memory_meta WHERE key = 'indexed_to')"
        ),
        schema=number("PRAGMA user_version"),
    )


def _backup(
    connection: sqlite3.Connection, target: Path, progress: Callable[[int, int], None] | None
) -> None:
    part = target.with_name(f"{target.name}.part")
    if target.exists():
        raise StorageError(f"`{target}` exists already; choose another name for the backup")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        copy = sqlite3.connect(part, isolation_level=None)
        try:
            connection.backup(copy, pages=1024, progress=_telling(progress), sleep=0.001)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, nothing beside it
        finally:
            copy.close()
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.link(part, target)  # unlike a rename, it never replaces a file
    except OSError as exc:
        raise StorageError(f"`{target}` cannot be written: {exc.strerror}") from exc
    finally:
        part.unlink(missing_ok=True)


def _telling(
    progress: Callable[[int, int], None] | None,
) -> Callable[[int, int, int], None] | None:
    if progress is None:
        return None
    return lambda _, left, pages: progress(pages - left, pages)
