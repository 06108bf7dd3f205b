"""Repeated queries: where an answer is full of what is of no use, the store is asked for the rest.

A store answers with the best of what matches. If most of that says the same, it is asked again for
what says something else, a bounded number of times. So it is if most are earlier values of a fact,
of which few are of use, or if some of the newest are not indexed.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import INDEXED_BY, MemoryItem, is_indexed
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.recall._candidate_pool import are_many, as_indexed
from orbiter.memory.recall.near_duplicates import SERIES, Clusters, find_clusters, without_digits
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
_MAX_ITEMS = 2_000
"""Items of one answer, where copies must be told one by one."""
_COPIES = 3
"""Copies of a text from which it is worth naming the text rather than each copy."""
_LINKED = 20
"""Copies of a flood that are weighed, and told as repeats."""
_SHARE = 0.85
"""Share of a flood's text that all must have to the letter to be told by it alone."""
_LONGEST = 1_000
_COMPARED = 16

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
    ask: Ask, asked: Query, *, enough: int, first: Sequence[MemoryItem] | None = None
) -> list[MemoryItem]:
    """Return what *ask* finds, best first, at least *enough* that differ if there are so many.

    Of a flood that filled the answer, some copies are among it, and of the values of a fact as many
    as `fetch` returns. What was found later comes later: it was no better than the copies before
    it. If it has been asked already, these were *first*.
    """
    ask = partial(fetch, ask)
    found = {item.id: item for item in (await ask(asked) if first is None else first)}
    is_all, out = len(found) < asked.limit, _Excluded()
    clusters = Clusters()
    for _ in range(_TIMES):
        if not is_all:
            items = list(found.values())
            clusters = await apart(are_many(items), find_clusters, items)
        if is_all or not clusters or _count_different(found, clusters) >= enough:
            break
        for numbers in (clusters.copies, clusters.series):
            copies = [item for key, item in found.items() if key in numbers]
            await apart(are_many(copies), out.take, copies, numbers)
        try:
            again = replace(
                asked, where=and_where(asked.where, out.where), limit=out.room(asked.limit)
            )
        except QueryError:  # the caller's filter is as large as one can be
            break
        # As many of each as show that it is a flood.
        found = {
            item.id: item
            for item in limit_per_cluster(found.values(), clusters, max_copies=SERIES + 1)
        }
        more = await ask(again)
        is_all = len(more) < again.limit or all(item.id in found for item in more)
        found |= {item.id: item for item in more if item.id not in found}
    return list(found.values())


def limit_per_cluster(
    items: Collection[MemoryItem],
    clusters: Clusters,
    *,
    max_copies: int = _LINKED,
    max_of_series: int | None = None,
) -> list[MemoryItem]:
    """Return *items* with at most so many of each flood and of each series, the first of them."""
    kept = list(items)
    for numbers, limit in ((clusters.copies, max_copies), (clusters.series, max_of_series)):
        if numbers and limit is not None:
            kept = _first_of_each(kept, numbers, limit)
    return kept


def _first_of_each(
    items: Sequence[MemoryItem], numbers: Mapping[str, int], max_copies: int
) -> list[MemoryItem]:
    left: Counter[int] = Counter()
    kept = []
    for item in items:
        number = numbers.get(item.id)
        if number is not None:
            left[number] += 1
        if number is None or left[number] <= max_copies:
            kept.append(item)
    return kept


def _count_different(found: Mapping[str, MemoryItem], clusters: Clusters) -> int:
    return len(limit_per_cluster(found.values(), clusters, max_copies=1, max_of_series=1))


class _Excluded:
    """What a store is to leave out: by its text, by most of its text, or one by one."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.chunks: set[str] = set()
        self.ids: set[str] = set()

    def take(self, items: Sequence[MemoryItem], clusters: Mapping[str, int]) -> None:
        """Leave out the *clusters* that *items* belong to."""
        by_cluster: dict[int, list[MemoryItem]] = {}
        for item in items:
            by_cluster.setdefault(clusters[item.id], []).append(item)
        for cluster in by_cluster.values():
            counts = Counter(item.content for item in cluster)
            self.texts |= {text for text, count in counts.items() if count >= _COPIES}
            by_words: dict[str, list[MemoryItem]] = {}
            for item in cluster:
                if item.content not in self.texts:
                    by_words.setdefault(without_digits(item.content), []).append(item)
            for same in by_words.values():
                texts = [item.content for item in same]
                chunk = _common(texts) if len(same) > _LINKED else ""
                self.chunks |= {chunk} if chunk else set()
                self.ids |= set() if chunk else {item.id for item in same}

    @property
    def where(self) -> Where:
        """The filter that leaves it out."""
        parts: list[Where] = [
            {"$not": {"content": {"$contains": each}}} for each in sorted(self.chunks)
        ]
        if self.texts:
            parts.append({"content": {"$nin": sorted(self.texts)}})
        if self.ids:
            parts.append({"id": {"$nin": sorted(self.ids)}})
        return {"$and": parts}

    def room(self, limit: int) -> int:
        """Return how many to ask for: copies that are told one by one need much."""
        return max(limit, _MAX_ITEMS) if self.ids else limit


def _common(texts: Sequence[str]) -> str:
    """Return what all *texts* hold to the letter, if that is most of what they hold."""
    some = sorted(set(texts), key=lambda text: (len(text), text))[
        :: max(1, len(texts) // _COMPARED)
    ]
    if not some or len(some[-1]) > _LONGEST:
        return ""
    common = some[0]
    for text in some[1:]:
        if common not in text:
            common = _longest_common(common, text)
    return common if len(common) >= _SHARE * len(some[len(some) // 2]) else ""


def _longest_common(one: str, other: str) -> str:
    """Return the longest text that both hold, the first such of *one*.

    What both hold of some length, they hold of every smaller one: so few lengths are tried, and
    texts of ever the same words take no longer than others.
    """
    longest, least, most = "", 0, min(len(one), len(other))
    while least < most:
        size = (least + most + 1) // 2
        held = {other[at : at + size] for at in range(len(other) - size + 1)}
        parts = (one[at : at + size] for at in range(len(one) - size + 1))
        part = next((part for part in parts if part in held), None)
        if part is None:
            most = size - 1
        else:
            longest, least = part, size
    return longest
