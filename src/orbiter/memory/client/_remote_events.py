"""What happens on a server, for whoever listens here: an `EventStream` that is fed by one request.

It hears from the moment it is made, as a local one does: calls of the same memory wait until the
server listens for it. When the connection breaks, another is made, and `missed` tells of it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from weakref import ReferenceType, finalize, ref

import httpx

from orbiter.memory.agent import EventStream, MemoryEvent
from orbiter.memory.client._read_response import UNREADABLE, lines_of, loaded
from orbiter.memory.client._transport import HTTPTransport, Request, RetryPolicy
from orbiter.memory.errors import MemoryConnectionError, MemoryError, MemoryTimeoutError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.wire import EVENT

__all__ = ["RemoteEvents"]

_PATIENCE = RetryPolicy(tries=30, timeout=600.0)
"""How long a server may be away before listeners get an error; each answer resets it."""

_QUIET = 0.005
_PROMPT = 10.0
_LASTED = 1.0
"""Seconds after which a connection was one, and its end is not the end of another try."""
_SILENCE = 45.0
"""Seconds; a server that lives says so every ten."""


_LONGEST = 16 * 2**20
"""Most bytes of a line: one event names ids, and nothing that they hold."""
_UNREAD = "an event that cannot be read here; is the server of another version?"


class RemoteEvents(EventStream):
    """What happens from now on in a memory on a server, until this memory is closed."""

    def __init__(self, link: HTTPTransport, request: Request, scope: MemoryMetadata) -> None:
        super().__init__(scope)
        self._wanted = {}  # the server knows whose events these are
        self._link = link
        self._request = request
        self._error: Exception | None = None
        self._answered = asyncio.Event()
        self._heard = 0
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # there is no loop yet: the first step begins
            self._begin()

    def _begin(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._task = loop.create_task(_feed(self._link, self._request, ref(self)))
        finalize(self, _give_up, loop, self._task).atexit = False
        self._link.streams.add(self)

    async def is_listening(self, *, until: float | None = None) -> None:
        """Wait until the server listens, or cannot be asked to; not longer than a call may take."""
        loop = asyncio.get_running_loop()
        if self._loop is loop and not self._answered.is_set():
            prompt = loop.time() + _PROMPT
            with suppress(TimeoutError):
                async with asyncio.timeout_at(prompt if until is None else min(prompt, until)):
                    await self._answered.wait()

    def _hear(self, event: MemoryEvent) -> None:
        self._heard += 1
        super()._hear(event)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._end()

    def _end(self) -> None:
        super()._end()
        self._answered.set()

    async def __anext__(self) -> MemoryEvent:
        if self._task is None and not self._is_closed:
            self._begin()
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            error, self._error = self._error, None
            if error is not None:
                raise error from None
            raise

    async def aclose(self) -> None:
        """Hear no more; what happened before can still be read."""
        task = self._task
        if task is not None and not task.done() and not self._is_closed:
            with suppress(MemoryError):  # one that is gone tells nothing more
                await self._catch_up()
        self._end()
        if task is not None and self._loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait([task])

    async def _catch_up(self) -> None:
        """Wait for what the server has sent: an event may come after the answer to its call."""
        if self._loop is not asyncio.get_running_loop():
            return
        await self.is_listening()
        await self._link.ping()
        before = -1
        while before != self._heard:
            before = self._heard
            await asyncio.sleep(_QUIET)


async def _feed(
    link: HTTPTransport, request: Request, listener: ReferenceType[RemoteEvents]
) -> None:
    """Tell the listener what comes, until nobody holds it any more."""
    tried, is_new = 0, True
    while True:
        tried, began = tried + 1, 0.0
        try:
            async with link.stream(request, silence=_SILENCE) as answer:
                if not _emit_connected(listener, is_new=is_new):
                    return
                is_new, began = False, monotonic()
                async for event in _events_of(answer):
                    stream = listener()
                    if stream is None:
                        return
                    stream._hear(event or _missed(stream, _UNREAD))  # noqa: SLF001 - of this module
                    del stream  # else it would be held while nothing happens
                tried = 0 if monotonic() - began > _LASTED else tried
            error: Exception = MemoryConnectionError(f"`{link.address.url}` ended the events")
        except (MemoryConnectionError, MemoryTimeoutError) as exc:
            error = exc
        except MemoryError as exc:
            _end_with(listener, exc)
            return
        except Exception as exc:  # noqa: BLE001 - whatever it is, whoever listens must not wait for ever
            message = f"the events of `{link.address.url}` cannot be read ({type(exc).__name__})"
            _end_with(listener, MemoryConnectionError(message))
            return
        pause = _PATIENCE.pause(tried)
        if pause is None:
            _end_with(listener, error)
            return
        _emit_lost(listener, was_there=bool(began))
        await asyncio.sleep(pause)


def _emit_connected(listener: ReferenceType[RemoteEvents], *, is_new: bool) -> bool:
    """Tell that the server listens, if anybody still does."""
    stream = listener()
    if stream is None:
        return False
    if not is_new:
        stream._hear(_missed(stream, "what happened while there was no connection"))  # noqa: SLF001
    stream._answered.set()  # noqa: SLF001
    return True


def _emit_lost(listener: ReferenceType[RemoteEvents], *, was_there: bool) -> None:
    """Have calls wait for the next try if the server was just there; not for one that is away."""
    stream = listener()
    if stream is not None and not stream._is_closed:  # noqa: SLF001
        stream._answered.clear() if was_there else stream._answered.set()  # noqa: SLF001


def _end_with(listener: ReferenceType[RemoteEvents], error: Exception) -> None:
    stream = listener()
    if stream is not None:
        stream._fail(error)  # noqa: SLF001


def _missed(stream: RemoteEvents, what: str) -> MemoryEvent:
    return MemoryEvent("missed", datetime.now(UTC), stream._scope, detail=what)  # noqa: SLF001


async def _events_of(answer: httpx.Response) -> AsyncIterator[MemoryEvent | None]:
    """Yield the events of an answer; signs of life, and what else it says, are left out.

    `None` stands for one that cannot be read: of a kind that is not known here, or damaged.
    """
    data: list[bytes] = []
    size = 0
    async for line in lines_of(answer, most=_LONGEST):
        if line.startswith(b"data:"):
            size += len(line)
            if size > _LONGEST:
                raise MemoryConnectionError("an event has no end")
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            text, data, size = b"\n".join(data), [], 0
            try:
                event = EVENT.load(loaded(text))
            except UNREADABLE:
                event = None
            yield event


def _give_up(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    with suppress(RuntimeError):  # the loop is closed, and the task with it
        loop.call_soon_threadsafe(task.cancel)
