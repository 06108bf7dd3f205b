"""Events: streams of what happens; a listener hears of its own scope only."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from weakref import WeakSet

from orbiter.memory.agent.results import EventKind, MemoryEvent
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Query

__all__ = ["EventStream", "Events"]

MAX_WAITING = 10_000
"""Events kept for a listener that does not come for them; then the oldest are dropped."""


def _anywhere() -> None:
    """Let every event loop in."""


class EventStream:
    """What happens from now on, one `MemoryEvent` after the other, until the memory is closed.

    It hears from the moment it is made. Leave it with `aclose()` or `async with`, or just drop it.
    """

    def __init__(self, scope: MemoryMetadata, enter: Callable[[], None] = _anywhere) -> None:
        self._enter = enter
        self._wanted = Query(metadata=scope).wanted
        self._scope = scope
        self._waiting: deque[MemoryEvent] = deque()
        self._missed = 0
        self._is_closed = False
        self._news = asyncio.Event()
        self._home: asyncio.AbstractEventLoop | None = None

    def _hear(self, event: MemoryEvent) -> None:
        if any(getattr(event.scope, name) != value for name, value in self._wanted.items()):
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._missed += 1
        self._waiting.append(event)
        self._news.set()

    def _end(self) -> None:
        self._is_closed = True
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MemoryEvent:
        self._enter()
        loop = asyncio.get_running_loop()
        if self._home is not loop:  # an event serves the loop that first waited for it
            self._home, self._news = loop, asyncio.Event()
        while True:
            if self._missed:
                count, self._missed = self._missed, 0
                return MemoryEvent(
                    "missed", datetime.now(UTC), self._scope, detail=f"{count} events"
                )
            if self._waiting:
                return self._waiting.popleft()
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    async def aclose(self) -> None:
        """Hear no more; what waits can still be read."""
        self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Events:
    """All listeners of one memory, which *enter* the event loop it is used in."""

    def __init__(self, enter: Callable[[], None] = _anywhere) -> None:
        self._enter = enter
        self._streams: WeakSet[EventStream] = WeakSet()

    def listen(self, scope: MemoryMetadata) -> EventStream:
        """Return a stream of what happens in *scope* from now on."""
        stream = EventStream(scope, self._enter)
        self._streams.add(stream)
        return stream

    def emit_items(self, kind: EventKind, items: Sequence[MemoryItem]) -> None:
        """Emit what happened to *items*, each to those who listen to its own scope."""
        if not self._streams:
            return
        groups: dict[tuple[str | None, ...], list[str]] = {}
        for item in items:
            scope_ids = tuple(getattr(item.metadata, name) for name in SCOPE_FIELDS)
            groups.setdefault(scope_ids, []).append(item.id)
        for scope_ids, item_ids in groups.items():
            scope = MemoryMetadata(**dict(zip(SCOPE_FIELDS, scope_ids, strict=True)))
            self.emit(kind, scope, item_ids)

    def emit(
        self,
        kind: EventKind,
        scope: MemoryMetadata,
        item_ids: Iterable[str] = (),
        *,
        detail: str = "",
    ) -> None:
        """Emit an event to everyone who listens to *scope*, which has no `extra`."""
        if not self._streams:
            return
        self.pass_on(MemoryEvent(kind, datetime.now(UTC), scope, tuple(item_ids), detail))

    def pass_on(self, event: MemoryEvent) -> None:
        """Emit an event as it is to everyone who listens to its scope."""
        for stream in list(self._streams):
            if stream._is_closed:  # noqa: SLF001 - of this module
                self._streams.discard(stream)
            else:
                stream._hear(event)  # noqa: SLF001

    def close(self) -> None:
        """End every stream."""
        for stream in list(self._streams):
            stream._end()  # noqa: SLF001
