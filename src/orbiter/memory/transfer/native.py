"""The native JSONL format: every item of a store, or of a scope, with its versions, a line each.

The first line says what the file is, the last how many records it holds and the digest of all
before it, so that a file that was cut off or changed is noticed. `docs/export.md` describes
each field.
"""

import gzip
import hashlib
import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, Protocol, cast

from orbiter.memory.errors import MemoryError, QueryError, TransferError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.protocols import Embeddings, VersionedStore
from orbiter.memory.model.query import Query
from orbiter.memory.model.records import Record, Written
from orbiter.memory.model.reports import StoreStats
from orbiter.memory.tasks.worker_threads import iterate_in_thread
from orbiter.memory.transfer._native_reader import FORMAT, FORMAT_VERSION, is_native, record_pages
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.open_source import Tally
from orbiter.memory.transfer.io.output_file import new_file
from orbiter.memory.transfer.report import ImportResult, Problem

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "ExportResult",
    "MovableStore",
    "RecordRewriter",
    "export_records",
    "import_records",
    "is_native",
    "pages_of",
    "store_records",
]

PAGE = 500
"""Records that are read, or written, at a time."""

PAGE_LENGTH = 4 * 2**20
"""Characters that are in memory at a time, unless a single record is longer."""

MAX_TOLD = 100
"""Items that a report names of those that stayed as they were."""

_WENT_ON = "it has changed here since, and stays as it is; `overwrite=True` replaces it"

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
        self,
        records: Sequence[Record],
        *,
        within: MemoryMetadata | None = None,
        overwrite: bool = False,
    ) -> int:
        """Write records exactly, all or none; return how many were not there so.

        What went on by itself here stays, unless *overwrite*; a `Written` names it.
        """
        ...


class RecordRewriter(Protocol):
    """Changes the records of a file before they are stored; sees all of them first."""

    async def learn(self, records: Sequence[Record]) -> None:
        """Look at some records of the file."""
        ...

    async def adopt(self, records: Sequence[Record]) -> list[Record]:
        """Return *records* as they may be stored."""
        ...


@dataclass(frozen=True, slots=True)
class ExportResult:
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
    raise QueryError("items are removed faster than they are read; start again")


# Writing


async def export_records(
    store: MovableStore,
    target: str | Path | IO[bytes],
    *,
    metadata: MemoryMetadata | None = None,
    embedding_model: Embeddings | None = None,
    total: int = 0,
    progress: Progress | None = None,
) -> ExportResult:
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
    return ExportResult(writer.records, versions, digest, path)


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
    overwrite: bool = False,
    limits: Limits | None = None,
) -> ImportResult:
    """Put what `export_records` wrote into *store*, exactly as it was.

    It may be repeated: what is there already, exactly so, is left alone, and what the file knows
    newer versions of goes on to them. What has changed here by itself stays as it is, is counted
    as skipped, and told; with *overwrite* it becomes what the file says. With *scope*, a file that
    holds anything of others is refused with an `AccessError`.

    A file is read through before anything is stored: one that is damaged, cut off, or of a format
    that this version does not know is refused with a `TransferError`, and nothing is stored. A
    stream (`-` or a file object) can be read once only: there, what came before the damage is
    stored, and importing the whole file later is safe. *limits* says how much of it is read before
    it counts as hostile; without, a line may have 256 MB.
    """
    return await store_records(
        store, source, scope=scope, progress=progress, overwrite=overwrite, limits=limits
    )


async def store_records(
    store: MovableStore,
    source: str | Path | IO[bytes],
    *,
    scope: MemoryMetadata | None,
    progress: Progress | None = None,
    overwrite: bool = False,
    limits: Limits | None = None,
    rewriter: RecordRewriter | None = None,
) -> ImportResult:
    """Do what `import_records` does; with a *rewriter*, a file's ids and names are not believed."""
    path = _path(source)
    expected = seen = stored = 0
    kept: list[str] = []
    if path is not None:
        async with aclosing(_read_in_thread(path, path, scope, limits)) as pages:
            async for page in pages:
                expected += len(page)
                if rewriter is not None:
                    await rewriter.learn(page)
    async with aclosing(_read_in_thread(source, path, scope, limits)) as pages:
        async for page in pages:
            own = page if rewriter is None else await rewriter.adopt(page)
            written = await store.put_records(own, within=scope, overwrite=overwrite)
            stored += written
            kept += _kept(written)
            seen += len(page)
            if progress is not None:
                progress(seen, max(expected, seen))
    return ImportResult(
        format="jsonl",
        found=seen,
        stored=stored,
        unchanged=seen - stored - len(kept),
        skipped=len(kept),
        problems=tuple(Problem(f"item `{item_id}`", _WENT_ON) for item_id in kept[:MAX_TOLD]),
        problem_count=len(kept),
    )


def _read_in_thread(
    source: str | Path | IO[bytes],
    path: Path | None,
    scope: MemoryMetadata | None,
    limits: Limits | None,
) -> AsyncGenerator[list[Record], None]:
    """Yield the records of a file page by page; they are read and made in a thread."""
    tally = Tally()

    def stop() -> None:
        tally.is_stopped = True

    page = (PAGE, PAGE_LENGTH)
    pages = record_pages(source, path, scope=scope, limits=limits, page=page, tally=tally)
    return iterate_in_thread(pages, stop=stop)


def _kept(written: int) -> tuple[str, ...]:
    return written.conflicts if isinstance(written, Written) else ()
