"""Error responses as RFC 9457 problems, redacted for the key that asks.

A key that is bound to somebody does not learn where the store is, nor what else this computer
holds: whoever runs the server reads that in the log. An administrator of everyone's, who could
look at the store itself, gets all of it.
"""

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbiter.memory.agent import ForgetResult
from orbiter.memory.auth import Key, KeyStore, Principal
from orbiter.memory.auth.key_file import key_options
from orbiter.memory.auth.principals import open_keys
from orbiter.memory.errors import MemoryError, VersionConflict
from orbiter.memory.model.reports import IN_PAGES, Erasure
from orbiter.memory.wire import dump_error
from orbiter.memory.wire.problems import REQUEST_ID, log_fault

__all__ = [
    "HTTPProblem",
    "ProblemMiddleware",
    "complete_report",
    "is_erasure",
    "problem_for",
    "problem_of",
    "problem_page",
    "problem_response",
    "report_for",
]


_LOG = logging.getLogger(__name__)
_URN = "urn:orbiter-memory:error:"
PROBLEM = "application/problem+json"
_TITLES = {
    400: "Bad Request",
    401: "Key Needed",
    403: "Refused",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Too Slow",
    413: "Too Large",
    415: "Unsupported Media Type",
    421: "Unknown Host",
    429: "Too Many Requests",
    431: "Head Too Large",
    500: "Internal Error",
    503: "Unavailable",
    504: "Out of Time",
}
_FAILED = "the store failed; try again later, or ask the administrator of the server"
_FILE = "a file of this store"
_LEFT = "not everything is proven to be erased; the log of the server says what to do"


ProblemPage = Callable[[Response, Request], Response]
"""Turns a problem into a page; the dashboard registers it as `app.state.problem_page`."""


class HTTPProblem(Exception):  # noqa: N818 - what a guard says, no error of ours
    """A request is refused before it means anything; *status* says which way."""

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})


class ProblemMiddleware:
    """Turns what a handler raises into a problem; nothing passes it but cancellation."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = has_begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except (ConnectionCut, ClientDisconnect):
            raise ConnectionCut from None  # nobody is there to be told
        except Exception as exc:  # noqa: BLE001 - the last one to see it: it is told, and logged if it is a fault
            if isinstance(exc, HTTPProblem) and exc.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                name = REQUEST_ID.get()
                extra = {"request_id": name}
                _LOG.error(
                    "a request failed: %s: %s request=%s", exc.status, exc, name, extra=extra
                )
            response = problem_page(problem_of(exc, Request(scope)), Request(scope))
            if has_begun:
                raise ConnectionCut from None  # half an answer must not look like a whole one
            await response(scope, receive, send)


class ConnectionCut(Exception):  # noqa: N818 - no error: it was told already
    """An answer that had begun cannot be finished, so the connection is cut."""


def problem_of(error: BaseException, request: Request) -> Response:
    """Return the answer for *error*, and log it if it is a fault of ours."""
    if isinstance(error, HTTPProblem):
        return problem_response(error.status, str(error), headers=error.headers)
    if isinstance(error, HTTPException):
        detail = "not found" if error.status_code == 404 else error.detail
        return problem_response(error.status_code, detail, headers=error.headers)
    if isinstance(error, MemoryError | ValueError):
        status, problem = problem_for(getattr(request.state, "principal", None), error)
        if isinstance(error, VersionConflict) and "if-match" in request.headers:
            status = 412
            problem = {**problem, "status": status, "title": HTTPStatus(status).phrase}
        if status < 500 or isinstance(error, MemoryError):
            return JSONResponse(problem, status_code=status, media_type=PROBLEM)
    log_fault(_LOG, "a request", error)
    return problem_response(500, "internal error; the log of the server has the details")


def problem_page(problem: Response, request: Request) -> Response:
    """Return a problem as a page of the dashboard, if a browser has opened one."""
    as_page: ProblemPage | None = request.app.state.problem_page
    if as_page is None or "text/html" not in request.headers.get("accept", ""):
        return problem
    return as_page(problem, request)


def problem_response(
    status: int, detail: str, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a problem that has no class of its own."""
    title = _TITLES.get(status, "Refused")
    content = {
        "type": f"{_URN}{title.replace(' ', '')}",
        "title": title,
        "status": status,
        "detail": detail,
    }
    return JSONResponse(content, status_code=status, headers=headers, media_type=PROBLEM)


def problem_for(principal: Principal | None, error: BaseException) -> tuple[int, dict[str, Any]]:
    """Return the status and the problem that tell *principal* of *error*.

    It is logged if it is a fault of the store, or of a model. What is no error of the family is
    left to the caller to log.
    """
    status, problem = dump_error(error)
    is_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED
    if is_fault and isinstance(error, MemoryError):
        log_fault(_LOG, "a call", error)
    if not is_fault or not _is_held(principal):
        return status, problem
    kept = {name: value for name, value in problem.items() if name != "attributes"}
    return status, {**kept, "detail": _FAILED}


def is_erasure(result: object) -> bool:
    """Tell whether *result* is the report of something that was erased for good."""
    done = result.erasure if isinstance(result, ForgetResult) else result
    return isinstance(done, Erasure) and not done.dry_run


async def complete_report(
    principal: Principal | None, done: Any, keys: KeyStore | None, url: str
) -> Any:
    """Return what *principal* is told of an erasure, with *keys* that still open what is gone."""
    left: list[Key] = []
    if isinstance(done, Erasure) and keys is not None:
        with suppress(MemoryError):  # to erase is what was asked for, and this is beside it
            left = await open_keys(keys, done.erased)
    if left:
        options = key_options(url, keys)
        ways = {key.id: ["orbiter-memory", "keys", "revoke", key.id, *options] for key in left}
        done = replace(done, api_keys={each: shlex.join(way) for each, way in ways.items()})
    return report_for(principal, done)


def report_for(principal: Principal | None, done: Any) -> Any:
    """Return what *principal* is told of an erasure: as much, without the names of files."""
    if isinstance(done, ForgetResult):
        return replace(done, erasure=report_for(principal, done.erasure))
    if not isinstance(done, Erasure) or not _is_held(principal):
        return done
    _log(done.problems)
    files, problems = len(done.files), len(done.problems)
    return replace(
        done,
        files=(_FILE,) * files,
        not_searched=tuple(each if each == IN_PAGES else _FILE for each in done.not_searched),
        problems=(_LEFT,) * problems,
        api_keys={each: f"orbiter-memory keys revoke {each}" for each in done.api_keys},
        store="",
    )


def _is_held(principal: Principal | None) -> bool:
    """Tell whether *principal* may know of some memories only, or has not shown a key yet."""
    return principal is None or principal.is_bound


def _log(problems: Sequence[str]) -> None:
    for each in problems:  # which hold no word of what was erased
        _LOG.error("an erasure left something: %s", each)
