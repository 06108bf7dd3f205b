"""What goes wrong, as a page: for whoever opened one, and for nobody else."""

import json
import re

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from orbiter.memory.server.dashboard.page import Ask
from orbiter.memory.server.dashboard.templating import render

__all__ = ["as_page"]

_FOR_PROGRAMS = ("/v1", "/mcp", "/ui", "/static", "/healthz", "/readyz", "/metrics")
_QUOTED = re.compile(r"`([^`]*)`")
_HEADLINES = {
    400: "That cannot be asked",
    403: "Not with this key",
    404: "There is nothing here",
    413: "That is too much at once",
    422: "That cannot be asked",
    429: "A little slower, please",
    500: "Something is wrong here",
    501: "This store cannot do that",
    503: "The store does not answer",
    504: "That took too long",
}


def as_page(problem: Response, request: Request) -> Response:
    """Return a problem as a page, if a browser opened one; else *problem* as it is.

    Parts of pages stay problems, which the page that asked for them tells in a corner.
    """
    path = request.url.path
    is_for_program = path.endswith(".json") or any(
        path == each or path.startswith(f"{each}/") for each in _FOR_PROGRAMS
    )
    is_opened = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if is_for_program or not is_opened or "hx-request" in request.headers:
        return problem
    status = problem.status_code
    told = json.loads(bytes(problem.body))
    frame = Ask(request).frame("Problem", path)
    data = {
        **frame,
        "scope": {},
        "ignored": {},
        "twin": "",
        "status": status,
        "headline": _HEADLINES.get(status, "That did not work"),
        "detail": _sentence(str(told.get("detail", ""))),
    }
    kept = {n: v for n, v in problem.headers.items() if n not in ("content-type", "content-length")}
    return HTMLResponse(render("error.html", data), status, kept)


def _sentence(text: str) -> str:
    told = _QUOTED.sub(r"“\1”", f"{text[:1].upper()}{text[1:]}")
    return told if told.endswith((".", "!", "?")) or not told else f"{told}."
