"""New files that hold memories: for their owner alone, complete or not there at all."""

import gzip
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from orbiter.memory.errors import MemoryError, TransferError

__all__ = ["check_free", "new_file", "new_folder"]


@contextmanager
def new_file(path: Path, *, may_pack: bool = False) -> Iterator[IO[bytes]]:
    """Open a file that has its name once all is written; what is there is never overwritten.

    With *may_pack*, a name that ends in `.gz` gets a packed file.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with _transfer_errors(path):
        try:
            check_free(path)
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
                if may_pack and path.suffix.lower() == ".gz":
                    with _packed(file) as packed:
                        yield packed
                else:
                    yield file
                file.flush()
                os.fsync(file.fileno())
            _name(part, path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _transfer_errors(path: Path) -> Iterator[None]:
    """Turn what goes wrong into a `TransferError` that names the file, and whose fault it is."""
    try:
        yield
    except TransferError:
        raise
    except MemoryError as exc:
        # The store's error may be an `OSError`, too, and is none of this file's.
        raise TransferError(f"`{path}` was not written: {exc}") from exc
    except OSError as exc:
        raise TransferError(f"`{path}` cannot be written: {exc.strerror or exc}") from exc


def check_free(path: Path) -> None:
    """Raise `TransferError` if something has this name."""
    if os.path.lexists(path):
        raise TransferError(f"`{path}` exists already; choose another name")


def _packed(file: IO[bytes]) -> IO[bytes]:
    # Without name and time: the same memories make the same bytes.
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6)
    return cast("IO[bytes]", packed)


def _name(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        raise TransferError(f"`{path}` was created meanwhile; choose another name") from None
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise
        part.rename(path)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make a folder that has its name once all is in it."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with _transfer_errors(path):
        try:
            check_free(path)
            part.mkdir(mode=0o700)
            yield part
            part.rename(path)  # refused if a folder with something in it has come into being
        finally:
            if part.exists():
                _remove(part)


def _remove(folder: Path) -> None:
    for inside in sorted(folder.rglob("*"), reverse=True):
        inside.rmdir() if inside.is_dir() else inside.unlink()
    folder.rmdir()
