"""Facts among the candidates: what is true comes first, or what was at the time asked about.

A fact is judged as of now, against all that is asserted of its key: none of them says by itself
whether another has taken its place. What was wrong never comes.
What was said of a day is said in the week after it, too; what held is held to the day.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

from orbiter.memory.model.facts import FactMemory, FactSpan, dated, holding, latest, timeline
from orbiter.memory.model.facts.assertion import ALWAYS
from orbiter.memory.model.facts.spans import NO_END, FactIndex, assertions, judged_at
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.recall._dates import Span
from orbiter.memory.recall._explanation import (
    FACT,
    HOLDS,
    REPLACED,
    Explanation,
    Reason,
    replaced_by,
)
from orbiter.memory.recall._features import terms_of
from orbiter.memory.recall._mode_search import RecallRequest
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.recall._relevance import OUTDATED
from orbiter.memory.recall._scoring import Scored
from orbiter.memory.recall._select import Candidates
from orbiter.memory.text import words

__all__ = ["judged", "overlap", "periods_asked", "span_to_report"]

_HELD = 0.1
"""Points by which others stand behind what holds, which has the best place of its key."""
_OF_TIME = 0.5
"""How likely at least what held, or began, at the time that is asked about answers."""
_NEXT = 0.01
"""Points between those that held at the time asked about."""

_MAX_CROWDED = 4
"""Keys of which not all values are read: it takes a statement for each, and one for all others."""
_MAX_STARTS = 40
"""Values of one key up to which that is worth it."""

_Key = tuple[str | None, ...]
"""Whose fact it is, and its key."""
_scope_ids = attrgetter(*SCOPE_FIELDS)


class _Known(NamedTuple):
    """What is known of one key."""

    first: Sequence[FactMemory]
    """What answers a question: what holds; or what held at the time asked about, longest first; or
    what held before, latest first."""
    spans: dict[str, FactSpan]
    """From when to when each holds, the time to be told of; what never did is not in it."""
    now: datetime
    """When that is so."""
    holds: FactMemory | None
    """What holds then."""


async def judged(
    store: MemoryStore, candidates: Candidates, asked: RecallRequest, *, is_ordered: bool
) -> Candidates:
    """Return the candidates with their facts judged as of `asked.now`.

    Those that were retracted, proposed or never held are left out. Of one key, what holds takes
    the best place, or what held at the time that the question names, and the others follow; it is
    brought in where only those were found. With *is_ordered*, the order is that of time, and only
    what is left out changes.
    """
    facts = [one.item for one in candidates.scored if isinstance(one.item, FactMemory)]
    if not facts:
        return candidates
    known = await _known(store, facts, asked, candidates.question)
    asked = asked._replace(now=max((each.now for each in known.values()), default=asked.now))
    spans = {key: span for each in known.values() for key, span in each.spans.items()}
    scored = [one for one in candidates.scored if _may_show(one.item, spans, asked)]
    replaced = _replaced(known)
    placed = _Placed()
    if not is_ordered:
        scored = _placed(scored, candidates, known, asked, placed)

    def why(one: Scored) -> Explanation:
        if not isinstance(one.item, FactMemory):
            return candidates.why(one)
        others = {part: points for part, points in one.points.items() if part != FACT}
        found = (
            ()
            if one.item.id in placed.brought
            else candidates.why(Scored(one.item, one.place, others))
        )
        more = [Reason(FACT, one.points.get(FACT, 0.0), _validity(one.item, spans, asked.now))]
        if newer := replaced.get(one.item.id):
            more.append(Reason(REPLACED, 0.0, replaced_by(newer)))
        return Explanation(sorted((*found, *more), key=lambda reason: -abs(reason.points)))

    def has_evidence(one: Scored) -> bool:
        if one.item.id in placed.silent:
            return False
        return one.item.id in placed.brought or candidates.has_evidence(one)

    def likely(one: Scored) -> float:
        assert of_found is not None  # noqa: S101 - else nobody asks
        fact, question = one.item, candidates.question
        if not isinstance(fact, FactMemory) or fact.id not in spans or question.asks_about_user:
            return of_found(placed.brought.get(one.item.id, one))
        # Its key is asked about: which of its values answers, the time tells.
        found = max(map(of_found, placed.found.get(_key(fact), (one,))))
        answers = _answers(fact, known[_key(fact)].first, question, asked.now)
        if answers is False:
            return found * OUTDATED
        has_begun = any(start <= spans[fact.id].start < end for start, end in times)
        return max(found, _OF_TIME) if has_begun or (answers and times) else found

    times = periods_asked(candidates.question.times)

    of_found = candidates.likely
    return candidates._replace(
        scored=scored,
        why=why,
        has_evidence=has_evidence,
        spans=spans,
        now=asked.now,
        replaced={**candidates.replaced, **replaced},
        likely=None if of_found is None else likely,
    )


async def _known(
    store: MemoryStore, values: Iterable[FactMemory], asked: RecallRequest, question: Question
) -> dict[_Key, _Known]:
    """Read what else is asserted of the keys of *values*, as far as it is trusted enough."""
    groups: dict[_Key, list[FactMemory]] = {}
    for fact in values:
        groups.setdefault(_key(fact), []).append(fact)
    since = {key: min(fact.valid_from for fact in each) for key, each in groups.items()}
    times = periods_asked(question.times)
    some = replace(asked.filters, since=None, until=None, where=asked.trusted)
    facts: dict[_Key, list[FactMemory]] = {}
    is_open = times or question.asks_before
    if some.max_per_fact is not None and not is_open and isinstance(store, FactIndex):
        crowded = [key for key, each in groups.items() if len(each) >= some.max_per_fact]
        for key in crowded[:_MAX_CROWDED]:
            near = await _neighbours(store, groups[key], some, asked.now)
            facts |= {key: near} if near else {}
    left = sorted({key[-1] or "" for key in groups.keys() - facts.keys()})
    others: dict[_Key, list[FactMemory]] = {}
    for fact in await assertions(store, some, left) if left else ():
        others.setdefault(_key(fact), []).append(fact)
    return {
        key: _of_key(each, question, asked.now, since=ALWAYS if is_open else since.get(key, ALWAYS))
        for key, each in (others | facts).items()
    }


async def _neighbours(
    store: FactIndex, values: Sequence[FactMemory], query: Query, now: datetime
) -> list[FactMemory]:
    """Return what decides when each of *values* held, all of one key, and what holds now.

    Where each holds until the next one, that is the next of each. Nothing is returned where more
    would be needed: what holds is none of them, some end by themselves, or are trusted too little,
    or a clock is ahead.
    """
    starts = sorted({fact.valid_from for fact in values})
    if len(starts) > _MAX_STARTS:
        return []
    key, clock = values[0].key, datetime.now(UTC)
    items = await store.deciding_facts(
        key, metadata=values[0].metadata, as_of=now, known_at=NO_END, starts=starts
    )
    facts = [item for item in items if isinstance(item, FactMemory) and item.key == key]
    known = [fact for fact in facts if fact.is_known(NO_END)]
    holds = holding(known, as_of=now, known_at=NO_END)
    is_enough = (
        (holds is None or holds.valid_from in starts)
        and all(fact.valid_to is None and query.fits(fact) for fact in known)
        and all(latest(fact) <= clock for fact in facts)
    )
    return known if is_enough else []


def _of_key(
    facts: list[FactMemory], question: Question, now: datetime, *, since: datetime
) -> _Known:
    """Return what is known of a key, as far as it concerns facts that begin at *since* or later.

    Which of these holds when, those that begin earlier do not change.
    """
    times = periods_asked(question.times)
    now = judged_at(facts, now)
    later = [fact for fact in facts if fact.valid_from >= since]
    if any(fact.covers(now) and fact.is_known(NO_END) for fact in later):
        facts = later
    holds = holding(facts, as_of=now, known_at=NO_END)
    spans: dict[str, list[FactSpan]] = {}
    for span in timeline(facts, known_at=NO_END):
        spans.setdefault(span.fact.id, []).append(span)
    told = {
        name: each[0] if len(each) == 1 else span_to_report(each, times, now)
        for name, each in spans.items()
    }
    then = [span for span in told.values() if overlap(span, times)] if times else []
    if holds is not None and any(start <= now <= end for start, end in times):
        then = []  # the present is asked about
    then.sort(key=lambda span: (-overlap(span, times), span.start))
    first = [span.fact for span in then] or ([] if holds is None else [holds])
    if question.asks_before:
        first = _before(question.before, told.values(), holds, now)
    return _Known(first, told, now, holds)


def _before(
    what: str, spans: Iterable[FactSpan], holds: FactMemory | None, now: datetime
) -> list[FactMemory]:
    """Return what held before the value that *what* names, or before what holds; latest first."""
    begun = sorted((span for span in spans if span.start <= now), key=attrgetter("start"))
    named = frozenset(words.terms(what))
    after = [span for span in begun if named and named & frozenset(_value_terms(span.fact))]
    after = after or [span for span in begun if holds is not None and span.fact.id == holds.id]
    end = after[0].start if after else now
    return [span.fact for span in reversed(begun) if span.start < end]


def _value_terms(fact: FactMemory) -> list[str]:
    return words.terms(str(fact.value))


def _replaced(known: dict[_Key, _Known]) -> dict[str, FactMemory]:
    """Return by what each fact is replaced that held before the one that holds."""
    return {
        name: each.holds
        for each in known.values()
        if each.holds is not None
        for name, span in each.spans.items()
        if name != each.holds.id and span.end is not None and span.end <= each.now
    }


def _may_show(item: MemoryItem, spans: dict[str, FactSpan], asked: RecallRequest) -> bool:
    if not isinstance(item, FactMemory):
        return True
    if item.status is not MemoryStatus.ACCEPTED:  # as somebody does who reviews proposals
        return item.status is asked.filters.status
    return item.id in spans


@dataclass(slots=True)
class _Placed:
    """What became of some candidates."""

    brought: dict[str, Scored] = field(default_factory=dict)
    """The ids of those that no search had found, and the best found in whose place they are."""
    found: dict[_Key, list[Scored]] = field(default_factory=dict)
    """Those of each key that were found."""
    silent: set[str] = field(default_factory=set)
    """The ids of those that others speak for well enough."""


def _placed(
    scored: list[Scored],
    candidates: Candidates,
    known: dict[_Key, _Known],
    asked: RecallRequest,
    placed: _Placed,
) -> list[Scored]:
    """Return the candidates in their new order; *placed* gets what became of them."""
    groups: dict[_Key, list[Scored]] = {}
    for one in scored:
        if isinstance(one.item, FactMemory) and one.item.status is MemoryStatus.ACCEPTED:
            groups.setdefault(_key(one.item), []).append(one)
    changed: dict[str, Scored] = {}
    for key, group in groups.items():
        worthy = {one.item.id: one for one in group if candidates.has_evidence(one)}
        if not worthy:
            continue
        placed.found[key] = list(worthy.values())
        best_match = max(worthy.values(), key=lambda one: one.score)
        best = best_match.score
        first = [fact for fact in known[key].first if asked.filters.matches(fact)]
        for number, fact in enumerate(first):
            place = best - _NEXT * min(number, 9)
            there = worthy.pop(fact.id, None)
            if there is None:
                placed.brought[fact.id] = best_match
                changed[fact.id] = Scored(fact, -1, {FACT: place})
            elif there.score != place:
                changed[fact.id] = _with(there, place - there.score)
        spans = known[key].spans
        if not known[key].first:  # nothing holds: what did is all there is to tell, newest first
            coming = [one for one in worthy.values() if spans[one.item.id].start > asked.now]
            changed |= {one.item.id: _with(one, -_HELD) for one in coming}
            if not candidates.question.times:
                held = [one for name, one in worthy.items() if name not in changed]
                held.sort(key=lambda one: spans[one.item.id].start, reverse=True)
                for number, one in enumerate(held):
                    place = best - _NEXT * min(number, 9)
                    changed[one.item.id] = _with(one, place - one.score)
            continue
        spoken = _that_speak(list(worthy.values()), candidates.question, spans, asked.now)
        placed.silent.update(worthy.keys() - spoken)
        changed |= {name: _with(one, -_HELD) for name, one in worthy.items()}
    kept = [changed.pop(one.item.id, one) for one in scored]
    return sorted(
        (*kept, *changed.values()),
        key=lambda one: (-one.score, -one.item.created_at.timestamp(), one.item.id),
    )


def _that_speak(
    others: list[Scored], question: Question, spans: dict[str, FactSpan], now: datetime
) -> set[str]:
    """Return which of those that do not hold are worth a place beside the one that does.

    The last that held is, and the next that will; of the others, those whose value is asked for,
    or all if a time is.
    """
    if question.times or question.asks_when:
        return {one.item.id for one in others}
    keys = {one.item.metadata.extra.get("fact") for one in others}
    of_keys = (words.terms(str(key).replace("_", " ")) for key in keys)
    asked = frozenset(words.terms(question.text)).difference(*of_keys)
    starts = {one.item.id: spans[one.item.id].start for one in others}
    held = [name for name, start in starts.items() if start <= now]
    coming = [name for name, start in starts.items() if start > now]
    near = {*sorted(held, key=starts.__getitem__)[-1:], *sorted(coming, key=starts.__getitem__)[:1]}
    return {
        one.item.id
        for one in others
        if one.item.id in near or not asked.isdisjoint(terms_of(one.item))
    }


def _answers(
    fact: FactMemory, first: Sequence[FactMemory], question: Question, now: datetime
) -> bool | None:
    """Tell whether a fact holds at the time that is asked about; `None` if others may answer, too.

    So they may if the past is asked for without a year, as in "before Munich", or its own value,
    and where nothing held at the time that is named. What has ended is no answer about now.
    """
    if any(each.id == fact.id for each in first):
        return True
    if question.asks_before:
        return False
    times = periods_asked(question.times)
    is_open = question.asks_when or (question.asks_past and not times)
    if not first and question.times:
        is_open = not any(start <= now <= end for start, end in times)
    is_named = not frozenset(_value_terms(fact)).isdisjoint(words.terms(question.text))
    return None if is_open or is_named else False


def _with(one: Scored, points: float) -> Scored:
    return Scored(one.item, one.place, {**one.points, FACT: points})


def _validity(item: FactMemory, spans: dict[str, FactSpan], now: datetime) -> str:
    span = spans.get(item.id)
    if span is None:
        return "is proposed, not accepted"
    when = f" {dated(span, now=now)}".rstrip()
    if span.start > now:
        return f"will hold{when}"
    return f"{HOLDS}{when}" if span.end is None or span.end > now else f"held{when}"


def _key(fact: MemoryItem) -> _Key:
    assert isinstance(fact, FactMemory)  # noqa: S101 - only facts get here
    return (*_scope_ids(fact.metadata), fact.key)


_END = datetime.max.replace(tzinfo=UTC)


def periods_asked(times: Iterable[Span]) -> list[tuple[datetime, datetime]]:
    """Return from when to when each time lasts that a question names, if it names the year."""
    found: list[tuple[datetime, datetime]] = []
    for each in times:
        if each.start is not None and each.end is not None:
            found.append((each.start, each.end))
        elif each.year is not None:
            first = datetime(each.year, each.month or 1, each.day or 1, tzinfo=UTC)
            found.append((first, _after(first, each)))
    return found


def _after(first: datetime, span: Span) -> datetime:
    if first.year == _END.year:
        return _END
    if span.day is not None:
        return first + timedelta(days=1)
    if span.month is None or span.month == 12:
        return datetime(first.year + 1, 1, 1, tzinfo=UTC)
    return first.replace(month=span.month + 1)


def overlap(span: FactSpan, times: Sequence[tuple[datetime, datetime]]) -> float:
    """Return for how many seconds of these times a fact held."""
    return sum(_seconds(span, start, end) for start, end in times)


def _seconds(span: FactSpan, start: datetime, end: datetime) -> float:
    both = min(span.end or _END, end) - max(span.start, start)
    return max(0.0, both.total_seconds())


def span_to_report(
    spans: Sequence[FactSpan], times: Sequence[tuple[datetime, datetime]], now: datetime
) -> FactSpan:
    """Return which span of a fact that held more than once is to be told of.

    The one asked about; else that of now, the last one before, or the next.
    """
    best = max(spans, key=lambda span: overlap(span, times))
    if overlap(best, times):
        return best
    begun = [span for span in spans if span.start <= now]
    return begun[-1] if begun else spans[0]
