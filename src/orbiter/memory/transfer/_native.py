"""Our own file: every item of a store, or of a scope, with all it was; a line for each.

The first line says what the file is, the last how many records it holds and the digest of all
before it, so that a file that was cut off or changed is noticed. `docs/moving-out.md` describes
each field.
"""

import gzip
import hashlib
import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, Protocol, cast

from orbiter.memory.errors import (
    AccessError,
    InvalidItemError,
    MemoryError,
    QueryError,
    TransferError,
)
from orbiter.memory.items import MemoryMetadata
from orbiter.memory.protocols import Embeddings, VersionedStore
from orbiter.memory.query import Query
from orbiter.memory.records import Record
from orbiter.memory.reports import StoreStats
from orbiter.memory.transfer._report import Imported
from orbiter.memory.transfer._target import new_file

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "Exported",
    "MovableStore",
    "export_records",
    "import_records",
    "is_native",
    "pages_of",
]

FORMAT = "orbiter-memory records"
"""What the first line of a file calls it."""

FORMAT_VERSION = 1

MOST_LINE = 256 * 2**20
"""Bytes of the longest line that is read: an item of a megabyte with some hundred versions."""

PAGE = 500
"""Records that are read, or written, at a time."""

PAGE_LENGTH = 4 * 2**20
"""Characters that are in memory at a time, unless a single record is longer."""

Progress = Callable[[int, int], None]
"""Called with the records that are done, and those there are in all, as far as that is known."""


class MovableStore(Protocol):
    """A store whose items can be taken out, and put in, with all they were."""

    async def records(
        self,
        *,
        after: str | None = None,
        limit: int = 1000,
        metadata: MemoryMetadata | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> list[Record]:
        """Return the next records, in an order that does not change."""
        ...

    async def put_records(
        self, records: Sequence[Record], *, within: MemoryMetadata | None = None
    ) -> int:
        """Write records exactly, all or none; return how many were not there so."""
        ...


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    records: int
    """How many items, soft-deleted ones included."""
    versions: int
    """How many earlier versions of them."""
    digest: str
    """The SHA-256 of all lines but the last, which states it."""
    path: Path | None
    """The file; `None` for what was written to a stream."""


async def pages_of(
    store: MovableStore, *, metadata: MemoryMetadata | None = None, most: int = PAGE
) -> AsyncGenerator[list[Record], None]:
    """Yield everything that *store* holds, page by page, in the order in which it came.

    Pages are of at most *most* records, and of some megabytes.
    """
    size = min(PAGE, most)
    page = await store.records(limit=size, metadata=metadata)
    while page:
        yield page
        if len(page) < size:
            return
        known = [record.id for record in page]
        length = sum(len(record.to_line()) for record in page)
        fitting = max(1, size * PAGE_LENGTH // max(1, length))
        size = min(2 * size, fitting, most)
        page = await _page_after(store, known, metadata, size)


async def _page_after(
    store: MovableStore, known: list[str], metadata: MemoryMetadata | None, size: int
) -> list[Record]:
    """Return the page that follows; where its last item is gone meanwhile, by a neighbour."""
    while known:
        try:
            return await store.records(after=known[-1], limit=size, metadata=metadata)
        except QueryError:
            known.pop()
    raise QueryError("items are removed faster than they are read; start anew")


# Writing


async def export_records(
    store: MovableStore,
    target: str | Path | IO[bytes],
    *,
    metadata: MemoryMetadata | None = None,
    embedding_model: Embeddings | None = None,
    total: int = 0,
    progress: Progress | None = None,
) -> Exported:
    """Write all that *store* holds, or what matches *metadata*, with every version.

    *target* is a new file, which appears under its name when it is complete and is for its owner
    alone; `-` is the standard output, and a binary file object is written to as it is. A name that
    ends in `.gz` is packed. What is written to the store meanwhile may be in the file or not.
    *embedding_model* is named in the file: vectors are not in it, a store makes its own.
    """
    path = _path(target)
    with _opened(target, path) as file:
        writer = _Writer(file)
        writer.write(_header(metadata, embedding_model, await _schema(store)))
        versions = 0
        async for page in pages_of(store, metadata=metadata):
            for record in page:
                writer.write(record.to_line())
                versions += len(record.versions)
            writer.records += len(page)
            if progress is not None:
                progress(writer.records, max(total, writer.records))
        digest = writer.end()
    return Exported(writer.records, versions, digest, path)


class _Writer:
    """Writes lines, and knows the digest of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.records = 0

    def write(self, line: str) -> None:
        data = line.encode() + b"\n"
        self._digest.update(data)
        self._file.write(data)

    def end(self) -> str:
        digest = self._digest.hexdigest()
        last = {"end": {"records": self.records, "sha256": digest}}
        self._file.write(_spell(last).encode() + b"\n")
        return digest


async def _schema(store: MovableStore) -> int | None:
    """Return the version of the tables that the records come from; `None` if there are none."""
    if isinstance(store, VersionedStore):
        stats: StoreStats = await store.stats()  # type: ignore[attr-defined]  # SQL stores have it
        return stats.schema
    return None


def _header(metadata: MemoryMetadata | None, model: Embeddings | None, schema: int | None) -> str:
    header: dict[str, object] = {  # what the file is stands first, where it is looked for
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "schema_version": schema,
        "written_at": datetime.now(UTC).isoformat(timespec="microseconds"),
        "written_by": f"orbiter-memory {_version()}",
    }
    if model is not None:
        header["embedding_model"] = {"name": model.name, "dimension": model.dimension}
    if wanted := Query(metadata=metadata).wanted:
        header["scope"] = dict(wanted)
    return _spell(header)


def _spell(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _version() -> str:
    try:
        return version("orbiter-memory")
    except PackageNotFoundError:
        return "unknown"


def _path(target: str | Path | IO[bytes]) -> Path | None:
    if isinstance(target, Path):
        return target
    return Path(target) if isinstance(target, str) and target != "-" else None


@contextmanager
def _opened(target: str | Path | IO[bytes], path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        file = sys.stdout.buffer if target == "-" else cast("IO[bytes]", target)
        yield file
        file.flush()
        return
    with new_file(path) as file:
        packed = _packed(file) if path.suffix == ".gz" else nullcontext(file)
        with packed as lines:
            try:
                yield lines
            except MemoryError as exc:
                # The store's error may be an `OSError`, too, and is none of this file's.
                raise TransferError(f"`{path}` was not written: {exc}") from exc


def _packed(file: IO[bytes]) -> Any:
    # Without name and time: the same records make the same bytes.
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6)


# Reading


async def import_records(
    store: MovableStore,
    source: str | Path | IO[bytes],
    *,
    scope: MemoryMetadata | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Put what `export_records` wrote into *store*, exactly as it was.

    It may be repeated: what is there already, exactly so, is left alone; what is there and differs
    becomes what the file says. With *scope*, a file that holds anything of others is refused with
    an `AccessError`.

    A file is read through before anything is stored: one that is damaged, cut off, or of a format
    that this version does not know is refused with a `TransferError`, and nothing is stored. A
    stream (`-` or a file object) can be read once only: there, what came before the damage is
    stored, and importing the whole file later is safe.
    """
    path = _path(source)
    expected = 0
    if path is not None:
        with _readable(path, path) as file:
            for record, _ in _read(file, scope):
                expected += record is not None
    seen = stored = length = 0
    batch: list[Record] = []
    with _readable(source, path) as file:
        for record, size in _read(file, scope):
            if record is not None:
                batch.append(record)
                length += size
            if batch and (record is None or len(batch) == PAGE or length > PAGE_LENGTH):
                stored += await store.put_records(batch, within=scope)
                seen += len(batch)
                batch, length = [], 0
                if progress is not None:
                    progress(seen, max(expected, seen))
    return Imported(format="jsonl", found=seen, stored=stored, unchanged=seen - stored, skipped=0)


def is_native(head: bytes) -> bool:
    """Tell whether a file that begins with *head* is one of ours."""
    return f'"format":"{FORMAT}"'.encode() in head.partition(b"\n")[0]


@contextmanager
def _readable(source: str | Path | IO[bytes], path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdin.buffer if source == "-" else cast("IO[bytes]", source)
        return
    try:
        with path.open("rb") as file:
            is_packed = file.peek(2)[:2] == b"\x1f\x8b"
            with gzip.GzipFile(fileobj=file) if is_packed else nullcontext(file) as lines:
                yield cast("IO[bytes]", lines)
    except MemoryError:
        raise
    except (EOFError, gzip.BadGzipFile) as exc:
        raise TransferError(f"`{path}` is cut off or damaged: {exc}") from None
    except OSError as exc:
        raise TransferError(f"`{path}` cannot be read: {exc.strerror or exc}") from exc


def _read(file: IO[bytes], scope: MemoryMetadata | None) -> Iterator[tuple[Record | None, int]]:
    """Yield the records of a file with their bytes, and `None` in the end.

    Whatever is wrong is a `TransferError` that names the line.
    """
    wanted = Query(metadata=scope).wanted
    digest, number, seen = hashlib.sha256(), 0, 0
    while line := file.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            raise TransferError(f"line {number} is longer than {MOST_LINE:,} bytes")
        if not line.endswith(b"\n"):
            raise TransferError(f"the file is cut off in line {number}; export it again")
        if number == 1:
            _check_header(line)
        elif line.startswith(b'{"end":'):
            _check_end(line, seen, digest.hexdigest(), number)
            if file.readline(1):
                raise TransferError(f"line {number + 1} comes after the end of the file")
            yield None, 0
            return
        else:
            record = _record(line, number)
            for item in record.items if wanted else ():
                if any(getattr(item.metadata, name) != value for name, value in wanted.items()):
                    raise AccessError(
                        f"line {number}: `{record.id}` is not of this scope; nothing of others "
                        "is read in here"
                    )
            seen += 1
            yield record, len(line)
        digest.update(line)
    raise TransferError(
        f"the file is cut off after line {number}; export it again" if number else "it is empty"
    )


def _record(line: bytes, number: int) -> Record:
    try:
        return Record.from_line(line)
    except InvalidItemError as exc:
        raise TransferError(f"line {number}: {exc}") from exc


def _check_header(line: bytes) -> None:
    header = _loaded(line)
    if header.get("format") != FORMAT:
        raise TransferError(
            f"line 1 does not say `{FORMAT}`: this is no export of orbiter-memory; other formats "
            "are read by `import_file`"
        )
    found = header.get("format_version")
    if not isinstance(found, int) or not 1 <= found <= FORMAT_VERSION:
        raise TransferError(
            f"the file has format {found!r}, this version of orbiter-memory knows "
            f"{FORMAT_VERSION}; upgrade with: pip install -U orbiter-memory"
        )


def _check_end(line: bytes, seen: int, digest: str, number: int) -> None:
    stated = _loaded(line).get("end")
    if not isinstance(stated, dict):
        raise TransferError(f"line {number} is no end of a file")
    if stated.get("records") != seen or stated.get("sha256") != digest:
        raise TransferError(
            f"line {number}: the file was changed since it was written: it holds {seen} records, "
            f"{stated.get('records')} are stated, and the digest "
            + ("is right" if stated.get("sha256") == digest else "is another")
        )


def _loaded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
