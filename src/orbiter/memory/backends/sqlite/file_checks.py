"""Checks of a path before SQLite opens it: what is not ours or not whole is left alone.

Closing any descriptor of a file takes away all locks that the process has on it, those of SQLite's
connections included; other processes then take its journal away under it. So a file is looked at
only while no connection of this process is open on it.

A `-wal` file may belong to another database than the one beside it.
SQLite replays whatever log it finds under the name of a database. If the database was replaced
while the log of a killed process was still there, as `cp backup.db memory.db` does, the log of the
old file is written into the new one. Three things tell:

- A file that says it keeps no WAL has none. What `backup` writes is such a file.
- Each process that writes leaves a random mark in the file, so the marks are the file's history.
  What the file itself holds, the log aside, must be a mark that the log knows: the log begins
  where the file ends. A copy from before has an older mark, which the log does not know.

- A file that is whole alone and is not with its log has another's. The log of a process that has
  written much holds no mark any more, as a log starts over when all of it is in the file.

To refuse a file that is whole would be worse than the mistake this finds: what proves nothing is
taken for what it is.
"""

import json
import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from orbiter.memory.backends.sqlite.fork_safety import looking
from orbiter.memory.backends.sqlite.schema import APPLICATION, check_owner
from orbiter.memory.errors import StorageError

__all__ = [
    "ANY",
    "KEY",
    "MAX_MARKS",
    "TRIES",
    "Connection",
    "WriterMark",
    "alone",
    "check_backup",
    "check_left",
    "check_wal",
    "descriptor",
    "has_foreign_wal",
    "marks_in_file",
    "prepare_file",
    "read_marks",
    "real_path",
    "release",
    "uri",
]


def uri(path: str, mode: str) -> str:
    """Return the address of an absolute *path*, to open it and never to create it."""
    return f"file:///{quote(Path(path).as_posix().lstrip('/'), safe='/:')}?mode={mode}"


def real_path(path: str) -> str:
    """Return where a file is, from the root on: SQLite keeps the log of a link where that leads."""
    if path.startswith(("~/", "~\\")):  # a file may be called `~`
        path = os.path.expanduser(path)  # noqa: PTH111 - it stays a text
    # Of any other file the name stays as it was given, whatever the folders above it are.
    return os.path.realpath(path) if Path(path).is_symlink() else os.path.abspath(path)  # noqa: PTH100


KEY = "writers"
"""The key in `memory_meta` of the marks: a JSON list, oldest first."""

ANY = "*"
"""Stands for marks that are left out."""

MAX_MARKS = 64
"""Marks that are kept. All but the newest are dropped as soon as they are in the file itself."""

TRIES = 5
"""How often marks are read that change meanwhile."""


def check_wal(path: str, header: bytes) -> list[str]:
    """Raise `StorageError` if the log beside *path* is another file's; return the file's marks."""
    if 1 in header[18:20]:  # the file formats for writing and reading: 1 is without a WAL, 2 with
        raise _foreign(path)
    for _ in range(TRIES):
        own = marks_in_file(path)
        known = _read_marks(uri(path, "ro"))
        # Others may write meanwhile; then the two were not of one moment.
        if own != marks_in_file(path):
            continue
        if own and known and ANY not in known and own[-1] not in known:
            raise _foreign(path)
        return own
    return []


def check_left(path: str) -> None:
    """Raise `StorageError` if the log that a killed process left beside *path* would spoil it.

    Only for a file that nobody has open: otherwise it may change meanwhile.
    """
    if not _is_whole(uri(path, "ro")) and _is_whole(f"{uri(path, 'ro')}&immutable=1"):
        raise _foreign(path)


def _is_whole(address: str) -> bool:
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
    except sqlite3.DatabaseError:
        return False


def marks_in_file(path: str) -> list[str]:
    """Return the marks that the file itself holds, whatever a log beside it says.

    Only for a file of which this process has no connection open.
    """
    return _read_marks(f"{uri(path, 'ro')}&immutable=1")


def _read_marks(address: str) -> list[str]:
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return read_marks(connection)
    except (sqlite3.Error, ValueError):
        return []  # no table yet, or a file in the middle of being written: nothing is known


def read_marks(connection: sqlite3.Connection) -> list[str]:
    """Return the marks that a connection sees."""
    row = connection.execute("SELECT value FROM memory_meta WHERE key = ?", [KEY]).fetchone()
    marks = json.loads(row[0]) if row else []
    return [each for each in marks if isinstance(each, str)] if isinstance(marks, list) else []


class WriterMark:
    """The mark of one writer, which it leaves with its first commit."""

    def __init__(self, in_file: list[str]) -> None:
        """*in_file* are the marks that the file itself held, as far as that is known."""
        self._mark = secrets.token_hex(8)
        self._base = in_file[-1] if in_file else None
        self._is_left = False

    def leave(self, connection: sqlite3.Connection) -> None:
        """Write it into the file, in the transaction that is open, unless that is done."""
        if self._is_left:
            return
        marks = read_marks(connection)
        if self._mark in marks:  # committed by a transaction before this one
            self._is_left = True
            return
        if self._base in marks:  # no older one is needed any more
            marks = marks[marks.index(self._base) :]
        if len(marks) >= MAX_MARKS:
            marks = [ANY, *marks[-1:]]
        connection.execute(
            "INSERT OR REPLACE INTO memory_meta VALUES (?, ?)",
            [KEY, json.dumps([*marks, self._mark])],
        )


def _foreign(path: str) -> StorageError:
    return StorageError(
        f"`{path}-wal` is the log of another file: `{path}` was replaced while the log of a killed "
        "process was there, and would be overwritten by it; nothing was changed. If it is a "
        "backup, put it elsewhere and restore it: `orbiter-memory restore FILE`, or "
        f"`AgentMemory(…).restore(file)`; or move `{path}-wal` and `{path}-shm` away by hand"
    )


_File = tuple[int, int]

_open: Counter[_File] = Counter()
"""How many connections there are, or will be in a moment, on each file of this process."""


class Connection(sqlite3.Connection):
    """A connection that says when it is closed."""

    held: _File | None = None
    mark: WriterMark | None = None
    """What it leaves in the file with its first commit; readers leave none."""
    written_back: int = 0
    """How many rows it had changed when it wrote the journal back last."""

    def close(self) -> None:
        """Close it; from then on the file may be looked at, unless there are others."""
        super().close()
        held, self.held = self.held, None
        if held is not None:
            release(held)


def release(held: _File) -> None:
    """Say that a connection is closed, or was never made."""
    with looking:
        _open[held] -= 1
        if not _open[held]:
            del _open[held]
            if held in _read:
                os.close(_read.pop(held))


_read: dict[_File, int] = {}
"""Descriptors of files that are open, by which their bytes are read."""


def descriptor(connection: sqlite3.Connection, path: str) -> int | None:
    """Return a descriptor of the file that a writer has open, or `None` if that is in memory.

    It stays open for as long as the file does, see above; nobody else may close it.
    """
    held = getattr(connection, "held", None)
    if held is None:
        return None
    with looking:
        if held not in _read:
            _read[held] = os.open(path, os.O_RDONLY)
        return _read[held]


def prepare_file(path: str) -> tuple[_File, WriterMark]:
    """Make sure that *path* is a new file or looks like a whole database; change no byte.

    The file that is returned must be released when the connection that is now made is closed.
    """
    with looking:
        marks: list[str] = []
        if not (held := _identity(path)) or not _open[held]:
            marks = _check_place(path)
            held = _identity(path) or (0, 0)
        _open[held] += 1
        return held, WriterMark(marks)


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Keep everybody else from opening *path*; `StorageError` if somebody has it open.

    It is for a few steps, as no file of this process is opened meanwhile. Whoever opens the file
    elsewhere waits, and then finds out that it was replaced.
    """
    with looking:
        held = _identity(path)
        if held is None:
            yield
            return
        if _open[held]:
            raise StorageError(f"`{path}` is open in this process; close it first")
        file = os.open(path, os.O_RDWR)
        try:
            _lock(file, path)
            yield
        finally:
            os.close(file)  # and with it the lock


_LOCKS = 0x40000000, 512
"""Where SQLite locks a file. A connection to a file with a WAL has a lock there until it closes."""


def _lock(file: int, path: str) -> None:
    try:
        import fcntl  # noqa: PLC0415 - not on Windows, where an open file cannot be replaced
    except ModuleNotFoundError:
        return
    start, length = _LOCKS
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
    except OSError as exc:
        raise StorageError(
            f"`{path}` is open in another process; stop whatever uses it, such as `orbiter-memory "
            "serve`, and try again"
        ) from exc


def _check_log(path: str, header: bytes) -> list[str]:
    """Raise `StorageError` if the log beside *path* is another file's; return the file's marks."""
    marks = check_wal(path, header)
    if _is_left(path):
        check_left(path)
    return marks


def _is_left(path: str) -> bool:
    """Tell whether nobody has a file open, so that its log was left by a process that is gone."""
    file = os.open(path, os.O_RDWR)
    try:
        _lock(file, path)
    except StorageError:
        return False
    finally:
        os.close(file)
    return True


def _identity(path: str) -> _File | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _check_place(path: str) -> list[str]:
    """Return the marks of the writers that are in the file."""
    folder = Path(path).parent
    if not folder.is_dir():
        home = (
            "; `~` is expanded only where a path begins with it; see `Path(...).expanduser()`"
            if "~" in path
            else ""
        )
        raise StorageError(f"the folder `{folder}` does not exist; create it first{home}")
    if Path(path).is_dir():
        raise StorageError(f"`{path}` is a folder; name a file in it")
    if Path(path).exists() and not Path(path).is_file():
        raise StorageError(f"`{path}` is not a file; choose another name")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return _look_at(path)
    except OSError as exc:
        raise StorageError(f"`{path}` cannot be created: {exc.strerror}") from exc
    return []


def _look_at(path: str) -> list[str]:
    if not os.access(path, os.R_OK | os.W_OK):
        missing = "written" if os.access(path, os.R_OK) else "read and written"
        raise StorageError(
            f"`{path}` cannot be {missing} by this user; change its owner or mode, or copy it to a "
            "folder that can be written. Whoever only reads needs that, too: SQLite makes files "
            "beside it, and words are indexed when they are searched"
        )
    # A file that is being written back, or was when the power failed, is completed from these.
    has_wal, has_journal = _size(f"{path}-wal") > 0, _size(f"{path}-journal") > 0
    with Path(path).open("rb") as file:
        header = file.read(100)
        size = os.fstat(file.fileno()).st_size
    if not header:
        return []
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise StorageError(f"`{path}` is not a SQLite database; choose another file")
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    is_current = header[24:28] == header[92:96]
    if is_current and pages * page > size and not (has_wal or has_journal):
        raise StorageError(
            f"`{path}` is cut off: {size:,} of {pages * page:,} bytes; restore a backup"
        )
    if has_journal:
        return []
    if has_wal:
        # Whoever may write also writes the journal back when closing, be the file ours or not.
        marks = _check_log(path, header)
        with closing(sqlite3.connect(uri(path, "ro"), uri=True)) as reader:
            check_owner(reader, path)
        return marks
    is_ours = int.from_bytes(header[68:72], "big") == APPLICATION
    return marks_in_file(path) if is_ours else []


def check_backup(path: str) -> str:
    """Return the address at which a file that nobody writes is read; `StorageError` if it is none.

    A log beside it is a part of it, unless it is another file's.
    """
    with looking:
        if _open[_identity(path) or (0, 0)]:
            raise StorageError(f"`{path}` is open in this process; close it first")
        with Path(path).open("rb") as file:
            header = file.read(100)
        if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
            raise StorageError(f"`{path}` is not a SQLite database; name a backup")
        if _size(f"{path}-wal"):
            check_wal(path, header)
            check_left(path)
            return uri(path, "ro")
    # Without a log it may lie where nothing can be written, such as a medium for backups.
    return f"{uri(path, 'ro')}&immutable=1"


def has_foreign_wal(path: str) -> bool:
    """Tell whether the log beside a file that nobody has open is another file's."""
    with looking:
        held = _identity(path)
        if held is None or _open[held] or not _size(f"{path}-wal"):
            return False
        with Path(path).open("rb") as file:
            header = file.read(100)
        try:
            _check_log(path, header)
        except StorageError:
            return True
    return False


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0
