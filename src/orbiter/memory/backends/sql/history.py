"""What SQL stores do over years: show the past, move items with all they were, erase for good."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from orbiter.memory.backends.arguments import check_cursor, check_several_ids, cursor_id
from orbiter.memory.backends.sql.audit import SQLAudit
from orbiter.memory.backends.sql.dialect import Steps
from orbiter.memory.errors import EmptyFilterError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Cursor, Query, check_instant, check_size
from orbiter.memory.tasks.progress import advance, checkpoint, resumed

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.erase import Span
    from orbiter.memory.backends.sql.erase_probes import Probes
    from orbiter.memory.model.records import Record, Written
    from orbiter.memory.model.reports import Erasure

__all__ = ["PAUSE", "STEPS", "SQLLasting"]

_T = TypeVar("_T")

PAUSE = 0.02
"""Most seconds between two transactions of one erasure."""

STEPS = 2
"""How often progress counts an item: when its row is gone, and when the indexes are cleaned."""


class SQLLasting(SQLAudit):
    """The past, the moving and the erasing of a SQL store."""

    _exact_extra: bool

    @abstractmethod
    async def _write(self, steps: Callable[[], Steps[_T]]) -> _T:
        """Run steps as one transaction; return after it is durable."""

    # Erasing

    @abstractmethod
    async def _take_beside(self, wanted: dict[Any, str], probes: "Probes") -> None:
        """Take traces of what is kept beside the rows of a scope."""

    @abstractmethod
    def _removing(self, wanted: dict[Any, str], span: "Span | None") -> "Steps[Erasure]":
        """Remove the rows of a scope and what stands beside them; return how many, by kind.

        With *span*, only those whose ids are within it.
        """

    @abstractmethod
    async def _scrub(self, wanted: dict[Any, str], probes: "Probes", count: int) -> "Erasure":
        """Clean what is left where *count* rows were, and look for *probes* everywhere."""

    async def erase(self, *, metadata: MemoryMetadata, by: str | None = None) -> "Erasure":
        """Remove for good all that *metadata* names, and make sure; return what was done.

        Items go with their earlier versions, whether they were soft-deleted or not, and so do
        versions of items that are another's by now; then search structures, cached vectors and
        free pages are cleaned. Rows go in short transactions, and others write in between. What is
        written for this scope after the call began may stay. The answer is false if something is
        left: `problems` says what, and `erase` may be repeated.
        """
        # Here, and so below: most programs need none of it.
        from orbiter.memory.backends.sql.erase_probes import Probes  # noqa: PLC0415
        from orbiter.memory.model.reports import Erasure, counts_of  # noqa: PLC0415
        from orbiter.memory.text.text_caches import clear_all  # noqa: PLC0415

        wanted = Query(metadata=metadata).wanted
        if not wanted:
            raise EmptyFilterError()
        probes, embedder, saved = Probes(wanted), self._embedder, resumed()
        probes.load(saved.get("probes", {}))
        gone = Erasure(**saved.get("gone", {}))
        if embedder is not None:
            await embedder.hold()  # or it would keep a vector that was forgotten a moment before
        try:
            gone += Erasure(cached=await self._forget_cached(wanted, probes))
            await self._take_beside(wanted, probes)
            await checkpoint({"probes": probes.dump(), "gone": counts_of(gone)})
            gone = await self._remove(wanted, metadata, by, probes, gone)
        finally:
            if embedder is not None:
                embedder.release()
        clear_all()
        count = gone.items + gone.forgotten
        done = gone + await self._scrub(wanted, probes, count)
        advance(STEPS * count, STEPS * count)
        return done

    async def _remove(
        self,
        wanted: dict[Any, str],
        scope: MemoryMetadata,
        by: str | None,
        probes: "Probes",
        gone: "Erasure",
    ) -> "Erasure":
        """Remove all rows of a scope, a span of ids at a time; return what is *gone* by then."""
        from orbiter.memory.backends.sql import erase as sql_erase  # noqa: PLC0415
        from orbiter.memory.model.reports import counts_of  # noqa: PLC0415

        dialect = self._operations.dialect
        ids = await self._read(lambda: sql_erase.ids_of(dialect, wanted))
        spans: list[Span | None] = [*sql_erase.spans_of(ids), None]  # the last: what came since
        count = gone.items + gone.forgotten + len(ids)
        for span in spans:
            began = monotonic()
            advance(gone.items + gone.forgotten, STEPS * count)
            gone += await self._write(
                self._audited(
                    lambda: self._removing(wanted, span),  # noqa: B023 - run at once
                    ids=lambda: sql_erase.ids_of(dialect, wanted, span),  # noqa: B023
                    by=by,
                    removal="erased",
                    is_deep=True,
                    scope=scope,
                    count=None if span else gone.items + gone.forgotten,
                )
            )
            await checkpoint({"probes": probes.dump(), "gone": counts_of(gone)})
            # Another process asks for the lock only now and then: it needs a moment to get it.
            await asyncio.sleep(min(monotonic() - began, PAUSE))
        return gone

    async def _forget_cached(self, wanted: dict[Any, str], probes: "Probes") -> int:
        """Have the vectors of all texts forgotten that go, and take traces of these."""
        from orbiter.memory.backends.sql import erase as sql_erase  # noqa: PLC0415

        dialect, last, cached = self._operations.dialect, ("", 0), 0
        for read in (sql_erase.items_of, sql_erase.versions_of):
            last = ("", 0)
            while rows := await self._read(lambda: read(dialect, wanted, last)):  # noqa: B023
                contents = sql_erase.take(rows, probes)
                cached += await asyncio.to_thread(
                    sql_erase.forget_cached, self._embeddings, contents
                )
                last = (rows[-1][0], rows[-1][-1])
        return cached

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
        found: list[Record] = [
            *await self._read(
                lambda: sql_records.page(dialect, dialect.record_writer, wanted, last, limit, only)
            )
        ]
        if self._logs_reads:
            ids = [record.id for record in found]
            await self.log_read("records", ids, scope=metadata, action="exported")
        return found

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

        given, wanted = sql_records.check_records(records), Query(metadata=within).wanted
        dialect = self._operations.dialect
        written = await self._write(
            self._audited(
                lambda: sql_records.put(
                    dialect,
                    dialect.record_writer,
                    given,
                    wanted,
                    exact_extra=self._exact_extra,
                    overwrite=overwrite,
                ),
                ids=[record.id for record in given],
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
        from orbiter.memory.backends.sql import as_of as sql_as_of  # noqa: PLC0415

        instant = check_instant("moment", moment)
        asked = Query(query, metadata, memory_type, limit=limit, where=where)
        ids = None if item_ids is None else check_several_ids(item_ids)
        last = check_cursor("before", before)
        found = await self._read(
            lambda: sql_as_of.as_of(self._operations.dialect, instant, asked, ids, last)
        )
        await self._log_items("as_of", found, metadata)
        return found
