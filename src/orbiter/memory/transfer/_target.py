"""New files that hold memories: for their owner alone, complete or not there at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from orbiter.memory.errors import TransferError

__all__ = ["new_file", "new_folder"]


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that has its name once all is written; what is there is never overwritten."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        if os.path.lexists(path):
            raise TransferError(f"`{path}` exists already; choose another name")
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(part, path)
    except OSError as exc:
        raise TransferError(f"`{path}` cannot be written: {exc.strerror or exc}") from exc
    finally:
        part.unlink(missing_ok=True)


def _name(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        raise TransferError(f"`{path}` was made meanwhile; choose another name") from None
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise
        part.rename(path)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make a folder that has its name once all is in it."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        if os.path.lexists(path):
            raise TransferError(f"`{path}` exists already; choose another name")
        part.mkdir(mode=0o700)
        yield part
        part.rename(path)  # refused if a folder with something in it has come into being
    except OSError as exc:
        raise TransferError(f"`{path}` cannot be written: {exc.strerror or exc}") from exc
    finally:
        if part.exists():
            _remove(part)


def _remove(folder: Path) -> None:
    for inside in sorted(folder.rglob("*"), reverse=True):
        inside.rmdir() if inside.is_dir() else inside.unlink()
    folder.rmdir()
