"""What holds when: folded from all assertions, each time it is asked for."""

import heapq
from collections.abc import Iterable
from datetime import datetime

from orbiter.memory.model.facts.assertion import ALWAYS, FactMemory, same_value
from orbiter.memory.model.facts.spans import FactEntry, FactSpan
from orbiter.memory.model.items import MemoryStatus

__all__ = [
    "by_key",
    "current",
    "entries",
    "holding",
    "latest",
    "rank",
    "recording",
    "said_already",
    "said_last",
    "span_of",
    "timeline",
]


def rank(fact: FactMemory) -> tuple[datetime, datetime, str]:
    """Return by what one fact goes before another that covers the same moment."""
    return fact.valid_from, fact.recorded_at, fact.id


def recording(fact: FactMemory) -> tuple[datetime, str]:
    """Return by what facts are in the order in which they became known."""
    return fact.recorded_at, fact.id


def by_key(facts: Iterable[FactMemory]) -> dict[str, list[FactMemory]]:
    """Return facts by their keys, in the order of the keys."""
    found: dict[str, list[FactMemory]] = {}
    for fact in facts:
        found.setdefault(fact.key, []).append(fact)
    return dict(sorted(found.items()))


def holding(
    facts: Iterable[FactMemory], *, as_of: datetime, known_at: datetime
) -> FactMemory | None:
    """Return what was true at *as_of* as known at *known_at*, of the facts of one key.

    Of all that cover the moment, the one that began last; of these, the one recorded last.
    """
    found = (fact for fact in facts if fact.is_known(known_at) and fact.covers(as_of))
    best = max(found, key=rank, default=None)
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
    """Return the history of one key: each accepted assertion, the one recorded first first.

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
    found = live[-1:]
    for before in reversed(live[:-1]):
        if not _says_same(before, found[-1]) or not before.covers(found[-1].valid_from):
            break
        found.append(before)
    return found


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
