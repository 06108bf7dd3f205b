"""The connections of one event loop, which no caller can break by being cancelled.

What is cancelled in the middle of a request may keep its place in httpx's pool for ever, and a
pool whose places are all taken answers nobody. So each request is a task of its own: who is
cancelled leaves at once, and the request ends by itself, within its time.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

import httpx

from orbiter.memory.client._read_response import UNREADABLE, Answer, read_whole
from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError

__all__ = ["CONNECT", "Connections", "Request"]

CONNECT = 10.0
"""Most seconds until a connection is there."""

MOST = 256
"""How many requests are on their way at a time; others wait for their turn."""

_FREE = 1.0
"""Seconds to wait for a place in the pool: there is one, unless it was lost."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it is sent however often."""

    verb: str
    path: str
    """With the `/` it begins with, and percent-encoded."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    may_repeat: bool = True
    """Whether to do it twice is to do it once."""
    until: float | None = None
    """When it must be answered, by the clock of the loop; unless said, the link knows."""
    meeting: float | None = None
    """Seconds after which nobody is there, for a request that asks just that."""


class Connections:
    """The connections of one event loop: one kind for calls, one for streams."""

    def __init__(self, make: Callable[[httpx.Limits], httpx.AsyncClient]) -> None:
        self._make = make
        self._calls = self._new_calls()
        # What listens keeps its connection, and must leave one for everybody else.
        self.streams = make(httpx.Limits(max_connections=None, max_keepalive_connections=0))
        self._old: list[httpx.AsyncClient] = []
        self._running: set[asyncio.Task[Answer]] = set()
        self._turns = asyncio.Semaphore(MOST)
        self.life = self._live()

    def _new_calls(self) -> httpx.AsyncClient:
        return self._make(
            httpx.Limits(
                max_connections=MOST, max_keepalive_connections=MOST // 4, keepalive_expiry=4.0
            )
        )

    async def exchange(self, request: Request, url: str, *, until: float) -> Answer:
        """Send *request* once, and return the answer; `MemoryTimeoutError` if it is not in time.

        Raises what httpx raises. Whoever is cancelled while waiting for a turn has sent nothing.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(until):
                await self._turns.acquire()
        except TimeoutError:
            raise MemoryTimeoutError("too many requests wait for an answer") from None
        task = loop.create_task(self._send(self._calls, request, url, until))
        self._running.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait([task], timeout=max(0.0, until - loop.time()))
        if not task.done():
            raise MemoryTimeoutError("the answer is not complete")
        if task.cancelled():
            raise MemoryConnectionError("the memory was closed before an answer came")
        return task.result()

    def _ended(self, task: "asyncio.Task[Answer]") -> None:
        self._running.discard(task)
        self._turns.release()
        if not task.cancelled():
            task.exception()  # whoever asked may be gone, and has no use for it

    async def _send(
        self, client: httpx.AsyncClient, request: Request, url: str, until: float
    ) -> Answer:
        left = max(until - asyncio.get_running_loop().time(), 0.001)
        timeout = httpx.Timeout(left, connect=min(CONNECT, left), pool=min(_FREE, left))
        try:
            async with client.stream(
                request.verb,
                url,
                content=request.body,
                headers=dict(request.headers),
                timeout=timeout,
            ) as answer:
                return await read_whole(answer, until=until)
        except httpx.PoolTimeout:
            self._renew(client)
            raise
        except UNREADABLE as exc:
            raise MemoryConnectionError(f"an answer cannot be read ({exc!r})") from exc

    def _renew(self, client: httpx.AsyncClient) -> None:
        """Begin anew: a pool that has no place for one whose turn it is has lost some."""
        if self._calls is client:
            self._old.append(client)  # what is on its way there may still arrive
            self._calls = self._new_calls()

    async def _live(self) -> AsyncGenerator[None, None]:
        """Close the connections when it ends; a loop ends its generators before itself."""
        try:
            yield
        finally:
            for task in list(self._running):
                task.cancel()
            if self._running:
                await asyncio.wait(list(self._running))
            for client in (self._calls, self.streams, *self._old):
                await client.aclose()
