"""The live strip: what is written and recalled right now, as rows that are rendered here.

Each message is the whole strip, so that a page never holds more rows than it shows, and a burst of
a thousand writes is one message.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Send

from orbiter.memory.agent import EventStream, MemoryEvent, ScopedMemory
from orbiter.memory.errors import MemoryError
from orbiter.memory.server.api.sse import EventsResponse
from orbiter.memory.server.dashboard.page import Ask
from orbiter.memory.server.dashboard.templating import render

__all__ = ["Happened", "merged", "strip"]

MAX_ROWS = 8
"""Rows that are shown."""

_GATHER = 0.15
"""Seconds in which what happens together is gathered for one message."""

_LOOK = 0.5
_HEARTBEAT = 10.0
_SAME = 20.0
"""Seconds within which recalls of the same scope are one row: somebody is typing."""

_VERBS = {
    "remembered": "remembered",
    "updated": "changed",
    "forgotten": "forgot",
    "restored": "restored",
    "recalled": "recalled",
    "said": "said",
    "assembled": "built a context",
    "summarized": "summarized",
    "summary failed": "could not summarize",
    "forked": "forked a chat",
    "missed": "missed some",
}
_TELLING = frozenset({"remembered", "updated", "restored", "said"})
"""Kinds of events that are shown with the text of their memory."""
_NEW = frozenset({"remembered", "restored", "said"})
"""Kinds of events that add a memory to the list."""
_MAX_NEW = 100


@dataclass(frozen=True, slots=True)
class Happened:
    """One row of the strip."""

    kind: str
    verb: str
    at: datetime
    who: str
    item_ids: tuple[str, ...]
    times: int = 1
    text: str = ""

    @property
    def opens(self) -> str:
        """The memory that the row leads to, if it is about one."""
        return self.item_ids[0] if self.item_ids and self.kind != "recalled" else ""


def as_row(event: MemoryEvent) -> Happened:
    """Return what a row says of an event, without the words of its memory."""
    scope = event.scope
    named = (scope.user_id, scope.agent_id and f"agent {scope.agent_id}", scope.session_id)
    who = next((each for each in named if each), "everyone's")
    return Happened(event.kind, _VERBS.get(event.kind, event.kind), event.at, who, event.item_ids)


def merged(rows: Sequence[Happened], row: Happened) -> list[Happened]:
    """Return the rows with a new one, newest first; a recall after a recall is told as one."""
    last = rows[0] if rows else None
    is_again = (
        last is not None
        and row.kind == last.kind == "recalled"
        and row.who == last.who
        and (row.at - last.at).total_seconds() < _SAME
    )
    if last is not None and is_again:
        return [replace(row, times=last.times + 1), *rows[1:]]
    return [row, *rows][:MAX_ROWS]


class Strip(EventsResponse):
    """The strip of one page, as server-sent events."""

    def __init__(self, request: Request, handle: ScopedMemory, scope: dict[str, str]) -> None:
        super().__init__(request, handle.scope)
        self._handle = handle
        self._links = scope
        self._rows: list[Happened] = []
        self._new: list[str] = []

    async def _pass_on(self, stream: EventStream, send: Send, gone: "asyncio.Future[None]") -> None:
        async def write(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        await write("retry: 1000\n\n: here\n\n")
        loop = asyncio.get_running_loop()
        spoken, tell_at, waiting = loop.time(), 0.0, deque[MemoryEvent]()
        while not gone.done() and await self._state.still_holds(self._principal):
            now = loop.time()
            if waiting and now >= tell_at:
                spoken = now
                await write(f"event: strip\n{_lines(await self._render(waiting))}\n")
            elif now - spoken >= _HEARTBEAT:
                spoken = now
                await write(": still here\n\n")
            try:
                async with asyncio.timeout_at(tell_at if waiting else now + _LOOK):
                    event = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                continue
            tell_at = tell_at if waiting else loop.time() + _GATHER
            waiting.append(event)

    async def _render(self, waiting: deque[MemoryEvent]) -> str:
        await self._take(waiting)
        data = {"happened": self._rows, "scope": self._links, "new": self._new}
        return render("parts/live.html", data)

    async def _take(self, waiting: deque[MemoryEvent]) -> None:
        """Make rows of what has come; only those that stay are read from the store."""
        self._new = []
        while waiting:
            row = as_row(waiting.popleft())
            if row.kind in _NEW:
                self._new = [*self._new, *row.item_ids][:_MAX_NEW]
            self._rows = merged(self._rows, row)
        self._rows = [row if row.text else await self._with_text(row) for row in self._rows]

    async def _with_text(self, row: Happened) -> Happened:
        if row.kind not in _TELLING or not row.item_ids:
            return row
        with suppress(MemoryError, OSError):  # the row is shown without its words then
            item = await self._handle.get(row.item_ids[0])
            return row if item is None else replace(row, text=item.content[:200])
        return row


def _lines(html: str) -> str:
    return "".join(f"data: {line}\n" for line in html.replace("\r", " ").split("\n"))


async def _live(request: Request) -> Strip:
    ask = Ask(request)
    return Strip(request, ask.handle, ask.scope)


strip = Route("/ui/live", _live, methods=["GET"])
