"""The way to a server: connections, deadlines, tries, and what an answer or none of it means.

A request is sent again only where that is safe: where none arrived, where the server says that it
has done nothing, or where doing it twice is doing it once.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn
from urllib.parse import urlencode
from weakref import WeakKeyDictionary, WeakSet

import httpx

from orbiter.memory.client._connections import CONNECT, Connections, Request
from orbiter.memory.client._http_errors import (
    is_cut,
    is_passing,
    is_unsent,
    is_untrusted,
    no_answer,
    refusal,
)
from orbiter.memory.client._read_response import Answer, read_whole
from orbiter.memory.client._remote_events import RemoteEvents
from orbiter.memory.client._retry import Patience
from orbiter.memory.client._server_url import Address
from orbiter.memory.errors import (
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
    UnsupportedError,
)
from orbiter.memory.model.items import MemoryMetadata

__all__ = ["Link", "Request"]

_SILENCE = 300.0
_BUSY, _AWAY = 429, (502, 503)
_PROBLEM = 2**20
"""Most bytes of what a stream says instead of beginning."""

_FAILED = (httpx.HTTPError, httpx.InvalidURL, MemoryConnectionError, MemoryTimeoutError)


class Link:
    """Everything that the handles of one `RemoteMemory` share.

    It has connections for each event loop that uses it, and none of a process that was forked.
    """

    def __init__(self, address: Address, *, patience: Patience) -> None:
        self.address = address
        self.streams: WeakSet[RemoteEvents] = WeakSet()
        self._patience = patience
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = (
            WeakKeyDictionary()
        )
        self._process = os.getpid()
        self._tls: ssl.SSLContext | bool = address.is_encrypted

    def __repr__(self) -> str:
        return f"Link({self.address.url!r})"

    # What a local memory has in this place

    @property
    def store(self) -> "Link":
        """What stands for the store where it is named; there is none here."""
        return self

    async def opened(self, scope: MemoryMetadata) -> NoReturn:
        """Refuse: there is no store here to work on."""
        raise self.not_here(f"to reach the store of {scope!r}")

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
            asked, error = None, None
            try:
                answer = await (await self._here()).exchange(request, url, until=until)
            except _FAILED as exc:
                error = exc
                may_repeat = is_unsent(exc) or (request.may_repeat and is_cut(exc))
                may_repeat = may_repeat and not is_untrusted(exc)
            else:
                if answer.is_success:
                    return answer
                asked = answer.headers.get("Retry-After")
                may_repeat = answer.status == _BUSY or (
                    request.may_repeat and answer.status in _AWAY and is_passing(answer)
                )
            is_away = error is not None and is_unsent(error)
            left = (latest if is_away else until) - now()
            pause = self._patience.pause(tried, asked=asked, left=left, is_unsent=is_away)
            if pause is None or not may_repeat:
                if error is not None:
                    raise self._told(error) from error
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
            raise self._told(exc) from exc

    async def ping(self) -> None:
        """Wait for any answer at all, once; whatever the server has sent before is here by then."""
        request = Request("GET", "/healthz")
        try:
            await (await self._here()).exchange(request, request.path, until=self.deadline())
        except _FAILED as exc:
            raise self._told(exc) from exc

    # Opening and closing

    async def _here(self) -> Connections:
        """Return what sends in this loop."""
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():  # the connections are the parent's
            self._clients = WeakKeyDictionary()
            self._process = os.getpid()
        found = self._clients.get(loop)
        if found is None:
            found = self._clients[loop] = Connections(self._client)
            await anext(found.life)
        return found

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

    def _told(self, exc: Exception) -> Exception:
        return no_answer(exc, self.address.url, self._patience.timeout)


def _spelled(request: Request) -> str:
    """Return path and query."""
    if not request.query:
        return request.path
    try:
        return f"{request.path}?{urlencode(request.query)}"
    except UnicodeEncodeError as exc:
        raise QueryError(f"`{exc.object!r}` holds half a character, which no id may") from None
