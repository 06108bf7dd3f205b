"""The way to a server: connections, deadlines, tries, and what an answer or none of it means.

A request is sent again only where that is safe: where none arrived, where the server says that it
has done nothing, or where doing it twice is doing it once.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from json import JSONDecodeError
from time import monotonic
from typing import NoReturn
from urllib.parse import urlencode
from weakref import WeakKeyDictionary, WeakSet

import httpx

from orbiter.memory.client._address import Address
from orbiter.memory.client._events import RemoteEvents
from orbiter.memory.client._retries import Patience
from orbiter.memory.errors import (
    AccessError,
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
    UnsupportedError,
)
from orbiter.memory.items import MemoryMetadata
from orbiter.memory.wire import load_error

__all__ = ["Link", "Request"]

_CONNECT = 10.0
_POOL = httpx.Limits(max_connections=256, max_keepalive_connections=64, keepalive_expiry=4.0)
_STREAMS = httpx.Limits(max_connections=None, max_keepalive_connections=0)
"""What listens keeps its connection, and must leave one for everybody else."""

_SILENCE = 300.0
_BUSY, _AWAY = 429, (502, 503)
_PASSING = ("MemoryConnectionError", "MemoryTimeoutError", "Unavailable")


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


class _Clients:
    """The connections of one event loop: one kind for calls, one for streams."""

    def __init__(self, calls: httpx.AsyncClient, streams: httpx.AsyncClient) -> None:
        self.calls = calls
        self.streams = streams
        self.life = self._live()

    async def _live(self) -> AsyncGenerator[None, None]:
        """Close the connections when it ends; a loop ends its generators before itself."""
        try:
            yield
        finally:
            await self.calls.aclose()
            await self.streams.aclose()


class Link:
    """Everything that the handles of one `RemoteMemory` share.

    It has connections for each event loop that uses it, and none of a process that was forked.
    """

    def __init__(self, address: Address, *, patience: Patience) -> None:
        self.address = address
        self.streams: WeakSet[RemoteEvents] = WeakSet()
        self._patience = patience
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()
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

    async def send(self, request: Request) -> httpx.Response:
        """Return the answer to *request*, or raise what the server raised.

        `MemoryConnectionError` if the server cannot be reached, `MemoryTimeoutError` if it does
        not answer in time.
        """
        for stream in list(self.streams):
            await stream.is_listening()  # it hears from the moment it was made
        url = _spelled(request)
        began, tried = monotonic(), 0
        while True:
            tried += 1
            asked, error = None, None
            try:
                answer = await (await self._here()).calls.request(
                    request.verb, url, content=request.body, headers=dict(request.headers)
                )
            except httpx.HTTPError as exc:
                error = exc
                may_repeat = _is_unsent(exc) or (request.may_repeat and _is_cut(exc))
            else:
                if answer.is_success:
                    return answer
                asked = answer.headers.get("Retry-After")
                may_repeat = answer.status_code == _BUSY or (
                    request.may_repeat and answer.status_code in _AWAY and _is_passing(answer)
                )
            spent = monotonic() - began
            pause = self._patience.pause(tried, asked=asked, spent=spent) if may_repeat else None
            if pause is None:
                if error is not None:
                    raise self._told(error) from error
                raise self.refusal(answer)
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
                timeout=httpx.Timeout(silence, connect=_CONNECT),
            ) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise self.refusal(answer)
                yield answer
        except httpx.HTTPError as exc:
            raise self._told(exc) from exc

    async def ping(self) -> None:
        """Wait for any answer at all, once; whatever the server has sent before is here by then."""
        try:
            await (await self._here()).calls.get("/healthz")
        except httpx.HTTPError as exc:
            raise self._told(exc) from exc

    # Opening and closing

    async def _here(self) -> "_Clients":
        """Return what sends in this loop."""
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():  # the connections are the parent's
            self._clients = WeakKeyDictionary()
            self._process = os.getpid()
        found = self._clients.get(loop)
        if found is None:
            found = self._clients[loop] = _Clients(
                self._client(_POOL, httpx.Timeout(self._patience.timeout, connect=_CONNECT)),
                self._client(_STREAMS, httpx.Timeout(_SILENCE, connect=_CONNECT)),
            )
            await anext(found.life)
        return found

    def _client(self, limits: httpx.Limits, timeout: httpx.Timeout) -> httpx.AsyncClient:
        headers = {"Accept": "application/json"}
        if self.address.token is not None:
            headers["Authorization"] = f"Bearer {self.address.token}"
        if self._tls is True:
            self._tls = ssl.create_default_context()  # once: it reads all authorities there are
        return httpx.AsyncClient(
            base_url=self.address.url,
            headers=headers,
            limits=limits,
            timeout=timeout,
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

    # What went wrong

    def refusal(self, answer: httpx.Response) -> Exception:
        """Return the error that *answer* tells of."""
        try:
            problem = answer.json()
        except (JSONDecodeError, UnicodeDecodeError):
            problem = None
        if isinstance(problem, dict) and "type" in problem:
            return load_error(answer.status_code, problem)
        return self._not_ours(answer.status_code)

    def _not_ours(self, status: int) -> Exception:
        """Return the error for an answer that none of our servers gives."""
        where = f"`{self.address.url}`"
        if status in (401, 403, 407):
            return AccessError(f"{where} refuses ({status}); is `token` a key of this server?")
        if status == 413:
            return QueryError(f"{where} takes nothing so long; send it in parts")
        if status == 504:
            return MemoryTimeoutError(f"{where} did not answer in time ({status})")
        return MemoryConnectionError(
            f"{where} answers with {status}, as no server of memories does; is it the address of "
            "`orbiter-memory serve`?"
        )

    def _told(self, exc: httpx.HTTPError) -> Exception:
        """Return the error for no answer; it names neither the key nor what was sent."""
        where, kind = f"`{self.address.url}`", type(exc).__name__
        if isinstance(exc, httpx.TimeoutException) and not isinstance(exc, httpx.ConnectTimeout):
            return MemoryTimeoutError(
                f"{where} did not answer in {self._patience.timeout:g} seconds ({kind})"
            )
        if _is_unsent(exc):
            return MemoryConnectionError(
                f"{where} cannot be reached ({kind}); does `orbiter-memory serve` run there?"
            )
        return MemoryConnectionError(
            f"{where} broke off before it answered ({kind}); what was asked may be done or not"
        )


def _is_unsent(exc: httpx.HTTPError) -> bool:
    return isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def _is_passing(answer: httpx.Response) -> bool:
    """Tell whether a server that is away may be back soon: not if its store is broken."""
    try:
        kind = str(answer.json()["type"])
    except (ValueError, KeyError, TypeError):  # a proxy's, which knows no better
        return True
    return kind.endswith(_PASSING)


def _is_cut(exc: httpx.HTTPError) -> bool:
    return isinstance(exc, httpx.NetworkError | httpx.RemoteProtocolError)


def _spelled(request: Request) -> str:
    """Return path and query."""
    if not request.query:
        return request.path
    try:
        return f"{request.path}?{urlencode(request.query)}"
    except UnicodeEncodeError as exc:
        raise QueryError(f"`{exc.object!r}` holds half a character, which no id may") from None
