"""Archives, opened with suspicion, and how much of a file is read before it counts as hostile.

Nothing is ever written to a path that an archive names.
"""

import gzip
import io
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from orbiter.memory.errors import QueryError, TransferError

__all__ = [
    "GZIP",
    "ZIP",
    "Limits",
    "gzip_chunks",
    "is_archive_name",
    "zip_chunks",
    "zip_members",
]

_MB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a file may ask of this process; each may be raised for a file that one trusts."""

    depth: int = 64
    """How deep JSON may nest."""
    value: int = 32 * _MB
    """Most bytes of one JSON value, one line, or one text: what is in memory at a time."""
    nodes: int = 500_000
    """How many values one JSON value may hold; each takes far more memory than its bytes."""
    total: int = 4 * 2**30
    """Most bytes that an archive may unpack to."""
    ratio: int = 100
    """How many times its size anything packed may have unpacked, once that is over 8 MB."""
    members: int = 10_000
    """Most files in an archive or a folder."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise QueryError(f"`{each.name}` must be a whole number above 0, not {value!r}")


ZIP = (b"PK\x03\x04", b"PK\x05\x06")
GZIP = b"\x1f\x8b"

_CHUNK = 2**18
_SMALL = 8 * 2**20
"""What may be packed as tightly as it likes: a few MB of spaces harm nobody."""
_DIRECTORY = 4 * 2**20
"""Most bytes of a zip's table of contents, which is read at once and takes ten times as much."""
_PACKED = (".zip", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".zst")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_RAISE = "if you trust the file, raise the limit with `Limits({}=…)`"


def is_archive_name(name: str) -> bool:
    """Tell whether a file of that name is packed itself."""
    return name.lower().endswith(_PACKED)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (
        OSError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
        NotImplementedError,  # what zipfile says of a way of packing that it does not know
        RuntimeError,
    ) as exc:
        raise TransferError(f"`{path.name}` is damaged or cut off: {exc}") from exc


def gzip_chunks(path: Path, limits: Limits, tell: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the bytes that a gzip file holds; *tell* is told how many packed ones were read."""
    total = before = 0
    with _reading(path), path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unpacked:
        while chunk := unpacked.read(_CHUNK):
            total += len(chunk)
            packed = raw.tell()
            tell(packed - before)
            before = packed
            if total > _SMALL and total > limits.ratio * packed:
                raise TransferError(
                    f"`{path.name}` unpacks to more than {limits.ratio} times its size, like a "
                    f"zip bomb; {_RAISE.format('ratio')}"
                )
            if total > limits.total:
                raise _too_large(path, limits)
            yield chunk


def _too_large(path: Path, limits: Limits) -> TransferError:
    return TransferError(
        f"`{path.name}` unpacks to more than {limits.total:,} bytes; {_RAISE.format('total')}"
    )


class _Careful(io.BufferedReader):
    """A file that is never read in one gulp, whatever size its table of contents claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _DIRECTORY:
            raise TransferError(
                f"the zip is refused: its table of contents takes {size:,} bytes, like a zip bomb's"
            )
        return super().read(size)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with _Careful(io.FileIO(path)) as raw, zipfile.ZipFile(raw) as packed:
        yield packed


def zip_members(path: Path, limits: Limits) -> list[zipfile.ZipInfo]:
    """Return the files of a zip, by name; `TransferError` if anything about it is a trick."""
    with _reading(path), _opened(path) as packed:
        members = [info for info in packed.infolist() if not info.is_dir()]
    if len(members) > limits.members:
        raise TransferError(
            f"`{path.name}` holds {len(members):,} files, more than {limits.members:,}; "
            f"{_RAISE.format('members')}"
        )
    seen: set[str] = set()
    for info in members:
        why = _trick(info, seen)
        if why:
            raise TransferError(f"`{path.name}` is refused: its member {info.filename!r} {why}")
        seen.add(info.filename)
        if info.file_size > _SMALL and info.file_size > limits.ratio * info.compress_size:
            raise TransferError(
                f"`{path.name}` is refused: its member {info.filename!r} unpacks to more than "
                f"{limits.ratio} times its size, like a zip bomb; {_RAISE.format('ratio')}"
            )
    if sum(info.file_size for info in members) > limits.total:
        raise _too_large(path, limits)
    if sum(info.compress_size for info in members) > path.stat().st_size:
        raise TransferError(f"`{path.name}` is refused: its members overlap, like in a zip bomb")
    return sorted(members, key=lambda info: info.filename)


def _trick(info: zipfile.ZipInfo, seen: set[str]) -> str | None:
    """Tell what is wrong with a member, if anything is."""
    name = info.orig_filename  # as it stands in the file; the other is tidied up
    is_absolute = name.startswith("/") or "\\" in name or name[1:2] == ":"
    tricks = {
        "names an absolute path": is_absolute or "\0" in name,
        "names a path outside of the archive": ".." in PurePosixPath(name).parts,
        "appears twice": info.filename in seen,
        "is a symbolic link": stat.S_ISLNK(info.external_attr >> 16),
        "is encrypted; unpack it first": bool(info.flag_bits & 0x1),
        "is packed by a method other than deflate; unpack it first": (
            info.compress_type not in _METHODS
        ),
    }
    return next((why for why, is_so in tricks.items() if is_so), None)


def zip_chunks(path: Path, name: str, tell: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the bytes of a member; the archive has been looked through before."""
    with _reading(path), _opened(path) as packed, packed.open(name) as member:
        while chunk := member.read(_CHUNK):
            tell(len(chunk))
            yield chunk
