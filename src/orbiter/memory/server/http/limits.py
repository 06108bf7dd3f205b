"""Limits of requests and jobs: size, time, how many, and a token-bucket rate limiter for each key.

A body is whole before any handler sees it, an import's aside, which is written to a file as it
comes. So no handler waits for a client that sends a byte now and then.
"""

import asyncio
import math
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbiter.memory.server.http.error_responses import ConnectionCut, HTTPProblem
from orbiter.memory.server.http.json_body import SMALL, check_values
from orbiter.memory.server.http.settings import Settings, max_body_bytes
from orbiter.memory.server.http.shared_limits import Limits, LocalLimits
from orbiter.memory.tasks.worker_threads import KeyedSemaphore

__all__ = [
    "LONGEST_HEAD",
    "UPLOADS",
    "JobLimits",
    "RateLimiter",
    "RequestLimitsMiddleware",
    "check_head",
]


LONGEST_HEAD = 32 * 1024
"""Most bytes of the line and the headers of a request."""

UPLOADS = frozenset({"/v1/import"})
"""Where a body comes in pieces, and may be as large as an import."""

_SLOW = frozenset({"/v1/export"})
"""Where an answer may take long to begin."""

_LARGE = 2**20
_LARGE_AT_ONCE = 2
"""Bodies of more than `_LARGE` bytes that one key may have in memory at a time; others wait."""

_SLOWEST = 16_000
"""Bytes a second that a body must come with, on average, once `patience` is over."""

_AT_ONCE, _MAX_JOBS = 4, 32
"""Jobs of one key that run at a time (of those that read everything, one), and that may be under
way, queued ones included."""

_LOOK, _SOON = 0.5, 0.01
"""Seconds between two looks whether another worker is done: with a job, and with a request."""


def check_head(scope: Scope) -> None:
    """Refuse a head that is too long, or that gives the length of its body in two ways."""
    line = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    if line + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > LONGEST_HEAD:
        raise HTTPProblem(431, f"request line and headers may have at most {LONGEST_HEAD:,} bytes")
    names = {name for name, _ in scope["headers"]}
    if b"transfer-encoding" in names and (
        b"content-length" in names or scope["http_version"] == "1.0"
    ):
        # A proxy may have read the other one: what we take for a body, it took for a request.
        raise HTTPProblem(400, "`Transfer-Encoding` beside `Content-Length`, or in HTTP/1.0")


class RequestLimitsMiddleware:
    """Holds a request to its size and its time."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._large = KeyedSemaphore(most=_LARGE_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request within its limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_upload = scope["path"] in UPLOADS and scope["method"] == "POST"
        most = (
            self._settings.max_import
            if is_upload
            else max_body_bytes(self._settings, scope["method"], scope["path"])
        )
        _check_length(scope, most)
        body = _Body(receive, most=most, patience=self._settings.patience)
        has_begun = False

        is_slow = is_upload or scope["path"] in _SLOW
        async with _answering(None if is_slow else self._settings.timeout) as deadline:

            async def beginning(message: Message) -> None:
                nonlocal has_begun
                if not has_begun:
                    has_begun = True
                    deadline.reschedule(None)  # a stream goes on as long as somebody reads it
                await send(message)

            if is_upload:
                await self._app(scope, body.piece, beginning)
            elif _may_be_large(scope, most):
                async with self._large.of(scope["state"]["principal"].key_id):
                    await self._app(scope, await _checked(scope, body), beginning)
            else:
                await self._app(scope, await _checked(scope, body), beginning)


async def _checked(scope: Scope, body: "_Body") -> Receive:
    whole = await body.whole()
    if len(whole) > SMALL and any(
        name == b"content-type" and b"json" in value.lower() for name, value in scope["headers"]
    ):
        await check_values(whole)
    return body.replay(whole)


def _may_be_large(scope: Scope, most: int) -> bool:
    """Tell whether a body may have more than `_LARGE` bytes."""
    if most <= _LARGE or scope["method"] in ("GET", "HEAD"):
        return False
    length = next((value for name, value in scope["headers"] if name == b"content-length"), None)
    return length is None or int(length) > _LARGE


class _answering:  # noqa: N801 - used as a function
    """Raise `HTTPProblem` if the block takes longer than *seconds*."""

    def __init__(self, seconds: float | None) -> None:
        self._deadline = asyncio.timeout(seconds)

    async def __aenter__(self) -> asyncio.Timeout:
        return await self._deadline.__aenter__()

    async def __aexit__(self, *raised: object) -> None:
        try:
            await self._deadline.__aexit__(*raised)  # type: ignore[arg-type]  # as they came
        except TimeoutError:
            if self._deadline.expired():
                raise HTTPProblem(504, "this took too long; a change may have been made") from None
            raise


class _Body:
    """The body of a request as it comes: counted, and not waited for without end."""

    def __init__(self, receive: Receive, *, most: int, patience: float) -> None:
        self._receive = receive
        self._most = most
        self._patience = patience
        self._count = 0
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self._waited = 0.0
        self._is_complete = False

    async def piece(self) -> Message:
        """Return the next message, for handlers that read as it comes."""
        if self._is_complete:
            return await self._receive()  # which tells when the client leaves
        # Only what we wait counts, not how long we take to put it away.
        left = self._patience + self._count / _SLOWEST - self._waited
        begun = self._now()
        try:
            async with asyncio.timeout(max(0.0, min(left, self._patience))):
                message = await self._receive()
        except TimeoutError:
            raise HTTPProblem(
                408, "the request body arrived too slowly", headers={"Connection": "close"}
            ) from None
        self._waited += self._now() - begun
        self._count += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._count > self._most:
            raise _too_large(self._most)
        return message

    async def whole(self) -> bytes:
        """Read all of it."""
        pieces: list[bytes] = []
        while not self._is_complete:
            message = await self.piece()
            if message["type"] == "http.disconnect":
                raise ConnectionCut
            pieces.append(message.get("body", b""))
        return b"".join(pieces)

    def replay(self, whole: bytes) -> Receive:
        """Return what gives all of it to a handler at once."""
        waiting: list[Message] = [{"type": "http.request", "body": whole, "more_body": False}]

        async def read() -> Message:
            return waiting.pop() if waiting else await self._receive()

        return read


def _check_length(scope: Scope, most: int) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or int(value[:20]) > most):
            raise _too_large(most)


def _too_large(most: int) -> HTTPProblem:
    # The connection stays open for a while: who still sends would not see the answer if it broke.
    return HTTPProblem(413, f"a request body may have at most {most:,} bytes")


class RateLimiter:
    """One bucket of *burst* tokens for everybody, filled with *rate* tokens a second.

    The buckets are in *limits* under *name*, which workers of one server share.
    """

    def __init__(
        self,
        *,
        rate: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        limits: Limits | None = None,
        name: str = "",
    ) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._limits: Limits = LocalLimits() if limits is None else limits
        self._name = name

    def take(self, who: str) -> None:
        """Take a token of *who*, or raise `HTTPProblem` if there is none."""
        now, left = self._clock(), 0.0

        def taken(before: tuple[float, float] | None) -> tuple[float, float]:
            nonlocal left
            level, since = before or (self._burst, now)
            left = min(self._burst, level + max(0.0, now - since) * self._rate)
            return (left - 1 if left >= 1 else left), now

        self._limits.level(f"{self._name}:{who}", taken)
        if left < 1:
            wait = max(1, math.ceil((1 - left) / self._rate))
            raise HTTPProblem(429, "too many requests", headers={"Retry-After": str(wait)})


class JobLimits:
    """The limits of the jobs of one process, by counts that it shares with the other workers."""

    def __init__(self, counts: Limits) -> None:
        self._counts = counts
        self._running: defaultdict[str | None, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE)
        )
        self._reading: defaultdict[str | None, asyncio.Lock] = defaultdict(asyncio.Lock)

    def begin(self, owner: str | None, *, is_resumed: bool = False) -> None:
        """Count a job of a key until its `end`; `HTTPProblem` with 429 for one too many."""
        if not self._counts.take(f"jobs:{owner}", sys.maxsize if is_resumed else _MAX_JOBS):
            message = f"a key may have at most {_MAX_JOBS} running jobs"
            raise HTTPProblem(429, message, headers={"Retry-After": "5"})

    def end(self, owner: str | None) -> None:
        """Count a job of a key no more."""
        self._counts.give(f"jobs:{owner}")

    @asynccontextmanager
    async def alone(self, once: str) -> AsyncIterator[None]:
        """Have no other request with this `Idempotency-Key` begin, in any worker."""
        name = f"once:{once}"
        while not self._counts.take(name, 1):  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(_SOON)
        try:
            yield
        finally:
            self._counts.give(name)

    @asynccontextmanager
    async def turn(self, owner: str | None, *, is_heavy: bool) -> AsyncIterator[None]:
        """Wait until a key may have one more job at work."""
        async with AsyncExitStack() as stack:
            if is_heavy:
                await stack.enter_async_context(self._reading[owner])
            await stack.enter_async_context(self._running[owner])
            turns = [(f"job runs:{owner}", _AT_ONCE)]
            turns += [(f"job reads:{owner}", 1)] if is_heavy else []
            for name, most in turns:
                while not self._counts.take(name, most):  # noqa: ASYNC110 - of other workers
                    await asyncio.sleep(_LOOK)
                stack.callback(self._counts.give, name)
            yield
