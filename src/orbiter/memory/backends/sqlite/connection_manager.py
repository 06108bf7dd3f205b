"""Connections of one SQLite file: who opens it, which threads write and read, errors.

Why a thread of our own and not aiosqlite: it runs one statement per hop, so that a task can be
cancelled between two statements of a transaction and leave the file locked, and it cannot let
concurrent writes share a commit.
"""

import os
import sqlite3
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock, local
from typing import Any, Literal, TypeVar

from orbiter.memory.backends.sqlite import file_checks, maintenance
from orbiter.memory.backends.sqlite.file_checks import real_path, uri
from orbiter.memory.backends.sqlite.idle_tasks import JOURNAL_PAGES, chore, seconds_to_next
from orbiter.memory.backends.sqlite.run import FACTORY
from orbiter.memory.backends.sqlite.setup import set_up
from orbiter.memory.backends.sqlite.where import fits
from orbiter.memory.backends.sqlite.writer_thread import (
    Closed,
    Group,
    Readers,
    Work,
    Writer,
    roll_back,
)
from orbiter.memory.errors import MemoryTimeoutError, NotInitializedError, StorageError
from orbiter.memory.model.validation import check_positive
from orbiter.memory.tasks.offload import MustWaitError, has_loop, run_here

__all__ = ["SQLiteFile", "call_each"]

_T = TypeVar("_T")

WORKERS = 2
"""Threads that weigh what was read: they share the interpreter's lock, so more gain nothing."""


def call_each(connection: sqlite3.Connection, group: list[Any]) -> list[Any]:
    """Carry out writes that are functions."""
    return [work(connection) for work in group]


class SQLiteFile:
    """A file of ours that many tasks, threads and processes may share.

    *owner* is how the one who uses it is called in errors. *group* carries out writes that share
    a transaction.
    """

    def __init__(
        self,
        path: str,
        *,
        owner: str,
        durability: Literal["full", "normal"] = "full",
        busy_timeout: float = 5.0,
        readers: int = 4,
        group: Group = call_each,
    ) -> None:
        if durability not in ("full", "normal"):
            raise ValueError(f"`durability` must be `full` or `normal`, not {durability!r}")
        check_positive(busy_timeout=busy_timeout, readers=readers)
        # Absolute, so that no name is taken for a URI and no change of folder moves the file.
        self._path = path if path == ":memory:" else real_path(path)
        self._owner = owner
        self._durability = durability
        self._busy_timeout = busy_timeout
        self._most_readers = readers
        self._group = group
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._workers: Readers | None = None
        """Threads for `offload`: what takes long there must not keep a short read waiting."""
        self._here = local()
        self._process = 0
        self._starting = Lock()
        self._identity = maintenance.Identity(self._path)
        self.does_chores = True
        """Whether the writer indexes and sweeps when it is idle; said before the file is opened."""

    def __repr__(self) -> str:
        return self._owner

    @property
    def path(self) -> str:
        """Where it is, from the root on; or `:memory:`."""
        return self._path

    @property
    def is_open(self) -> bool:
        """Whether it is open in this process."""
        return self._writer is not None and self._process == os.getpid()

    # Opening and closing

    async def init(self) -> None:
        """Open the file, creating it if there is none, and bring its tables up to date.

        A file that is not ours, is damaged, or was written by a newer version is refused with a
        `StorageError`, its bytes unchanged.
        """
        while True:
            writer, is_new = self._start()
            try:
                await writer.run(_nothing)
            except Closed:
                self._forget(writer)
                continue
            except BaseException as exc:  # cancellation included
                # Cancelled, or not to be opened: leave nothing behind that was not there before.
                if is_new and self._forget(writer):
                    writer.stop()
                if isinstance(exc, sqlite3.Error):
                    raise self._translate(exc) from exc
                raise
            if self._writer is writer:
                return

    async def close(self) -> None:
        """Finish what is under way and close the file; `init` opens it again."""
        writer, readers = self._writer, self._reading()
        if writer is None or self._process != os.getpid():
            return
        self._writer = self._readers = self._workers = None
        for threads in readers:
            threads.stop()
        with suppress(Closed):
            # A last job, so that waiting for the end never blocks the event loop.
            last = writer.run(_nothing)
            try:
                await last
                # The writer leaves last: of two that leave at once, neither is the last one,
                # and then nobody writes the journal back into the file.
                for threads in readers:
                    await threads.ended()
            finally:
                writer.stop()
        await writer.ended()

    def __del__(self) -> None:
        writer = getattr(self, "_writer", None)
        if writer is None or self._process != os.getpid():
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
        for threads in (*self._reading(), writer):
            threads.stop()

    def _reading(self) -> list[Readers]:
        return [threads for threads in (self._readers, self._workers) if threads is not None]

    def _start(self) -> tuple[Writer, bool]:
        """Return the writer, and whether it had to be started."""
        with self._starting:
            # A process that was forked has neither the threads nor the right to the connections.
            if self._writer is not None and self._process == os.getpid():
                return self._writer, False
            self._process, name, self._readers, self._workers = os.getpid(), repr(self), None, None
            if self._path != ":memory:":
                connect, most = _weakly(self._connect), self._most_readers
                self._readers = Readers(connect, most=most, name=f"{name} reader")
                self._workers = Readers(connect, most=min(most, WORKERS), name=f"{name} worker")
            group = partial(_run_group, self._identity, self._group)
            self._writer = Writer(
                _weakly(self._connect_writer),
                group,
                chore if self.does_chores else _no_chore,
                rest=seconds_to_next,
                patience=self._busy_timeout,
                name=f"{name} writer",
            )
            return self._writer, True

    def _forget(self, writer: Writer) -> bool:
        if self._writer is not writer:
            return False
        for threads in self._reading():
            threads.stop()
        self._writer = self._readers = self._workers = None
        return True

    def _connect_writer(self) -> sqlite3.Connection:
        held = mark = None
        if self._path != ":memory:":
            held, mark = file_checks.prepare_file(self._path)
        try:
            connection = self._connect()
        except BaseException:  # whatever it was, nothing stays reserved
            if held is not None:
                file_checks.release(held)
            raise
        connection.held, connection.mark = held, mark
        try:
            set_up(connection, self._path, patience=self._busy_timeout)
            connection.execute(f"PRAGMA synchronous = {self._durability}")
            connection.execute(f"PRAGMA journal_size_limit = {16 * 2**20}")
            self._identity.note(held)
        except BaseException:  # whatever it was, no file stays open
            connection.close()
            raise
        return connection

    def _connect(self) -> file_checks.Connection:
        # Never creates the file: that is the writer's affair, and done by now.
        is_file = self._path != ":memory:"
        connection = sqlite3.connect(
            uri(self._path, "rw") if is_file else self._path,
            factory=FACTORY,
            uri=is_file,
            timeout=self._busy_timeout,
            isolation_level=None,
            cached_statements=256,
            check_same_thread=False,  # a forked process closes it, see `fork_safety.py`
        )
        try:
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA cache_size = -8192")
            connection.execute(f"PRAGMA wal_autocheckpoint = {JOURNAL_PAGES}")
            connection.create_function("orbiter_fold", 1, str.casefold, deterministic=True)
            connection.create_function("orbiter_has", 2, _has, deterministic=True)
            connection.create_function("orbiter_where", 2, fits, deterministic=True)
        except BaseException:  # whatever it was, no file stays open
            connection.close()
            raise
        return connection

    # Working

    def _opened(self) -> Writer:
        if self._writer is not None and self._process == os.getpid():
            return self._writer
        if self._writer is None or (self._path == ":memory:" and self._process != os.getpid()):
            raise NotInitializedError(self)
        return self._start()[0]

    async def write(self, work: object) -> Any:
        """Write, in a transaction that others may share."""
        if not has_loop():
            raise MustWaitError
        try:
            return await self._opened().write(work)
        except Closed:
            raise NotInitializedError(self) from None
        except sqlite3.Error as exc:
            raise self._translate(exc) from exc

    async def read(self, work: Work[_T], *, writing: bool = False) -> _T:
        """Run *work* on a thread that reads, or outside of a transaction on the one that writes."""
        here: sqlite3.Connection | None = getattr(self._here, "connection", None)
        if here is not None:
            return self._read_here(here, work, writing=writing)
        writer, readers = self._opened(), self._readers
        try:
            if writing or readers is None:
                return await writer.run(work)
            return await readers.run(work)
        except Closed:
            raise NotInitializedError(self) from None
        except sqlite3.Error as exc:
            raise self._translate(exc) from exc

    @property
    def is_offloaded(self) -> bool:
        """Whether this is inside of `offload`, on its thread."""
        return getattr(self._here, "connection", None) is not None

    async def offload(
        self,
        work: Callable[[], Coroutine[Any, Any, _T]],
        *,
        prepare: Callable[[], Coroutine[Any, Any, None]],
    ) -> _T:
        """Run *work*, which reads, on a thread: each `read` in it is done there and then.

        Where it has to wait for anything else, which mostly is what *prepare* does, that is done
        and it is begun again; if that does not help, on the event loop.
        """
        self._opened()
        if self._workers is None or self.is_offloaded:
            return await work()

        def run(connection: sqlite3.Connection) -> _T:
            self._here.connection = connection
            try:
                return run_here(work())
            finally:
                self._here.connection = None

        try:
            try:
                return await self._workers.run(run)
            except MustWaitError:
                await prepare()
            try:
                return await self._workers.run(run)
            except MustWaitError:
                return await work()
        except Closed:
            raise NotInitializedError(self) from None

    def _read_here(self, connection: sqlite3.Connection, work: Work[_T], *, writing: bool) -> _T:
        if writing:
            raise MustWaitError
        try:
            return work(connection)
        except sqlite3.Error as exc:
            raise self._translate(exc) from exc
        finally:
            roll_back(connection)  # as nothing has been written, this only ends a read

    @contextmanager
    def without_chores(self) -> Iterator[None]:
        """Have the writer of this process do no chores while the block lasts."""
        writer = self._opened()
        writer.held += 1
        try:
            yield
        finally:
            writer.held -= 1

    def _translate(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return MemoryTimeoutError(
                f"`{self._path}` was locked by another process for more than "
                f"{self._busy_timeout:g} s, so nothing was written; try again, or raise "
                "`busy_timeout`"
            )
        what = {
            sqlite3.SQLITE_FULL: "the disk is full, so nothing was written; free some space",
            sqlite3.SQLITE_IOERR: "the disk cannot be read or written; check it and its free space",
            sqlite3.SQLITE_READONLY: "it cannot be written; change the file's or folder's mode",
            sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that file and folder exist",
            sqlite3.SQLITE_CORRUPT: (
                "the file is damaged; try `verify(repair=True)`, in a shell `orbiter-memory "
                "doctor --repair`; if that does not help, restore a backup"
            ),
            sqlite3.SQLITE_NOTADB: "it is not a SQLite database; choose another file",
        }.get(code, "SQLite refused")
        return StorageError(f"`{self._path}`: {what} ({error})")


def _weakly(connect: Callable[[], sqlite3.Connection]) -> Callable[[], sqlite3.Connection]:
    """Return *connect*, a method, so that a thread that has it keeps no store alive."""
    method = weakref.WeakMethod(connect)

    def call() -> sqlite3.Connection:
        bound = method()
        if bound is None:
            raise Closed
        return bound()

    return call


def _nothing(_: sqlite3.Connection) -> None:
    pass


def _no_chore(_: sqlite3.Connection, *, is_idle: bool) -> bool:  # noqa: ARG001 - a `Chore`
    return False


def _run_group(
    identity: maintenance.Identity, group: Group, connection: sqlite3.Connection, works: list[Any]
) -> list[Any]:
    identity.check()
    mark = getattr(connection, "mark", None)
    if mark is not None:
        mark.leave(connection)
    return group(connection, works)


def _has(content: str, needle: str) -> bool:
    return needle in content.casefold()
