"""Repeated queries: where an answer is full of what is of no use, the store is asked for the rest.

A store answers with the best of what matches. If most of that says the same, it is asked again for
what says something else, a bounded number of times. So it is if some of the newest are not indexed.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import INDEXED_BY, MemoryItem, is_indexed
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.recall._candidate_pool import are_many, as_indexed
from orbiter.memory.recall._features import terms_of
from orbiter.memory.recall.near_duplicates import SERIES, Clusters, find_clusters, without_digits
from orbiter.memory.tasks.offload import apart
from orbiter.memory.text import words

__all__ = ["MAX_READ", "and_where", "fetch_distinct", "limit_per_cluster", "newest_of"]

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
_SHARE_OF_KEY = 0.7
"""The same for values of one fact: what holds of it is never missed."""
_MAX_FACTS = 16
"""Facts whose values are left out by their text: each takes a condition for every field."""
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


async def fetch_distinct(
    ask: Ask,
    asked: Query,
    *,
    enough: int,
    first: Sequence[MemoryItem] | None = None,
    terms: Callable[[], Collection[str]] = tuple,
) -> list[MemoryItem]:
    """Return what *ask* finds, best first, at least *enough* that differ if there are so many.

    Of a flood that filled the answer, some copies are among it. What was found later comes later:
    it was no better than the copies before it. If it has been asked already, these were *first*.
    If *terms* returns those asked for, a flood of values of one fact is left out by its key, as if
    it were all found, unless a value is asked for.
    """
    found = {item.id: item for item in (await ask(asked) if first is None else first)}
    is_all, out = len(found) < asked.limit, _Excluded()
    clusters = Clusters()
    for _ in range(_TIMES):
        if not is_all:
            items = list(found.values())
            clusters = await apart(are_many(items), find_clusters, items)
        if is_all or not clusters or _count_different(found, clusters) >= enough:
            break
        out.terms = out.terms or frozenset(terms())
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


_Fact = tuple[tuple[str, str | None], ...]
"""The fields that all values of one fact share: its key, and whose it is."""


class _Excluded:
    """What a store is to leave out: by its text, by most of its text, or one by one."""

    def __init__(self) -> None:
        self.terms: frozenset[str] = frozenset()
        self.texts: set[str] = set()
        self.chunks: set[tuple[_Fact, str]] = set()
        """Each with the fact whose values it is left out of, or with none, of everything."""
        self.ids: set[str] = set()

    def take(self, items: Sequence[MemoryItem], clusters: Mapping[str, int]) -> None:
        """Leave out the *clusters* that *items* belong to."""
        by_cluster: dict[int, list[MemoryItem]] = {}
        for item in items:
            by_cluster.setdefault(clusters[item.id], []).append(item)
        for cluster in by_cluster.values():
            counts = Counter(item.content for item in cluster)
            self.texts |= {text for text, count in counts.items() if count >= _COPIES}
            by_words: dict[tuple[_Fact, str], list[MemoryItem]] = {}
            for item in cluster:
                if item.content not in self.texts:
                    which = self._fact(item), without_digits(item.content)
                    by_words.setdefault(which, []).append(item)
            for (fact, _), same in by_words.items():
                share = _SHARE_OF_KEY if fact else _SHARE
                texts = [item.content for item in same]
                is_flood = len(same) > _LINKED and not (fact and len(self.chunks) >= _MAX_FACTS)
                chunk = _common(texts, share) if is_flood else ""
                self.chunks |= {(fact, chunk)} if chunk else set()
                self.ids |= set() if chunk else {item.id for item in same}

    def _fact(self, item: MemoryItem) -> _Fact:
        """Return the fact that an item is a value of, if nothing but its key is asked for."""
        key = item.metadata.extra.get("fact") if item.memory_type == "fact" else None
        if not self.terms or not isinstance(key, str):
            return ()
        if not self.terms & terms_of(item) <= frozenset(words.terms(key.replace("_", " "))):
            return ()
        scope = ((name, getattr(item.metadata, name)) for name in SCOPE_FIELDS)
        return (("memory_type", "fact"), ("fact", key), *scope)

    @property
    def where(self) -> Where:
        """The filter that leaves it out."""
        parts: list[Where] = [
            {"$not": {"content": {"$contains": each}, **dict(fact)}}
            for fact, each in sorted(self.chunks, key=repr)
        ]
        if self.texts:
            parts.append({"content": {"$nin": sorted(self.texts)}})
        if self.ids:
            parts.append({"id": {"$nin": sorted(self.ids)}})
        return {"$and": parts}

    def room(self, limit: int) -> int:
        """Return how many to ask for: copies that are told one by one need much."""
        return max(limit, _MAX_ITEMS) if self.ids else limit


def _common(texts: Sequence[str], share: float) -> str:
    """Return what all *texts* hold to the letter, if that is such a share of what they hold."""
    some = sorted(set(texts), key=lambda text: (len(text), text))[
        :: max(1, len(texts) // _COMPARED)
    ]
    if not some or len(some[-1]) > _LONGEST:
        return ""
    common = some[0]
    for text in some[1:]:
        if common not in text:
            common = _longest_common(common, text)
    return common if len(common) >= share * len(some[len(some) // 2]) else ""


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
