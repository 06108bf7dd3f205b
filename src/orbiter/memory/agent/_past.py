"""`PastMemory`: everything of a scope as it was stored at one moment, to be read and no more.

What is shown belongs to the scope now and did then, as with `history`. What was purged, erased or
has expired since is gone from the past, too.
"""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING

from orbiter.memory.agent._facts_view import FactsView
from orbiter.memory.agent.extraction_jobs import without_jobs
from orbiter.memory.agent.interface import ScopedHandle, operation
from orbiter.memory.agent.keywords import ItemRef, as_id
from orbiter.memory.agent.results import Page, check_cursor, page_of
from orbiter.memory.agent.runtime import versioned
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query, check_instant, check_size
from orbiter.memory.text.ranking import MIN_RELEVANCE

if TYPE_CHECKING:
    from orbiter.memory.agent.interface import ScopeSession
    from orbiter.memory.backends.sql.store import SQLMemoryStore
    from orbiter.memory.recall import RecallResult


__all__ = ["PastMemory"]


_PAGE = 1_000


class PastMemory(ScopedHandle):
    """What was remembered in one scope at *moment*; `ScopedMemory.as_of` makes it."""

    def __init__(self, session: "ScopeSession", moment: datetime) -> None:
        super().__init__(session)
        self._moment = check_instant("moment", moment)

    def _address(self) -> tuple[str, dict[str, object]]:
        return "past", {"moment": self._moment}

    @property
    def moment(self) -> datetime:
        """When all this was so."""
        return self._moment

    def __repr__(self) -> str:
        named = Query(metadata=self._scope).wanted.items()
        who = "".join(f"{name}={value!r}, " for name, value in named)
        return f"PastMemory({who}moment={self._moment.isoformat()!r})"

    async def _versions(self) -> "SQLMemoryStore":
        return versioned(await self._store(), "reading the past")

    @property
    def facts(self) -> "FactsView":
        """What was true then, as it was known then."""
        return FactsView(self._session, known_at=self._moment)

    @operation("past.get", "GET past/memories/{item_id}", is_absent_404=True)
    async def get(self, item_id: ItemRef) -> MemoryItem | None:
        """Return the memory of that id as it was, or `None` if there was none in this scope."""
        store = await self._versions()
        items = await store.as_of(
            self._moment, metadata=self._filter, item_ids=[as_id(item_id)], limit=1
        )
        return items[0] if items else None

    @operation("past.list", "POST past/memories/query", also="GET past/memories")
    async def list(
        self,
        *,
        query: str = "",
        where: Where | None = None,
        memory_type: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of what was remembered, newest first; *cursor* is `next` of the one before.

        The filters hold of what a memory was then.
        """
        check_size("limit", limit)
        last = await check_cursor(cursor, self._has)
        store = await self._versions()
        items = await store.as_of(
            self._moment,
            metadata=self._filter,
            memory_type=memory_type,
            where=without_jobs(where, memory_type),
            query=query,
            limit=limit + 1 if limit else 0,
            before=last,
        )
        return page_of(items, limit, last)

    async def _has(self, item_id: str) -> bool:
        return await self.get(item_id) is not None

    async def __aiter__(self) -> AsyncIterator[MemoryItem]:
        """Yield all that was remembered, newest first."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=_PAGE, cursor=cursor)
            for item in page:
                yield item
            cursor = page.next
            if cursor is None:
                return

    @operation("past.recall", "POST past/recall")
    async def recall(
        self,
        query: str,
        *,
        k: int = 10,
        memory_type: str | None = None,
        where: Where | None = None,
        min_relevance: float = MIN_RELEVANCE,
        spread: bool | None = None,
    ) -> "RecallResult":
        """Return at most *k* memories of then that answer *query* by their words, best first.

        *min_relevance* and *spread* are those of `ScopedMemory.recall`. The newest 5,000 of the
        scope are looked at, and indexed for this one answer.
        """
        # Here, as reading what was needs none of it.
        from orbiter.memory.recall import InMemoryIndex, no_model_by_choice  # noqa: PLC0415

        mirror = InMemoryIndex(_Then(await self._versions(), self._moment))  # type: ignore[arg-type]  # it pages
        try:
            with no_model_by_choice():
                return await mirror.recall(
                    query,
                    scope=self._filter,
                    k=k,
                    mode="words",
                    now=self._moment,
                    memory_type=memory_type,
                    where=where,
                    min_relevance=min_relevance,
                    spread=spread,
                    user_name=self._session.name,
                )
        finally:
            await mirror.close()


class _Then:
    """A store as it was, as far as an index of it needs to read it."""

    def __init__(self, store: "SQLMemoryStore", moment: datetime) -> None:
        self._store = store
        self._moment = moment

    def __repr__(self) -> str:
        return f"{self._store!r} as of {self._moment.isoformat()}"

    async def search(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        limit: int = 10,
        before: MemoryItem | None = None,
    ) -> list[MemoryItem]:
        return await self._store.as_of(self._moment, metadata=metadata, limit=limit, before=before)
