"""Erasure in a SQL store, the part that both databases share: what goes, in which order.

First the traces are taken and the cached vectors go, a page at a time; then rows and versions, in
transactions that are short enough for others to write in between, and a last one for what came
meanwhile. What a database keeps beside them is its own affair, and may be done again: who was
killed in between calls `erase` again.
"""

# ruff: noqa: SLF001 - erasing is a part of the store

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from orbiter.memory.backends.arguments import check_several_ids
from orbiter.memory.backends.sql.dialect import Args, Dialect, Rows, Statement, Steps
from orbiter.memory.backends.sql.embedder import Embedder, passages_of
from orbiter.memory.backends.sql.erase_probes import Probes
from orbiter.memory.backends.sql.operations import Operations
from orbiter.memory.errors import EmptyFilterError
from orbiter.memory.model.audit import AuditAction
from orbiter.memory.model.items import INDEXED_BY, RESERVED, MemoryMetadata, index_texts
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query
from orbiter.memory.model.reports import Erasure, counts_of
from orbiter.memory.tasks.progress import advance, checkpoint, resumed
from orbiter.memory.text.text_caches import clear_all

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.audit_log import Ids

__all__ = [
    "PAGE",
    "PAUSE",
    "SLICE",
    "STEPS",
    "Erasable",
    "ErasureTarget",
    "Span",
    "entries_of",
    "erase",
    "forget_cached",
    "ids_of",
    "items_of",
    "remove",
    "scoped",
    "spans_of",
    "take",
    "versions_of",
]

_T = TypeVar("_T")

PAUSE = 0.02
"""Most seconds between two transactions of one erasure."""

STEPS = 2
"""How often progress counts an item: when its row is gone, and when the indexes are cleaned."""

PAGE = 500
"""Rows read at a time before they go."""

SLICE = 500
"""Items removed in one transaction."""


_AFTER_RESERVED = chr(ord(RESERVED) + 1)


class Span(NamedTuple):
    """Ids from *first* to *last*, both included, in the order of the database."""

    first: str
    last: str


class ErasureTarget(NamedTuple):
    """What is erased: all that is of a scope or, with *ids*, these items of it and nothing else."""

    wanted: dict[Any, str]
    ids: tuple[str, ...] | None = None

    @property
    def names(self) -> dict[Any, str]:
        """The names that must not be left anywhere: none, where only some items go."""
        return self.wanted if self.ids is None else {}


def spans_of(ids: Sequence[str], size: int | None = None) -> list[Span]:
    """Return the spans of ids, which are in order, that one transaction each removes.

    Those come first that hold derived ids, as summaries have: whoever is killed between two spans
    leaves none that tells of a message which is gone.
    """
    size = size or SLICE
    spans = [
        Span(ids[start], ids[min(start + size, len(ids)) - 1]) for start in range(0, len(ids), size)
    ]
    return sorted(spans, key=lambda span: span.last < RESERVED or span.first >= _AFTER_RESERVED)


def scoped(dialect: Dialect, target: ErasureTarget, args: Args, span: Span | None = None) -> str:
    """Return the condition that a row is to go, deleted or not.

    With *span*, and that its id is within it.
    """
    wanted, ids = target
    parts = [f"{dialect.value(name)} = {args.bind(value)}" for name, value in wanted.items()]
    parts += [] if ids is None else [dialect.by_ids(args, ids)]
    return " AND ".join([*parts, *_within(span, args)])


def _versions_scoped(dialect: Dialect, target: ErasureTarget, args: Args) -> str:
    """Return the condition that a version is to go, unless it only goes with its item."""
    where = scoped(dialect, target, args)
    return where if target.ids is None else f"id IN (SELECT id FROM memory_items WHERE {where})"


def _within(span: Span | None, args: Args) -> list[str]:
    if span is None:
        return []
    return [f"id >= {args.bind(span.first)}", f"id <= {args.bind(span.last)}"]


def items_of(dialect: Dialect, target: ErasureTarget, last: tuple[str, int]) -> Steps[Rows]:
    """Return a page of the ids and texts that go, by id."""
    args = Args(dialect)
    where = scoped(dialect, target, args)
    return (
        yield Statement(
            "SELECT id, content, CAST(metadata AS TEXT), extra_json, version FROM memory_items"
            f" WHERE {where} AND id > {args.bind(last[0])} ORDER BY id LIMIT {PAGE}",
            args,
        )
    )


def versions_of(dialect: Dialect, target: ErasureTarget, last: tuple[str, int]) -> Steps[Rows]:
    """Return a page of the earlier texts that go, by id and version."""
    args = Args(dialect)
    where = _versions_scoped(dialect, target, args)
    after = f"({args.bind(last[0])}, {args.bind(last[1])})"
    return (
        yield Statement(
            "SELECT id, content, CAST(metadata AS TEXT), extra_json, version FROM memory_versions"
            f" WHERE {where} AND (id, version) > {after} ORDER BY id, version LIMIT {PAGE}",
            args,
        )
    )


def ids_of(dialect: Dialect, target: ErasureTarget, span: Span | None = None) -> Steps[list[str]]:
    """Return the ids of all items that go, or were ever of a scope, or signed by its name."""
    args, wanted = Args(dialect), target.wanted
    where = scoped(dialect, target, args, span)
    if target.ids is not None:
        rows = yield Statement(f"SELECT id FROM memory_items WHERE {where} ORDER BY 1", args)
        return [row[0] for row in rows]
    theirs = where
    if len(wanted) == 1:
        signed = [f"ended_by = {args.bind(next(iter(wanted.values())))}", *_within(span, args)]
        theirs = f"({where}) OR ({' AND '.join(signed)})"
    rows = yield Statement(
        f"SELECT id FROM memory_items WHERE {where}"
        f" UNION SELECT id FROM memory_versions WHERE {theirs} ORDER BY 1",
        args,
    )
    return [row[0] for row in rows]


def entries_of(dialect: Dialect, target: ErasureTarget) -> Steps[Rows]:
    """Return some keys and values of entries that go; they go with their whole scope only."""
    if target.ids is not None:
        return []
    args = Args(dialect)
    where = scoped(dialect, target, args)
    return (
        yield Statement(f"SELECT key, value FROM memory_entries WHERE {where} LIMIT {PAGE}", args)
    )


def take(rows: Rows, probes: Probes) -> list[str]:
    """Take traces of a page; return the texts that may have been embedded."""
    contents = []
    for item_id, content, metadata, extra, *_ in rows:
        probes.add_id(item_id)
        for text in (content, metadata, extra):
            if isinstance(text, str) and len(text) > 2:
                probes.add_text(text)
        if isinstance(content, str):  # an earlier version may have its metadata alone
            contents.append(content)
        contents += _other_texts(metadata)
    return contents


def _other_texts(metadata: object) -> list[str]:
    """Return the texts that a row is indexed by instead of its content."""
    if not isinstance(metadata, str) or f'"{INDEXED_BY}"' not in metadata:
        return []
    with suppress(ValueError, AttributeError):  # of a damaged row nothing else was embedded
        extra = json.loads(metadata).get("extra")
        return [text for text in index_texts("", extra.get(INDEXED_BY)) if text]
    return []


def forget_cached(embeddings: Embeddings | None, contents: Sequence[str]) -> int:
    """Have embeddings that keep vectors forget those of texts; return how many there were."""
    forget = getattr(embeddings, "forget", None)
    if forget is None or not contents:
        return 0
    return int(forget([part for content in contents for part in passages_of(content)]))


def remove(dialect: Dialect, target: ErasureTarget, span: Span | None = None) -> Steps[Erasure]:
    """Remove the rows that go, deleted ones included, and every version that was of the scope.

    With *span*, only those whose ids are within it.
    """
    args = Args(dialect)
    where = scoped(dialect, target, args, span)
    rows = yield Statement(
        f"SELECT deleted, count(*) FROM memory_items WHERE {where} GROUP BY deleted", args
    )
    items = {int(deleted): int(count) for deleted, count in rows}
    args = Args(dialect)
    where = scoped(dialect, target, args, span)
    theirs = "" if target.ids is not None else f" OR ({where})"
    # The span once more, for planners that would read all versions to find those of it.
    there = " AND ".join(["memory_type IS NOT NULL", *_within(span, args)])
    rows = yield Statement(
        f"SELECT count(*) FROM memory_versions WHERE {there}"
        f" AND (id IN (SELECT id FROM memory_items WHERE {where}){theirs})",
        args,
    )
    counts = Erasure(items=items.get(0, 0), forgotten=items.get(1, 0), versions=int(rows[0][0]))
    args = Args(dialect)
    where = scoped(dialect, target, args, span)
    yield from dialect.purge(where, args)
    if target.ids is not None:  # with all their versions; the rest of the scope stays as it is
        return counts
    wanted = target.wanted
    moved = yield Statement(f"SELECT DISTINCT id FROM memory_versions WHERE {where}", args)
    for (item_id,) in moved:
        yield from _remove_versions(dialect, target, item_id)
    if len(wanted) == 1:  # who goes as a whole has signed nothing, either
        args = Args(dialect)
        signed = [f"ended_by = {args.bind(next(iter(wanted.values())))}", *_within(span, args)]
        which = " AND ".join(signed)
        yield Statement(f"UPDATE memory_versions SET ended_by = NULL WHERE {which}", args)
    entries = 0
    if span is None:
        args = Args(dialect)
        which = scoped(dialect, target, args)
        entries = yield from dialect.changes(f"DELETE FROM memory_entries WHERE {which}", args)
    return replace(counts, entries=entries)


def _remove_versions(dialect: Dialect, target: ErasureTarget, item_id: str) -> Steps[None]:
    """Remove the versions of an item, another's by now, that were of the scope.

    A version leaves out what the next one has, too: where that goes, it is written out. When the
    next one began stays, without anything else: it was not there before.
    """
    args = Args(dialect)
    where = scoped(dialect, target, args)
    item = args.bind(item_id)
    rows = yield Statement(
        f"SELECT version, content, extra_json, CASE WHEN {where} THEN 1 ELSE 0 END, ended_at,"
        f" ended_by FROM memory_versions WHERE id = {item} AND memory_type IS NOT NULL"
        " ORDER BY version DESC",
        args,
    )
    content = extra = None
    is_cut = False
    ends: list[tuple[Any, ...]] = []
    for version, own_content, own_extra, is_theirs, *ended in rows:
        if own_content is not None:
            content = own_content
        if own_extra is not None:
            extra = own_extra
        if is_theirs:
            ends += [] if is_cut else [(item_id, version, *ended)]
            is_cut = True
        elif is_cut:
            update_args = Args(dialect)
            fields = (
                f"content = {update_args.bind(content)}, extra_json = {update_args.bind(extra)}"
            )
            which = f"id = {update_args.bind(item_id)} AND version = {update_args.bind(version)}"
            yield Statement(f"UPDATE memory_versions SET {fields} WHERE {which}", update_args)
            is_cut = False
    yield Statement(f"DELETE FROM memory_versions WHERE {where} AND id = {item}", args)
    if ends:  # as new rows: no policy lets a row be changed into one that is nobody's
        values = ", ".join(dialect.parameter(number) for number in (1, 2, 3, 4))
        yield Statement(
            f"INSERT INTO memory_versions (id, version, ended_at, ended_by) VALUES ({values})",
            ends,
            many=True,
        )
    if is_cut:  # also when the first of all was written
        args = Args(dialect, [item_id])
        yield Statement(
            f"DELETE FROM memory_versions WHERE id = {dialect.parameter(1)} AND version <"
            f" {args.bind(ends[-1][1])}",
            args,
        )


class Erasable(Protocol):
    """What erasing needs of a store, of which it is a part."""

    _operations: Operations
    _embedder: Embedder | None
    _embeddings: Embeddings | None

    async def _read(self, steps: Callable[[], Steps[_T]], *, alone: bool = False) -> _T: ...

    async def _write(self, steps: Callable[[], Steps[_T]]) -> _T: ...

    def _audited(
        self,
        steps: Callable[[], Steps[_T]],
        *,
        ids: "Ids",
        by: str | None = None,
        removal: AuditAction = "purged",
        is_deep: bool = False,
        scope: MemoryMetadata | None = None,
        count: int | None = None,
    ) -> Callable[[], Steps[_T]]: ...

    async def _take_beside(self, target: ErasureTarget, probes: Probes) -> None: ...

    def _removing(self, target: ErasureTarget, span: "Span | None") -> "Steps[Erasure]": ...

    async def _scrub(self, target: ErasureTarget, probes: Probes, count: int) -> Erasure: ...


async def erase(
    store: Erasable,
    metadata: MemoryMetadata | None,
    by: str | None,
    item_ids: Sequence[str] | None,
) -> Erasure:
    """Remove for good all that *metadata* names, and make sure: see `SQLMemoryStore.erase`."""
    ids = None if item_ids is None else tuple(check_several_ids(item_ids))
    target = ErasureTarget(Query(metadata=metadata).wanted, ids)
    if not target.wanted and ids is None:
        raise EmptyFilterError()
    probes, embedder, saved = Probes(target.names), store._embedder, resumed()
    probes.load(saved.get("probes", {}))
    gone = Erasure(**saved.get("gone", {}))
    if embedder is not None:
        await embedder.hold()  # or it would keep a vector that was forgotten a moment before
    try:
        gone += Erasure(cached=await _forget_cached(store, target, probes))
        await store._take_beside(target, probes)
        await checkpoint({"probes": probes.dump(), "gone": counts_of(gone)})
        gone = await _remove(store, target, metadata, by, probes, gone)
    finally:
        if embedder is not None:
            embedder.release()
    clear_all()
    count = gone.items + gone.forgotten
    done = gone + await store._scrub(target, probes, count)
    advance(STEPS * count, STEPS * count)
    return done


async def _remove(
    store: Erasable,
    target: ErasureTarget,
    scope: MemoryMetadata | None,
    by: str | None,
    probes: Probes,
    gone: Erasure,
) -> Erasure:
    """Remove all rows that go, a span of ids at a time; return what is *gone* by then."""
    dialect = store._operations.dialect
    ids = await store._read(lambda: ids_of(dialect, target))
    spans: list[Span | None] = [*spans_of(ids), None]  # the last: what came since
    count = gone.items + gone.forgotten + len(ids)
    for span in spans:
        began = monotonic()
        advance(gone.items + gone.forgotten, STEPS * count)
        gone += await store._write(
            store._audited(
                lambda: store._removing(target, span),  # noqa: B023 - run at once
                ids=lambda: ids_of(dialect, target, span),  # noqa: B023
                by=by,
                removal="erased",
                is_deep=True,
                scope=scope if target.ids is None else None,  # not all of it goes
                count=None if span else gone.items + gone.forgotten,
            )
        )
        await checkpoint({"probes": probes.dump(), "gone": counts_of(gone)})
        # Another process asks for the lock only now and then: it needs a moment to get it.
        await asyncio.sleep(min(monotonic() - began, PAUSE))
    return gone


async def _forget_cached(store: Erasable, target: ErasureTarget, probes: Probes) -> int:
    """Have the vectors of all texts forgotten that go, and take traces of these."""
    dialect, last, cached = store._operations.dialect, ("", 0), 0
    for read in (items_of, versions_of):
        last = ("", 0)
        while rows := await store._read(lambda: read(dialect, target, last)):  # noqa: B023
            contents = take(rows, probes)
            cached += await asyncio.to_thread(forget_cached, store._embeddings, contents)
            last = (rows[-1][0], rows[-1][-1])
    for key, value in await store._read(lambda: entries_of(dialect, target)):
        probes.add_text(key)
        probes.add_bytes(bytes(value)[len(value) // 2 :])
    return cached
