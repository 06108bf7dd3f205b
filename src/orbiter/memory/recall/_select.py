"""Selection: from scored candidates to hits that say different things, and what is left out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.recall._candidate_pool import as_shown, as_stored
from orbiter.memory.recall._explanation import ENDED, Explanation, passage_of
from orbiter.memory.recall._hits import Excluded, ExcludedReason, Hit, RecallResult, Reranking
from orbiter.memory.recall._modes import RecallMode
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.recall._relevance import OUTDATED
from orbiter.memory.recall._scoring import Scored, without_repeats
from orbiter.memory.recall.near_duplicates import Clusters

if TYPE_CHECKING:
    from orbiter.memory.model.facts import FactSpan

__all__ = ["MAX_LEFT_OUT", "Candidates", "choose"]

MAX_LEFT_OUT = 50
"""How many candidates are told of that are no hits."""


_TIED, _RATHER = 0.05, 0.1
"""Of hits whose relevance is at least so much and differs by less, the newest is the first."""
_FIRST = 10
"""How many hits are put into their order, however few are asked for."""
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
    likely: Callable[[Scored], float] | None = None
    """How likely one answers; nothing where nothing is asked."""
    by_relevance: bool = False
    """Whether that is their order, too."""
    names: frozenset[str] = frozenset()
    """Names before a colon in the texts of those who speak."""

    def relevance(self, one: Scored) -> float:
        """Return the probability that a candidate answers; 1 where nothing is asked.

        What is replaced hardly answers, and never better than what replaced it, unless the past is
        asked for.
        """
        if self.likely is None:
            return 1.0
        likely = self.likely(one)
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
        if candidates.by_relevance:
            chosen = _by_relevance(candidates, chosen)
        chosen = chosen[:k]
    return RecallResult(
        (
            Hit(
                copy_item(as_stored(one.item)),
                one.score,
                candidates.why(one),
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


def _by_relevance(candidates: Candidates, chosen: Sequence[_Chosen]) -> list[_Chosen]:
    """Return the hits by how likely they answer; of two that are as likely, the newer one first."""
    likely = {one.item.id: candidates.relevance(one) for one, _ in chosen}
    ordered = sorted(chosen, key=lambda each: -likely[each[0].item.id])
    if candidates.question.asks_past:
        return ordered
    for end in range(1, min(_FIRST, len(ordered))):
        at = end
        while at and _is_tied_with_older(ordered[at - 1][0], ordered[at][0], likely):
            ordered[at - 1], ordered[at] = ordered[at], ordered[at - 1]
            at -= 1
    return ordered


def _is_tied_with_older(one: Scored, other: Scored, likely: Mapping[str, float]) -> bool:
    both = likely[one.item.id], likely[other.item.id]
    is_tied = min(both) >= _RATHER and max(both) - min(both) < _TIED
    return is_tied and one.item.created_at < other.item.created_at


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
        chosen = without_repeats(best, limit=k, clusters=clusters, is_all=is_all)
        if len(chosen) == k or is_all:
            return best, chosen
        looked_at *= 4
