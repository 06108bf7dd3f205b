"""Episodes in this process: neither disk nor server, gone with the last manager that has them."""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Sequence
from fnmatch import fnmatchcase
from heapq import heappop, heappush
from threading import Lock
from weakref import WeakValueDictionary

from orbiter.memory.episodic.protocol import PAGE, Episode, Span, StoredEpisode
from orbiter.memory.model.protocols import Clock
from orbiter.memory.model.reports import Erasure

__all__ = ["MemoryEpisodes"]

_WAIT = 1.0
_GLANCE = 0.02


class _Shelf:
    """What managers of one address and agent share, from any thread."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.ids: list[str] = []
        self.bodies: dict[str, tuple[str, float]] = {}
        self.ends: list[tuple[float, str]] = []
        self.arrivals: list[str] = []
        self.forgotten_arrivals = 0

    def trim(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            end, gone = heappop(self.ends)
            if self.bodies.get(gone, ("", 0.0))[1] == end:  # else written again, or removed
                self.drop(gone)

    def drop(self, episode_id: str) -> None:
        if self.bodies.pop(episode_id, None) is not None:
            del self.ids[bisect_left(self.ids, episode_id)]


_shelves: WeakValueDictionary[tuple[str, str], _Shelf] = WeakValueDictionary()
_shelving = Lock()


class MemoryEpisodes:
    """The episodes of one agent; all of one *name* and agent share them."""

    def __init__(self, name: str, agent_id: str, *, clock: Clock) -> None:
        self._clock = clock
        self._name = name
        with _shelving:
            self._shelf = _shelves.setdefault((name, agent_id), _Shelf())

    async def connect(self) -> None:
        pass

    async def disconnect(self) -> None:
        pass

    async def put(self, episode: Episode) -> None:
        shelf, now = self._shelf, self._now()
        with shelf.lock:
            shelf.trim(now)
            if episode.id not in shelf.bodies:
                insort(shelf.ids, episode.id)
                shelf.arrivals.append(episode.id)
            if len(shelf.arrivals) > 8_000:
                del shelf.arrivals[:4_000]
                shelf.forgotten_arrivals += 4_000
            end = now + episode.ttl_ms / 1000
            shelf.bodies[episode.id] = episode.body, end
            heappush(shelf.ends, (end, episode.id))

    async def page(self, span: Span, *, limit: int, before: str | None) -> list[StoredEpisode]:
        shelf = self._shelf
        with shelf.lock:
            shelf.trim(self._now())
            first, end = self._places(span)
            if before is not None:
                end = min(end, bisect_left(shelf.ids, before))
            first = max(first, end - min(limit, PAGE))
            chosen = reversed(shelf.ids[first:end])
            return [StoredEpisode(each, shelf.bodies[each][0]) for each in chosen]

    async def count(self, span: Span) -> int:
        with self._shelf.lock:
            self._shelf.trim(self._now())
            first, end = self._places(span)
            return max(0, end - first)

    async def remove(self, ids: Sequence[str]) -> None:
        with self._shelf.lock:
            for each in ids:
                self._shelf.drop(each)

    async def erase(self, patterns: Sequence[str]) -> Erasure:
        with _shelving:
            known = [(key, shelf) for key, shelf in _shelves.items() if key[0] == self._name]
        removed = 0
        for (_, agent_id), shelf in known:
            if any(fnmatchcase(agent_id, pattern) for pattern in patterns):
                with shelf.lock:
                    removed += len(shelf.bodies)
                    for each in [*shelf.bodies]:
                        shelf.drop(each)
                    shelf.ends.clear()
        return Erasure(episodes=removed)

    async def news(self, position: str | None) -> tuple[list[str], str]:
        shelf, seen = self._shelf, 0 if position is None else int(position)
        for _ in range(int(_WAIT / _GLANCE)):
            with shelf.lock:
                shelf.trim(self._now())
                count = shelf.forgotten_arrivals + len(shelf.arrivals)
                if position is None:
                    return [], str(count)
                if count > seen:
                    new = shelf.arrivals[max(0, seen - shelf.forgotten_arrivals) :]
                    return [shelf.bodies[i][0] for i in new if i in shelf.bodies], str(count)
            await asyncio.sleep(_GLANCE)
        return [], str(seen)

    def _places(self, span: Span) -> tuple[int, int]:
        ids = self._shelf.ids
        return bisect_left(ids, span.first), bisect_left(ids, span.end)

    def _now(self) -> float:
        return self._clock().timestamp()
