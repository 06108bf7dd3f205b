"""`VectorIndex`: items and their vectors in memory, one `UserIndex` for each user.

A `UserIndex` holds the items of one user, what they are filtered by in columns, and their vectors.
A slot is an item's number in it. Slots are never used twice; an index with too many empty ones is
copied to a new one, so whoever still reads the old one finds it unchanged. All of it belongs to one
event loop and never waits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from orbiter.memory.backends.vector.matrix import Snapshot, VectorMatrix
from orbiter.memory.model.copying import copy_item, share_values
from orbiter.memory.model.items import INDEXED_BY, MemoryItem, index_texts
from orbiter.memory.model.query import Query

__all__ = ["ScoredItems", "Snapshots", "UserIndex", "VectorIndex"]

_Integers = npt.NDArray[np.int64]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = ("session_id", "task_id", "agent_id", "memory_type", "status")
_FIRST = 16
"""How many slots an index begins with; their number doubles."""


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(microseconds=1)


class UserIndex:
    """Items by slot. Items in it are never changed, only replaced."""

    def __init__(self, dimension: int, approximate_from: int | None = None) -> None:
        self.matrix = VectorMatrix(dimension, approximate_from=approximate_from)
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
        share_values(item, self.items[-1] if self.items else None)
        if slot == len(self._arrival):
            self._grow()
        if vectors is not None:
            self.matrix.put(slot, vectors, rank=arrival)
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
            self.matrix.remove(slot)
        else:
            self.matrix.put(slot, vectors, rank=self.arrival(slot))
        self.items[slot] = item
        self._describe(slot, item)

    def remove(self, slot: int) -> None:
        """Empty a slot."""
        self.matrix.remove(slot)
        self.items[slot] = None
        self.held -= 1
        self._is_held[slot] = False

    def packed(self) -> "UserIndex | None":
        """Return a copy without empty slots if too many are empty."""
        if len(self.items) < 64 or len(self.items) < 2 * self.held:
            return None
        made = UserIndex(self.matrix.dimension, self.matrix.approximate_from)
        for slot in self.slots(Query()).tolist():
            item = self.items[slot]
            if item is not None:
                made.add(item, self.arrival(slot), self.matrix.vectors(slot))
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

    def slots(self, query: Query) -> _Integers:
        """Return the slots of the items that match *query*, its text and user aside, ascending."""
        used = len(self.items)
        mask = self._is_held[:used]
        wanted = [*query.wanted.items(), ("memory_type", query.memory_type)]
        for name, value in [*wanted, ("status", query.status)]:
            if name in _NAMES and value is not None:
                code = self._codes.get((name, value), -1)
                mask = mask & (self._values[name][:used] == code)
        created = self._created[:used]
        if query.since is not None:
            mask = mask & (created >= _microseconds(query.since))
        if query.until is not None:
            mask = mask & (created < _microseconds(query.until))
        matches = np.flatnonzero(mask)
        if query.condition is not None:
            fit = [s for s in matches.tolist() if query.fits(self.items[s])]  # type: ignore[arg-type]  # a held slot has an item
            matches = np.array(fit, np.int64)
        return matches

    def newest(self, slots: _Integers, count: int) -> list[int]:
        """Return the *count* newest of *slots*, newest first, then by arrival."""
        created = self._created[slots]
        if count < len(slots):
            slots = slots[created >= np.partition(created, -count)[-count]]
            created = self._created[slots]
        order = np.lexsort((self._arrival[slots], created))[::-1]
        newest: list[int] = slots[order[:count]].tolist()
        return newest


def _described(item: MemoryItem) -> Iterator[tuple[str, str | None]]:
    yield "session_id", item.metadata.session_id
    yield "task_id", item.metadata.task_id
    yield "agent_id", item.metadata.agent_id
    yield "memory_type", item.memory_type
    yield "status", item.status


ScoredItems = list[tuple[MemoryItem, float]]
_Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Snapshots:
    """What a search may find, as it was when it began. Needs no event loop."""

    indexes: Sequence[tuple[UserIndex, Sequence[MemoryItem | None], Snapshot]]

    @property
    def numbers(self) -> int:
        """How many numbers a search multiplies."""
        return sum(snapshot.numbers for _, _, snapshot in self.indexes)

    def frozen(self) -> "Snapshots":
        """Return what stays as it is, whatever is written while a thread searches."""
        return Snapshots(
            [(index, list(items), snapshot) for index, items, snapshot in self.indexes]
        )

    def nearest(self, vector: _Vector, count: int) -> ScoredItems:
        """Return the nearest items and their cosines, best first, then by arrival."""
        ranked: list[tuple[float, int, MemoryItem]] = []
        for index, items, snapshot in self.indexes:
            for slot, cosine in snapshot.nearest(vector, count):
                item = items[slot] if slot < len(items) else None
                if item is not None:
                    ranked.append((-cosine, index.arrival(slot), item))
        if len(self.indexes) > 1:
            ranked.sort(key=lambda each: each[:2])
        return [(item, -negative) for negative, _, item in ranked[:count]]


def _narrows(query: Query) -> bool:
    """Tell whether something else than a user is asked for."""
    others = (query.memory_type, query.status, query.since, query.until)
    return bool(query.where or query.wanted.keys() - {"user_id"}) or any(
        other is not None for other in others
    )


class VectorIndex:
    """Items by id, each in the index of its user."""

    def __init__(self, approximate_from: int | None) -> None:
        self._approximate_from = approximate_from
        self._indexes: dict[str | None, UserIndex] = {}
        self._places: dict[str, tuple[UserIndex, int]] = {}
        self._arrivals = 0
        # Whose items have this value: a search without a user need not look into every index.
        self._users: dict[tuple[str, str], Counter[str | None]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def get(self, item_id: str) -> MemoryItem | None:
        """Return the very item that is kept."""
        place = self._places.get(item_id)
        return None if place is None else place[0].items[place[1]]

    def vectors_of(self, item_id: str) -> dict[str, _Vector]:
        """Return the vectors that the stored item of this id has, by their texts."""
        old = self.get(item_id)
        if old is None:
            return {}
        index, slot = self._places[item_id]
        kept = index.matrix.vectors(slot)
        texts = index_texts(old.content, old.metadata.extra.get(INDEXED_BY))
        if kept is None or len(kept) != len(texts):
            return {}  # if one has none, it cannot be said whose the others are
        return dict(zip(texts, kept, strict=True))

    # Writing

    def keep(self, item: MemoryItem, made: Sequence[_Vector], dimension: int) -> None:
        """Keep *item* with the vectors that were *made*, or put it in the place of its id."""
        vectors = np.stack(made) if len(made) else None
        user, old = item.metadata.user_id, self.get(item.id)
        if old is None:
            self._arrivals += 1
            item.__dict__["version"] = 1
            self._put(item, self._arrivals, vectors, dimension)
            return
        item.__dict__.update(version=old.version + 1, created_at=old.created_at)
        index, slot = self._places[item.id]
        if old.metadata.user_id != user:
            arrival = index.arrival(slot)
            self.remove(item.id)
            self._put(item, arrival, vectors, dimension)
            return
        self._count(old, -1)
        self._count(item, 1)
        index.replace(slot, item, vectors)

    def _put(self, item: MemoryItem, arrival: int, vectors: _Vector | None, dimension: int) -> None:
        user = item.metadata.user_id
        index = self._indexes.get(user)
        if index is None:
            index = self._indexes[user] = UserIndex(dimension, self._approximate_from)
        self._places[item.id] = index, index.add(item, arrival, vectors)
        self._count(item, 1)

    def count_version(self, item_id: str) -> None:
        """Raise the version of an item by one."""
        index, slot = self._places[item_id]
        old = index.items[slot]
        if old is not None:
            item = copy_item(old)
            item.__dict__["version"] = old.version + 1
            index.items[slot] = item

    def remove(self, item_id: str) -> bool:
        """Remove an item; tell whether it was there."""
        place = self._places.pop(item_id, None)
        if place is None:
            return False
        index, slot = place
        item = index.items[slot]
        if item is not None:
            self._count(item, -1)
            index.remove(slot)
            self._tidy(item.metadata.user_id, index)
        return True

    def _tidy(self, user: str | None, index: UserIndex) -> None:
        if not len(index):
            del self._indexes[user]
        elif (packed := index.packed()) is not None:
            self._indexes[user] = packed
            for slot, item in enumerate(packed.items):
                if item is not None:
                    self._places[item.id] = packed, slot

    def clear(self, query: Query) -> list[str]:
        """Remove what matches *query*, its text aside; return the ids."""
        if not query.wanted:
            gone = list(self._places)
            self._indexes, self._places, self._users = {}, {}, {}
            return gone
        gone = [
            item.id
            for index in self._indexes_for(query)
            for slot in index.slots(query).tolist()
            if (item := index.items[slot]) is not None
        ]
        for item_id in gone:
            self.remove(item_id)
        return gone

    def _count(self, item: MemoryItem, step: int) -> None:
        user = item.metadata.user_id
        for name in ("session_id", "task_id", "agent_id"):
            value = getattr(item.metadata, name)
            if value is not None:
                users = self._users.setdefault((name, value), Counter())
                users[user] += step
                if not users[user]:
                    del users[user]
                    if not users:
                        del self._users[name, value]

    # Reading

    def _indexes_for(self, query: Query) -> Iterator[UserIndex]:
        """Yield the indexes that may hold what is asked for."""
        wanted = query.wanted
        users: Iterable[str | None] = self._indexes
        if "user_id" in wanted:
            users = [wanted["user_id"]]
        elif wanted:
            among: list[Mapping[str | None, int]] = [
                self._users.get((name, value), {}) for name, value in wanted.items()
            ]
            fewest = min(among, key=len)
            users = fewest
        yield from [self._indexes[user] for user in users if user in self._indexes]

    def newest(self, query: Query) -> list[MemoryItem]:
        """Return the newest items that match *query*, its text aside."""
        newest = [
            (index.created(slot), index.arrival(slot), item)
            for index in self._indexes_for(query)
            for slot in index.newest(index.slots(query), query.limit)
            if (item := index.items[slot]) is not None
        ]
        newest.sort(key=lambda each: each[:2], reverse=True)
        return [item for _, _, item in newest[: query.limit]]

    def snapshot(self, query: Query) -> Snapshots:
        """Return what a search by meaning may find."""
        snapshots = []
        for index in self._indexes_for(query):
            slots = index.slots(query) if _narrows(query) else None
            snapshots.append((index, index.items, index.matrix.snapshot(slots)))
        return Snapshots(snapshots)

    def similarities(self, vector: _Vector, item_ids: Iterable[str]) -> dict[str, float]:
        """Return how near each item is that is here and has a vector."""
        by_index: dict[int, tuple[UserIndex, dict[int, str]]] = {}
        for item_id in item_ids:
            if item_id in self._places:
                index, slot = self._places[item_id]
                by_index.setdefault(id(index), (index, {}))[1][slot] = item_id
        return {
            slots[slot]: cosine
            for index, slots in by_index.values()
            for slot, cosine in index.matrix.similarities(vector, slots).items()
        }
