"""Backups of a SQLite store: a copy made while others write, and the same put back in its place.

The store is replaced by a rename, so that a process that dies at any moment leaves either the old
store with its log or the new one. What was there is kept under a name that says when.
"""

import os
import secrets
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from orbiter.memory.backends.sqlite.file_checks import (
    alone,
    check_backup,
    has_foreign_wal,
    real_path,
)
from orbiter.memory.backends.sqlite.schema import APPLICATION, check_owner
from orbiter.memory.errors import StorageError
from orbiter.memory.model.audit import scope_digest
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.reports import Restored

__all__ = ["FOREIGN_WAL", "LOGS", "Progress", "backup", "copy_pages", "restore", "sync_folder"]

Progress = Callable[[int, int], None]

_ERASURES = """
SELECT whose, max(at) FROM memory_audit
WHERE action = 'erased' AND item_id IS NULL AND whose != ''
    AND number > coalesce((SELECT number FROM memory_audit WHERE hash = ?), 0)
GROUP BY whose ORDER BY max(at)
"""  # those behind the last entry that both logs have, or all of them
_NAMES = """
SELECT json_extract(metadata, ?) FROM memory_items
UNION SELECT json_extract(metadata, ?) FROM memory_versions
UNION SELECT json_extract(metadata, ?) FROM memory_entries
"""

LOGS = ("-wal", "-journal")
"""Files beside a database that hold a part of it."""

FOREIGN_WAL = ".foreign-wal"
"""The name of a log that is another file's, so that what is kept opens without it."""


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
        # One moment of the store: without it, SQLite starts over after every write of others.
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        connection.backup(copy, pages=1024, progress=_progress_hook(progress), sleep=0.001)
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


def _progress_hook(
    progress: Callable[[int, int], None] | None,
) -> Callable[[int, int, int], None] | None:
    if progress is None:
        return None
    return lambda _, left, pages: progress(pages - left, pages)


def restore(path: str, backup: str, progress: Progress | None = None) -> Restored:
    """Put a copy of *backup* in the place of the store at *path*; return what became of it.

    `StorageError` leaves everything as it was: if the backup is damaged, is not a store of ours or
    is newer than this version, or if anybody has the store open.
    """
    target, source = Path(path), Path(backup).expanduser()
    if source.is_dir():
        raise StorageError(f"`{source}` is a folder; name a backup in it")
    if not source.is_file():
        raise StorageError(f"there is no file `{source}`; name a backup")
    if target.exists() and target.samefile(source):
        raise StorageError(f"`{source}` is the store itself; name a backup of it")
    if target.exists() and not target.is_file():
        raise StorageError(f"`{target}` is not a file; name a store")
    if not target.parent.is_dir():
        raise StorageError(f"the folder `{target.parent}` does not exist; create it first")
    with alone(path):
        pass  # before the long work: somebody may have it open
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        items = _copy(source, part, progress)
        erased = _erased_since(target, part)
        is_foreign = has_foreign_wal(path)  # here: reading the file would give up the lock
        with alone(path):
            _own_like(target, part)
            replaced = _swap(part, target, wal=FOREIGN_WAL if is_foreign else "-wal")
    except OSError as exc:
        if isinstance(exc, StorageError):
            raise
        raise StorageError(f"`{target}` cannot be replaced: {exc.strerror}") from exc
    finally:
        part.unlink(missing_ok=True)
    return Restored(path=target, items=items, replaced=replaced, erased_since=erased)


def _erased_since(target: Path, part: Path) -> tuple[tuple[MemoryMetadata, datetime], ...]:
    """Return whom *part* holds though the log of *target* says that they were erased later."""
    try:
        address = check_backup(real_path(str(target)))
        with (
            closing(sqlite3.connect(address, uri=True)) as old,
            closing(sqlite3.connect(part)) as copy,
        ):
            (head,) = copy.execute("SELECT hash FROM memory_audit_head").fetchone()
            erasures = old.execute(_ERASURES, (head,)).fetchall()
            (key,) = old.execute("SELECT key FROM memory_audit_head").fetchone()
            names = _names(copy, (key or "").encode()) if erasures else {}
    except (OSError, sqlite3.Error):  # none, damaged or older than the log: it knows nothing
        return ()
    scopes = (([names.get(each) for each in digests.split()], at) for digests, at in erasures)
    return tuple(
        (MemoryMetadata(**dict(filter(None, scope))), datetime.fromisoformat(at))
        for scope, at in scopes
        if all(scope)  # else the backup has nothing of theirs
    )


def _names(copy: sqlite3.Connection, key: bytes) -> dict[str, tuple[str, str]]:
    """Return the names of scopes that a store holds, by the digests that a log has of them."""
    return {
        scope_digest(key, {field: name}): (field, name)
        for field in SCOPE_FIELDS
        for (name,) in copy.execute(_NAMES, (f"$.{field}",) * 3)
        if name is not None
    }


def _copy(source: Path, part: Path, progress: Progress | None) -> int:
    """Write a whole and checked copy of *source*; return how many items it holds."""
    address = check_backup(real_path(str(source)))
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as reader:
            _check_ours(reader, source)
            copy_pages(reader, part, progress)
        with closing(sqlite3.connect(part, isolation_level=None)) as copy:
            wrong = [row[0] for row in copy.execute("PRAGMA integrity_check(3)")]
            if wrong != ["ok"]:
                raise StorageError(
                    f"`{source}` is damaged: {'; '.join(wrong)}; take another backup"
                )
            (items,) = copy.execute(
                "SELECT count(*) FROM memory_items WHERE deleted = 0"
            ).fetchone()
    except sqlite3.Error as exc:
        raise StorageError(f"`{source}` cannot be read as a backup: {exc}") from exc
    with part.open("rb") as file:
        os.fsync(file.fileno())
    return int(items)


def _check_ours(reader: sqlite3.Connection, source: Path) -> None:
    (owner,) = reader.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION:
        raise StorageError(f"`{source}` is not a store of orbiter-memory; take another backup")
    check_owner(reader, str(source))  # nor too new


def _own_like(target: Path, part: Path) -> None:
    """Let *part* belong to whom the store belongs, or its folder: the server may be another user.

    Only root may give a file away; for everyone else it is the same user already.
    """
    there = target.stat() if target.exists() else None
    owner = target.parent.stat() if there is None else there
    with suppress(PermissionError):
        os.chown(part, owner.st_uid, owner.st_gid)
    if there is not None:
        part.chmod(stat.S_IMODE(there.st_mode))


def _swap(part: Path, target: Path, *, wal: str) -> Path | None:
    """Give *part* the name of *target*; return the name under which what was there is kept."""
    kept = _keep(target, wal=wal)
    # From here to the end, the old log lies beside the new file, which says that it has none:
    # whoever opens it now, after a crash, is refused and told to restore again.
    part.replace(target)
    sync_folder(target.parent)
    for ending in (*LOGS, "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{target}{ending}").unlink()
    sync_folder(target.parent)
    return kept


def _keep(target: Path, *, wal: str) -> Path | None:
    """Give the store at *target* a second name, and its log one that ends in *wal*."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = target.with_name(f"{target.name}.replaced-{moment}")
    number = 1
    while any(Path(f"{kept}{ending}").exists() for ending in ("", *LOGS, FOREIGN_WAL)):
        number += 1
        kept = target.with_name(f"{target.name}.replaced-{moment}-{number}")
    for ending in ("", *LOGS):
        old = Path(f"{target}{ending}")
        if old.exists():
            _name_again(old, Path(f"{kept}{wal if ending == '-wal' else ending}"))
    sync_folder(target.parent)
    return kept if kept.exists() else None


def _name_again(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        import shutil  # noqa: PLC0415 - it loads three kinds of compression

        shutil.copy2(old, new)
        with new.open("rb") as file:
            os.fsync(file.fileno())
