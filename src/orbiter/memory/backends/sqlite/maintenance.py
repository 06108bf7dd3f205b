"""Looking after a SQLite file: what it holds, its room, its backups."""

import os
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path

from orbiter.memory.backends.sqlite.not_expired import living
from orbiter.memory.errors import StorageError
from orbiter.memory.model.reports import StoreStats

__all__ = [
    "Identity",
    "backup",
    "checkpoint",
    "copy_pages",
    "stats",
    "sync_folder",
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
            found = os.stat(self._path)  # noqa: PTH116 - for every write: a third of the time
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


def checkpoint(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def vacuum(connection: sqlite3.Connection) -> None:
    vacuum_only(connection)
    checkpoint(connection)


def vacuum_only(connection: sqlite3.Connection) -> None:
    # SQLite renumbers only tables that have no index at all, so rows keep their places, by which
    # every search structure knows them.
    connection.execute("VACUUM")


def stats(connection: sqlite3.Connection) -> StoreStats:
    def number(sql: str) -> int:
        return int(connection.execute(sql).fetchone()[0])

    items = number(f"SELECT count(*) FROM memory_items WHERE deleted = 0 AND {living()}")
    pages = number("PRAGMA page_count") * number("PRAGMA page_size")
    file = connection.execute("PRAGMA database_list").fetchone()[2]
    journal = Path(f"{file}-wal")
    return StoreStats(
        items=items,
        deleted=number(f"SELECT count(*) FROM memory_items WHERE deleted = 1 AND {living()}"),
        versions=number("SELECT count(*) FROM memory_versions WHERE memory_type IS NOT NULL"),
        bytes=pages + (journal.stat().st_size if file and journal.exists() else 0),
        unindexed=number(
            "SELECT (SELECT count(*) FROM memory_unindexed) + count(*) FROM memory_items"
            " WHERE rowid > (SELECT value FROM memory_meta WHERE key = 'indexed_to')"
        ),
        schema=number("PRAGMA user_version"),
    )


def backup(
    connection: sqlite3.Connection, target: Path, progress: Callable[[int, int], None] | None
) -> None:
    # A name of its own, so that two backups at once do not write into one file.
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    if target.exists():
        raise StorageError(f"`{target}` exists already; choose another name for the backup")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        copy_pages(connection, part, progress)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        _name(part, target)
        sync_folder(target.parent)  # its name is kept, too
    except OSError as exc:
        raise StorageError(f"`{target}` cannot be written: {exc.strerror}") from exc
    except sqlite3.Error as exc:
        raise StorageError(f"`{target}` cannot be written: {exc}") from exc
    finally:
        part.unlink(missing_ok=True)


def copy_pages(
    connection: sqlite3.Connection, part: Path, progress: Callable[[int, int], None] | None
) -> None:
    """Write what a connection sees into an empty file, as one that needs nothing beside it."""
    copy = sqlite3.connect(part, isolation_level=None)
    try:
        # One moment of the store: without it, SQLite starts anew after every write of others.
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        connection.backup(copy, pages=1024, progress=_telling(progress), sleep=0.001)
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        copy.close()
        connection.execute("ROLLBACK")


def sync_folder(folder: Path) -> None:
    """Have the names of the files in a folder survive a power cut."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _name(part: Path, target: Path) -> None:
    """Give a finished file its name, never another's place."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise
        part.rename(target)


def _telling(
    progress: Callable[[int, int], None] | None,
) -> Callable[[int, int, int], None] | None:
    if progress is None:
        return None
    return lambda _, left, pages: progress(pages - left, pages)
