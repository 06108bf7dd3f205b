"""`Owners`: every user's drawer, and which item is in which. One event loop's; it never waits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orbiter.memory.backends.vector.snapshot import Look
from orbiter.memory.backends.vector.user_index import Drawer
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import Query

__all__ = ["Found", "Looks", "Owners"]

Found = list[tuple[MemoryItem, float]]
_Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Looks:
    """What a search may find, as it was when it began. Needs no event loop."""

    drawers: Sequence[tuple[Drawer, Sequence[MemoryItem | None], Look]]

    @property
    def numbers(self) -> int:
        """How many numbers a search multiplies."""
        return sum(look.numbers for _, _, look in self.drawers)

    def frozen(self) -> "Looks":
        """Return what stays as it is, whatever is written while a thread searches."""
        return Looks([(drawer, list(items), look) for drawer, items, look in self.drawers])

    def nearest(self, vector: _Vector, count: int) -> Found:
        """Return the nearest items and their cosines, best first, then by arrival."""
        found: list[tuple[float, int, MemoryItem]] = []
        for drawer, items, look in self.drawers:
            for slot, cosine in look.nearest(vector, count):
                item = items[slot] if slot < len(items) else None
                if item is not None:
                    found.append((-cosine, drawer.arrival(slot), item))
        if len(self.drawers) > 1:
            found.sort(key=lambda each: each[:2])
        return [(item, -negative) for negative, _, item in found[:count]]


def _narrows(asked: Query) -> bool:
    """Tell whether something else than a user is asked for."""
    others = (asked.memory_type, asked.status, asked.since, asked.until)
    return bool(asked.where or asked.wanted.keys() - {"user_id"}) or any(
        other is not None for other in others
    )


class Owners:
    """Items by id, each in the drawer of its user."""

    def __init__(self, approximate_from: int | None) -> None:
        self._approximate_from = approximate_from
        self._drawers: dict[str | None, Drawer] = {}
        self._places: dict[str, tuple[Drawer, int]] = {}
        self._arrivals = 0
        # Whose items have this value: a search without a user need not look into every drawer.
        self._users: dict[tuple[str, str], Counter[str | None]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def get(self, item_id: str) -> MemoryItem | None:
        """Return the very item that is kept."""
        place = self._places.get(item_id)
        return None if place is None else place[0].items[place[1]]

    def vector_of(self, item: MemoryItem) -> _Vector | None:
        """Return the vector that the stored item of this id has, if it has the same text."""
        old = self.get(item.id)
        if old is None or old.content != item.content:
            return None
        drawer, slot = self._places[item.id]
        kept = drawer.shelf.vectors(slot)
        return None if kept is None else kept[0]

    # Writing

    def keep(self, item: MemoryItem, vector: _Vector | None, dimension: int) -> None:
        """Keep *item*, or put it in the place of the one with its id."""
        vectors = None if vector is None else vector[None]
        user, old = item.metadata.user_id, self.get(item.id)
        if old is None:
            self._arrivals += 1
            item.__dict__["version"] = 1
            self._put(item, self._arrivals, vectors, dimension)
            return
        item.__dict__.update(version=old.version + 1, created_at=old.created_at)
        drawer, slot = self._places[item.id]
        if old.metadata.user_id != user:
            arrival = drawer.arrival(slot)
            self.remove(item.id)
            self._put(item, arrival, vectors, dimension)
            return
        self._count(old, -1)
        self._count(item, 1)
        drawer.replace(slot, item, vectors)

    def _put(self, item: MemoryItem, arrival: int, vectors: _Vector | None, dimension: int) -> None:
        user = item.metadata.user_id
        drawer = self._drawers.get(user)
        if drawer is None:
            drawer = self._drawers[user] = Drawer(dimension, self._approximate_from)
        self._places[item.id] = drawer, drawer.add(item, arrival, vectors)
        self._count(item, 1)

    def count_version(self, item_id: str) -> None:
        """Raise the version of an item by one."""
        drawer, slot = self._places[item_id]
        old = drawer.items[slot]
        if old is not None:
            item = copy_item(old)
            item.__dict__["version"] = old.version + 1
            drawer.items[slot] = item

    def remove(self, item_id: str) -> bool:
        """Remove an item; tell whether it was there."""
        place = self._places.pop(item_id, None)
        if place is None:
            return False
        drawer, slot = place
        item = drawer.items[slot]
        if item is not None:
            self._count(item, -1)
            drawer.remove(slot)
            self._tidy(item.metadata.user_id, drawer)
        return True

    def _tidy(self, user: str | None, drawer: Drawer) -> None:
        if not len(drawer):
            del self._drawers[user]
        elif (packed := drawer.packed()) is not None:
            self._drawers[user] = packed
            for slot, item in enumerate(packed.items):
                if item is not None:
                    self._places[item.id] = packed, slot

    def clear(self, asked: Query) -> list[str]:
        """Remove what matches *asked*, its text aside; return the ids."""
        if not asked.wanted:
            gone = list(self._places)
            self._drawers, self._places, self._users = {}, {}, {}
            return gone
        gone = [
            item.id
            for drawer in self._asked(asked)
            for slot in drawer.slots(asked).tolist()
            if (item := drawer.items[slot]) is not None
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

    def _asked(self, asked: Query) -> Iterator[Drawer]:
        """Yield the drawers that may hold what is asked for."""
        wanted = asked.wanted
        users: Iterable[str | None] = self._drawers
        if "user_id" in wanted:
            users = [wanted["user_id"]]
        elif wanted:
            among: list[Mapping[str | None, int]] = [
                self._users.get((name, value), {}) for name, value in wanted.items()
            ]
            fewest = min(among, key=len)
            users = fewest
        yield from [self._drawers[user] for user in users if user in self._drawers]

    def newest(self, asked: Query) -> list[MemoryItem]:
        """Return the newest items that match *asked*, its text aside."""
        found = [
            (drawer.created(slot), drawer.arrival(slot), item)
            for drawer in self._asked(asked)
            for slot in drawer.newest(drawer.slots(asked), asked.limit)
            if (item := drawer.items[slot]) is not None
        ]
        found.sort(key=lambda each: each[:2], reverse=True)
        return [item for _, _, item in found[: asked.limit]]

    def look(self, asked: Query) -> Looks:
        """Return what a search by meaning may find."""
        looks = []
        for drawer in self._asked(asked):
            slots = drawer.slots(asked) if _narrows(asked) else None
            looks.append((drawer, drawer.items, drawer.shelf.look(slots)))
        return Looks(looks)

    def similarities(self, vector: _Vector, item_ids: Iterable[str]) -> dict[str, float]:
        """Return how near each item is that is here and has a vector."""
        by_drawer: dict[int, tuple[Drawer, dict[int, str]]] = {}
        for item_id in item_ids:
            if item_id in self._places:
                drawer, slot = self._places[item_id]
                by_drawer.setdefault(id(drawer), (drawer, {}))[1][slot] = item_id
        return {
            slots[slot]: cosine
            for drawer, slots in by_drawer.values()
            for slot, cosine in drawer.shelf.similarities(vector, slots).items()
        }
