"""Repeated queries: where an answer is full of what is of no use, the store is asked for the rest.

A store answers with the best of what matches. If most of that is a flood or a series, it is asked
again for what is something else, a bounded number of times. It is the same if most are earlier
values of a fact, of which few are of use, or if some of the newest are not indexed.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import INDEXED_BY, MemoryItem, is_indexed
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.recall._candidate_pool import are_many, as_indexed
from orbiter.memory.recall.near_duplicates import CLUSTER, SERIES, Clusters, find_clusters
from orbiter.memory.tasks.offload import apart

__all__ = [
    "MAX_READ",
    "and_where",
    "fetch",
    "fetch_distinct",
    "limit_per_cluster",
    "limit_per_fact",
    "newest_of",
]

MAX_READ = 10_000
"""Items that are read of a store which has no other filters than the basic ones."""

_TIMES = 8
"""How often a store is asked again for one list."""
_MAX_ITEMS = 4_000
"""Items of one answer, where each text of a flood or a series is another one."""
_GROWTH = 4
"""How many times as many items are asked for as were left out one by one."""
_LINKED = 20
"""Copies of a flood that are weighed, and told as repeats."""

_INDEXED: Where = {INDEXED_BY: {"$ne": False}}

Ask = Callable[[Query], Awaitable[Sequence[MemoryItem]]]


def and_where(one: Where | None, other: Where | None) -> Where | None:
    """Return the filter that asks for what both filters ask for."""
    if not one or not other:
        return one or other
    return {"$and": [one, other]}


async def newest_of(
    store: MemoryStore, query: Query, *, before: MemoryItem | None = None
) -> list[MemoryItem]:
    """Return the newest items that match, or may do so in a store that only has the basics.

    Where there are pages, the one of items older than *before*. Few items are not indexed, and a
    filter costs every question: what was read is read again without them only if it has some.
    """
    items = await _read_newest(store, query, before)
    if all(map(is_indexed, items)):
        return [as_indexed(item) for item in items]
    if isinstance(store, LexicalStore):
        query = replace(query, where=and_where(query.where, _INDEXED))
        return [as_indexed(item) for item in await _read_newest(store, query, before)]
    every = await _read_newest(store, replace(query, limit=max(MAX_READ, query.limit)), before)
    return [as_indexed(item) for item in every if is_indexed(item)][: query.limit]


async def _read_newest(
    store: MemoryStore, query: Query, before: MemoryItem | None
) -> list[MemoryItem]:
    if not isinstance(store, LexicalStore):
        return await store.search(
            metadata=query.metadata,
            memory_type=query.memory_type,
            status=query.status,
            limit=query.limit,
        )
    return await store.search(  # type: ignore[call-arg]  # stores that find by words page, too
        metadata=query.metadata,
        memory_type=query.memory_type,
        status=query.status,
        limit=query.limit,
        since=query.since,
        until=query.until,
        where=query.where,
        before=before,
    )


_Fact = tuple[str | None, ...]
"""Whose fact it is, and its key."""
_scope_of = attrgetter(*SCOPE_FIELDS)


def limit_per_fact(
    items: Sequence[MemoryItem], max_values: int | None
) -> tuple[list[MemoryItem], set[_Fact]]:
    """Return *items* with the first *max_values* of each fact, and the facts that have more.

    What was retracted, or only ends a fact, is never a hit: it is not counted, and goes with them.
    """
    if max_values is None or len(items) <= max_values:
        return list(items), set()
    counts: Counter[_Fact] = Counter()
    kept: list[MemoryItem] = []
    for item in items:
        key = item.metadata.extra.get("fact") if item.memory_type == "fact" else None
        if isinstance(key, str):
            fact = (*_scope_of(item.metadata), key)
            if getattr(item, "retracted_at", None) is None and not getattr(item, "is_end", False):
                counts[fact] += 1
            if counts[fact] > max_values:
                continue
        kept.append(item)
    return kept, {fact for fact, count in counts.items() if count > max_values}


async def fetch(ask: Ask, query: Query) -> list[MemoryItem]:
    """Return what *ask* finds, best first, at most `query.max_per_fact` values of each fact.

    If a store filled its answer with more of them, it is asked again for what else there is.
    """
    items, facts = list(await ask(query)), set[_Fact]()
    size = len(items)
    for _ in range(_TIMES):
        items, more = limit_per_fact(items, query.max_per_fact)
        if more <= facts or size < query.limit:
            break
        facts |= more
        others: Where = {"$and": [_is_another(fact) for fact in sorted(facts, key=repr)]}
        try:
            rest = await ask(replace(query, where=and_where(query.where, others)))
        except QueryError:  # the caller's filter is as large as one can be
            break
        size, known = len(rest), {item.id for item in items}
        items += [item for item in rest if item.id not in known]
    return items


def _is_another(fact: _Fact) -> Where:
    """Return the filter that leaves out the values of a fact."""
    *scope, key = fact
    names = ("memory_type", "fact", *SCOPE_FIELDS)
    return {"$not": dict(zip(names, ("fact", key, *scope), strict=True))}


async def fetch_distinct(
    ask: Ask, query: Query, *, enough: int, first: Sequence[MemoryItem] | None = None
) -> list[MemoryItem]:
    """Return what *ask* finds, best first, at least *enough* that differ if there are so many.

    Of a flood that filled the answer, some copies are among it, of a series as many as *query* asks
    for, and of the values of a fact as many as `fetch` returns. What was found later comes later:
    it was no better than the copies before it. If it has been asked already, these were *first*.
    """
    ask = partial(fetch, ask)
    found = list(await ask(query) if first is None else first)
    is_all = len(found) < query.limit
    left_out: dict[str, MemoryItem] = {}
    for _ in range(_TIMES):
        if is_all:
            break
        clusters = await apart(are_many(found), find_clusters, found)
        if not clusters or _count_different(found, clusters) >= enough:
            break
        numbers = {**clusters.copies, **clusters.series}
        left_out |= {item.id: item for item in found if item.id in numbers}
        try:
            again = _without(query, left_out.values())
        except QueryError:  # the caller's filter is as large as one can be
            break
        # As many of each as show that it is one.
        most = max(query.limit, SERIES + 1)
        found = limit_per_cluster(found, clusters, max_copies=CLUSTER + 1, max_of_series=most)
        answer = await ask(again)
        known = {item.id for item in found}
        others = [item for item in answer if item.id not in known]
        is_all = len(answer) < again.limit or not others
        found += others
    return found


def _without(query: Query, items: Iterable[MemoryItem]) -> Query:
    """Return the query that also leaves out *items*, and all that have the text of several."""
    listed = list(items)
    counts = Counter(item.content for item in listed)
    texts = [text for text, count in counts.items() if count > 1]
    ids = [item.id for item in listed if counts[item.content] == 1]
    others: Where = {"content": {"$nin": texts}, "id": {"$nin": ids}}
    # No filter leaves out the rest of a series, which was not read yet: so more is read.
    limit = max(query.limit, min(_GROWTH * len(ids), _MAX_ITEMS))
    return replace(query, where=and_where(query.where, others), limit=limit)


def limit_per_cluster(
    items: Iterable[MemoryItem],
    clusters: Clusters,
    *,
    max_copies: int = _LINKED,
    max_of_series: int,
) -> list[MemoryItem]:
    """Return *items* with at most so many of each flood and of each series, the first of them."""
    if not clusters:
        return list(items)
    numbers = {**clusters.copies, **clusters.series}
    left = dict.fromkeys(clusters.copies.values(), max_copies)
    left |= dict.fromkeys(clusters.series.values(), max_of_series)
    kept = []
    for item in items:
        number = numbers.get(item.id)
        if number is not None:
            left[number] -= 1
        if number is None or left[number] >= 0:
            kept.append(item)
    return kept


def _count_different(found: Sequence[MemoryItem], clusters: Clusters) -> int:
    return len(limit_per_cluster(found, clusters, max_copies=1, max_of_series=1))
