"""What happens, as server-sent events: `GET /v1/events`.

An event says what happened to which ids in which scope, and holds no content. The stream ends when
its key is revoked, and leaves nothing behind when its reader goes.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from orbiter.memory.agent import EventStream, MemoryEvent
from orbiter.memory.auth import Principal
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server.api.requests import check_query
from orbiter.memory.server.http.error_responses import HTTPProblem
from orbiter.memory.server.http.scopes import handle_of
from orbiter.memory.server.http.shared_limits import Limits
from orbiter.memory.server.http.state import principal_of, state_of
from orbiter.memory.wire import EVENT

__all__ = ["EventsResponse", "begin_stream", "count_stream", "routes", "until_gone"]

_MAX_STREAMS = 100
_LOOK = 0.5
"""Seconds between two looks at whether the key still holds and the reader is still there."""

_HEARTBEAT = 10.0
"""Seconds of silence after which a comment shows proxies and readers that the stream lives."""


def routes() -> list[BaseRoute]:
    """Return the doors of this module."""
    return [Route("/v1/events", _events, methods=["GET"])]


async def _events(request: Request) -> "EventsResponse":
    check_query(request)
    handle = handle_of(state_of(request).memory, principal_of(request), request.query_params)
    return EventsResponse(request, handle.scope)


class EventsResponse:
    """The stream of one reader; an ASGI application of its own, so that it ends for certain."""

    def __init__(self, request: Request, scope: MemoryMetadata) -> None:
        self._state = state_of(request)
        self._principal = principal_of(request)
        self._scope = scope
        self._is_back = "last-event-id" in request.headers
        self._is_head = request.method == "HEAD"

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send events until one of the two ends it."""
        if self._is_head:  # which asks what there is, and not to wait for it
            await begin_stream(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        with count_stream(self._state.link.limits, self._principal):
            await self._send(receive, send)

    async def _send(self, receive: Receive, send: Send) -> None:
        async with self._state.live.listen(self._scope) as stream:
            gone = asyncio.ensure_future(until_gone(receive))
            try:
                await begin_stream(send)
                await self._pass_on(stream, send, gone)
                if not gone.done():
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                gone.cancel()

    async def _pass_on(self, stream: EventStream, send: Send, gone: "asyncio.Future[None]") -> None:
        async def write(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        loop = asyncio.get_running_loop()
        await write("retry: 1000\n\n")
        if self._is_back:
            missed = MemoryEvent("missed", datetime.now(UTC), self._scope, detail="reconnected")
            await write(_encode_event(missed, 0))
        number, spoken = 0, loop.time()
        while not gone.done() and await self._state.still_holds(self._principal):
            event: MemoryEvent | None = None
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    try:
                        event = await anext(stream)
                    except StopAsyncIteration:
                        return
            if event is not None and await self._state.still_holds(self._principal):
                number, spoken = number + 1, loop.time()
                await write(_encode_event(event, number))
            elif loop.time() - spoken >= _HEARTBEAT:
                spoken = loop.time()
                await write(": still here\n\n")


@contextmanager
def count_stream(limits: Limits, principal: Principal) -> Iterator[None]:
    """Refuse more streams than one key needs: each holds a connection for as long as it is."""
    name = f"stream:{principal.key_id}"
    if not limits.take(name, _MAX_STREAMS):
        raise HTTPProblem(
            429,
            f"a key may have at most {_MAX_STREAMS} streams at a time",
            headers={"Retry-After": "5"},
        )
    try:
        yield
    finally:
        limits.give(name)


async def begin_stream(send: Send) -> None:
    """Begin an answer of server-sent events."""
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"x-accel-buffering", b"no"),
            ],
        }
    )


def _encode_event(event: MemoryEvent, number: int) -> str:
    data = json.dumps(EVENT.dump(event), ensure_ascii=False, separators=(",", ":"))
    return f"id: {number}\nevent: {event.kind}\ndata: {data}\n\n"


async def until_gone(receive: Receive) -> None:
    """Wait until the reader has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
