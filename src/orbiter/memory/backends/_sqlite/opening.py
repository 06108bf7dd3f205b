"""Looking at a path before SQLite opens it: what is not ours or not whole stays as it is."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from orbiter.memory.backends._sqlite.schema import check_owner
from orbiter.memory.errors import StorageError


def uri(path: str, mode: str) -> str:
    """Return the address of an absolute *path*, to open it and never to create it."""
    return f"file:///{quote(Path(path).as_posix().lstrip('/'), safe='/:')}?mode={mode}"


def prepare_file(path: str) -> None:
    """Make sure that *path* is a new file or looks like a whole database; change no byte."""
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
