"""Looking at a path before SQLite opens it: what is not ours or not whole stays as it is.

Closing any descriptor of a file takes away all locks that the process has on it, those of SQLite's
connections included; other processes then take its journal away under it. So a file is looked at
only while no connection of this process is open on it.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from orbiter.memory.backends.sqlite.foreign_wal import (
    WriterMark,
    check_left,
    check_wal,
    marks_in_file,
)
from orbiter.memory.backends.sqlite.fork_safety import looking
from orbiter.memory.backends.sqlite.schema import APPLICATION, check_owner
from orbiter.memory.backends.sqlite.uris import uri
from orbiter.memory.errors import StorageError

__all__ = [
    "Connection",
    "alone",
    "check_backup",
    "descriptor",
    "has_foreign_wal",
    "prepare_file",
    "release",
]

_File = tuple[int, int]

_open: Counter[_File] = Counter()
"""How many connections there are, or will be in a moment, on each file of this process."""


class Connection(sqlite3.Connection):
    """A connection that says when it is closed."""

    held: _File | None = None
    mark: WriterMark | None = None
    """What it leaves in the file with its first commit; readers leave none."""

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
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check_place(path: str) -> list[str]:
    """Return the marks of the writers that are in the file."""
    folder = Path(path).parent
    if not folder.is_dir():
        home = "; `~` is not expanded, `Path(...).expanduser()` does that" if "~" in path else ""
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
        raise StorageError(f"`{path}` cannot be read and written by this user; change its mode")
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
