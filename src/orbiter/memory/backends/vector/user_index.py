"""`Drawer`: the items of one user, what they are filtered by in columns, and their vectors.

A slot is an item's number in its drawer. Slots are never used twice; a drawer with too many empty
ones is copied to a new one, so whoever still reads the old one finds it unchanged.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from orbiter.memory.backends.vector.matrix import Shelf
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import Query

__all__ = ["Drawer"]

_Integers = npt.NDArray[np.int64]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = ("session_id", "task_id", "agent_id", "memory_type", "status")
_FIRST = 16
"""How many slots a drawer begins with; their number doubles."""


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(microseconds=1)


class Drawer:
    """Items by slot. Items in it are never changed, only replaced."""

    def __init__(self, dimension: int, approximate_from: int | None = None) -> None:
        self.shelf = Shelf(dimension, approximate_from=approximate_from)
        self.items: list[MemoryItem | None] = []
        self.held = 0
        self._codes: dict[tuple[str, str | None], int] = {}
        self._values = {name: np.zeros(_FIRST, np.int32) for name in _NAMES}
        self._created, self._arrival = np.zeros(_FIRST, np.int64), np.zeros(_FIRST, np.int64)
        self._is_held = np.zeros(_FIRST, np.bool_)

    def __len__(self) -> int:
        return self.held

    # Writing

    def add(self, item: MemoryItem, arrival: int, vectors: npt.ArrayLike | None) -> int:
        """Keep a new item; return its slot."""
        slot = len(self.items)
        if slot == len(self._arrival):
            self._grow()
        if vectors is not None:
            self.shelf.put(slot, vectors, rank=arrival)
        self.items.append(item)
        self.held += 1
        self._arrival[slot] = arrival
        self._is_held[slot] = True
        self._describe(slot, item)
        return slot

    def _grow(self) -> None:
        size = 2 * len(self._arrival)
        for name, column in self._values.items():
            self._values[name] = np.resize(column, size)
        self._created = np.resize(self._created, size)
        self._arrival = np.resize(self._arrival, size)
        self._is_held = np.resize(self._is_held, size)

    def replace(self, slot: int, item: MemoryItem, vectors: npt.ArrayLike | None) -> None:
        """Keep *item* where another was."""
        if vectors is None:
            self.shelf.remove(slot)
        else:
            self.shelf.put(slot, vectors, rank=self.arrival(slot))
        self.items[slot] = item
        self._describe(slot, item)

    def remove(self, slot: int) -> None:
        """Empty a slot."""
        self.shelf.remove(slot)
        self.items[slot] = None
        self.held -= 1
        self._is_held[slot] = False

    def packed(self) -> "Drawer | None":
        """Return a copy without empty slots if too many are empty."""
        if len(self.items) < 64 or len(self.items) < 2 * self.held:
            return None
        made = Drawer(self.shelf.dimension, self.shelf.approximate_from)
        for slot in self.slots(Query()).tolist():
            item = self.items[slot]
            if item is not None:
                made.add(item, self.arrival(slot), self.shelf.vectors(slot))
        return made

    def _describe(self, slot: int, item: MemoryItem) -> None:
        self._created[slot] = _microseconds(item.created_at)
        for name, value in _described(item):
            code = self._codes.setdefault((name, value), len(self._codes))
            self._values[name][slot] = code

    # Reading

    def arrival(self, slot: int) -> int:
        """Return the number by which items that are equal otherwise are ordered."""
        return int(self._arrival[slot])

    def created(self, slot: int) -> int:
        """Return when the item was made, in microseconds."""
        return int(self._created[slot])

    def slots(self, asked: Query) -> _Integers:
        """Return the slots of the items that match *asked*, its text and user aside, ascending."""
        used = len(self.items)
        mask = self._is_held[:used]
        wanted = [*asked.wanted.items(), ("memory_type", asked.memory_type)]
        for name, value in [*wanted, ("status", asked.status)]:
            if name in _NAMES and value is not None:
                code = self._codes.get((name, value), -1)
                mask = mask & (self._values[name][:used] == code)
        created = self._created[:used]
        if asked.since is not None:
            mask = mask & (created >= _microseconds(asked.since))
        if asked.until is not None:
            mask = mask & (created < _microseconds(asked.until))
        found = np.flatnonzero(mask)
        if asked.condition is not None:
            fit = [s for s in found.tolist() if asked.fits(self.items[s])]  # type: ignore[arg-type]  # a held slot has an item
            found = np.array(fit, np.int64)
        return found

    def newest(self, slots: _Integers, count: int) -> list[int]:
        """Return the *count* newest of *slots*, newest first, then by arrival."""
        created = self._created[slots]
        if count < len(slots):
            slots = slots[created >= np.partition(created, -count)[-count]]
            created = self._created[slots]
        order = np.lexsort((self._arrival[slots], created))[::-1]
        found: list[int] = slots[order[:count]].tolist()
        return found


def _described(item: MemoryItem) -> Iterator[tuple[str, str | None]]:
    yield "session_id", item.metadata.session_id
    yield "task_id", item.metadata.task_id
    yield "agent_id", item.metadata.agent_id
    yield "memory_type", item.memory_type
    yield "status", item.status
