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
from typing import IO, TYPE_CHECKING, Any, cast

from orbiter.memory.errors import MemoryError, QueryError, TransferError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.key_value import KeyValueStore, StoredEntry
from orbiter.memory.model.protocols import Embeddings, HistoryStore
from orbiter.memory.model.query import Query
from orbiter.memory.model.records import Record, Written
from orbiter.memory.model.reports import StoreStats
from orbiter.memory.tasks.event_loop import to_end
from orbiter.memory.tasks.worker_threads import iterate_in_thread
from orbiter.memory.transfer._native_reader import (
    FORMAT,
    FORMAT_VERSION,
    Selection,
    is_native,
    record_pages,
)
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.output_file import new_file
from orbiter.memory.transfer.io.source_file import Tally
from orbiter.memory.transfer.movable_store import MovableStore
from orbiter.memory.transfer.report import ImportResult, Report, note_stored

if TYPE_CHECKING:
    from orbiter.memory.transfer.native_rewrite import NativeRewrite

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "ExportResult",
    "entry_pages",
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

_WENT_ON = (
    "it has changed here since, and stays as it is; `import_records(…, overwrite=True)` replaces it"
)
_NOT_KEPT = "this store keeps no key-value entries; SQLite, Postgres and Redis do"

Progress = Callable[[int, int], None]
"""Called with the records that are done, and those there are in all, as far as that is known."""


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
    entries: int = 0
    """How many key-value entries."""


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
        has_entries = await anext(entry_pages(store, metadata, most=1), None) is not None
        schema = await _schema(store)
        writer.write(_header(metadata, embedding_model, schema, has_entries=has_entries))
        versions = 0
        async for page in pages_of(store, metadata=metadata):
            for record in page:
                writer.write(record.to_line())
                versions += len(record.versions)
            writer.records += len(page)
            if progress is not None:
                progress(writer.records, max(total, writer.records))
        if has_entries:
            async for entries in entry_pages(store, metadata):
                for entry in entries:
                    writer.write(entry.to_line())
                writer.entries += len(entries)
        digest = writer.end()
    return ExportResult(writer.records, versions, digest, path, writer.entries)


async def entry_pages(
    store: object, metadata: MemoryMetadata | None, *, most: int = 20
) -> AsyncGenerator[list[StoredEntry], None]:
    """Yield the key-value entries of a store, if it keeps any, page by page."""
    kept: KeyValueStore | None = getattr(store, "key_value", None)
    page = [] if kept is None else await kept.dump(metadata=metadata, limit=most)
    while page and kept is not None:
        yield page
        page = await kept.dump(metadata=metadata, after=page[-1], limit=most)


class _Writer:
    """Writes lines, and knows the digest of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.records = self.entries = 0

    def write(self, line: str) -> None:
        data = line.encode() + b"\n"
        self._digest.update(data)
        self._file.write(data)

    def end(self) -> str:
        digest = self._digest.hexdigest()
        counts = {"records": self.records, **({"entries": self.entries} if self.entries else {})}
        last = {"end": {**counts, "sha256": digest}}
        self._file.write(_spell(last).encode() + b"\n")
        return digest


async def _schema(store: MovableStore) -> int | None:
    """Return the version of the tables that the records come from; `None` if there are none."""
    if isinstance(store, HistoryStore):
        stats: StoreStats = await store.stats()  # type: ignore[attr-defined]  # SQL stores have it
        return stats.schema
    return None


def _header(
    metadata: MemoryMetadata | None,
    model: Embeddings | None,
    schema: int | None,
    *,
    has_entries: bool,
) -> str:
    header: dict[str, object] = {  # what the file is stands first, where it is looked for
        "format": FORMAT,
        "format_version": FORMAT_VERSION if has_entries else 1,
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
    owner: str | None = None,
    rewriter: "NativeRewrite | None" = None,
) -> ImportResult:
    """Do what `import_records` does, with what a *rewriter* makes of the records.

    With *owner*, only that user's are taken, whoever *scope* is for.
    """
    path = _path(source)
    taken = Selection(scope, owner)
    expected = seen = stored = 0
    kept: list[str] = []
    if path is not None:
        async with aclosing(_read_in_thread(path, path, taken, limits)) as pages:
            async for page in pages:
                expected += len(page)
                if rewriter is not None:
                    await rewriter.learn([each for each in page if isinstance(each, Record)])
        taken.others.report(lambda *_: None, path, is_any_taken=bool(expected))
    taken = Selection(scope, owner)
    async with aclosing(_read_in_thread(source, path, taken, limits)) as pages:
        async for page in pages:
            own = [each for each in page if isinstance(each, Record)]
            if rewriter is not None:
                own = await rewriter.adopt(own)
            if own:
                # As in `import_sent`: a Ctrl-C waits for what is under way.
                putting = store.put_records(own, within=scope, overwrite=overwrite)
                with note_stored(stored):
                    written = await to_end(putting)
                stored += written
                kept += (f"item `{item_id}`" for item_id in _kept(written))
            entries = [each for each in page if isinstance(each, StoredEntry)]
            if rewriter is not None:
                entries = rewriter.adopt_entries(entries)
            with note_stored(stored):
                count, differing = await to_end(_store_entries(store, entries, overwrite=overwrite))
            stored += count
            kept += differing
            seen += len(page)
            if progress is not None:
                progress(seen, max(expected, seen))
    left_out = taken.others.total
    report = Report(
        found=seen + left_out,
        stored=stored,
        unchanged=seen - stored - len(kept),
        skipped=len(kept) + left_out,
        formats=["jsonl"],
    )
    taken.others.report(report.complain, path, is_any_taken=bool(seen))
    for name in kept:
        report.complain(name, _why(store, name))
    return report.finished()


async def _store_entries(
    store: object, entries: Sequence[StoredEntry], *, overwrite: bool
) -> tuple[int, list[str]]:
    """Store entries; return how many were written, and the names of those that differ here."""
    kept: KeyValueStore | None = getattr(store, "key_value", None)
    if not entries:
        return 0, []
    if kept is None:
        return 0, [_name(each) for each in entries]
    written = await kept.load(entries, overwrite=overwrite)
    others = []
    for each, is_written in zip(entries, written, strict=True):
        if not is_written:
            [here] = await kept.get([(each.entry.path, each.entry.key)], scope=each.scope)
            if here is None or here.value != each.entry.value:
                others.append(_name(each))
    return sum(written), others


def _why(store: object, name: str) -> str:
    is_entry = name.startswith("entry `")
    return _NOT_KEPT if is_entry and not hasattr(store, "key_value") else _WENT_ON


def _name(stored: StoredEntry) -> str:
    return f"entry `{'/'.join([*stored.entry.path, stored.entry.key])}`"


def _read_in_thread(
    source: str | Path | IO[bytes],
    path: Path | None,
    selection: Selection,
    limits: Limits | None,
) -> AsyncGenerator[list[Record | StoredEntry], None]:
    """Yield the records of a file page by page; they are read and made in a thread."""
    tally = Tally()

    def stop() -> None:
        tally.is_stopped = True

    page = (PAGE, PAGE_LENGTH)
    pages = record_pages(source, path, selection=selection, limits=limits, page=page, tally=tally)
    return iterate_in_thread(pages, stop=stop)


def _kept(written: int) -> tuple[str, ...]:
    return written.conflicts if isinstance(written, Written) else ()
