"""Searches of the recall modes: hybrid, by meaning alone, by time alone."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import HumanMemory, MemoryItem
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.query import Query
from orbiter.memory.recall._candidate_pool import (
    Clusters,
    Pool,
    are_many,
    as_indexed,
    as_read,
    is_spoken,
)
from orbiter.memory.recall._candidates import (
    FirstLook,
    fill_pool,
    nearest,
    newest_that_differ,
)
from orbiter.memory.recall._dedupe_query import fetch, limit_per_cluster, newest_of
from orbiter.memory.recall._explanation import Explanation, Reason, reasons
from orbiter.memory.recall._features import (
    UNRELATED,
    FeatureTable,
    has_evidence,
    standardise,
    terms_of,
)
from orbiter.memory.recall._query_analysis import (
    Question,
    in_words,
    is_question,
    read,
    shortened,
    user_names,
)
from orbiter.memory.recall._reading import MAX_READ, QuestionVector, Reading
from orbiter.memory.recall._relevance import (
    WEIGHTS,
    asks_for_time_alone,
    of_share,
    probability,
    weighed,
)
from orbiter.memory.recall._rerank import MAX_RERANKED, order, weighed_columns
from orbiter.memory.recall._scoring import Scored
from orbiter.memory.recall._select import MAX_LEFT_OUT, Candidates
from orbiter.memory.recall._signals import check_columns, is_important, is_recent, means, measure
from orbiter.memory.recall.near_duplicates import find_clusters
from orbiter.memory.tasks.offload import apart
from orbiter.memory.text import words
from orbiter.memory.text.first_person import in_first_person
from orbiter.memory.text.languages import ENGLISH, language_of
from orbiter.memory.text.ranking import MIN_RELEVANCE, recency

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
    min_relevance: float = MIN_RELEVANCE
    names: tuple[str, ...] = ()
    """What the user is called, beside the name that their id may be."""
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
    """Return candidates by words, structure and time, and by meaning if there is a vector.

    The best of a first look are read beside the question, where there is a reader.
    """
    question = seen.question
    if question.asks_about_user:
        return await about_user(store, request, question)
    pool = await fill_pool(store, seen, request.filters, vector)
    is_long = are_many(pool.items)
    wanted = weighed_columns(pool, spread=request.spread)
    table = await apart(is_long, measure, question, pool, wanted)
    max_reranked = max(MAX_RERANKED, 2 * request.filters.limit)
    first = await order(store, pool, table, max_reranked=max_reranked, spread=request.spread)
    if vector is not None and vector.reading is not None:
        await _read_best(store, pool, table, first, vector.reading)
    scored = await apart(
        is_long,
        lambda: weighed(
            first,
            table,
            question=question,
            names=pool.names,
            cosines=pool.similarity,
            coverage=pool.coverage,
        ),
    )
    log_odds = {one.item.id: one.score for one in scored}
    dates = table.columns["date"]
    is_of_time = asks_for_time_alone(question) and any(dates)

    def connects(one: Scored) -> bool:
        """Tell whether anything connects a candidate with the question."""
        if is_of_time and one.item.memory_type != "fact":  # whose own time is when it holds
            return dates[one.place] > 0 or bool(table.matched[one.place])
        return pool.similarity is not None or has_evidence(question, table, one.place)

    beside = request.beside([one.item for one in scored])
    return Candidates(
        question,
        in_words(question),
        _with_beside(scored, beside) if beside else scored,
        lambda one: reasons(question, pool, table, one),
        connects,
        pool.clusters,
        likely=lambda one: probability(log_odds[one.item.id]),
        # Whoever weighs more than the question decides about the order.
        by_relevance=not beside,
        names=pool.names,
    )


async def _read_best(
    store: MemoryStore, pool: Pool, table: FeatureTable, first: Sequence[Scored], reading: Reading
) -> None:
    """Have the reader judge the best of a first look; of those that say the same, the first."""
    others = [one for one in first if not table.columns["echo"][one.place]]
    places = _distinct(others, pool.clusters)
    best = list(dict.fromkeys(places.values()))
    before = (table.before[place] for place in best)
    said = [None if place is None else table.items[place] for place in before]
    notes = list(zip((table.items[place] for place in best), said, strict=True))
    verdicts = await reading.judge(store, notes, pool.similarity or {}, table.details, pool.names)
    if verdicts:
        said_of = dict(zip(best, verdicts, strict=True))
        table.verdicts.update({place: said_of[by] for place, by in places.items()})


def _distinct(first: Sequence[Scored], clusters: Clusters) -> dict[int, int]:
    """Return which of the best are to be read, with their copies, by the place of each.

    Of a series, which differs in its numbers alone, half may be read.
    """
    items = [one.item for one in first]
    some = limit_per_cluster(items, clusters, max_copies=1, max_of_series=MAX_READ // 2)
    read = {item.id for item in some[:MAX_READ]}
    places: dict[int, int] = {}
    by_flood: dict[int, int] = {}
    for one in first:
        flood = clusters.copies.get(one.item.id)
        if one.item.id in read:
            places[one.place] = one.place
            if flood is not None:
                by_flood[flood] = one.place
        elif flood is not None and flood in by_flood:
            places[one.place] = by_flood[flood]
    return places


def _with_beside(
    scored: Sequence[Scored], beside: Mapping[str, tuple[float, list[float]]]
) -> list[Scored]:
    """Return the candidates with what the caller weighs beside the question, best first."""
    weighed_too = [
        Scored(
            one.item,
            one.place,
            {**one.points, **(more := {n: w * values[at] for n, (w, values) in beside.items()})},
            one.score + sum(more.values()),
        )
        for at, one in enumerate(scored)
    ]
    return sorted(
        weighed_too,
        key=lambda one: (-one.score, -one.item.created_at.timestamp(), one.item.id),
    )


_ABOUT_USER = words.terms("name live work job like love born family home prefer allergic hobby")
"""Terms of what people say about themselves; more than the newest are found by them."""
_MAX_ABOUT_USER = 200
_FIRST_PERSON = lazy_pattern(r"\b(?:I|I['’]m|my|mine|we|our)\b", re.IGNORECASE)
_STATE = lazy_pattern(
    r"\b(?:I(?:['’]m| am| live| work| like| love| hate| have| prefer| own| speak| play| study| eat"
    r"| drink| need| want| never| always)|my (?:\w+ ){1,3}(?:is|are)|call me)\b",
    re.IGNORECASE,
)
"""What is so, and did not only happen."""
_SENTENCE = lazy_pattern(r"[^.!?\n]+[.!?\n]*")
_ENOUGH_TERMS = 8
_WHO_THEY_ARE = frozenset(
    words.terms(
        "name live work job born birthday old allergic allergy vegetarian vegan diet family married"
        " wife husband partner daughter son child kids"
    )
)
_TELLS_WHO = 0.4
"""Not fitted: how far what tells who somebody is comes before what they like, or do now."""
_FACT, _IS_SO, _HAPPENED = 0.9, 0.8, 0.5
"""Not fitted: how likely each answers what is known of somebody."""


async def about_user(store: MemoryStore, request: RecallRequest, question: Question) -> Candidates:
    """Return what users said about themselves, the most informative first, spread over topics."""
    some = replace(request.filters, limit=_MAX_ABOUT_USER)
    items = {item.id: item for item in await fetch(partial(newest_of, store), some)}
    if isinstance(store, LexicalStore):

        async def ask(query: Query) -> Sequence[MemoryItem]:
            return (await store.match_words(_ABOUT_USER, query)).items

        items |= {item.id: as_indexed(item) for item in await fetch(ask, some)}
    items = {key: as_read(item, question.user_names) for key, item in items.items()}
    likely = {item.id: _about_user(item) for item in items.values()}
    left = {item.id: terms_of(item) for item in items.values() if likely[item.id]}
    core = {key for key, terms in left.items() if _tells_who(likely[key], terms)}
    covered: Counter[str] = Counter()
    scored: list[Scored] = []
    max_scored = 2 * request.filters.limit + MAX_LEFT_OUT  # some say the same and share one place
    while left and len(scored) < max_scored:
        values = {
            key: likely[key] + _TELLS_WHO * (key in core) + _new_share(terms, covered)
            for key, terms in left.items()
        }
        best = max(values, key=lambda key: (values[key], items[key].created_at, key))
        covered.update(left.pop(best))
        scored.append(Scored(items[best], len(scored), {"user": values[best]}))
    scored.sort(key=lambda one: -one.score)
    return Candidates(
        question,
        "asks what is known of the user",
        scored,
        lambda one: Explanation(
            Reason(part, points, "tells about the user") for part, points in one.points.items()
        ),
        likely=lambda one: likely.get(one.item.id, _FACT),
    )


def _about_user(item: MemoryItem) -> float:
    """Return how likely an item tells something about the user; 0 for what does not."""
    if item.memory_type == "fact":
        return _FACT
    if not isinstance(item, HumanMemory) and is_spoken(item):
        return 0.0
    sentences = _SENTENCE.findall(shortened(item.content))
    stated = " ".join(each for each in sentences if not is_question(each))
    if not stated.strip():
        return 0.0
    if language_of(words.tokens(stated), stated) != ENGLISH:
        return _IS_SO  # who speaks of themselves is told by no pattern there
    if _FIRST_PERSON.search(stated) is None:
        return 0.0
    is_so = _STATE.search(stated) is not None
    return _IS_SO if is_so else _HAPPENED


def _tells_who(likely: float, terms: Set[str]) -> bool:
    """Tell whether something says who somebody is: a fact, or a state of a kind that tells that."""
    return likely == _FACT or (likely == _IS_SO and not _WHO_THEY_ARE.isdisjoint(terms))


def _new_share(terms: Set[str], covered: Counter[str]) -> float:
    """Return how much an item says that others have not, from 0 to 1."""
    new = sum(1 / (1 + covered[term]) ** 2 for term in terms)
    return min(1.0, new / _ENOUGH_TERMS) * new / max(len(terms), 1)


async def by_meaning(
    store: MemoryStore, asked: RecallRequest, seen: FirstLook, vector: QuestionVector | None
) -> Candidates:
    """Return what is near to the question; a score is the cosine, and what is weighed beside."""
    question = seen.question
    near = [] if vector is None else await nearest(store, asked.filters, vector)
    items = [as_read(item, question.user_names) for item, _ in near]
    by_id: Mapping[str, float] = {item.id: cosine for item, cosine in near}
    items.sort(key=lambda item: -by_id[item.id])
    cosines = [by_id[item.id] for item in items]
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

    best_first = sorted(scored, key=lambda one: -one.score)
    clusters = await apart(are_many(items), find_clusters, items)
    log_odds = await _log_odds(store, question, scored, clusters, by_id, vector)
    return Candidates(
        question,
        in_words(question),
        best_first,
        why,
        clusters=clusters,
        likely=lambda one: probability(log_odds[one.item.id]),
    )


async def _log_odds(
    store: MemoryStore,
    question: Question,
    scored: Sequence[Scored],
    clusters: Clusters,
    cosines: Mapping[str, float],
    vector: QuestionVector | None,
) -> dict[str, float]:
    """Return how likely each item answers, judged by itself; *scored* are the nearest first."""
    alone = WEIGHTS["near"]["alone"]
    found = {
        one.item.id: alone.always
        + alone.cosine * cosines[one.item.id]
        + alone.share * of_share(question.terms, terms_of(one.item))
        for one in scored
    }
    if vector is None or vector.reading is None:
        return found
    items = {one.place: one.item for one in scored}
    places = _distinct(scored, clusters)
    best = list(dict.fromkeys(places.values()))
    notes = [(items[place], None) for place in best]
    verdicts = await vector.reading.judge(store, notes, cosines, {}, frozenset())
    read = WEIGHTS["read"]["alone"]
    said_of = {
        place: read.always + read.answers * said.answers + read.related * said.related
        for place, said in zip(best, verdicts, strict=False)
    }
    found |= {items[place].id: said_of[by] for place, by in places.items() if by in said_of}
    return found


async def by_time(store: MemoryStore, asked: RecallRequest) -> Candidates:
    """Return the newest items, newest first, of those that hold a word of the question."""
    names = user_names(asked.filters.metadata, asked.names)
    text = in_first_person(shortened(asked.text), names)
    more = MAX_LEFT_OUT if asked.explain else 0
    wanted = list(dict.fromkeys(words.terms(text)))
    newest = await newest_that_differ(
        store, wanted, asked.filters, count=asked.filters.limit + more
    )
    question = read(text, user_names=names, now=asked.now)
    items = [as_read(item, question.user_names) for item in newest]
    scored = [
        Scored(item, place, {"recency": asked.recency_of(item)}) for place, item in enumerate(items)
    ]
    alone = WEIGHTS["words"]["alone"]
    interpretation = "the newest" + (f"; {in_words(question)}" if question.terms else "")
    return Candidates(
        question,
        interpretation,
        scored,
        lambda one: Explanation([Reason("recency", one.score, is_recent(one.item))]),
        clusters=await apart(are_many(items), find_clusters, items),
        likely=(
            lambda one: probability(
                alone.always + alone.share * of_share(question.terms, terms_of(one.item))
            )
        )
        if wanted
        else None,
    )


def _importance(item: MemoryItem) -> float:
    value = item.metadata.extra.get("importance", 0.0)
    return min(1.0, max(0.0, float(value))) if isinstance(value, int | float) else 0.0
