"""`SQLMemoryStore`: the public methods of every SQL store."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from orbiter.memory.backends.arguments import (
    check_cursor,
    check_different,
    check_several,
    check_several_ids,
    cursor_id,
    is_item_id,
)
from orbiter.memory.backends.sql.audit import signature
from orbiter.memory.backends.sql.dialect import Steps
from orbiter.memory.backends.sql.group_counts import SQLGroupCounts
from orbiter.memory.backends.sql.history import as_of, versions
from orbiter.memory.backends.sql.recall import SQLRecall
from orbiter.memory.backends.sql.rows import Row, decode, decode_all, encode_all, encode_one
from orbiter.memory.errors import QueryError, StorageError, VersionConflict
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import (
    Cursor,
    Order,
    Query,
    WordMatches,
    check_instant,
    check_order,
    check_size,
)
from orbiter.memory.tasks.progress import advance

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.erase import ErasureTarget, Span
    from orbiter.memory.backends.sql.erase_probes import Probes
    from orbiter.memory.model.key_value import KeyValueStore
    from orbiter.memory.model.records import Record, Written
    from orbiter.memory.model.reports import Erasure, ItemVersion, StoreStats, Verification

__all__ = ["CHUNK", "SQLMemoryStore"]

CHUNK = 1000
"""Rows that are prepared, or read by `verify`, at a time."""


class SQLMemoryStore(SQLGroupCounts, SQLRecall):
    """A store of `memory_items` rows, whatever the database.

    It has parts side by side, each on `SQLDatabase` alone: the items, which are here; what is
    logged of them, `SQLAudit`; and how they are found, `SQLRecall`. They are bases, as the methods
    of each are the store's own. `SQLGroupCounts` counts, and logs that. A driver says how
    statements get to its database.
    """

    _exact_extra: bool = False

    @cached_property
    def key_value(self) -> "KeyValueStore":
        """Entries of key and value, beside the items."""
        from orbiter.memory.backends.sql.entry_table import SQLKeyValue  # noqa: PLC0415 - few do

        return SQLKeyValue(self)

    # What a driver does

    @abstractmethod
    async def _put(self, row: Row) -> None:
        """Upsert a row, perhaps together with those of other callers; return when it is durable."""

    @abstractmethod
    async def _check(self, repair: bool) -> list[str]:  # noqa: FBT001 - private
        """Return what is wrong beside the rows; with *repair*, rebuild it first."""

    @abstractmethod
    async def _stats(self) -> "StoreStats":
        """Return how much the store holds, what concerns embeddings aside."""

    @abstractmethod
    async def _take_beside(self, target: "ErasureTarget", probes: "Probes") -> None:
        """Take traces of what is kept beside the rows that go."""

    @abstractmethod
    def _removing(self, target: "ErasureTarget", span: "Span | None") -> "Steps[Erasure]":
        """Remove the rows that go and what stands beside them; return how many, by kind.

        With *span*, only those whose ids are within it.
        """

    @abstractmethod
    async def _scrub(self, target: "ErasureTarget", probes: "Probes", count: int) -> "Erasure":
        """Clean what is left where *count* rows were, and look for *probes* everywhere."""

    # Writing

    async def add(
        self,
        item: MemoryItem,
        *,
        expected_version: int | None = None,
        by: str | None = None,
        within: MemoryMetadata | None = None,
    ) -> None:
        """Store *item*, or update the one with its id; return once it is durable.

        With *expected_version* it is written only over that version, 0 meaning that there is no
        such item yet; else `VersionConflict` is raised and nothing is written. *by* is remembered
        in `history`. With *within*, an item that does not match it is not replaced, even if it is
        deleted: that is an `AccessError`, and nothing is written.
        """
        if expected_version is not None:
            check_size("expected_version", expected_version)
        row = await encode_one(item, exact_extra=self._exact_extra)
        by = signature(by)
        wanted = {} if within is None else Query(metadata=within).wanted
        if expected_version is None and by is None and not wanted and self._audit is None:
            await self._put(row)
        else:
            steps = partial(self._operations.add, row, expected_version, by, wanted)
            await self._write(self._audited(steps, ids=[row.id], by=by))
        self._wrote()

    async def add_many(
        self,
        items: Sequence[MemoryItem],
        *,
        by: str | None = None,
        within: MemoryMetadata | None = None,
    ) -> None:
        """Store or update every item of *items*, in order, all or none; *within* as for `add`."""
        rows = await self._encode(items)
        by, wanted = signature(by), Query(metadata=within).wanted
        if rows:
            steps = partial(self._operations.add_many, rows, by, wanted)
            await self._write(self._audited(steps, ids=[row.id for row in rows], by=by))
            self._wrote()
        else:
            await self.count()  # a closed store says so for an empty batch, too

    async def insert(self, items: Sequence[MemoryItem], *, by: str | None = None) -> bool:
        """Store every item of *items* if none of their ids is used, in one step; tell whether.

        An id is used while its item is there or soft-deleted, so what is deleted stays deleted.
        """
        rows = await self._encode(items)
        ids, by = check_different([row.id for row in rows]), signature(by)
        if not rows:
            await self.count()  # a closed store says so for an empty batch, too
            return True
        steps = partial(self._operations.insert, rows, by)
        try:
            is_stored = await self._write(self._audited(steps, ids=ids, by=by))
        except VersionConflict:
            return False
        if is_stored:
            self._wrote()
        return is_stored

    async def used_ids(self, item_ids: Sequence[str]) -> set[str]:
        """Return those of *item_ids* whose item is there or soft-deleted."""
        ids = check_several_ids(item_ids)
        return await self._read(lambda: self._operations.used(ids), alone=True)

    async def _encode(self, items: Sequence[MemoryItem]) -> list[Row]:
        check_several(items)
        return await encode_all(tuple(items), exact_extra=self._exact_extra)

    async def clear(self, *, metadata: MemoryMetadata | None = None, by: str | None = None) -> int:
        """Soft-delete what matches, or everything; return how many.

        `restore` brings an item back until `purge` removes it for good.
        """
        by = signature(by)
        steps = partial(self._operations.clear, metadata, by)
        return await self._write(self._audited(steps, ids=self._of(metadata, deleted=0), by=by))

    async def delete(
        self, item_id: str, *, by: str | None = None, expected_version: int | None = None
    ) -> bool:
        """Soft-delete one item; tell whether it was there.

        With *expected_version*, only if it is still that version; else `VersionConflict` is
        raised, and nothing is deleted.
        """
        if expected_version is not None:
            check_size("expected_version", expected_version)
        by = signature(by)
        steps = partial(self._operations.delete, item_id, by, expected_version)
        return is_item_id(item_id) and await self._write(self._audited(steps, ids=[item_id], by=by))

    async def delete_many(self, item_ids: Sequence[str], *, by: str | None = None) -> int:
        """Soft-delete the items of these ids, all or none; return how many were there."""
        ids, by = check_several_ids(item_ids), signature(by)
        steps = partial(self._operations.delete_many, ids, by)
        return await self._write(self._audited(steps, ids=ids, by=by))

    async def restore(self, item_id: str, *, by: str | None = None) -> bool:
        """Bring a soft-deleted item back where it was; tell whether there was one."""
        by = signature(by)
        steps = partial(self._operations.restore, item_id, by)
        restored = is_item_id(item_id) and await self._write(
            self._audited(steps, ids=[item_id], by=by)
        )
        self._wrote()
        return restored

    async def purge(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        deleted_before: datetime | None = None,
    ) -> int:
        """Remove soft-deleted items for good, with their history; return how many.

        *metadata* and *deleted_before* narrow it down: all soft-deleted items go without them.
        """
        if deleted_before is not None:
            deleted_before = check_instant("deleted_before", deleted_before)
        steps = partial(self._operations.purge, metadata, deleted_before)
        return await self._write(self._audited(steps, ids=self._of(metadata, deleted=1)))

    def _of(
        self, metadata: MemoryMetadata | None, *, deleted: int
    ) -> Callable[[], Steps[Sequence[str]]]:
        """Return steps that tell the ids of what is deleted, or is not."""
        wanted, dialect = Query(metadata=metadata).wanted, self._operations.dialect
        return self._ids_where(
            lambda args: " AND ".join([f"deleted = {deleted}", *dialect.scope(wanted, args)])
        )

    # Reading

    async def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None` if there is none or it is deleted."""
        known = is_item_id(item_id)
        rows = await self._read(lambda: self._operations.get(item_id if known else ""), alone=True)
        item = next(iter(await decode_all(rows)), None)
        if self._audit is not None:
            await self._log_items("get", [] if item is None else [item])
        return item

    async def search(  # noqa: PLR0913 - the seed's filters and the paging
        self,
        *,
        query: str = "",
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        limit: int = 10,
        before: MemoryItem | str | Cursor | None = None,
        after: MemoryItem | str | Cursor | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Where | None = None,
        order: Order = "time",
        deleted: bool = False,
    ) -> list[MemoryItem]:
        """Return at most *limit* items that match every given filter, newest first.

        *query* is a literal substring in any case. *since* and *until* bound `created_at`, the
        second excluded. *where* says what must hold of fields and of keys of `metadata.extra`:
        see `docs/backends.md#where`. *before* and *after* are an item, or its id: pass the last
        item of a page as *before* to get the page of older ones, the first as *after* to get the
        one of newer ones; what is written or removed meanwhile shifts no page. An id alone must
        still be stored. *order* `insertion` is that of a conversation, whose `session_id` or
        `task_id` *metadata* must name: what was added last comes first, whatever `created_at`
        says; a cursor must then still be stored. With *deleted* only what was soft-deleted and can
        be restored is found, and nothing else.
        """
        filters = Query(
            query, metadata, memory_type, status, limit, since=since, until=until, where=where
        )
        if not isinstance(deleted, bool):
            raise QueryError(f"`deleted` must be True or False, not {deleted!r}")
        check_order(order, filters)
        older, newer = check_cursor("before", before), check_cursor("after", after)
        rows = await self._read(
            lambda: self._operations.search(filters, older, newer, deleted=deleted, order_by=order),
            alone=not filters.needle and older is None and newer is None,
        )
        items = await self._items_of(rows)
        await self._log_items("search", items, metadata)
        return items

    async def _items_of(self, rows: Sequence[Sequence[Any]]) -> list[MemoryItem]:
        return await decode_all(rows)

    async def newest_messages(
        self, scope: MemoryMetadata, *, limit: int, rounds: int | None = None
    ) -> tuple[list[MemoryItem], list[MemoryItem], bool]:
        """Return the end of a conversation, in one step: see `SQLRecall`."""
        items, before, is_all = await super().newest_messages(scope, limit=limit, rounds=rounds)
        if self._audit is not None:
            await self._log_items("search", [*items, *before], scope)
        return items, before, is_all

    async def count(
        self, *, include_deleted: bool = False, metadata: MemoryMetadata | None = None
    ) -> int:
        """Return how many items there are, or how many match *metadata*."""
        wanted = Query(metadata=metadata).wanted
        return await self._read(
            lambda: self._operations.count(wanted, include_deleted=include_deleted), alone=True
        )

    async def counts(
        self, *, metadata: MemoryMetadata | None = None, with_jobs: bool = True
    ) -> tuple[int, int]:
        """Return how many items match *metadata* and how many deleted ones, of one instant.

        Without *with_jobs*, jobs of the extraction of facts are not counted.
        """
        wanted = Query(metadata=metadata).wanted
        return await self._read(
            lambda: self._operations.counts(wanted, with_jobs=with_jobs), alone=True
        )

    async def history(self, item_id: str) -> "list[ItemVersion]":
        """Return every version of an item, oldest first, the present one last.

        A deleted item still has its history; a purged one has none.
        """
        if not is_item_id(item_id):
            return []
        past, now = await self._read(lambda: self._operations.history(item_id))
        past_versions = versions(past, now)
        await self._log_items("history", [each.item for each in past_versions[-1:]])
        return past_versions

    async def match_words(self, terms: Sequence[str], query: Query) -> WordMatches:
        """Return the items that hold any of *terms*: see `SQLRecall`."""
        matches = await super().match_words(terms, query)
        await self._log_items("match_words", matches.items, query.metadata)
        return matches

    async def nearest(
        self, vector: Sequence[float], query: Query
    ) -> list[tuple[MemoryItem, float]]:
        """Return items with their cosines, nearest first: see `SQLRecall`."""
        near = await super().nearest(vector, query)
        await self._log_items("nearest", [item for item, _ in near], query.metadata)
        return near

    async def _neighbours(self, *args: Any) -> tuple[list[list[MemoryItem]], dict[str, float]]:
        stretches, cosines = await super()._neighbours(*args)
        await self._log_items("around", [item for items in stretches for item in items])
        return stretches, cosines

    async def deciding_facts(self, key: str, **when: Any) -> list[MemoryItem]:
        """Return the assertions that decide what holds of a fact's key: see `SQLRecall`."""
        items = await super().deciding_facts(key, **when)
        await self._log_items("search", items, when["metadata"])
        return items

    async def stats(self) -> "StoreStats":
        """Return how much the store holds, and how much of it is still to be indexed."""
        error = self._embedder and self._embedder.error
        return replace(
            await self._stats(),
            unembedded=await self._unembedded(),
            embedding_error=f"{type(error).__name__}: {error}" if error else None,
        )

    async def verify(self, *, repair: bool = False) -> "Verification":
        """Read every row and check every search structure against the rows.

        With *repair* the search structures are rebuilt from the rows first. A row that cannot
        be read is reported, and never changed.
        """
        from orbiter.memory.model.reports import Verification  # noqa: PLC0415 - seldom needed

        advance(0)
        problems = await self._check(repair)
        checked, last = 0, ""
        total = await self.count(include_deleted=True)
        while rows := await self._read(lambda: self._operations.every(last, CHUNK)):  # noqa: B023
            for row in rows:
                try:
                    decode(row)
                except StorageError as exc:
                    problems.append(str(exc))
            checked, last = checked + len(rows), rows[-1][0]
            advance(checked, total)
        return Verification(checked, tuple(problems), repaired=repair)

    # Erasing

    async def erase(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        by: str | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> "Erasure":
        """Remove for good all that *metadata* names, and make sure; return what was done.

        With *item_ids*, only the items of these ids that it names now; without it, any.

        Items go with their earlier versions, whether they were soft-deleted or not, and so do
        versions of items that are another's by now; then search structures, cached vectors and
        free pages are cleaned. Rows go in short transactions, and others write in between. What is
        written for this scope after the call began may stay. The answer is false if something is
        left: `problems` says what, and `erase` may be repeated.
        """
        from orbiter.memory.backends.sql import erase as sql_erase  # noqa: PLC0415 - seldom needed

        return await sql_erase.erase(self, metadata, by, item_ids)

    # Moving

    async def records(
        self,
        *,
        after: str | None = None,
        limit: int = 1000,
        metadata: MemoryMetadata | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> "list[Record]":
        """Return items with all they were, in the order in which they came; deleted ones, too.

        *after* is the id of the last record of the page before. With *metadata*, only those that
        match it, and what they were while they did; with *item_ids*, only those of these ids.
        """
        from orbiter.memory.backends.sql import records as sql_records  # noqa: PLC0415

        wanted = Query(metadata=metadata).wanted
        dialect, last = self._operations.dialect, cursor_id("after", after)
        check_size("limit", limit)
        only = None if item_ids is None else check_several_ids(item_ids)
        page: list[Record] = [
            *await self._read(
                lambda: sql_records.page(dialect, dialect.record_writer, wanted, last, limit, only)
            )
        ]
        if self._logs_reads:
            ids = [record.id for record in page]
            await self.log_read("records", ids, scope=metadata, action="exported")
        return page

    async def put_records(
        self,
        records: "Sequence[Record]",
        *,
        within: MemoryMetadata | None = None,
        overwrite: bool = False,
    ) -> "Written":
        """Write records exactly as they are, all or none; return how many were not there so.

        New ones come after what is there, in the order given. One that is there and goes on from
        it, with the same versions so far and then more, takes its place; an identical one is left
        alone. Where the item here went on by itself it stays, forgotten or not: the answer names
        it among its `conflicts`. With *overwrite* it is replaced, too, with its history.

        With *within*, neither a record nor what it would replace may be another's: that is an
        `AccessError`, and nothing is written.
        """
        from orbiter.memory.backends.sql import records as sql_records  # noqa: PLC0415

        checked, wanted = sql_records.check_records(records), Query(metadata=within).wanted
        dialect = self._operations.dialect
        written = await self._write(
            self._audited(
                lambda: sql_records.put(
                    dialect,
                    dialect.record_writer,
                    checked,
                    wanted,
                    exact_extra=self._exact_extra,
                    overwrite=overwrite,
                ),
                ids=[record.id for record in checked],
                is_deep=True,
            )
        )
        self._wrote()
        return written

    # The past

    async def as_of(
        self,
        moment: datetime,
        *,
        metadata: MemoryMetadata | None = None,
        item_ids: Sequence[str] | None = None,
        memory_type: str | None = None,
        where: Where | None = None,
        query: str = "",
        limit: int = 50,
        before: MemoryItem | str | Cursor | None = None,
    ) -> list[MemoryItem]:
        """Return the items as they were stored at *moment*, newest first, and those only.

        The filters are those of `search`, and hold of what an item was then; with *metadata*, it
        must still be of that scope. What was purged, erased or has expired since is gone from the
        past, too. *before* is the last item of the page before, or its id.

        SQLite knows the millisecond of a change. An item that was stored within a second of its
        `created_at` counts from then.
        """
        instant = check_instant("moment", moment)
        filters = Query(query, metadata, memory_type, limit=limit, where=where)
        ids = None if item_ids is None else check_several_ids(item_ids)
        last = check_cursor("before", before)
        dialect = self._operations.dialect
        items = await self._read(lambda: as_of(dialect, instant, filters, ids, last))
        await self._log_items("as_of", items, metadata)
        return items
