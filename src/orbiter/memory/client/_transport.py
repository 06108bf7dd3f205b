"""HTTP transport: connection pool, deadlines and retries.

A request is sent again only where that is safe: where none arrived, where the server says that it
has done nothing, or where doing it twice is doing it once.
"""

import asyncio
import math
import os
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode
from weakref import WeakKeyDictionary, WeakSet

import httpx

from orbiter.memory.client._read_response import (
    UNREADABLE,
    Answer,
    is_cut,
    is_passing,
    is_unsent,
    is_untrusted,
    no_answer,
    read_whole,
    refusal,
)
from orbiter.memory.client._server_url import Address
from orbiter.memory.errors import (
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
    UnsupportedError,
)

__all__ = [
    "HTTPTransport",
    "Request",
    "RetryPolicy",
]

_FIRST = 0.05
_LONGEST = 5.0
_LONGEST_UNSENT = 1.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Most tries of one call that may have arrived, and the seconds that it may take in all."""

    tries: int = 5
    timeout: float = 60.0

    def pause(
        self,
        tried: int,
        *,
        retry_after: str | None = None,
        left: float = math.inf,
        is_unsent: bool = False,
    ) -> float | None:
        """Return the seconds to wait after *tried* tries, or `None` to give up.

        *retry_after* is that header of the server's answer: whoever it tells to wait has its turn
        in the end, so only the time counts. So it does where nobody was there at all: a server
        that is started again comes back. Else the tries count. Pauses grow, and are drawn by
        chance, so that those whom one server left do not come back all at once. None ends after
        the seconds that are *left*.
        """
        growing = _FIRST * 2 ** min(tried, 10)
        wanted = _seconds(retry_after)
        if wanted is not None:
            # Whatever it says, it is not asked without a pause.
            wanted = max(wanted, min(growing, _LONGEST_UNSENT) / 2)
            wanted += random.uniform(0, max(_FIRST, wanted / 2))  # noqa: S311 - no secret
        elif is_unsent:
            wanted = random.uniform(0.5, 1) * min(growing, _LONGEST_UNSENT)  # noqa: S311
        elif tried < self.tries:
            wanted = random.uniform(0, min(growing, _LONGEST))  # noqa: S311
        else:
            return None
        return wanted if wanted < left else None


def _seconds(retry_after: str | None) -> float | None:
    """Return what `Retry-After` says; a date, which we never send, counts as nothing."""
    try:
        seconds = math.nan if retry_after is None else float(retry_after)
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


CONNECT = 10.0
"""Most seconds until a connection is there."""

MAX_CONNECTIONS = 256
"""How many requests are on their way at a time; others wait for their turn."""

_FREE = 1.0
"""Seconds to wait for a place in the pool: there is one, unless it was lost."""


_SILENCE = 300.0
_PROBLEM = 2**20
"""Most bytes of what a stream says instead of beginning."""

_BUSY, _AWAY = 429, (502, 503)
_FAILED = (httpx.HTTPError, httpx.InvalidURL, MemoryConnectionError, MemoryTimeoutError)


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
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)
        self.life = self._live()

    def _new_calls(self) -> httpx.AsyncClient:
        return self._make(
            httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS // 4,
                keepalive_expiry=4.0,
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
            raise MemoryTimeoutError("too many requests are waiting for a response") from None
        task = loop.create_task(self._send(self._calls, request, url, until))
        self._running.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait([task], timeout=max(0.0, until - loop.time()))
        if not task.done():
            raise MemoryTimeoutError("the response did not complete in time")
        if task.cancelled():
            raise MemoryConnectionError("the memory was closed before a response arrived")
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
        """Open a new pool: one without a place for a request whose turn it is leaks."""
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


class Listener(Protocol):
    """A stream of events that calls wait for until the server feeds it."""

    async def is_listening(self, *, until: float | None = None) -> None:
        """Wait until the server listens, not longer than *until*."""

    async def aclose(self) -> None:
        """End the stream."""


class HTTPTransport:
    """Everything that the handles of one `RemoteMemory` share.

    It has connections for each event loop that uses it, and none of a process that was forked.
    """

    def __init__(self, address: Address, *, patience: RetryPolicy) -> None:
        self.address = address
        self.streams: WeakSet[Listener] = WeakSet()
        self._patience = patience
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = (
            WeakKeyDictionary()
        )
        self._process = os.getpid()
        self._tls: ssl.SSLContext | bool = address.is_encrypted

    def __repr__(self) -> str:
        return f"HTTPTransport({self.address.url!r})"

    def not_here(self, what: str) -> UnsupportedError:
        """Return the error for what only the process can do that has the store."""
        return UnsupportedError(
            f"{what} needs the store itself, and that of `{self.address.url}` is behind a server; "
            "do it there, with an `AgentMemory` on the store's own address"
        )

    # Sending

    @property
    def timeout(self) -> float:
        """Seconds that one request may take, with all its tries."""
        return self._patience.timeout

    def deadline(self) -> float:
        """Return when a call that begins now must be answered, by the clock of the loop."""
        return asyncio.get_running_loop().time() + self._patience.timeout

    async def send(self, request: Request) -> Answer:
        """Return the answer to *request*, or raise what the server raised.

        `MemoryConnectionError` if the server cannot be reached, `MemoryTimeoutError` if it does
        not answer in time, all tries together.
        """
        now = asyncio.get_running_loop().time
        until = self.deadline() if request.until is None else request.until
        for stream in list(self.streams):
            await stream.is_listening(until=until)  # it hears from the moment it was made
        url = _spelled(request)
        latest = until if request.meeting is None else min(until, now() + request.meeting)
        tried = 0
        while True:
            tried += 1
            retry_after, error = None, None
            try:
                answer = await (await self._here()).exchange(request, url, until=until)
            except _FAILED as exc:
                error = exc
                may_repeat = is_unsent(exc) or (request.may_repeat and is_cut(exc))
                may_repeat = may_repeat and not is_untrusted(exc)
            else:
                if answer.is_success:
                    return answer
                retry_after = answer.headers.get("Retry-After")
                may_repeat = answer.status == _BUSY or (
                    request.may_repeat and answer.status in _AWAY and is_passing(answer)
                )
            is_away = error is not None and is_unsent(error)
            left = (latest if is_away else until) - now()
            pause = self._patience.pause(
                tried, retry_after=retry_after, left=left, is_unsent=is_away
            )
            if pause is None or not may_repeat:
                if error is not None:
                    raise self._error_for(error) from error
                raise refusal(answer, self.address.url)
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(
        self,
        request: Request,
        *,
        content: AsyncIterator[bytes] | None = None,
        silence: float = _SILENCE,
    ) -> AsyncIterator[httpx.Response]:
        """Yield the answer while it comes, however long that takes; it is asked for once.

        After *silence* seconds without a word, the server counts as gone.
        """
        try:
            async with (await self._here()).streams.stream(
                request.verb,
                _spelled(request),
                content=request.body if content is None else content,
                headers=dict(request.headers),
                timeout=httpx.Timeout(silence, connect=CONNECT),
            ) as answer:
                if not answer.is_success:
                    raise refusal(await read_whole(answer, most=_PROBLEM), self.address.url)
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise self._error_for(exc) from exc

    async def ping(self) -> None:
        """Wait for any answer at all, once; whatever the server has sent before is here by then."""
        request = Request("GET", "/healthz")
        try:
            await (await self._here()).exchange(request, request.path, until=self.deadline())
        except _FAILED as exc:
            raise self._error_for(exc) from exc

    # Opening and closing

    async def _here(self) -> Connections:
        """Return what sends in this loop."""
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():  # the connections are the parent's
            self._clients = WeakKeyDictionary()
            self._process = os.getpid()
        connections = self._clients.get(loop)
        if connections is None:
            connections = self._clients[loop] = Connections(self._client)
            await anext(connections.life)
        return connections

    def _client(self, limits: httpx.Limits) -> httpx.AsyncClient:
        headers = {"Accept": "application/json"}
        if self.address.token is not None:
            headers["Authorization"] = f"Bearer {self.address.token}"
        if self._tls is True:
            self._tls = ssl.create_default_context()  # once: it reads all authorities there are
        return httpx.AsyncClient(
            base_url=self.address.url,
            headers=headers,
            limits=limits,
            timeout=httpx.Timeout(self._patience.timeout, connect=CONNECT),
            # Of `http` there is nothing to verify, and no answer leads anywhere else.
            verify=self._tls,
            follow_redirects=False,
            trust_env=not self.address.is_local,  # a proxy is on another computer
        )

    async def close(self) -> None:
        """End all streams, and close the connections; the next use opens others."""
        for stream in list(self.streams):
            await stream.aclose()
        mine = self._clients.pop(asyncio.get_running_loop(), None)
        self._clients = WeakKeyDictionary()  # those of other loops end with these
        if mine is not None and self._process == os.getpid():
            await mine.life.aclose()

    def _error_for(self, exc: Exception) -> Exception:
        return no_answer(exc, self.address.url, self._patience.timeout)


def _spelled(request: Request) -> str:
    """Return path and query."""
    if not request.query:
        return request.path
    try:
        return f"{request.path}?{urlencode(request.query)}"
    except UnicodeEncodeError as exc:
        raise QueryError(
            f"`{exc.object!r}` contains half of a surrogate pair, which is not allowed in an id"
        ) from None
