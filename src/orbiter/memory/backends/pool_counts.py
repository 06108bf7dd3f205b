"""Counts of connection pools: how many connections, and how long calls wait for one.

The server's metrics and OpenTelemetry read them. A pool is called by its engine, never by its
address.
"""

from collections.abc import Callable
from threading import Lock
from time import perf_counter
from typing import NamedTuple
from weakref import WeakSet

__all__ = ["PoolCounts", "PoolSizes", "live_pools"]


class PoolSizes(NamedTuple):
    """Connections of a pool now."""

    used: int
    idle: int
    max: int


_NONE = PoolSizes(0, 0, 0)


class PoolCounts:
    """Counts of the pool *name*, since it was made; `sizes` returns what it has now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sizes: Callable[[], PoolSizes] = lambda: _NONE
        self.waiting = 0
        """Calls that wait for a connection now: for a free one, or for a new one to open."""
        self.acquired = 0
        """How often a call asked for a connection, whether it got one or not."""
        self.timeouts = 0
        """How often a call waited in vain."""
        self.wait_seconds = 0.0
        with _lock:
            _pools.add(self)

    def begin(self) -> float:
        """Note that a call asks for a connection; return what `end` takes."""
        self.waiting += 1
        return perf_counter()

    def end(self, begun: float) -> None:
        """Note that the call waits no more, whatever came of it."""
        self.waiting -= 1
        self.acquired += 1
        self.wait_seconds += perf_counter() - begun


_lock = Lock()
_pools: "WeakSet[PoolCounts]" = WeakSet()


def live_pools() -> list[PoolCounts]:
    """Return the counts of every pool of this process that is still in use."""
    with _lock:
        return list(_pools)
