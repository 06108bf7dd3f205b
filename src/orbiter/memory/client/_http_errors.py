"""What an answer that is no success means, and what none at all; nothing of it shows a key."""

import ssl

import httpx

from orbiter.memory.client._read_response import UNREADABLE, Answer
from orbiter.memory.client._server_url import TOKEN_VARIABLE
from orbiter.memory.errors import (
    AccessError,
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
)
from orbiter.memory.wire import load_error

__all__ = ["is_cut", "is_passing", "is_unsent", "no_answer", "refusal"]

_PASSING = ("MemoryConnectionError", "MemoryTimeoutError", "Unavailable")


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
        return QueryError(f"{where} takes nothing so long; send it in parts")
    if status == 504:
        return MemoryTimeoutError(f"{where} did not answer in time ({status})")
    return MemoryConnectionError(
        f"{where} answers with {status}, as no server of memories does; is it the address of "
        "`orbiter-memory serve`?"
    )


def no_answer(exc: Exception, url: str, timeout: float) -> Exception:
    """Return the error for no answer; it does not name what was sent."""
    where, kind = f"`{url}`", type(exc).__name__
    if isinstance(exc, httpx.InvalidURL):
        return QueryError(f"what was asked is too long for an address ({exc})")
    if isinstance(exc, httpx.TimeoutException | MemoryTimeoutError) and not is_unsent(exc):
        return MemoryTimeoutError(f"{where} did not answer in {timeout:g} seconds ({kind})")
    if isinstance(exc, MemoryConnectionError):
        return MemoryConnectionError(f"{where}: {exc}")
    fault = _tls_fault(exc)
    if fault is not None:
        return MemoryConnectionError(f"`{url}` cannot be trusted, or speaks no TLS: {fault}")
    if is_unsent(exc):
        return MemoryConnectionError(
            f"{where} cannot be reached ({kind}); does `orbiter-memory serve` run there?"
        )
    return MemoryConnectionError(
        f"{where} broke off before it answered ({kind}); what was asked may be done or not"
    )


def _tls_fault(exc: BaseException) -> str | None:
    """Return what was wrong with the encryption, and the way out; `None` if nothing was."""
    seen: BaseException | None = exc
    while seen is not None and not isinstance(seen, ssl.SSLError):
        seen = seen.__cause__ or seen.__context__
    if isinstance(seen, ssl.SSLCertVerificationError):
        return (
            f"{seen.verify_message}; if your own authority has signed its certificate, name that "
            "one's file in `SSL_CERT_FILE`"
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
