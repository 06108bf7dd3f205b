"""`FactsView`: reads what is true in one scope, now or then, as known now or then."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from orbiter.memory.agent.chat_history import nothing_else
from orbiter.memory.agent.interface import ScopedHandle, operation
from orbiter.memory.agent.keywords import Time, read_time
from orbiter.memory.agent.results import FactDict, FactHistory
from orbiter.memory.agent.runtime import Store, keeps_versions
from orbiter.memory.errors import ItemNotFoundError
from orbiter.memory.model.facts import (
    ALWAYS,
    FactConflict,
    FactMemory,
    by_key,
    check_key,
    conflicts_in,
    current,
    entries,
    holding,
    latest,
)
from orbiter.memory.model.facts.spans import NO_END, FactIndex
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.model.query import SCOPE_FIELDS, Query, check_instant, require_text

if TYPE_CHECKING:
    from orbiter.memory.agent.interface import ScopeSession

__all__ = ["FactsView"]

_PAGE = 1_000


_TICK = timedelta(microseconds=1)


def _is_key(text: str) -> bool:
    try:
        check_key(text)
    except ValueError:  # of which nothing can be stored, nor every database asked
        return False
    return True


def _now() -> datetime:
    return datetime.now(UTC)


class FactsView(ScopedHandle):
    """What is true in one scope, to be read.

    With *known_at* it is read as it was stored then: with what was forgotten since, and what
    waited for a review. A store without versions has only the facts of today, and tells from them
    what was known. *clock* tells the time.
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

    if not TYPE_CHECKING:  # else type checkers would take it for a dict

        def __getitem__(self, key: object, value: object = None) -> object:
            name = repr(key) if isinstance(key, str) else "key"  # `in` and `for` ask for 0
            raise TypeError(
                f"`{type(self).__name__}` is not a dict: `facts.get({name})` reads one, "
                f"`facts.put({name}, …)` records one, `facts.all()` has all"
            )

        __setitem__ = __getitem__

    # Reading

    @operation("facts.get", "GET facts/{key}", is_absent_404=True)
    async def get(
        self, key: str, *, as_of: Time | None = None, known_at: Time | None = None
    ) -> FactMemory | None:
        """Return what is true of *key*: now or at *as_of*, as known now or at *known_at*."""
        require_text("key", key)
        moment, known = self._moments((), as_of, known_at)
        facts = await self._deciding(key, moment, known)
        if facts is None or (as_of is None and any(latest(fact) > moment for fact in facts)):
            facts = await self._read(key)  # by a clock that is ahead of this one
            moment, known = self._moments(facts, as_of, known_at)
        return holding(facts, as_of=moment, known_at=known)

    @operation("facts.all", "GET facts")
    async def all(self, *, as_of: Time | None = None, known_at: Time | None = None) -> FactDict:
        """Return everything that is true, by key: now or at *as_of*, as known then."""
        facts = await self._read()
        moment, known = self._moments(facts, as_of, known_at)
        return FactDict(current(facts, as_of=moment, known_at=known))

    @operation("facts.keys", "GET fact-keys", answer="keys")
    async def keys(self) -> list[str]:
        """Return all keys of facts, also of those that have ended."""
        return list(by_key(f for f in await self._read() if f.is_known(self._latest)))

    @operation("facts.history", "GET facts/{key}/history")
    async def history(self, key: str) -> FactHistory:
        """Return every assertion in the order of recording, with the time for which it held.

        Retracted ones are included; drafts and discarded ones are not.
        """
        require_text("key", key)
        return FactHistory(entries(await self._read(key), known_at=self._latest))

    @operation("facts.conflicts", "GET fact-conflicts", answer="conflicts")
    async def conflicts(self) -> list[FactConflict]:
        """Return the contradictions; `retract` one side, and a conflict is settled."""
        return conflicts_in(await self._read(), known_at=self._latest)

    @operation("facts.drafts", "GET fact-drafts", answer="facts")
    async def drafts(self) -> list[FactMemory]:
        """Return the drafts to review, oldest first: `accept` or `discard` each."""
        facts = await self._read(status=MemoryStatus.DRAFT)
        return sorted(facts, key=lambda fact: (fact.created_at, fact.id))

    @property
    def _latest(self) -> datetime:
        """The instant of the newest knowledge: no end, unless this is the past."""
        return self._known_at or datetime.max.replace(tzinfo=UTC)

    def _moments(
        self, facts: Sequence[FactMemory], as_of: Time | None, known_at: Time | None
    ) -> tuple[datetime, datetime]:
        """Return the moment asked for, and that of the knowledge."""
        known = self._latest
        if known_at is not None:
            known = min(known, check_instant("known_at", read_time("known_at", known_at)))
        if as_of is not None:
            return check_instant("as_of", read_time("as_of", as_of)), known
        # What is recorded has happened, even by a clock that is ahead of this one.
        last = max((f.recorded_at for f in facts if f.is_known(known)), default=ALWAYS)
        return max(self._known_at or self._clock(), last), known

    async def _find(self, store: Store, fact_id: str) -> FactMemory:
        item = await store.get(require_text("fact_id", fact_id))
        if not isinstance(item, FactMemory) or any(
            getattr(item.metadata, name) != getattr(self._scope, name) for name in SCOPE_FIELDS
        ):
            raise ItemNotFoundError(
                fact_id, way="`history(key)` and `drafts()` show the facts of this scope"
            )
        return item

    def _after(self, facts: Sequence[FactMemory], now: datetime | None = None) -> datetime:
        """Return *now*, and later than all that was said of a key, whatever clock that was said by.

        Else what a machine says whose clock is slow would be past as soon as it is said.
        """
        now = self._clock() if now is None else now
        last = max((latest(fact) for fact in facts), default=ALWAYS)
        if last == ALWAYS:
            return now
        return max(now, last + _TICK if last < NO_END else last)

    async def _about(self, key: str, moment: datetime) -> list[FactMemory]:
        """Return what decides what holds of *key* at *moment*, or all that was said of it."""
        facts = await self._deciding(key, moment, NO_END)
        return await self._read(key) if facts is None else facts

    async def _deciding(
        self, key: str, as_of: datetime, known_at: datetime
    ) -> list[FactMemory] | None:
        """Return what decides which assertion of *key* holds then, if the store can tell."""
        store = await self._store()
        if self._known_at is not None or not isinstance(store, FactIndex) or not _is_key(key):
            return None  # no index holds what was forgotten since
        items = await store.deciding_facts(
            key, metadata=self._scope, as_of=as_of, known_at=known_at
        )
        return [item for item in items if isinstance(item, FactMemory) and item.key == key]

    async def _read(
        self, key: str | None = None, *, status: MemoryStatus | None = None
    ) -> list[FactMemory]:
        """Return the assertions of just this scope, page by page."""
        store = await self._store()
        where: dict[str, object] = nothing_else(self._scope)
        if key is not None:
            where["fact"] = key
        search: Callable[..., Awaitable[list[MemoryItem]]] = partial(store.search, status=status)
        if self._known_at is not None and keeps_versions(store):
            search = partial(store.as_of, self._known_at)
        facts: list[FactMemory] = []
        before: MemoryItem | None = None
        while True:
            page = await search(
                metadata=self._filter,
                memory_type="fact",
                where=where or None,
                limit=_PAGE,
                before=before,
            )
            facts += (
                item
                for item in page
                if isinstance(item, FactMemory)
                and key in (None, item.key)
                and status in (None, item.status)
            )
            if len(page) < _PAGE:
                return facts
            before = page[-1]
