"""Event feed: what this server writes, in all its workers, and what others write to the store.

Nothing is told twice. What this process writes is told by the memory itself, and also found in the
store; whichever comes first is told, and the other is left out.
"""

import asyncio
import math
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Any

from orbiter.memory.agent import AgentMemory, EventStream, MemoryEvent, ScopedMemory
from orbiter.memory.agent.events import PAGE, Events, SeenIds, since
from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.server.http.prometheus import Metrics
from orbiter.memory.server.http.worker_link import Alone
from orbiter.memory.wire import EVENT

__all__ = ["EventFeed"]

_EVERY = 0.5
"""Seconds between two looks at the store while somebody listens."""

_MAX_TOLD = 20_000
_SOON = 10.0
"""Seconds within which this process reports what it wrote; after that, it is a new write."""

_NEW = ("remembered", "said")
_LISTENERS = "listeners"
"""What counts the listeners of each worker, so that nobody is told what nobody hears."""


class EventFeed:
    """One place for all listeners of a server; it looks at the store only while there are any."""

    def __init__(
        self,
        memory: AgentMemory,
        *,
        metrics: Metrics | None = None,
        every: float = _EVERY,
        link: Alone | None = None,
    ) -> None:
        self._memory = memory
        self._link = Alone() if link is None else link
        self._link.on("event", self._hear_other)
        self._metrics = metrics or Metrics()
        self._every = every
        self._out = Events()
        self._listeners = 0
        self._is_stopped = False
        self._walks: dict[str | None, tuple[asyncio.Task[None], int]] = {}
        self._hearing: asyncio.Task[None] | None = None
        self._heard: OrderedDict[str, float] = OrderedDict()
        """Ids that the memory itself told of, which the store need not."""
        self._polled: OrderedDict[str, float] = OrderedDict()
        """Ids that were found in the store and told of, and when."""
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def listen(self, scope: MemoryMetadata) -> AsyncIterator[EventStream]:
        """Give what happens in *scope* from now on, until the block or the server ends."""
        walk = scope.user_id if self._is_held() else None
        await self._join(walk)
        stream = self._out.listen(scope)
        try:
            if self._is_stopped:
                await stream.aclose()
            yield stream
        finally:
            await stream.aclose()
            await asyncio.shield(self._leave(walk))

    def start(self) -> None:
        """Hear what this process does, to count it; called within a running loop."""
        self._is_stopped = False
        if self._hearing is None:
            self._hearing = asyncio.create_task(self._hear(self._memory.unscoped().events()))

    async def stop(self) -> None:
        """End every stream, for good."""
        self._is_stopped = True
        self._out.close()
        tasks = [task for task, _ in self._walks.values()]
        tasks += [self._hearing] if self._hearing else []
        self._hearing = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What this process does

    async def _hear(self, stream: EventStream) -> None:
        async for event in stream:
            self._metrics.note_event(event.kind, event.scope)
            if self._link.limits.elsewhere(_LISTENERS):
                self._link.tell("event", EVENT.dump(event))
            self._pass_on(event)

    async def _hear_other(self, body: Any) -> None:
        """Pass on what another worker of this server did."""
        self._pass_on(EVENT.load(body))

    def _pass_on(self, event: MemoryEvent) -> None:
        fresh = self._without_reported(event)
        if fresh is not None:
            self._out.pass_on(fresh)

    def _without_reported(self, event: MemoryEvent) -> MemoryEvent | None:
        """Return *event* without what the store has told of already."""
        ids, now = event.item_ids, monotonic()
        if event.kind in _NEW:
            ids = tuple(each for each in ids if now - self._polled.pop(each, -math.inf) >= _SOON)
            if event.item_ids and not ids:
                return None
        if event.kind != "recalled":
            _note(self._heard, event.item_ids)
        return replace(event, item_ids=ids)

    # What others do

    def _is_held(self) -> bool:
        """Tell whether the database shows nothing unless a user is named."""
        return bool(self._memory._core._row_security)  # noqa: SLF001 - of this library

    async def _join(self, walk: str | None) -> None:
        async with self._changing:
            if not self._is_stopped:
                self.start()
            if walk not in self._walks:
                known = await self._known(walk)  # first: what comes from now on is new
                self._walks[walk] = (asyncio.create_task(self._walk(walk, known)), 0)
            task, count = self._walks[walk]
            self._walks[walk] = (task, count + 1)
            self._listeners += 1
            self._link.limits.take(_LISTENERS, sys.maxsize)
            self._metrics.listeners = self._listeners

    async def _leave(self, walk: str | None) -> None:
        async with self._changing:
            self._listeners -= 1
            self._link.limits.give(_LISTENERS)
            self._metrics.listeners = self._listeners
            task, count = self._walks[walk]
            if count > 1:
                self._walks[walk] = (task, count - 1)
                return
            del self._walks[walk]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _handle(self, walk: str | None) -> ScopedMemory:
        return self._memory.unscoped() if walk is None else self._memory.scope(user_id=walk)

    async def _known(self, walk: str | None) -> SeenIds:
        newest = await self._handle(walk).list(limit=PAGE)
        return SeenIds(newest, is_all=newest.next is None)

    async def _walk(self, walk: str | None, known: SeenIds) -> None:
        held: list[MemoryItem] = []
        took = 0.0
        while True:
            # Where memories are huge or the store is slow, looking takes a tenth of the time.
            await asyncio.sleep(max(self._every, 9 * took))
            began = monotonic()
            try:
                fresh = await since(self._handle(walk), known)
            except (MemoryError, OSError):
                continue  # a store that is away for a while is looked at again
            finally:
                took = monotonic() - began
            known.add(fresh)
            # A turn later: what this process wrote was told by then, as what it was.
            self._emit(held)
            held = fresh

    def _emit(self, items: list[MemoryItem]) -> None:
        fresh = [item for item in items if item.id not in self._heard]
        _note(self._polled, (item.id for item in fresh))
        self._out.emit_items("remembered", fresh)


def _note(ids: OrderedDict[str, float], item_ids: Iterable[str]) -> None:
    """Keep when something was told of the newest *item_ids*."""
    for item_id in item_ids:
        ids[item_id] = monotonic()
        ids.move_to_end(item_id)
    while len(ids) > _MAX_TOLD:
        ids.popitem(last=False)
