"""Eviction: keeps a scope within a budget; what is worth least goes first, and can come back.

Only ids are held meanwhile, of what is to go, however much there is; and the same memories at the
same moment go in the same order.
"""

import asyncio
import heapq
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from orbiter.memory.agent._updates import pages
from orbiter.memory.agent.extraction_jobs import NOT_OURS
from orbiter.memory.agent.runtime import Store, keeps_versions
from orbiter.memory.errors import QueryError
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import (
    RESERVED,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.model.query import SCOPE_FIELDS, Query, check_size
from orbiter.memory.model.tool_calls import call_id
from orbiter.memory.tasks.progress import advance
from orbiter.memory.text.ranking import recency

if TYPE_CHECKING:
    from orbiter.memory.agent.interface import ScopeSession
    from orbiter.memory.recall.near_duplicates import DuplicateIndex


__all__ = ["EVICT", "Eviction", "EvictionReason", "EvictionResult", "duplicates", "evict"]


_IMPORTANCE = 0.5
"""What a memory counts for of which nobody said how important it is."""
_MAX_TEXT = 80

EvictionReason = Literal["budget", "duplicate"]
"""Why a memory goes: others are worth more, or an earlier one says the same."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """One memory that goes, or would go."""

    id: str
    reason: EvictionReason
    worth: float
    """Its importance, halved for every half-life of its age."""
    bytes: int
    text: str
    """The beginning of what it says."""


class _Unit(NamedTuple):
    """What goes together: one memory, or a call of tools with its results."""

    worth: float
    created: float
    first_id: str
    members: tuple[Eviction, ...]

    @property
    def bytes(self) -> int:
        """How large it is, as JSON."""
        return sum(each.bytes for each in self.members)


@dataclass(slots=True)
class _Walk:
    """Goes through a scope, newest first, and tells what belongs together."""

    store: Store
    scope: MemoryMetadata
    now: datetime
    half_life_hours: float
    copies: frozenset[str] = frozenset()

    async def units(self) -> AsyncIterator[tuple[_Unit, bool]]:
        """Yield all units, and whether each may go."""
        results: dict[tuple[object, ...], list[MemoryItem]] = {}
        async for page in pages(self.store, _all_of(self.scope), are_removed=False):
            for item in page:
                if role_of(item) == "tool":  # the call that it answers is older
                    results.setdefault((*_scope_ids(item), result_id(item)), []).append(item)
                    continue
                called = [(*_scope_ids(item), call_id(call)) for call in calls_of(item)]
                group = [item, *(each for key in called for each in results.pop(key, ()))]
                yield self._unit(group)
        for left in results.values():
            for item in left:
                yield self._unit([item])

    def _unit(self, items: list[MemoryItem]) -> tuple[_Unit, bool]:
        worth = max(map(self._worth, items))
        members = tuple(
            Eviction(
                item.id,
                "duplicate" if item.id in self.copies else "budget",
                worth,
                len(item.model_dump_json().encode()),
                item.content[:_MAX_TEXT],
            )
            for item in items
        )
        unit = _Unit(worth, items[0].created_at.timestamp(), items[0].id, members)
        return unit, not any(map(self.must_stay, items))

    def _worth(self, item: MemoryItem) -> float:
        age = recency(item.created_at, now=self.now, half_life_hours=self.half_life_hours)
        return _importance(item) * age

    def must_stay(self, item: MemoryItem) -> bool:
        """Tell whether it is pinned, a fact, or instructs the model."""
        return _importance(item) >= 1 or _is_fact(item) or role_of(item) == "system"

    def is_copy(self, unit: _Unit) -> bool:
        """Tell whether it goes in any case: an earlier one says the same."""
        return all(each.id in self.copies for each in unit.members)


def _is_fact(item: MemoryItem) -> bool:
    """Tell whether *item* is a fact or waits to be one; what was turned down is neither.

    Each assertion has a say in what is true at some time, also one that others cover or that was
    retracted: it was known once.
    """
    return isinstance(item, FactMemory) and item.status is not MemoryStatus.DISCARD


def _all_of(scope: MemoryMetadata) -> Query:
    """Return the question for everything of a scope, but for what the library keeps for itself."""
    return Query(metadata=scope if Query(metadata=scope).wanted else None, where=NOT_OURS)


def _scope_ids(item: MemoryItem) -> tuple[object, ...]:
    return tuple(getattr(item.metadata, name) for name in SCOPE_FIELDS)


def _importance(item: MemoryItem) -> float:
    value = item.metadata.extra.get("importance")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _IMPORTANCE
    return min(1.0, max(0.0, float(value)))


EVICT = f"{RESERVED}evict"
"""Who signs in the history of an item that it was evicted."""

_BATCH = 500
_WALKS = 2
"""How often all memories are read: what there is, and what of it goes."""


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """What `evict` removed, or would remove, worth least first. It is true if there is anything."""

    items: tuple[Eviction, ...]
    dry_run: bool
    kept: int
    """How many memories are left."""
    kept_bytes: int
    """How large they are, as JSON."""
    is_met: bool
    """Whether the budget is kept; not so if what must stay is too much."""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Eviction]:
        return iter(self.items)

    def __repr__(self) -> str:
        return f"EvictionResult({len(self)} items, kept={self.kept}, dry_run={self.dry_run})"


async def evict(
    session: "ScopeSession",
    *,
    max_items: int | None = None,
    max_bytes: int | None = None,
    duplicates: bool = False,
    half_life_hours: float = 24.0 * 90,
    dry_run: bool = False,
    now: datetime | None = None,
) -> EvictionResult:
    """Forget what is worth least until a scope keeps its budget; return what, and why.

    Importance 1 is pinned; that, facts, proposals and system messages stay. A tool group goes
    whole or not at all. Summaries and jobs of extraction are no memories, and do not count. With
    *duplicates*, of memories that say the same and are no part of a conversation, only the first
    stays. `restore` brings a memory back, where the store keeps what was deleted; its room is free
    once that is purged.
    """
    if max_items is None and max_bytes is None and not duplicates:
        raise QueryError("`evict` needs a budget: give `max_items`, `max_bytes` or `duplicates`")
    for name, value in (("max_items", max_items), ("max_bytes", max_bytes)):
        if value is not None:
            check_size(name, value)
    _check_half_life(half_life_hours)
    store, scope = await session.store(), session.scope
    moment = datetime.now(UTC) if now is None else now
    budget = _Budget(max_items, max_bytes)
    walk = _Walk(store, scope, moment, half_life_hours)
    if duplicates:
        walk.copies = frozenset([each async for each in _copies(store, walk)])
    total, done = _WALKS * await store.count(metadata=_all_of(scope).metadata), 0
    async for unit, can_go in walk.units():
        done = _walked(done, unit, total)
        budget.count(unit, goes=can_go and walk.is_copy(unit))
    async for unit, can_go in walk.units():
        done = _walked(done, unit, total)
        if can_go:
            budget.offer(unit, goes=walk.is_copy(unit))
    going = budget.going()
    if going and not dry_run:
        await _remove(session, store, [each.id for each in going])
    return EvictionResult(
        tuple(going),
        dry_run,
        budget.items - len(going),
        budget.bytes - sum(each.bytes for each in going),
        budget.is_met,
    )


def _walked(done: int, unit: _Unit, total: int) -> int:
    """Tell now and then how many memories were read; return how many are."""
    now = done + len(unit.members)
    if done // _BATCH < now // _BATCH:
        advance(now, total)
    return now


async def duplicates(session: "ScopeSession") -> list[tuple[MemoryItem, ...]]:
    """Return groups of memories that say the same, the first said first; the largest first."""
    store, scope = await session.store(), session.scope
    index = _duplicate_index()
    total, done = await store.count(metadata=_all_of(scope).metadata), 0
    async for page in pages(store, _all_of(scope), are_removed=False):
        done += len(page)
        advance(done, total)
        # Comparing takes long, and others wait for the loop.
        some = [item for item in page if not _is_fact(item)]  # a value that held twice is no copy
        await asyncio.to_thread(index.add_all, some)
    groups: list[tuple[MemoryItem, ...]] = []
    for ids in index.groups():
        items: list[MemoryItem] = []
        for start in range(0, len(ids), _BATCH):
            wanted = list(ids[start : start + _BATCH])
            items += await store.search(where={"id": {"$in": wanted}}, limit=len(wanted))
        items.sort(key=lambda item: (item.created_at, item.id))
        if len(items) > 1:
            groups.append(tuple(items))
    return sorted(groups, key=lambda group: (-len(group), group[0].created_at, group[0].id))


async def _copies(store: Store, walk: _Walk) -> AsyncIterator[str]:
    """Yield the ids of exact copies of an earlier memory; talk is full of such, and stays."""
    index = _duplicate_index(exact=True)
    async for page in pages(store, _all_of(walk.scope), are_removed=False):
        some = [item for item in page if not _is_talk(item) and not walk.must_stay(item)]
        await asyncio.to_thread(index.add_all, some)
    for ids in index.groups():
        for item_id in ids[:-1]:  # newest first
            yield item_id


def _is_talk(item: MemoryItem) -> bool:
    return role_of(item) is not None and item.metadata.session_id is not None


def _duplicate_index(*, exact: bool = False) -> "DuplicateIndex":
    from orbiter.memory.recall.near_duplicates import DuplicateIndex  # noqa: PLC0415 - not every eviction needs it

    return DuplicateIndex(exact=exact)


# What goes


@dataclass(slots=True)
class _Budget:
    """Chooses what goes: no more than it takes, worth least first."""

    max_items: int | None
    max_bytes: int | None
    items: int = 0
    bytes: int = 0
    _copies: int = 0
    _copies_bytes: int = 0
    _heap: list[tuple[float, float, "_Reversed", _Unit]] = field(default_factory=list)
    _in_heap: int = 0
    _bytes_in_heap: int = 0
    _sure: list[_Unit] = field(default_factory=list)

    def count(self, unit: _Unit, *, goes: bool) -> None:
        """Count what there is."""
        self.items += len(unit.members)
        self.bytes += unit.bytes
        if goes:
            self._copies += len(unit.members)
            self._copies_bytes += unit.bytes

    def offer(self, unit: _Unit, *, goes: bool) -> None:
        """Take a unit among what goes, if it must, or is worth less than others there."""
        if goes:
            self._sure.append(unit)
            return
        heapq.heappush(self._heap, (-unit.worth, -unit.created, _Reversed(unit.first_id), unit))
        self._in_heap += len(unit.members)
        self._bytes_in_heap += unit.bytes
        while self._heap and self._can_stay(self._heap[0][-1]):
            worthiest = heapq.heappop(self._heap)[-1]
            self._in_heap -= len(worthiest.members)
            self._bytes_in_heap -= worthiest.bytes

    def _can_stay(self, unit: _Unit) -> bool:
        """Tell whether enough goes without this one."""
        return (
            self._in_heap - len(unit.members) >= self._too_many
            and self._bytes_in_heap - unit.bytes >= self._too_large
        )

    @property
    def _too_many(self) -> int:
        left = self.items - self._copies
        return 0 if self.max_items is None else max(0, left - self.max_items)

    @property
    def _too_large(self) -> int:
        left = self.bytes - self._copies_bytes
        return 0 if self.max_bytes is None else max(0, left - self.max_bytes)

    @property
    def is_met(self) -> bool:
        """Whether enough goes."""
        return self._in_heap >= self._too_many and self._bytes_in_heap >= self._too_large

    def going(self) -> list[Eviction]:
        """Return what goes, worth least first; the members of a group follow each other."""
        units = [*self._sure, *(entry[-1] for entry in self._heap)]
        return [each for unit in sorted(units, key=lambda unit: unit[:3]) for each in unit.members]


class _Reversed(str):
    """A text that sorts the other way round."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


async def _remove(session: "ScopeSession", store: Store, ids: list[str]) -> None:
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        items = await store.search(where={"id": {"$in": some}}, limit=len(some))
        await session.chats.changed(store, items)
        if keeps_versions(store):
            await store.delete_many(some, by=EVICT)
        else:
            await store.delete_many(some)
        await session.chats.changed(store, items)
        session.core.events.emit_items("forgotten", items)


def _check_half_life(value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]  # a number
        raise QueryError(f"`half_life_hours` must be a number above 0, not {value!r}")
