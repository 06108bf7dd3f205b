"""The newest items that hold a word, exactly, however many older ones do."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.query import Query
from orbiter.memory.recall._candidates import newest_of
from orbiter.memory.recall._dedupe_query import unflooded
from orbiter.memory.recall._features import terms_of
from orbiter.memory.recall.near_duplicates import who_says, without_numbers

__all__ = ["newest_that_differ", "newest_that_hold"]

_FEW, _SOME, _MANY = 20, 250, 2_000
"""How many are read at first, and then, if most say the same, to find some that differ."""
_PAGE = 500
_ALL = 10_000
"""Items that are read of a store which has no other filters than the basic ones."""


async def newest_that_differ(
    store: MemoryStore, terms: list[str], asked: Query, *, count: int
) -> list[MemoryItem]:
    """Return the newest items that match, with or without copies, *count* of which differ."""
    ask = partial(newest_that_hold, store, terms)
    found: Sequence[MemoryItem] = []
    for size in (_FEW, _SOME, _MANY):
        some = replace(asked, limit=max(size, 2 * count))
        found = await (ask(some) if size == _FEW else unflooded(ask, some, enough=count))
        texts = {(who_says(item), without_numbers(item.content)) for item in found}
        if len(texts) >= count or len(found) != some.limit:
            break
    return list(found)


async def newest_that_hold(store: MemoryStore, terms: list[str], asked: Query) -> list[MemoryItem]:
    """Return at most `asked.limit` items that match, newest first; those without text never.

    With *terms*, only items that hold one of them.
    """
    if not isinstance(store, LexicalStore):
        found = await newest_of(store, replace(asked, limit=max(_ALL, asked.limit)))
        wanted = frozenset(terms)
        matching = (item for item in found if item.content.strip() and asked.matches(item))
        held = [item for item in matching if not wanted or not wanted.isdisjoint(terms_of(item))]
        return _newest_first(held)[: asked.limit]
    return await (_matching(store, terms, asked) if terms else _newest(store, asked))


async def _newest(store: MemoryStore, asked: Query) -> list[MemoryItem]:
    found: list[MemoryItem] = []
    page: list[MemoryItem] = []
    while len(found) < asked.limit:
        some = replace(asked, limit=asked.limit - len(found))
        page = await newest_of(store, some, before=page[-1] if page else None)
        found += [item for item in page if item.content.strip()]
        if len(page) < some.limit:
            break
    return found


async def _matching(store: LexicalStore, terms: list[str], asked: Query) -> list[MemoryItem]:
    """Return the newest matches, though the store has the best of them first.

    If it has more than it returned, none of the newest is older than the oldest that would do
    among those: so the next question begins there, and fewer and fewer are left.
    """
    limit = _PAGE + asked.limit
    since = asked.since
    while True:
        matches = await store.match_words(terms, replace(asked, limit=limit, since=since))
        found = _newest_first(matches.items)[: asked.limit]
        if len(matches.items) < limit or not found:
            return found
        if since == found[-1].created_at:
            limit *= 2  # so many at one instant
        since = found[-1].created_at


def _newest_first(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    return sorted(items, key=lambda item: (-item.created_at.timestamp(), item.id))
