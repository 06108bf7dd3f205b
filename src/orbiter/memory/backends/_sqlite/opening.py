"""Looking at a path before SQLite opens it: what is not ours or not whole stays as it is.

Closing any descriptor of a file takes away all locks that the process has on it, those of SQLite's
connections included; other processes then take its journal away under it. So a file is looked at
only while no connection of this process is open on it.
"""

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from orbiter.memory.backends._sqlite.forks import looking
from orbiter.memory.backends._sqlite.schema import check_owner
from orbiter.memory.errors import StorageError


def uri(path: str, mode: str) -> str:
    """Return the address of an absolute *path*, to open it and never to create it."""
    return f"file:///{quote(Path(path).as_posix().lstrip('/'), safe='/:')}?mode={mode}"


_File = tuple[int, int]

_open: Counter[_File] = Counter()
"""How many connections there are, or will be in a moment, on each file of this process."""


class Connection(sqlite3.Connection):
    """A connection that says when it is closed."""

    held: _File | None = None

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


def prepare_file(path: str) -> _File:
    """Make sure that *path* is a new file or looks like a whole database; change no byte.

    What is returned must be released when the connection that is now made is closed.
    """
    with looking:
        if held := _identity(path):
            if not _open[held]:
                _check_place(path)
            _open[held] += 1
            return held
        _check_place(path)
        held = _identity(path) or (0, 0)
        _open[held] += 1
        return held


def _identity(path: str) -> _File | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check_place(path: str) -> None:
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
        _look_at(path)
    except OSError as exc:
        raise StorageError(f"`{path}` cannot be created: {exc.strerror}") from exc


def _look_at(path: str) -> None:
    if not os.access(path, os.R_OK | os.W_OK):
        raise StorageError(f"`{path}` cannot be read and written by this user; change its mode")
    # A file that is being written back, or was when the power failed, is completed from these.
    has_wal, has_journal = _size(f"{path}-wal") > 0, _size(f"{path}-journal") > 0
    with Path(path).open("rb") as file:
        header = file.read(100)
        size = os.fstat(file.fileno()).st_size
    if not header:
        return
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
    if has_wal and not has_journal:
        # Whoever may write also writes the journal back when closing, be the file ours or not.
        with closing(sqlite3.connect(uri(path, "ro"), uri=True)) as reader:
            check_owner(reader, path)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0
