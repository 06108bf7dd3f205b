"""Cache of figures by scope, for some seconds, so that no visit counts everything again.

The scope is the key: nobody is given another's. Several visits at once wait for one answer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from orbiter.memory.agent import AgentMemory
from orbiter.memory.model.query import Query
from orbiter.memory.server.dashboard.page import Ask

__all__ = ["ScopeCache", "forget_figures"]

_T = TypeVar("_T")
_Kept = OrderedDict[tuple[object, ...], tuple[float, "asyncio.Future[_T]"]]


class ScopeCache(Generic[_T]):
    """Cached values, for some seconds; *most* scopes of each memory."""

    def __init__(self, *, seconds: float, most: int = 32) -> None:
        self._seconds = seconds
        self._most = most
        self._memories: WeakKeyDictionary[AgentMemory, _Kept[_T]] = WeakKeyDictionary()
        _caches.add(self)

    async def get(self, ask: Ask, make: Callable[[], Awaitable[_T]], *mark: object) -> _T:
        """Return the cached value for the page's scope and *mark*, or call *make*."""
        kept = self._memories.setdefault(ask.server.memory, OrderedDict())
        key = (*Query(metadata=ask.handle.scope).wanted.items(), None, *mark)
        now, loop = monotonic(), asyncio.get_running_loop()
        entry = kept.get(key)
        if entry is None or entry[0] < now or entry[1].get_loop() is not loop:
            entry = kept[key] = (now + self._seconds, asyncio.ensure_future(make()))
            kept.move_to_end(key)
            while len(kept) > self._most:
                kept.popitem(last=False)
        try:
            return await asyncio.shield(entry[1])  # whoever leaves takes it from nobody else
        except BaseException:  # of the work, or of whoever left: only the first is forgotten
            if entry[1].done():
                kept.pop(key, None)
            raise

    def clear(self, memory: AgentMemory | None = None) -> None:
        """Forget everything, or all that is of *memory*."""
        if memory is None:
            self._memories.clear()
        else:
            self._memories.pop(memory, None)


_caches: "WeakSet[ScopeCache[Any]]" = WeakSet()


def forget_figures(memory: AgentMemory) -> None:
    """Clear all caches of *memory*, as names of somebody who was erased may be in them."""
    for each in _caches:
        each.clear(memory)
