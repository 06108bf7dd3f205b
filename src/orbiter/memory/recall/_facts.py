"""Facts among the candidates: what holds comes before what held, and nothing that was wrong comes.

A fact is judged as of now, against all that is asserted of its key: none of them says by itself
whether another has taken its place.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from orbiter.memory import words
from orbiter.memory.facts import FactMemory, FactSpan, dated, holding, timeline
from orbiter.memory.items import MemoryItem, MemoryStatus
from orbiter.memory.protocols import MemoryStore
from orbiter.memory.query import SCOPE_FIELDS
from orbiter.memory.recall._candidates import newest_of
from orbiter.memory.recall._choice import Weighed
from orbiter.memory.recall._flooded import both
from orbiter.memory.recall._question import Question
from orbiter.memory.recall._ranking import Scored
from orbiter.memory.recall._weighing import Asked
from orbiter.memory.recall._why import Reason, Why

__all__ = ["judged"]

_MOST = 5_000
"""Assertions of all keys concerned that are read, the newest."""
_HELD = 0.1
"""Points by which what held stands behind what holds, which has the best place of its key."""
_PART = "fact"

_Key = tuple[str | None, ...]
"""Whose fact it is, and its key."""


class _Known(NamedTuple):
    """What is known of one key."""

    holds: FactMemory | None
    spans: dict[str, FactSpan]
    """From when to when each held, last; what never did is not in it."""


async def judged(
    store: MemoryStore, weighed: Weighed, asked: Asked, *, is_ordered: bool
) -> Weighed:
    """Return the candidates with their facts judged as of `asked.now`.

    Those that were retracted, proposed or never held are left out. Of one key, what holds takes
    the best place and what held follows; it is brought in where only that was found. With
    *is_ordered*, the order is that of time, and only what is left out changes.
    """
    facts = [one.item for one in weighed.scored if isinstance(one.item, FactMemory)]
    if not facts:
        return weighed
    known = await _known(store, facts, asked)
    spans = {key: span for each in known.values() for key, span in each.spans.items()}
    scored = [one for one in weighed.scored if _may_show(one.item, spans, asked)]
    brought: set[str] = set()
    if not is_ordered:
        scored = _placed(scored, weighed, known, asked, brought)

    def why(one: Scored) -> Why:
        if not isinstance(one.item, FactMemory):
            return weighed.why(one)
        others = {part: points for part, points in one.points.items() if part != _PART}
        found = () if one.item.id in brought else weighed.why(replace(one, points=others))
        told = Reason(_PART, one.points.get(_PART, 0.0), _told(one.item, spans, asked.now))
        return Why(sorted((*found, told), key=lambda reason: -abs(reason.points)))

    return weighed._replace(
        scored=scored,
        why=why,
        has_evidence=lambda one: one.item.id in brought or weighed.has_evidence(one),
        spans=spans,
    )


async def _known(
    store: MemoryStore, found: Iterable[FactMemory], asked: Asked
) -> dict[_Key, _Known]:
    """Read what else is asserted of the keys found, as far as it is trusted enough."""
    keys = sorted({fact.key for fact in found})
    some = replace(
        asked.filters,
        memory_type="fact",
        status=MemoryStatus.ACCEPTED,
        since=None,
        until=None,
        where=both(asked.trusted, {"fact": {"$in": keys}}),
        limit=_MOST,
    )
    facts: dict[_Key, list[FactMemory]] = {}
    for item in await newest_of(store, some):
        if isinstance(item, FactMemory) and some.matches(item):
            facts.setdefault(_key(item), []).append(item)
    return {
        key: _Known(
            holding(each, as_of=asked.now, known_at=asked.now),
            {span.fact.id: span for span in timeline(each, known_at=asked.now)},
        )
        for key, each in facts.items()
    }


def _may_show(item: MemoryItem, spans: dict[str, FactSpan], asked: Asked) -> bool:
    if not isinstance(item, FactMemory):
        return True
    if item.status is not MemoryStatus.ACCEPTED:  # as somebody does who reviews proposals
        return item.status is asked.filters.status
    return item.id in spans


def _placed(
    scored: list[Scored],
    weighed: Weighed,
    known: dict[_Key, _Known],
    asked: Asked,
    brought: set[str],
) -> list[Scored]:
    """Return the candidates in their new order; *brought* gets the ids of those brought in."""
    groups: dict[_Key, list[Scored]] = {}
    for one in scored:
        if isinstance(one.item, FactMemory) and one.item.status is MemoryStatus.ACCEPTED:
            groups.setdefault(_key(one.item), []).append(one)
    changed: dict[str, Scored | None] = {}
    for key, group in groups.items():
        worthy = [one for one in group if weighed.has_evidence(one)]
        holds = known[key].holds
        if not worthy or holds is None:
            continue
        place = max(one.score for one in worthy)
        if asked.filters.matches(holds):
            first = next((one for one in group if one.item.id == holds.id), None)
            if first is None or first not in worthy:
                brought.add(holds.id)
                changed[holds.id] = Scored(holds, -1, {_PART: place})
            elif first.score < place:
                changed[holds.id] = _with(first, place - first.score)
        held = [one for one in worthy if one.item.id != holds.id]
        kept = _that_speak(held, weighed.question, known[key])
        for one in held:
            changed[one.item.id] = _with(one, -_HELD) if one.item.id in kept else None
    there = [changed.pop(one.item.id, one) for one in scored]
    found = [one for one in (*there, *changed.values()) if one is not None]
    return sorted(
        found, key=lambda one: (-one.score, -one.item.created_at.timestamp(), one.item.id)
    )


def _that_speak(held: list[Scored], question: Question, known: _Known) -> set[str]:
    """Return which of those that held are worth a place beside the one that holds.

    The last of them is; of the others, those whose value is asked for, or all if a time is.
    """
    if question.times or question.asks_when:
        return {one.item.id for one in held}
    asked = frozenset(words.terms(question.text))
    last = max(held, key=lambda one: known.spans[one.item.id].start, default=None)
    return {
        one.item.id
        for one in held
        if one is last or asked.intersection(_terms(one.item)).difference(_key_terms(one.item))
    }


def _terms(item: MemoryItem) -> frozenset[str]:
    return frozenset(words.terms(item.content))


def _key_terms(item: MemoryItem) -> frozenset[str]:
    assert isinstance(item, FactMemory)  # noqa: S101 - only facts get here
    return frozenset(words.terms(item.key.replace("_", " ")))


def _with(one: Scored, points: float) -> Scored:
    return replace(one, points={**one.points, _PART: points})


def _told(item: FactMemory, spans: dict[str, FactSpan], now: datetime) -> str:
    span = spans.get(item.id)
    if span is None:
        return "is proposed, not accepted"
    when = f" {dated(span)}".rstrip()
    if span.start > now:
        return f"will hold{when}"
    return f"holds{when}" if span.end is None or span.end > now else f"held{when}"


def _key(fact: MemoryItem) -> _Key:
    assert isinstance(fact, FactMemory)  # noqa: S101 - only facts get here
    return (*(getattr(fact.metadata, name) for name in SCOPE_FIELDS), fact.key)
