"""A disk that loses power, and one that fails: SQLite's own code over files that we watch.

Every write goes to a real file and into a list of what no sync has made certain yet. A power cut
keeps what is certain and, sector by sector, a random part of the rest.
"""

import itertools
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, cast

import apsw

from orbiter.memory import SQLiteMemoryStore
from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile

SECTOR = 512
_numbers = itertools.count()


class _Contents:
    """A file: what is certain, and what was done to it since the last sync."""

    def __init__(self, certain: bytes) -> None:
        self.certain = bytearray(certain)
        self.pending: list[tuple[int, bytes | None]] = []  # None: cut off here

    def sync(self) -> None:
        self.certain = self.after_cut(lambda: True)
        self.pending = []

    def after_cut(self, survives: Callable[[], bool]) -> bytearray:
        image = bytearray(self.certain)
        for offset, data in self.pending:
            if data is None:
                if survives():
                    del image[offset:]
                continue
            for start in range(0, len(data), SECTOR):
                if survives():
                    _put(image, offset + start, data[start : start + SECTOR])
        return image


def _put(image: bytearray, offset: int, data: bytes) -> None:
    image.extend(bytes(max(0, offset - len(image))))
    image[offset : offset + len(data)] = data


class Disk:
    """The files of one test. *on_call* runs before each write, sync and truncation."""

    def __init__(self) -> None:
        self.files: dict[str, _Contents] = {}
        self.calls = 0
        self.fails: Callable[[int], bool] = lambda _: False
        self.on_call: Callable[[int], None] = lambda _: None
        self.lock = Lock()
        self.name = f"watched-{next(_numbers)}"

    def call(self) -> None:
        self.calls += 1
        if self.fails(self.calls):
            raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)
        self.on_call(self.calls)

    def cut(self, folder: Path, dice: random.Random) -> None:
        """Write what a power cut now would leave into *folder*."""
        chance = dice.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for name, contents in self.files.items():
            image = contents.after_cut(lambda: dice.random() < chance)
            (folder / Path(name).name).write_bytes(image)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, base: str, name: Any, flags: Any) -> None:
        super().__init__(base, name, flags)
        self._disk = disk
        self._contents: _Contents | None = None
        if name is not None:
            path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
            with disk.lock:
                there = Path(path).read_bytes() if Path(path).exists() else b""
                self._contents = disk.files.setdefault(path, _Contents(there))

    def xWrite(self, data: Any, offset: int) -> None:
        with self._disk.lock:
            self._disk.call()
            super().xWrite(data, offset)
            if self._contents is not None:
                self._contents.pending.append((offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        with self._disk.lock:
            self._disk.call()
            super().xTruncate(size)
            if self._contents is not None:
                self._contents.pending.append((size, None))

    def xSync(self, flags: int) -> None:
        with self._disk.lock:
            self._disk.call()
            if self._contents is not None:  # the real file is never read after a cut: no sync
                self._contents.sync()


class _Files(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.name, "unix")
        self._disk = disk

    def xOpen(self, name: Any, flags: Any) -> _File:
        return _File(self._disk, "unix", name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        with self._disk.lock:
            self._disk.call()
            super().xDelete(name, sync)
            self._disk.files.pop(name, None)


@contextmanager
def watched(disk: Disk) -> Iterator[None]:
    """Let stores open files on *disk*."""
    files = _Files(disk)
    try:
        yield
    finally:
        files.unregister()


class WatchedStore(SQLiteMemoryStore):
    """The store, with SQLite's files on a watched disk."""

    def __init__(self, path: Path, disk: Disk, **options: Any) -> None:
        super().__init__(path, **options)
        self._file.__class__ = _WatchedFile
        file = cast("_WatchedFile", self._file)
        file.disk, file.prepare = disk, self.prepare

    def prepare(self, connection: "Connection") -> None:
        connection.execute("PRAGMA wal_autocheckpoint = 20")  # often, to be cut in the middle
        connection.create_function("orbiter_fold", 1, str.casefold, deterministic=True)
        connection.create_function(
            "orbiter_has", 2, lambda text, part: part in text.casefold(), deterministic=True
        )


class _WatchedFile(SQLiteFile):
    disk: Disk
    prepare: "Callable[[Connection], None]"

    def _connect(self) -> Any:
        connection = Connection(self._path, self.disk.name, self._busy_timeout)
        self.prepare(connection)
        return connection


class Connection:
    """As much of `sqlite3.Connection` as the store uses, over apsw."""

    def __init__(self, path: str, vfs: str, timeout: float) -> None:
        self._apsw = apsw.Connection(path, vfs=vfs)
        self._apsw.set_busy_timeout(int(timeout * 1000))

    @property
    def in_transaction(self) -> bool:
        return self._apsw.in_transaction

    def execute(self, sql: str, args: Sequence[Any] = ()) -> "_Rows":
        with _as_sqlite3():
            rows = _Rows(self._apsw.execute(sql, tuple(args)))
        rows.rowcount = self._apsw.changes()
        return rows

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with _as_sqlite3():
            for _ in self._apsw.executemany(sql, [tuple(row) for row in rows]):
                pass

    def create_function(
        self, name: str, arguments: int, function: Callable[..., Any], *, deterministic: bool
    ) -> None:
        self._apsw.create_scalar_function(name, function, arguments, deterministic=deterministic)

    def close(self) -> None:
        with suppress(apsw.Error):  # `sqlite3` closes what it can, and says nothing
            self._apsw.close()


class _Rows(list[Any]):
    rowcount: int

    def fetchall(self) -> list[Any]:
        return self

    def fetchone(self) -> Any:
        return self[0] if self else None


@contextmanager
def _as_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.Error as exc:
        error = sqlite3.OperationalError(str(exc))
        error.sqlite_errorcode = getattr(exc, "extendedresult", 0)
        raise error from exc
