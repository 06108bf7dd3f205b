"""What goes wrong, as an answer: RFC 9457 problems, without a word of what nobody may read."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbiter.memory.errors import MemoryError, VersionConflict
from orbiter.memory.server.http.redaction import problem_for
from orbiter.memory.wire.traceback_location import place_of

__all__ = ["Problems", "Refused", "problem_of", "problem_response", "shown_problem"]

_LOG = logging.getLogger("orbiter.memory.server")
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


class Refused(Exception):  # noqa: N818 - what a guard says, no error of ours
    """A request is refused before it means anything; *status* says which way."""

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})


class Problems:
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
        except (Cut, ClientDisconnect):
            raise Cut from None  # nobody is there to be told
        except Exception as exc:  # noqa: BLE001 - the last one to see it: it is told, and logged if it is a fault
            response = shown_problem(problem_of(exc, Request(scope)), Request(scope))
            if has_begun:
                raise Cut from None  # half an answer must not look like a whole one
            await response(scope, receive, send)


class Cut(Exception):  # noqa: N818 - no error: it was told already
    """An answer that had begun cannot be finished, so the connection is cut."""


def problem_of(error: BaseException, request: Request) -> Response:
    """Return the answer for *error*, and log it if it is a fault of ours."""
    if isinstance(error, Refused):
        return problem_response(error.status, str(error), headers=error.headers)
    if isinstance(error, HTTPException):
        detail = "there is nothing here" if error.status_code == 404 else error.detail
        return problem_response(error.status_code, detail, headers=error.headers)
    if isinstance(error, MemoryError | ValueError):
        status, problem = problem_for(getattr(request.state, "principal", None), error)
        if isinstance(error, VersionConflict) and "if-match" in request.headers:
            status = 412
            problem = {**problem, "status": status, "title": HTTPStatus(status).phrase}
        if status < 500 or isinstance(error, MemoryError):
            return JSONResponse(problem, status_code=status, media_type=PROBLEM)
    _LOG.error("a request failed: %s", place_of(error))
    return problem_response(500, "something is wrong here; the log of the server says where")


def shown_problem(problem: Response, request: Request) -> Response:
    """Return a problem as a page of the dashboard, if a browser has opened one."""
    if not request.app.state.orbiter.settings.with_dashboard:
        return problem
    if "text/html" not in request.headers.get("accept", ""):
        return problem
    from orbiter.memory.server.dashboard.error_pages import as_page  # noqa: PLC0415 - it is optional

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
