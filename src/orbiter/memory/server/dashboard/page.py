"""Pages and parts of pages: a function returns data, which becomes HTML, or JSON at the twin.

    @page("/facts", "facts.html", title="Facts")
    async def facts(ask: Ask) -> Data: ...          # also /facts.json

    @part("POST", "/ui/facts", "parts/fact.html", role="write")
    async def put(ask: Ask) -> Data: ...            # a piece of a page, for htmx

Nothing else in here knows requests; whose memories a page shows is settled by `Ask.handle` alone.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.auth import Principal, Role
from orbiter.memory.errors import AccessError, QueryError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.server.dashboard.templating import render, to_json
from orbiter.memory.server.http.scopes import check_names, handle_of
from orbiter.memory.server.http.state import ServerState

__all__ = [
    "Answer",
    "Ask",
    "Data",
    "Pages",
    "Toast",
    "as_float",
    "as_number",
    "as_page",
    "scope_of",
]


Data = dict[str, object]
"""The variables of a template, which are also the JSON twin of a page."""

_OF_A_SCOPE = ("cursor", "before", "chat")
"""What an address says that means something else, or nothing, in a wider scope."""

_WIDER = {"/chat": "/chats"}
"""Pages whose scope is their name: without it, there is only the page that lists them."""


_FOR_PROGRAMS = ("/v1", "/mcp", "/ui", "/static", "/healthz", "/readyz", "/metrics")


@dataclass(frozen=True)
class Toast:
    """Data with a message that is shown in a corner of the page."""

    data: Data
    message: str
    undo: str = ""
    """The address to which a button `Undo` posts; it answers with the same part of the page."""
    target: str = ""
    """What that part replaces, as a CSS selector."""


@dataclass(frozen=True)
class Answer:
    """Data, and the status and headers that it is sent with."""

    data: Data
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Ask:
    """A request of a page: its parameters, its scope, and what the reader may do."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.server: ServerState = request.app.state.orbiter
        self.principal: Principal = request.state.principal

    @cached_property
    def scope(self) -> dict[str, str]:
        """The ids that the address narrows the page to, beyond those that the key names."""
        params, held = self.request.query_params, self.principal.scope
        return {
            name: params[name]
            for name in SCOPE_FIELDS
            if params.get(name) and getattr(held, name) is None
        }

    @cached_property
    def handle(self) -> ScopedMemory:
        """The memories that this page is about, and nobody else's."""
        return self.handle_for(self.scope)

    def handle_for(self, scope: Mapping[str, str]) -> ScopedMemory:
        """Return the memories of *scope*, as far as they are the principal's."""
        names_nobody = not Query(metadata=self.principal.scope).wanted
        params = dict(scope) or ({"everyone": "true"} if names_nobody else {})
        if self.principal.key_id is None:
            params["by"] = self.server.settings.dashboard_by  # but not the memory's own user
        return handle_of(self.server.memory, self.principal, params)

    def text(self, name: str, default: str = "") -> str:
        """Return what the address says *name* is."""
        return self.request.query_params.get(name, default)

    def texts(self, **defaults: str) -> dict[str, str]:
        """Return what the address says for each name, and the default of one that it leaves out."""
        return {name: self.text(name) or default for name, default in defaults.items()}

    def number(self, name: str, default: int, *, least: int = 0, most: int = 10**6) -> int:
        """Return a number of the address, or raise `QueryError`."""
        return as_number(name, self.text(name), default, least=least, most=most)

    async def form(self) -> dict[str, str]:
        """Return the fields of a form that was sent."""
        body = await self.request.body()
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=False)
        except UnicodeDecodeError:
            raise QueryError("the form is not UTF-8; submit it from the page") from None
        check_names((name, value.strip()) for name, value in pairs)
        return dict(pairs)

    def common(self) -> Data:
        """Return what every template is given."""
        return {
            "scope": self.scope,
            "scope_query": f"?{urlencode(self.scope)}" if self.scope else "",
            "may_write": self.may("write"),
            "may_admin": self.may("admin"),
        }

    def frame(self, title: str, path: str) -> Data:
        """Return what the template of a whole page is given."""
        return {
            **self.common(),
            "title": title,
            "here": path,
            "pills": [
                (name, value, self._wider(path, [name])) for name, value in self.scope.items()
            ],
            "unnarrowed": self._wider(path, list(self.scope)),
            "twin": f"{twin_of(path)}?{self.request.url.query}",
            "token": self.server.token_for(self.principal),
            "principal": self.principal,
        }

    def _wider(self, path: str, without: list[str]) -> str:
        """Return the address of this page in a scope *without* some of its ids."""
        left = {name: value for name, value in self.scope.items() if name not in without}
        params = self.request.query_params.multi_items()
        kept = [pair for pair in params if pair[0] not in (*SCOPE_FIELDS, *_OF_A_SCOPE) and pair[1]]
        said = [*(() if path in _WIDER else kept), *left.items()]
        where = _WIDER.get(path, path)
        return f"{where}?{urlencode(said)}" if said else where

    def may(self, role: Role) -> bool:
        """Return whether the reader may do what *role* may, here and now."""
        is_change = role != "read"
        return self.principal.may(role) and not (is_change and self.server.settings.read_only)


def as_number(name: str, text: str, default: int, *, least: int, most: int) -> int:
    """Return the number that *text* is, *default* for an empty one, or raise `QueryError`."""
    if not text.strip():
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise QueryError(f"`{name}` must be a number from {least} to {most:,}, not `{text[:40]}`")
    return value


def as_float(name: str, text: str, *, most: float) -> float:
    """Return the number from 0 to *most* that *text* is, or raise `QueryError`."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise QueryError(f"`{name}` must be a number from 0 to {most:g}, not `{text[:40]}`")
    return value


def scope_of(metadata: MemoryMetadata) -> dict[str, str]:
    """Return the ids that *metadata* names."""
    return {str(name): value for name, value in Query(metadata=metadata).wanted.items() if value}


Result = Data | Toast | Answer | Response
Give = Callable[[Ask], Awaitable[Result]]


def twin_of(path: str) -> str:
    """Return where a page is JSON."""
    return "/index.json" if path == "/" else f"{path}.json"


class Pages:
    """The pages and parts of one module."""

    def __init__(self) -> None:
        self.routes: list[BaseRoute] = []

    def page(self, path: str, template: str, *, title: str) -> Callable[[Give], Give]:
        """Add a whole page, and its twin."""

        def add(give: Give) -> Give:
            async def html(request: Request) -> Response:
                ask = Ask(request)
                return await _respond(
                    await give(ask), lambda data: _html(template, ask.frame(title, path), data)
                )

            async def twin(request: Request) -> Response:
                return await _respond(await give(Ask(request)), _json)

            self.routes += [Route(path, html), Route(twin_of(path), twin)]
            return give

        return add

    def part(
        self, verb: str, path: str, template: str | None = None, *, role: Role = "read"
    ) -> Callable[[Give], Give]:
        """Add a piece of a page, which htmx asks for; one that changes something needs *role*."""

        def add(give: Give) -> Give:
            async def piece(request: Request) -> Response:
                ask = Ask(request)
                if not ask.may(role):
                    raise AccessError(_refused(ask, role))
                if verb != "GET":
                    await ask.form()  # refuses an empty name of a scope, whatever the part reads
                return await _respond(
                    await give(ask), lambda data: _html(template, ask.common(), data)
                )

            self.routes.append(Route(path, piece, methods=[verb]))
            return give

        return add


async def _respond(result: Result, write: Callable[[Data], Response]) -> Response:
    """Return the response for what a page gave; a long page is written in a thread."""
    if isinstance(result, Response):
        return result
    answer = _answer(result)
    response = await asyncio.to_thread(write, answer.data)
    response.status_code = answer.status
    response.headers.update(answer.headers)
    return response


def _html(template: str | None, common: Data, data: Data) -> Response:
    return HTMLResponse(render(template, {**common, **data}) if template else "")


def _json(data: Data) -> Response:
    return JSONResponse(to_json(data))


def _refused(ask: Ask, role: Role) -> str:
    if ask.server.settings.read_only:
        return "this server is read-only; start it without `--read-only` to change something"
    return f"this needs a key of the role `{role}`; yours is `{ask.principal.role}`"


def _answer(result: Data | Toast | Answer) -> Answer:
    if isinstance(result, Toast):
        undo = {"undo": result.undo, "target": result.target} if result.undo else {}
        event = {"orbiter:say": {"value": result.message, **undo}}  # ASCII, as headers are
        return Answer(result.data, headers={"HX-Trigger": json.dumps(event)})
    return result if isinstance(result, Answer) else Answer(result)


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
    data = {
        **Ask(request).frame("Problem", path),
        "scope": {},
        "twin": "",
        "status": problem.status_code,
        "detail": json.loads(bytes(problem.body)).get("detail") or "",
    }
    kept = {n: v for n, v in problem.headers.items() if n not in ("content-type", "content-length")}
    return HTMLResponse(render("error.html", data), problem.status_code, kept)
