"""Events: streams of what happens; a listener hears of its own scope only.

Where no stream reaches, as between processes, `since` finds new items: it reads pages back to what
is known already.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self
from weakref import WeakSet

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Query

if TYPE_CHECKING:
    from orbiter.memory.agent.results import EventKind, MemoryEvent, Page
    from orbiter.memory.model.filters import Where

__all__ = ["PAGE", "EventStream", "Events", "SeenIds", "since"]

MAX_WAITING = 10_000
"""Events kept for a listener that does not come for them; then the oldest are dropped."""

PAGE = 200
_MAX_SEEN = 10_000
"""The newest that are known by id; what comes later and is older than all of these is not told."""

_Place = tuple[datetime, str]
"""Where a memory stands in the order of time."""


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

    def _hear(self, event: "MemoryEvent") -> None:
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

    async def __anext__(self) -> "MemoryEvent":
        self._enter()
        loop = asyncio.get_running_loop()
        if self._home is not loop:  # an event serves the loop that first waited for it
            self._home, self._news = loop, asyncio.Event()
        while True:
            if self._missed:
                count, self._missed = self._missed, 0
                from orbiter.memory.agent.results import MemoryEvent  # noqa: PLC0415 - as below

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

    def emit_items(self, kind: "EventKind", items: Sequence[MemoryItem]) -> None:
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
        kind: "EventKind",
        scope: MemoryMetadata,
        item_ids: Iterable[str] = (),
        *,
        detail: str = "",
    ) -> None:
        """Emit an event to everyone who listens to *scope*, which has no `extra`."""
        if not self._streams:
            return
        from orbiter.memory.agent.results import MemoryEvent  # noqa: PLC0415 - few listen

        self.pass_on(MemoryEvent(kind, datetime.now(UTC), scope, tuple(item_ids), detail))

    def pass_on(self, event: "MemoryEvent") -> None:
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


class SeenIds:
    """What was there or was told: the ids of the newest, and where the rest begins.

    The rest is never new, not even when newer ones are forgotten and a page reaches it.
    """

    def __init__(self, items: Iterable[MemoryItem], *, is_all: bool) -> None:
        self._places = {item.id: _place(item) for item in items}
        self._rest = None if is_all else min(self._places.values(), default=None)

    def add(self, items: Iterable[MemoryItem]) -> None:
        """Know these, too."""
        self._places |= {item.id: _place(item) for item in items}
        if len(self._places) > _MAX_SEEN:
            newest = sorted(self._places.values())[-_MAX_SEEN:]
            self._places = {item_id: (at, item_id) for at, item_id in newest}
            self._rest = newest[0]

    def has(self, item: MemoryItem) -> bool:
        """Tell whether *item* is not new."""
        return item.id in self._places or self.is_rest(item)

    def is_rest(self, item: MemoryItem) -> bool:
        """Tell whether nothing from *item* on can be new."""
        return self._rest is not None and _place(item) <= self._rest


class _Listing(Protocol):
    """A handle whose memories can be listed, page by page."""

    async def list(
        self,
        *,
        where: "Where | None" = None,
        memory_type: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> "Page":
        """Return the newest memories that match, from the cursor on."""
        ...


async def since(
    memory: _Listing,
    known: SeenIds,
    *,
    memory_type: str | None = None,
    where: "Where | None" = None,
) -> list[MemoryItem]:
    """Return what is not *known*, oldest first: pages are read back to one without anything new."""
    fresh: list[MemoryItem] = []
    cursor: str | None = None
    while True:
        page = await memory.list(limit=PAGE, cursor=cursor, memory_type=memory_type, where=where)
        new = [item for item in page if not known.has(item)]
        fresh += new
        # Clocks of several machines interleave, so only a page without any new one ends the walk.
        if not new or page.next is None or known.is_rest(page[-1]):
            return fresh[::-1]
        cursor = page.next


def _place(item: MemoryItem) -> _Place:
    return item.created_at, item.id
