"""Fact spans and conflicts: what holds when, folded from all assertions each time.

What is true of a key follows from all its assertions, so none may be left out, however many there
are of another key. And every reader must judge them at the same moment. A contradiction is shown,
never settled in silence.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.model.display import shortened
from orbiter.memory.model.facts.assertion import (
    ALWAYS,
    FactMemory,
    assertion_text,
    op_of,
    same_value,
    show_value,
)
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.model.trust import Trust, trust_of
from orbiter.memory.model.validation import StructuralMeta

__all__ = [
    "NO_END",
    "FactConflict",
    "FactEntry",
    "FactIndex",
    "FactSpan",
    "assertions",
    "by_key",
    "conflicts_in",
    "current",
    "dated",
    "ended",
    "entries",
    "holding",
    "judged_at",
    "latest",
    "rank",
    "recording",
    "said_already",
    "said_last",
    "span_of",
    "timeline",
]


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class FactSpan:
    """From when to when a fact held, as far as others let it."""

    fact: FactMemory
    start: datetime
    end: datetime | None
    """`None` if it holds until further notice."""

    def __str__(self) -> str:
        return f"{show_value(self.fact.value)}, {dated(self)}".removesuffix(", ")


@dataclass(frozen=True, slots=True)
class FactEntry:
    """One assertion in the history of a key, and the time for which it held."""

    fact: FactMemory
    spans: tuple[FactSpan, ...]
    """None if it never held: it was retracted, or others cover all of it."""

    def __str__(self) -> str:
        if self.fact.retracted_at is not None and not self.spans:
            return f"{assertion_text(self.fact)}, retracted {_date(self.fact.retracted_at)}"
        if self.fact.is_end:
            return f"ended, {dated(self.fact)}"
        held = " and ".join(dated(span) for span in self.spans) if self.spans else "never held"
        return f"{assertion_text(self.fact)}, {held}".removesuffix(", ")


def dated(what: FactMemory | FactSpan, *, now: datetime | None = None) -> str:
    """Return when a fact holds: `since 1 Mar 2024`, `2020 to 2024`, `until 2024`, or nothing.

    As seen from *now*, what is to come is `from 1 Jan 2029`.
    """
    if isinstance(what, FactMemory):
        what = FactSpan(what, what.valid_from, what.valid_to)
    start, end = what.start, what.end
    if start == ALWAYS:
        return "" if end is None else f"until {_day(end)}"
    if end is None and now is not None and start > now:
        return f"from {_date(start)}"
    if end is None:
        return f"since {_day(start)}"
    if start.date() == end.date():
        return f"{_date(start)}, {start:%H:%M} to {end:%H:%M} UTC"
    return f"{_day(start)} to {_day(end)}"


def _day(moment: datetime) -> str:
    """Return the day; only the year of what is said of a year."""
    is_year = (moment.month, moment.day) == (1, 1) and moment.time() == datetime.min.time()
    return str(moment.year) if is_year else _date(moment)


def _date(moment: datetime) -> str:
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def rank(fact: FactMemory) -> tuple[datetime, datetime, str]:
    """Return by what one fact goes before another that covers the same moment."""
    return fact.valid_from, fact.recorded_at, fact.id


def recording(fact: FactMemory) -> tuple[datetime, str]:
    """Return by what facts are in the order in which they became known."""
    return fact.recorded_at, fact.id


def by_key(facts: Iterable[FactMemory]) -> dict[str, list[FactMemory]]:
    """Return facts by their keys, in the order of the keys."""
    keyed: dict[str, list[FactMemory]] = {}
    for fact in facts:
        keyed.setdefault(fact.key, []).append(fact)
    return dict(sorted(keyed.items()))


def holding(
    facts: Iterable[FactMemory], *, as_of: datetime, known_at: datetime
) -> FactMemory | None:
    """Return what was true at *as_of* as known at *known_at*, of the facts of one key.

    Of all that cover the moment, the one that began last; of these, the one recorded last.
    """
    covering = (fact for fact in facts if fact.is_known(known_at) and fact.covers(as_of))
    best = max(covering, key=rank, default=None)
    return None if best is None or best.is_end else best


def current(
    facts: Iterable[FactMemory], *, as_of: datetime, known_at: datetime
) -> dict[str, FactMemory]:
    """Return what was true at *as_of* as known at *known_at*, of every key."""
    folded = (
        (key, holding(of_key, as_of=as_of, known_at=known_at))
        for key, of_key in by_key(facts).items()
    )
    return {key: fact for key, fact in folded if fact is not None}


def timeline(facts: Iterable[FactMemory], *, known_at: datetime) -> list[FactSpan]:
    """Return from when to when each fact of one key held, oldest first.

    One may hold twice, before and after another; what never held is not in it.
    """
    live = sorted((fact for fact in facts if fact.is_known(known_at)), key=rank)
    turns = {fact.valid_from for fact in live} | {fact.valid_to for fact in live if fact.valid_to}
    spans: list[FactSpan] = []
    heap: list[tuple[int, FactMemory]] = []  # by rank, the greatest first
    following = 0
    holds: tuple[FactMemory | None, datetime] = (None, ALWAYS)

    def turn(fact: FactMemory | None, moment: datetime | None) -> None:
        nonlocal holds
        before, start = holds
        if before is fact and moment is not None:
            return
        if before is not None and not before.is_end:
            spans.append(FactSpan(before, start, moment))
        if moment is not None:
            holds = (fact, moment)

    for moment in sorted(turns):
        while following < len(live) and live[following].valid_from <= moment:
            heapq.heappush(heap, (-following, live[following]))
            following += 1
        while heap and not heap[0][1].covers(moment):
            heapq.heappop(heap)
        turn(heap[0][1] if heap else None, moment)
    turn(None, None)
    return spans


def entries(facts: Iterable[FactMemory], *, known_at: datetime) -> list[FactEntry]:
    """Return the history of one key: each accepted assertion, in the order of recording.

    Those retracted by *known_at* are among them.
    """
    facts = list(facts)
    spans: dict[str, list[FactSpan]] = {}
    for span in timeline(facts, known_at=known_at):
        spans.setdefault(span.fact.id, []).append(span)
    said = (f for f in facts if f.status is MemoryStatus.ACCEPTED and f.recorded_at <= known_at)
    return [FactEntry(fact, tuple(spans.get(fact.id, ()))) for fact in sorted(said, key=recording)]


def said_last(facts: Iterable[FactMemory], *, known_at: datetime) -> list[FactMemory]:
    """Return what was recorded last, and what says just the same and was recorded before it.

    Such as several say at once; said one after the other, it is recorded once.
    """
    live = sorted((fact for fact in facts if fact.is_known(known_at)), key=recording)
    newest = live[-1:]
    for before in reversed(live[:-1]):
        if not _says_same(before, newest[-1]) or not before.covers(newest[-1].valid_from):
            break
        newest.append(before)
    return newest


def said_already(
    said: FactMemory, facts: Iterable[FactMemory], *, known_at: datetime
) -> FactMemory | None:
    """Return the assertion that says just what *said* does, if none of that time came after it."""
    live = sorted((fact for fact in facts if fact.is_known(known_at)), key=recording)
    for fact in reversed(live):
        if _says_same(fact, said) and fact.valid_from == said.valid_from:
            return fact
        if fact.covers(said.valid_from) or said.covers(fact.valid_from):
            return None
    return None


def _says_same(one: FactMemory, other: FactMemory) -> bool:
    return (
        one.is_end == other.is_end
        and one.valid_to == other.valid_to
        and same_value(one.value, other.value)
    )


def latest(fact: FactMemory) -> datetime:
    """Return the last instant at which anything became known of *fact*."""
    return max(fact.recorded_at, fact.retracted_at or fact.recorded_at)


def span_of(
    fact: FactMemory, facts: Iterable[FactMemory], *, as_of: datetime, known_at: datetime
) -> FactSpan:
    """Return from when to when *fact* held, around *as_of* if it held more than once.

    *facts* are all of its key. Where it never held, it is the time that it claims.
    """
    spans = [span for span in timeline(facts, known_at=known_at) if span.fact.id == fact.id]
    for span in spans:
        if span.start <= as_of and (span.end is None or as_of < span.end):
            return span
    return spans[-1] if spans else FactSpan(fact, fact.valid_from, fact.valid_to)


@dataclass(frozen=True, slots=True)
class FactConflict:
    """Two assertions that contradict each other; `retract` one of them, and it is settled."""

    key: str
    earlier: FactMemory
    """What was recorded first."""
    later: FactMemory
    """What was recorded after it; of both, the one that began last holds."""
    reason: Literal["same time", "less trusted"]
    """Both claim the same time, or the later one comes from a less trusted source."""

    def __str__(self) -> str:
        earlier, later = assertion_text(self.earlier), assertion_text(self.later)
        return f"{self.key}: {earlier} or {later} ({self.reason})"


def _agree(earlier: FactMemory, later: FactMemory) -> bool:
    """Tell whether *later* leaves true what *earlier* says: it is the same, or more of it."""
    if op_of(later) == "add":
        return True
    same_kind = earlier.is_end == later.is_end
    return same_kind and (later.is_end or same_value(earlier.value, later.value))


def conflicts_in(
    facts: Iterable[FactMemory], *, known_at: datetime | None = None
) -> list[FactConflict]:
    """Return the contradictions among accepted facts that are not retracted, by key and time.

    A later one that begins later simply continues an earlier one. It contradicts it where it
    begins at the same time or before, and still speaks of the time when the other began; where it
    begins in a time for which the other was said to be true to its end; and where what it takes
    the place of comes from a more trusted source. An end is about what held then, and contradicts
    nothing that began after it.
    """
    known_at = datetime.max.replace(tzinfo=UTC) if known_at is None else known_at
    conflicts: list[FactConflict] = []
    for of_key in by_key(facts).values():
        live = sorted((fact for fact in of_key if fact.is_known(known_at)), key=recording)
        begun: dict[datetime, FactMemory] = {}  # the last word of each beginning
        ended: list[FactMemory] = []
        for place, later in enumerate(live):
            for start, earlier in begun.items():
                if later.is_end and start > later.valid_from:
                    continue
                if later.covers(start) and not _agree(earlier, later):
                    conflicts.append(FactConflict(later.key, earlier, later, "same time"))
            conflicts += (
                FactConflict(later.key, earlier, later, "same time")
                for earlier in ended
                if _breaks_into(later, earlier) and not _agree(earlier, later)
            )
            begun[later.valid_from] = later
            if later.valid_to is not None:
                ended.append(later)
            better = _more_trusted(islice(live, place), later)
            if better is not None:
                conflicts.append(FactConflict(later.key, better, later, "less trusted"))
    return conflicts


def _breaks_into(later: FactMemory, earlier: FactMemory) -> bool:
    """Tell whether *later* begins while *earlier*, whose end is known, was said to be true.

    What was only foreseen may come otherwise: that is news, and so is that something is over.
    """
    if later.is_end or earlier.valid_to is None:
        return False
    if not earlier.valid_from < later.valid_from < earlier.valid_to:
        return False
    return later.valid_to is not None or later.valid_from < earlier.recorded_at


def _more_trusted(before: Iterable[FactMemory], later: FactMemory) -> FactMemory | None:
    """Return what *later* takes the place of, if that is worth more and says something else."""
    level = trust_of(later)
    if level is Trust.USER:
        return None
    covered = (fact for fact in before if fact.covers(later.valid_from))
    best = max(covered, key=rank, default=None)
    if best is None or trust_of(best) <= level:
        return None
    # One that claims the same time contradicts it anyway.
    is_told = best.valid_from == later.valid_from or _breaks_into(later, best)
    return None if is_told or _agree(best, later) else best


PAGE = 1_000

_PRESENT = timedelta(minutes=1)
"""How long ago somebody may have asked about now: recalling may wait for a model."""

NO_END = datetime.max.replace(tzinfo=UTC)
"""The `known_at` of the newest knowledge, by whatever clock it was recorded."""


def judged_at(facts: Iterable[FactMemory], now: datetime) -> datetime:
    """Return the moment at which *facts* of one key are judged, if *now* is asked about.

    What is recorded has happened, even by a clock that is ahead of this one; but nobody who asks
    about an earlier moment means that.
    """
    clock = datetime.now(UTC)
    ahead = (fact for fact in facts if fact.recorded_at > clock and fact.is_known(NO_END))
    last = max((fact.recorded_at for fact in ahead), default=now)
    return max(now, last) if clock - now < _PRESENT else now


@runtime_checkable
class FactIndex(Protocol, metaclass=StructuralMeta):
    """A store that finds what decides, among all that was ever said of a fact's key."""

    async def deciding_facts(
        self,
        key: str,
        *,
        metadata: MemoryMetadata,
        as_of: datetime,
        known_at: datetime,
        starts: Sequence[datetime] = (),
    ) -> list[MemoryItem]:
        """Return what decides which fact of *key* holds at *as_of*, as known at *known_at*.

        These are the assertion that goes before all others then, which may be an end; the next one
        that begins after it; and the one of which something became known last, drafts included.
        With *starts*, so are all that begin at one of these, and the next to begin after each.
        They are of just the scope that *metadata* names. There may be others among them.
        """
        ...


async def assertions(store: MemoryStore, query: Query, keys: Sequence[str]) -> list[FactMemory]:
    """Return the accepted assertions of *keys* that *query* asks for, all of them."""
    of_keys: Where = {"fact": {"$in": list(keys)}}
    where: Where = {"$and": [query.where, of_keys]} if query.where else of_keys
    wanted = replace(query, memory_type="fact", status=MemoryStatus.ACCEPTED, where=where)
    if isinstance(store, LexicalStore):  # whose filters are all there are
        return [item for item in await _paged(store, wanted) if isinstance(item, FactMemory)]
    items = await _at_once(store, wanted)
    return [item for item in items if isinstance(item, FactMemory) and wanted.matches(item)]


async def ended(
    store: MemoryStore, scope: MemoryMetadata | None, items: Iterable[MemoryItem]
) -> dict[str, str]:
    """Return which facts among *items* hold no more, by id, each with what became of it.

    That is `replaced by "city: Bergen"`, `ended 18 Nov 2026` or `retracted`. Each is judged by the
    facts of its own scope.
    """
    facts = [item for item in items if isinstance(item, FactMemory) and not item.is_end]
    facts = [fact for fact in facts if fact.status is MemoryStatus.ACCEPTED]
    if not facts:
        return {}
    keys = sorted({fact.key for fact in facts})
    groups: dict[tuple[str | None, ...], list[FactMemory]] = {}
    for each in await assertions(store, Query(metadata=scope), keys):
        groups.setdefault(_owner_and_key(each), []).append(each)
    ends: dict[str, str] = {}
    for fact in facts:
        if fact.retracted_at is not None:
            ends[fact.id] = "retracted"
        elif text := _end_of(fact, groups.get(_owner_and_key(fact), [])):
            ends[fact.id] = text
    return ends


def _owner_and_key(fact: FactMemory) -> tuple[str | None, ...]:
    return (*(getattr(fact.metadata, name) for name in SCOPE_FIELDS), fact.key)


def _end_of(fact: FactMemory, of_key: Sequence[FactMemory]) -> str:
    now = judged_at(of_key, datetime.now(UTC))
    every = timeline(of_key, known_at=NO_END)
    own = [span for span in every if span.fact.id == fact.id]
    end = own[-1].end if own else fact.valid_from
    if end is None or (own and end > now):
        return ""
    # The next one, which need not be what holds now. What has no span never held: another fact has
    # its time.
    follows = next((span for span in every if span.end is None or span.end > end), None)
    if follows is not None and follows.start <= max(now, end):
        return f'replaced by "{shortened(follows.fact.content)}"'
    return f"ended {_day(end)}" if own else "ended"


async def _paged(store: MemoryStore, wanted: Query) -> list[MemoryItem]:
    items: list[MemoryItem] = []
    while True:
        page = await store.search(  # type: ignore[call-arg]  # stores that find by words page, too
            metadata=wanted.metadata,
            memory_type=wanted.memory_type,
            status=wanted.status,
            limit=PAGE,
            where=wanted.where,
            before=items[-1] if items else None,
        )
        items += page
        if len(page) < PAGE:
            return items


async def _at_once(store: MemoryStore, wanted: Query) -> list[MemoryItem]:
    """Read from a store that only has the basics, and more of it until that is all."""
    limit = PAGE
    while True:
        items = await store.search(
            metadata=wanted.metadata,
            memory_type=wanted.memory_type,
            status=wanted.status,
            limit=limit,
        )
        if len(items) < limit:
            return items
        limit *= 4
