"""What memories are worth: which belong together, and which must stay whatever the budget.

The worth of a memory is its importance, halved with every half-life since it was created.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from orbiter.memory.agent._updates import pages
from orbiter.memory.agent.extraction_jobs import NOT_OURS
from orbiter.memory.agent.runtime import Store
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import (
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.model.tool_calls import call_id
from orbiter.memory.text.ranking import recency

__all__ = ["Eviction", "EvictionReason", "Unit", "Walk", "all_of", "is_fact"]

_IMPORTANCE = 0.5
"""What a memory counts for of which nobody said how important it is."""
_SHOWN = 80

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


class Unit(NamedTuple):
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
class Walk:
    """Goes through a scope, newest first, and tells what belongs together."""

    store: Store
    scope: MemoryMetadata
    now: datetime
    half_life_hours: float
    copies: frozenset[str] = frozenset()

    async def units(self) -> AsyncIterator[tuple[Unit, bool]]:
        """Yield all units, and whether each may go."""
        results: dict[tuple[object, ...], list[MemoryItem]] = {}
        async for page in pages(self.store, all_of(self.scope), are_removed=False):
            for item in page:
                if role_of(item) == "tool":  # the call that it answers is older
                    results.setdefault((*_whose(item), result_id(item)), []).append(item)
                    continue
                called = [(*_whose(item), call_id(call)) for call in calls_of(item)]
                group = [item, *(each for key in called for each in results.pop(key, ()))]
                yield self._unit(group)
        for left in results.values():
            for item in left:
                yield self._unit([item])

    def _unit(self, items: list[MemoryItem]) -> tuple[Unit, bool]:
        worth = max(map(self._worth, items))
        members = tuple(
            Eviction(
                item.id,
                "duplicate" if item.id in self.copies else "budget",
                worth,
                len(item.model_dump_json().encode()),
                item.content[:_SHOWN],
            )
            for item in items
        )
        unit = Unit(worth, items[0].created_at.timestamp(), items[0].id, members)
        return unit, not any(map(self.must_stay, items))

    def _worth(self, item: MemoryItem) -> float:
        age = recency(item.created_at, now=self.now, half_life_hours=self.half_life_hours)
        return _importance(item) * age

    def must_stay(self, item: MemoryItem) -> bool:
        """Tell whether it is pinned, a fact, or instructs the model."""
        return _importance(item) >= 1 or is_fact(item) or role_of(item) == "system"

    def is_copy(self, unit: Unit) -> bool:
        """Tell whether it goes in any case: an earlier one says the same."""
        return all(each.id in self.copies for each in unit.members)


def is_fact(item: MemoryItem) -> bool:
    """Tell whether *item* is a fact or waits to be one; what was turned down is neither.

    Each assertion has a say in what is true at some time, also one that others cover or that was
    retracted: it was known once.
    """
    return isinstance(item, FactMemory) and item.status is not MemoryStatus.DISCARD


def all_of(scope: MemoryMetadata) -> Query:
    """Return the question for everything of a scope, but for what the library keeps for itself."""
    return Query(metadata=scope if Query(metadata=scope).wanted else None, where=NOT_OURS)


def _whose(item: MemoryItem) -> tuple[object, ...]:
    return tuple(getattr(item.metadata, name) for name in SCOPE_FIELDS)


def _importance(item: MemoryItem) -> float:
    value = item.metadata.extra.get("importance")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _IMPORTANCE
    return min(1.0, max(0.0, float(value)))
