"""What was true in one scope, from the facts as they were stored at one moment."""

from orbiter.memory.agent._facts_view import FactsView
from orbiter.memory.agent.chat_history import nothing_else
from orbiter.memory.agent.runtime import keeps_versions
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem, MemoryStatus

__all__ = ["PastFacts"]

_PAGE = 1_000


class PastFacts(FactsView):
    """Facts as they were stored at `known_at`; `PastMemory.facts` makes it.

    One that was forgotten since is among them, and what waited for a review then. A store without
    versions has only those of today, and tells from them what was known then.
    """

    async def _read(
        self, key: str | None = None, *, status: MemoryStatus | None = None
    ) -> list[FactMemory]:
        store = await self._store()
        if self._known_at is None or not keeps_versions(store):
            return await super()._read(key, status=status)
        where: dict[str, object] = nothing_else(self._scope)
        if key is not None:
            where["fact"] = key
        found: list[FactMemory] = []
        last: MemoryItem | None = None
        while True:
            page = await store.as_of(
                self._known_at,
                metadata=self._filter,
                memory_type="fact",
                where=where or None,
                limit=_PAGE,
                before=last,
            )
            found += (
                item
                for item in page
                if isinstance(item, FactMemory)
                and key in (None, item.key)
                and status in (None, item.status)
            )
            if len(page) < _PAGE:
                return found
            last = page[-1]
