"""Maintenance of a SQLite file: statistics, checkpoints, size."""

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from orbiter.memory.backends.sqlite import term_index
from orbiter.memory.backends.sqlite.schema import not_expired
from orbiter.memory.errors import StorageError

if TYPE_CHECKING:
    from orbiter.memory.model.reports import StoreStats

__all__ = [
    "Identity",
    "checkpoint",
    "stats",
    "vacuum",
    "vacuum_only",
]


class Identity:
    """Which file a path names, to notice when it is removed or replaced under an open store."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None

    def note(self, held: tuple[int, int] | None) -> None:
        """Remember the file that is there now; `StorageError` if it is not the one that is open."""
        self._seen = self._look()
        if self._seen != held:
            raise StorageError(
                f"`{self._path}` was replaced while it was being opened; open it again"
            )

    def check(self) -> None:
        """Raise `StorageError` if it is another one, or none: what we write would be lost."""
        if self._look() != self._seen:
            raise StorageError(
                f"`{self._path}` was removed or replaced while the store was open, so nothing was "
                "written; close the store and open it again"
            )

    def _look(self) -> tuple[int, int] | None:
        if self._path == ":memory:":
            return None
        try:
            stat = os.stat(self._path)  # noqa: PTH116 - for every write: a third of the time
        except FileNotFoundError:
            return None
        return stat.st_dev, stat.st_ino


def checkpoint(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def vacuum(connection: sqlite3.Connection) -> None:
    vacuum_only(connection)
    checkpoint(connection)


def vacuum_only(connection: sqlite3.Connection) -> None:
    # SQLite renumbers only tables that have no index at all, so rows keep their places, by which
    # every search structure knows them.
    connection.execute("VACUUM")


def stats(connection: sqlite3.Connection) -> "StoreStats":
    from orbiter.memory.model.reports import StoreStats  # noqa: PLC0415 - few ask for it

    def number(sql: str) -> int:
        return int(connection.execute(sql).fetchone()[0])

    counts = connection.execute(  # one statement, and so of one instant
        f"SELECT {term_index.counting(None, str(term_index.ALL))},"
        f" (SELECT count(*) FROM memory_items WHERE deleted = 1 AND {not_expired()}),"
        " (SELECT count(*) FROM memory_versions WHERE memory_type IS NOT NULL),"
        " (SELECT count(*) FROM memory_unindexed) + (SELECT count(*) FROM memory_items"
        " WHERE rowid > (SELECT value FROM memory_meta WHERE key = 'indexed_to'))"
    ).fetchone()
    pages = number("PRAGMA page_count") * number("PRAGMA page_size")
    file = connection.execute("PRAGMA database_list").fetchone()[2]
    journal = Path(f"{file}-wal")
    return StoreStats(
        items=counts[0],
        deleted=counts[1],
        versions=counts[2],
        bytes=pages + (journal.stat().st_size if file and journal.exists() else 0),
        unindexed=counts[3],
        schema=number("PRAGMA user_version"),
    )
