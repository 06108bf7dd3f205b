"""Selection: from scored candidates to hits that say different things, and what is left out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.recall._candidate_pool import as_shown, as_stored, is_talk
from orbiter.memory.recall._explanation import ENDED, LIKELY, Explanation, Reason, passage_of
from orbiter.memory.recall._features import terms_of
from orbiter.memory.recall._hits import Excluded, ExcludedReason, Hit, RecallResult, Reranking
from orbiter.memory.recall._modes import RecallMode
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.recall._relevance import OUTDATED, relevance
from orbiter.memory.recall._scoring import Scored, without_repeats
from orbiter.memory.recall.near_duplicates import Clusters

if TYPE_CHECKING:
    from orbiter.memory.model.facts import FactSpan

__all__ = ["MAX_LEFT_OUT", "Candidates", "choose", "on_one_scale"]

MAX_LEFT_OUT = 50
"""How many candidates are told of that are no hits."""


_COMPARED = 50
"""How many of the best are put into one order where notes and messages are mixed."""
_BEFORE = 1e-6
"""By how much what stands before another has more points, where it would have less."""
_BRIEF = 0.5
"""From where on a message is as short as a note."""
_FIRST, _RATHER = 10, 0.5
"""Of so many first hits, those of this relevance stand before the others. To put all of them in the
order of relevance costs 1.8 points of R@5 among people, as points tell more; this costs none."""
_WIDER = 2
"""How many times as many are looked at where a matter is to be covered over time."""

_Chosen = tuple[Scored, list[MemoryItem]]
"""A hit with those that say the same."""


class Candidates(NamedTuple):
    """The candidates of one question, as one mode sees them."""

    question: Question
    interpretation: str
    """How the question was read."""
    scored: Sequence[Scored]
    """Best first."""
    why: Callable[[Scored], Explanation]
    has_evidence: Callable[[Scored], bool] = lambda _: True
    clusters: Clusters = Clusters()
    """Which of them are copies of each other, and which differ in their numbers alone."""
    spans: "Mapping[str, FactSpan]" = MappingProxyType({})
    """From when to when each fact among them held."""
    now: datetime | None = None
    """When it is asked, for what is told of that."""
    reranking: Reranking | None = None
    """What a reranker was asked about them, if there is one."""
    replaced: Mapping[str, MemoryItem] = MappingProxyType({})
    """By what each of them is replaced that does not hold any more, by its id."""
    measures: Callable[[Scored], Mapping[str, float]] | None = None
    """What the relevance of one is made of; nothing where nothing is asked."""

    def relevance(self, one: Scored) -> float:
        """Return the probability that a candidate answers; 1 where nothing is asked.

        What is replaced hardly answers, and never better than what replaced it, unless the past is
        asked for.
        """
        if self.measures is None:
            return 1.0
        likely = relevance(self.measures(one))
        newer = None if self.question.asks_past else self.replaced.get(one.item.id)
        if newer is None:
            return likely
        if one.item.memory_type != "fact":
            return likely * OUTDATED
        if not self.question.times:  # else it is judged by its own time
            same = (each for each in self.scored if each.item.id == newer.id)
            likely = min([likely, *map(self.relevance, same)])
        return likely


def choose(
    candidates: Candidates,
    *,
    k: int,
    mode: RecallMode,
    explain: bool,
    min_relevance: float = 0.0,
    spread: bool = False,
) -> RecallResult:
    """Return the best *k* hits of the candidates; with *explain*, also what is left out.

    With *spread*, hits that cover the matter over time, in its order.
    """
    # Of most candidates nobody asks: as many are judged as it takes to find the best.
    worthy: Iterator[Scored] = filter(candidates.has_evidence, candidates.scored)
    if min_relevance:
        worthy = (one for one in worthy if candidates.relevance(one) >= min_relevance)
    if spread:
        judged, chosen = _distinct(worthy, _WIDER * k, candidates.clusters)
        chosen = _covering(chosen, k)
    else:
        # As wide for a smaller *k*, so that its hits are the first of a larger one.
        width = k if candidates.clusters.series else max(k, _FIRST)
        judged, chosen = _distinct(worthy, width, candidates.clusters)
        if mode != "recent" and candidates.reranking is None:
            chosen = _likely_first(candidates, chosen)
        chosen = chosen[:k]
    why = _with_likely(candidates.why)
    return RecallResult(
        (
            Hit(
                copy_item(as_stored(one.item)),
                one.score,
                why(one),
                tuple(copy_item(as_stored(item)) for item in repeats),
                _passage(candidates, one.item),
                candidates.spans.get(one.item.id),
                None if (by := candidates.replaced.get(one.item.id)) is None else by.id,
                candidates.relevance(one),
            )
            for one, repeats in chosen
        ),
        mode=mode,
        considered=len(candidates.scored),
        left_out=_left_out(candidates, [*judged, *worthy], chosen) if explain else (),
        question=candidates.interpretation + ("; over time, oldest first" if spread else ""),
        spread=spread,
        reranking=candidates.reranking,
    )


def on_one_scale(
    candidates: Candidates,
    names: frozenset[str] = frozenset(),
    *,
    repeating: frozenset[str] = frozenset(),
) -> Candidates:
    """Return the candidates with notes and messages in one order.

    A message has points for what was said around it, and a note has not, so their scores cannot be
    compared. How likely they answer can. Each kind keeps its own order: a candidate counts as much
    as the best behind it, and what is to stand before others of the other kind gets the points that
    it lacks. What asks the same, by the ids *repeating*, and a short message beside notes count for
    themselves alone: an answer behind them does not lift them. Neither do they pass another.
    """
    first = candidates.scored[:_COMPARED]
    is_message = {one.item.id: is_talk(one.item, names) for one in first}
    is_mixed = len(set(is_message.values())) > 1
    if not is_mixed and repeating.isdisjoint(is_message):
        return candidates
    best = list(filter(candidates.has_evidence, first))
    alone = set(repeating)
    if is_mixed and (measures := candidates.measures) is not None:
        alone.update(one.item.id for one in best if measures(one).get("brief", 0.0) >= _BRIEF)
    likely: dict[str, float] = {}
    so_far = {True: 0.0, False: 0.0}
    for one in reversed(best):
        kind, own = is_message[one.item.id], candidates.relevance(one)
        if one.item.id not in alone:
            own = so_far[kind] = max(so_far[kind], own)
        likely[one.item.id] = own
    so_far = {True: 1.0, False: 1.0}
    for one in best:
        kind, own = is_message[one.item.id], likely[one.item.id]
        if one.item.id in alone:
            likely[one.item.id] = min(own, so_far[kind])
        else:
            so_far[kind] = own
    ordered = sorted(best, key=lambda one: -likely[one.item.id])
    placed = _lifted(ordered)
    chosen = {one.item.id for one in placed}
    others = [one for one in candidates.scored if one.item.id not in chosen]
    return candidates._replace(scored=[*placed, *others], why=_with_likely(candidates.why))


def _likely_first(candidates: Candidates, chosen: Sequence[_Chosen]) -> list[_Chosen]:
    """Return the hits with those of the first that rather answer before the others of them."""
    first = list(chosen[:_FIRST])
    likely = [candidates.relevance(one) >= _RATHER for one, _ in first]
    ordered = [each for each, is_likely in zip(first, likely, strict=True) if is_likely]
    if ordered == first[: len(ordered)]:  # as nearly always
        return list(chosen)
    ordered += [each for each, is_likely in zip(first, likely, strict=True) if not is_likely]
    repeats = [same for _, same in ordered]
    lifted = _lifted([one for one, _ in ordered])
    return [*zip(lifted, repeats, strict=True), *chosen[_FIRST:]]


def _lifted(ordered: Sequence[Scored]) -> list[Scored]:
    """Return the same, each with the points that it lacks to stand before those behind it."""
    lowest = float("-inf")
    lifted: list[Scored] = []
    for one in reversed(ordered):
        if one.score <= lowest:
            lowest += _BEFORE
            points = {**one.points, LIKELY: one.points.get(LIKELY, 0.0) + lowest - one.score}
            lifted.append(Scored(one.item, one.place, points, lowest))
        else:
            lowest = one.score
            lifted.append(one)
    return lifted[::-1]


def _with_likely(why: Callable[[Scored], Explanation]) -> Callable[[Scored], Explanation]:
    """Return *why*, which also tells of the points that `_lifted` gives."""

    def explained(one: Scored) -> Explanation:
        if LIKELY not in one.points:
            return why(one)
        own = {part: points for part, points in one.points.items() if part != LIKELY}
        reasons = why(Scored(one.item, one.place, own))
        return Explanation([*reasons, Reason(LIKELY, one.points[LIKELY], "more likely to answer")])

    return explained


def _covering(chosen: Sequence[_Chosen], k: int) -> list[_Chosen]:
    """Return *k* of them, good ones that lie far from each other in time, oldest first.

    What lies near to one that was taken loses as much as the best is better than the worst; near
    is what lies within one part of *k* of the time that all of them span.
    """
    left = list(chosen)
    times = [one.item.created_at.timestamp() for one, _ in left]
    scores = [one.score for one, _ in left]
    part = (max(times, default=0.0) - min(times, default=0.0)) / k or 1.0
    reach = max(scores, default=0.0) - min(scores, default=0.0) or 1.0
    lost = {one.item.id: 0.0 for one, _ in left}
    taken: list[_Chosen] = []

    def value(each: _Chosen) -> tuple[float, float]:
        near = lost[each[0].item.id]
        return round(each[0].score - near, 9), -near

    while left and len(taken) < k:
        best = max(left, key=value)
        left.remove(best)
        taken.append(best)
        at = best[0].item.created_at.timestamp()
        for one, _ in left:
            near = max(0.0, 1 - abs(one.item.created_at.timestamp() - at) / part)
            lost[one.item.id] = max(lost[one.item.id], reach * near)
    return sorted(taken, key=lambda each: (each[0].item.created_at, each[0].item.id))


def _passage(candidates: Candidates, item: MemoryItem) -> str:
    """Return what of an item answers the question; a fact with its dates."""
    span = candidates.spans.get(item.id)
    passage = passage_of(candidates.question, as_shown(item))
    if span is None:
        return passage
    from orbiter.memory.model.facts import dated  # noqa: PLC0415 - only where there are facts

    when = dated(span, now=candidates.now)
    if span.end is not None and candidates.now is not None and item.id not in candidates.replaced:
        passage += ENDED if span.end <= candidates.now else ""
    return f"{passage} ({when})" if when else passage


def _left_out(
    candidates: Candidates,
    worthy: Sequence[Scored],
    chosen: Sequence[_Chosen],
) -> tuple[Excluded, ...]:
    hits = {one.item.id for one, _ in chosen}
    reasons: dict[str, ExcludedReason] = {one.item.id: "rank" for one in worthy}
    reasons |= {item.id: "repeat" for _, repeats in chosen for item in repeats}
    others = [one for one in candidates.scored if one.item.id not in hits]

    def reason(one: Scored) -> ExcludedReason:
        is_unlikely = one.item.id not in reasons and candidates.has_evidence(one)
        return "relevance" if is_unlikely else reasons.get(one.item.id, "no evidence")

    return tuple(
        Excluded(
            copy_item(as_stored(one.item)),
            one.score,
            reason(one),
            candidates.why(one),
            candidates.relevance(one),
        )
        for one in others[:MAX_LEFT_OUT]
    )


def _distinct(
    scored: Iterator[Scored], k: int, clusters: Clusters
) -> tuple[list[Scored], list[_Chosen]]:
    """Return those that were looked at, and the best *k* of them that say different things."""
    looked_at = 4 * k
    best: list[Scored] = []
    while True:
        more = list(islice(scored, looked_at - len(best)))
        best += more
        is_all = len(best) < looked_at
        terms = {one.item.id: terms_of(one.item) for one in best}
        chosen = without_repeats(best, terms, limit=k, clusters=clusters, is_all=is_all)
        if len(chosen) == k or is_all:
            return best, chosen
        looked_at *= 4
