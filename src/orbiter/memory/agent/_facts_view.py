"""`FactsView`: reads what is true in one scope, now or then, as known now or then."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orbiter.memory.agent.chat_history import nothing_else
from orbiter.memory.agent.interface import ScopedHandle, operation
from orbiter.memory.model.facts import (
    ALWAYS,
    FactConflict,
    FactEntry,
    FactMemory,
    by_key,
    conflicts_in,
    current,
    entries,
    holding,
)
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.model.query import Query, check_instant, require_text

if TYPE_CHECKING:
    from orbiter.memory.agent.interface import ScopeSession

__all__ = ["FactsView"]

_PAGE = 1_000


def _now() -> datetime:
    return datetime.now(UTC)


class FactsView(ScopedHandle):
    """What is true in one scope, to be read.

    With *known_at* it is read as it was known then, and later changes are not seen. *clock*
    tells the time.
    """

    def __init__(
        self,
        session: "ScopeSession",
        *,
        known_at: datetime | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        super().__init__(session)
        self._known_at = None if known_at is None else check_instant("known_at", known_at)
        self._clock = clock

    def _address(self) -> tuple[str, dict[str, object]]:
        if self._known_at is None:
            return "facts", {}
        return "past_facts", {"moment": self._known_at}

    def __repr__(self) -> str:
        named = Query(metadata=self._scope).wanted.items()
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in named)})"

    # Reading

    @operation("facts.get")
    async def get(
        self, key: str, *, as_of: datetime | None = None, known_at: datetime | None = None
    ) -> FactMemory | None:
        """Return what is true of *key*: now or at *as_of*, as known now or at *known_at*."""
        require_text("key", key)
        facts = await self._read(key)
        moment, known = self._moments(facts, as_of, known_at)
        return holding(facts, as_of=moment, known_at=known)

    @operation("facts.all")
    async def all(
        self, *, as_of: datetime | None = None, known_at: datetime | None = None
    ) -> dict[str, FactMemory]:
        """Return everything that is true, by key: now or at *as_of*, as known then."""
        facts = await self._read()
        moment, known = self._moments(facts, as_of, known_at)
        return current(facts, as_of=moment, known_at=known)

    @operation("facts.keys")
    async def keys(self) -> list[str]:
        """Return all keys of facts, also of those that have ended."""
        return list(by_key(f for f in await self._read() if f.is_known(self._latest)))

    @operation("facts.history")
    async def history(self, key: str) -> list[FactEntry]:
        """Return every assertion in the order of recording, with the time for which it held.

        Retracted ones are included; drafts and discarded ones are not.
        """
        require_text("key", key)
        return entries(await self._read(key), known_at=self._latest)

    @operation("facts.conflicts")
    async def conflicts(self) -> list[FactConflict]:
        """Return the contradictions; `retract` one side, and a conflict is settled."""
        return conflicts_in(await self._read(), known_at=self._latest)

    @operation("facts.drafts")
    async def drafts(self) -> list[FactMemory]:
        """Return the drafts to review, oldest first: `accept` or `discard` each."""
        found = await self._read(status=MemoryStatus.DRAFT)
        return sorted(found, key=lambda fact: (fact.created_at, fact.id))

    @property
    def _latest(self) -> datetime:
        """The instant of the newest knowledge: no end, unless this is the past."""
        return self._known_at or datetime.max.replace(tzinfo=UTC)

    def _moments(
        self, facts: Sequence[FactMemory], as_of: datetime | None, known_at: datetime | None
    ) -> tuple[datetime, datetime]:
        """Return the moment asked for, and that of the knowledge."""
        known = self._latest
        if known_at is not None:
            known = min(known, check_instant("known_at", known_at))
        if as_of is not None:
            return check_instant("as_of", as_of), known
        # What is recorded has happened, even by a clock that is ahead of this one.
        last = max((f.recorded_at for f in facts if f.is_known(known)), default=ALWAYS)
        return max(self._known_at or self._clock(), last), known

    async def _read(
        self, key: str | None = None, *, status: MemoryStatus | None = None
    ) -> list[FactMemory]:
        """Return the assertions of just this scope, page by page."""
        store = await self._store()
        where: dict[str, object] = nothing_else(self._scope)
        if key is not None:
            where["fact"] = key
        found: list[FactMemory] = []
        before: MemoryItem | None = None
        while True:
            page = await store.search(
                metadata=self._filter,
                memory_type="fact",
                status=status,
                where=where or None,
                limit=_PAGE,
                before=before,
            )
            found += (
                item for item in page if isinstance(item, FactMemory) and key in (None, item.key)
            )
            if len(page) < _PAGE:
                return found
            before = page[-1]
