"""Searches of the recall modes: hybrid, by meaning alone, by time alone."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.query import Query
from orbiter.memory.recall._candidate_pool import are_many, is_talk
from orbiter.memory.recall._candidates import (
    FirstLook,
    QuestionVector,
    fill_pool,
    nearest,
    newest_that_differ,
)
from orbiter.memory.recall._explanation import Explanation, Reason, reasons
from orbiter.memory.recall._features import UNRELATED, has_evidence, standardise
from orbiter.memory.recall._query_analysis import in_words, read, shortened
from orbiter.memory.recall._relevance import measures, measures_of_text, measures_of_vector
from orbiter.memory.recall._rerank import MAX_RERANKED, order, weighed_columns
from orbiter.memory.recall._scoring import Scored
from orbiter.memory.recall._select import MAX_LEFT_OUT, Candidates, on_one_scale
from orbiter.memory.recall._signals import check_columns, is_important, is_recent, means, measure
from orbiter.memory.recall.near_duplicates import find_clusters
from orbiter.memory.tasks.offload import apart
from orbiter.memory.text.ranking import recency
from orbiter.memory.text.words import terms

__all__ = ["RecallRequest", "by_all", "by_meaning", "by_time"]

_BESIDE = ("recency", "importance")
"""Parts of a score that say nothing about the question."""
check_columns("caller", _BESIDE)


class RecallRequest(NamedTuple):
    """A question with all that came with it, already checked."""

    text: str
    filters: Query
    now: datetime
    recency_weight: float
    half_life_hours: float
    importance_weight: float
    explain: bool
    trusted: Where | None = None
    """The part of the filters that says how far a memory must be trusted."""
    min_relevance: float = 0.0
    spread: bool = False
    """Whether the matter is to be covered over time, and told in its order."""

    def recency_of(self, item: MemoryItem) -> float:
        """Return how recent an item is, from 0 to 1."""
        return recency(item.created_at, now=self.now, half_life_hours=self.half_life_hours)

    def beside(self, items: Sequence[MemoryItem]) -> dict[str, tuple[float, list[float]]]:
        """Return what may count beside relevance: weights, and the measure of each item."""
        found: dict[str, tuple[float, list[float]]] = {}
        if self.recency_weight:
            found["recency"] = self.recency_weight, [self.recency_of(item) for item in items]
        if self.importance_weight:
            found["importance"] = self.importance_weight, [_importance(item) for item in items]
        return found


async def by_all(
    store: MemoryStore, request: RecallRequest, seen: FirstLook, vector: QuestionVector | None
) -> Candidates:
    """Return candidates by words, structure and time, and by meaning if there is a vector."""
    question = seen.question
    pool = await fill_pool(store, seen, request.filters, vector)
    table = await apart(
        are_many(pool.items),
        lambda: measure(question, pool, weighed_columns(pool, spread=request.spread)),
    )
    beside = request.beside(table.items)
    table.columns.update({name: values for name, (_, values) in beside.items()})
    extra = {name: weight for name, (weight, _) in beside.items()}
    max_reranked = max(MAX_RERANKED, 2 * request.filters.limit)
    scored = await order(
        store, pool, table, extra, max_reranked=max_reranked, spread=request.spread
    )

    def is_worthy(one: Scored) -> bool:
        if not has_evidence(question, table, one.place):
            return False
        # Nothing around a note can make up for what it lacks itself.
        is_found = table.found[one.place] or table.columns["date"][one.place]
        return bool(is_found) or is_talk(one.item, seen.names) or _relevance(one) > 0

    candidates = Candidates(
        question,
        in_words(question),
        scored,
        lambda one: reasons(question, pool, table, one),
        is_worthy,
        pool.clusters,
        measures=lambda one: measures(question, pool, table, one.place),
    )
    # Whoever weighs more than the question decides about the order.
    return candidates if beside else on_one_scale(candidates, seen.names)


async def by_meaning(
    store: MemoryStore, asked: RecallRequest, seen: FirstLook, vector: QuestionVector | None
) -> Candidates:
    """Return what is near to the question; a score is the cosine, and what is weighed beside."""
    question = seen.question
    near = [] if vector is None else await nearest(store, asked.filters, vector)
    items, cosines = [item for item, _ in near], [cosine for _, cosine in near]
    strengths = standardise(cosines, absent=UNRELATED)
    beside = asked.beside(items)
    scored = [
        Scored(
            item,
            place,
            {"meaning": cosines[place]}
            | {name: weight * values[place] for name, (weight, values) in beside.items()},
        )
        for place, item in enumerate(items)
    ]

    def why(one: Scored) -> Explanation:
        texts = {
            "meaning": means(cosines[one.place], strength=strengths[one.place]),
            "recency": is_recent(one.item),
            "importance": is_important(),
        }
        found = [Reason(part, points, texts[part]) for part, points in one.points.items()]
        return Explanation(sorted(found, key=lambda reason: -abs(reason.points)))

    def measured(one: Scored) -> dict[str, float]:
        of_text = measures_of_text(question, one.item, names=seen.names)
        coverage = 1.0 if vector is None else vector.coverage
        return of_text | measures_of_vector(of_text, cosines[one.place], coverage=coverage)

    best_first = sorted(scored, key=lambda one: -one.score)
    clusters = await apart(are_many(items), find_clusters, items)
    return Candidates(
        question,
        in_words(question),
        best_first,
        why,
        clusters=clusters,
        measures=measured,
    )


async def by_time(store: MemoryStore, asked: RecallRequest) -> Candidates:
    """Return the newest items, newest first, of those that hold a word of the question."""
    text = shortened(asked.text)
    more = MAX_LEFT_OUT if asked.explain else 0
    wanted = list(dict.fromkeys(terms(text)))
    found = await newest_that_differ(store, wanted, asked.filters, count=asked.filters.limit + more)
    scored = [
        Scored(item, place, {"recency": asked.recency_of(item)}) for place, item in enumerate(found)
    ]
    question = read(text, now=asked.now)
    interpretation = "the newest" + (f"; {in_words(question)}" if question.terms else "")
    return Candidates(
        question,
        interpretation,
        scored,
        lambda one: Explanation([Reason("recency", one.score, is_recent(one.item))]),
        clusters=await apart(are_many(found), find_clusters, found),
        measures=(lambda one: measures_of_text(question, one.item)) if wanted else None,
    )


def _relevance(one: Scored) -> float:
    return sum(points for part, points in one.points.items() if part not in _BESIDE)


def _importance(item: MemoryItem) -> float:
    value = item.metadata.extra.get("importance", 0.0)
    return min(1.0, max(0.0, float(value))) if isinstance(value, int | float) else 0.0
