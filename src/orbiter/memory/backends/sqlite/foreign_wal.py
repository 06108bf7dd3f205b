"""Whether a `-wal` file belongs to the database beside it, seen before SQLite replays it.

SQLite replays whatever log it finds under the name of a database. If the database was replaced
while the log of a killed process was still there, as `cp backup.db memory.db` does, the log of the
old file is written into the new one. Three things tell:

- A file that says it keeps no WAL has none. What `backup` writes is such a file.
- Each process that writes leaves a random mark in the file, so the marks are the file's history.
  What the file itself holds, the log aside, must be a mark that the log knows: the log begins
  where the file ends. A copy from before has an older mark, which the log does not know.

- A file that is whole alone and is not with its log has another's. The log of a process that has
  written much holds no mark any more, as a log begins anew when all of it is in the file.

To refuse a file that is whole would be worse than the mistake this finds: what proves nothing is
taken for what it is.
"""

import json
import secrets
import sqlite3
from contextlib import closing

from orbiter.memory.backends.sqlite.uris import uri
from orbiter.memory.errors import StorageError

__all__ = [
    "ANY",
    "KEY",
    "MOST",
    "TRIES",
    "WriterMark",
    "check_left",
    "check_wal",
    "marks_in_file",
    "read_marks",
]

KEY = "writers"
"""The key in `memory_meta` of the marks: a JSON list, oldest first."""

ANY = "*"
"""Stands for marks that are left out."""

MOST = 64
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
    found = json.loads(row[0]) if row else []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


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
        if len(marks) >= MOST:
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
