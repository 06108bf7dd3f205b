"""All that is asserted of some keys, read from any store, for those who fold facts.

What is true of a key follows from all its assertions, so none may be left out, however many there
are of another key. And every reader must judge them at the same moment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.query import Query

__all__ = ["NO_END", "assertions", "judged_at"]

PAGE = 1_000

_PRESENT = timedelta(minutes=1)
"""How long ago somebody may have asked about now: recalling may wait for a model."""

NO_END = datetime.max.replace(tzinfo=UTC)
"""The `known_at` of the newest knowledge, by whatever clock it was recorded."""


def judged_at(facts: Iterable[FactMemory], now: datetime) -> datetime:
    """Return the moment at which *facts* of one key are judged, if *now* is asked about.

    What is recorded has happened, even by a clock that is ahead of this one; but nobody who asks
    about an earlier moment means that.
    """
    clock = datetime.now(UTC)
    ahead = (fact.recorded_at for fact in facts if fact.is_known(NO_END))
    last = max((moment for moment in ahead if moment > clock), default=now)
    return max(now, last) if clock - now < _PRESENT else now


async def assertions(store: MemoryStore, asked: Query, keys: Sequence[str]) -> list[FactMemory]:
    """Return the accepted assertions of *keys* that *asked* asks for, all of them."""
    of_keys: Where = {"fact": {"$in": list(keys)}}
    where: Where = {"$and": [asked.where, of_keys]} if asked.where else of_keys
    wanted = replace(asked, memory_type="fact", status=MemoryStatus.ACCEPTED, where=where)
    pages = _paged if isinstance(store, LexicalStore) else _at_once
    found = await pages(store, wanted)
    return [item for item in found if isinstance(item, FactMemory) and wanted.matches(item)]


async def _paged(store: MemoryStore, wanted: Query) -> list[MemoryItem]:
    found: list[MemoryItem] = []
    while True:
        page = await store.search(  # type: ignore[call-arg]  # stores that find by words page, too
            metadata=wanted.metadata,
            memory_type=wanted.memory_type,
            status=wanted.status,
            limit=PAGE,
            where=wanted.where,
            before=found[-1] if found else None,
        )
        found += page
        if len(page) < PAGE:
            return found


async def _at_once(store: MemoryStore, wanted: Query) -> list[MemoryItem]:
    """Read from a store that only has the basics, and more of it until that is all."""
    limit = PAGE
    while True:
        found = await store.search(
            metadata=wanted.metadata,
            memory_type=wanted.memory_type,
            status=wanted.status,
            limit=limit,
        )
        if len(found) < limit:
            return found
        limit *= 4
