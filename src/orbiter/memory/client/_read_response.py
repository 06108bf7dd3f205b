"""What a server sends, read with suspicion: never more of it than there may be, and no tricks."""

import asyncio
import json
import math
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from orbiter.memory.client._server_url import TOKEN_VARIABLE
from orbiter.memory.errors import (
    AccessError,
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
)
from orbiter.memory.wire import load_error

__all__ = [
    "MAX_BYTES",
    "UNREADABLE",
    "Answer",
    "is_cut",
    "is_passing",
    "is_unsent",
    "lines_of",
    "loaded",
    "no_answer",
    "read_whole",
    "refusal",
]


MAX_BYTES = 256 * 2**20
"""Most bytes of an answer, or of a line of one, unpacked: what is in memory at a time."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What goes wrong in reading something that is not what it should be."""


_PASSING = ("MemoryConnectionError", "MemoryTimeoutError", "Unavailable")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is here as a whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether what was asked is done."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return what it says; `ValueError` if that is no JSON."""
        return loaded(self.body)


def loaded(text: str | bytes) -> Any:
    """Return what JSON says; `ValueError` for what is none, or nested beyond all measure."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


async def read_whole(
    answer: httpx.Response, *, most: int = MAX_BYTES, until: float = math.inf
) -> Answer:
    """Return an answer once all of it is here; `MemoryConnectionError` if it is too long.

    `MemoryTimeoutError` if it still comes after *until*, by the clock of the loop.
    """
    now = asyncio.get_running_loop().time
    pieces: list[bytes] = []
    size = 0
    async for piece in answer.aiter_bytes():
        size += len(piece)
        if size > most:
            raise _too_long(answer, most)
        if now() > until:
            raise MemoryTimeoutError("the response did not complete in time")
        pieces.append(piece)
    return Answer(answer.status_code, answer.headers, b"".join(pieces))


async def lines_of(answer: httpx.Response, *, most: int = MAX_BYTES) -> AsyncIterator[bytes]:
    """Yield the lines of an answer as they come, without their ends; the last may have none."""
    rest = bytearray()
    async for piece in answer.aiter_bytes():
        if b"\n" in piece:
            *lines, last = piece.split(b"\n")
            lines[0], rest = bytes(rest) + lines[0], bytearray(last)
            for line in lines:
                yield line.removesuffix(b"\r")
        else:
            rest += piece
        if len(rest) > most:
            raise _too_long(answer, most)
    if rest:
        yield bytes(rest).removesuffix(b"\r")


def _too_long(answer: httpx.Response, most: int) -> MemoryConnectionError:
    return MemoryConnectionError(
        f"the answer to `{answer.request.method}` has more than {most:,} bytes, more than "
        "`orbiter-memory serve` ever sends; ask for less at a time"
    )


def refusal(answer: Answer, url: str) -> Exception:
    """Return the error that *answer* of the server at *url* tells of."""
    try:
        problem = answer.json()
        if isinstance(problem, dict) and "type" in problem:
            if answer.status == 401:
                return AccessError(
                    f"`{url}` says: {problem.get('detail')}. A key is given as `token=`, in "
                    f"`{TOKEN_VARIABLE}`, or in a shell with `--token`"
                )
            return load_error(answer.status, problem)
    except UNREADABLE:
        pass  # none of our servers says so
    return _not_ours(answer.status, f"`{url}`")


def _not_ours(status: int, where: str) -> Exception:
    """Return the error for an answer that none of our servers gives."""
    if status in (401, 403, 407):
        return AccessError(f"{where} refuses ({status}); is `token` a key of this server?")
    if status == 413:
        return QueryError(f"{where} refuses a request of this size; send it in parts")
    if status == 504:
        return MemoryTimeoutError(f"{where} did not answer in time ({status})")
    return MemoryConnectionError(
        f"{where} answers with {status}, which `orbiter-memory serve` never does; check the address"
    )


def no_answer(exc: Exception, url: str, timeout: float) -> Exception:
    """Return the error for no answer; it does not name what was sent."""
    where, kind = f"`{url}`", type(exc).__name__
    if isinstance(exc, httpx.InvalidURL):
        return QueryError(f"the request is too long for a URL ({exc})")
    if isinstance(exc, httpx.TimeoutException | MemoryTimeoutError) and not is_unsent(exc):
        return MemoryTimeoutError(f"{where} did not answer in {timeout:g} seconds ({kind})")
    if isinstance(exc, MemoryConnectionError):
        return MemoryConnectionError(f"{where}: {exc}")
    fault = _tls_fault(exc)
    if fault is not None:
        return MemoryConnectionError(
            f"`{url}` has no trusted certificate, or does not use TLS: {fault}"
        )
    if is_unsent(exc):
        return MemoryConnectionError(
            f"{where} cannot be reached ({kind}); does `orbiter-memory serve` run there?"
        )
    return MemoryConnectionError(
        f"{where} closed the connection before it answered ({kind}); the call may or may not "
        "have been carried out"
    )


def _tls_fault(exc: BaseException) -> str | None:
    """Return what was wrong with the encryption, and the way out; `None` if nothing was."""
    seen: BaseException | None = exc
    while seen is not None and not isinstance(seen, ssl.SSLError):
        seen = seen.__cause__ or seen.__context__
    if isinstance(seen, ssl.SSLCertVerificationError):
        return (
            f"{seen.verify_message}; if your own certificate authority signed it, give the "
            "authority's file in `SSL_CERT_FILE`"
        )
    if seen is None:
        return None
    why = seen.reason or seen
    return f"{why}; if it is served without a certificate, its address is `http://…`"


def is_unsent(exc: Exception) -> bool:
    """Tell whether nothing was sent: then it may be sent again, whatever it is."""
    return isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def is_untrusted(exc: Exception) -> bool:
    """Tell whether there is no way to a connection that is safe: no other try finds one."""
    return isinstance(exc, httpx.ConnectError) and _tls_fault(exc) is not None


def is_cut(exc: Exception) -> bool:
    """Tell whether a connection broke, and nobody knows what arrived."""
    return isinstance(exc, httpx.NetworkError | httpx.RemoteProtocolError)


def is_passing(answer: Answer) -> bool:
    """Tell whether a server that is away may be back soon: not if its store is broken."""
    try:
        kind = str(answer.json()["type"])
    except UNREADABLE:  # a proxy's, which knows no better
        return True
    return kind.endswith(_PASSING)
