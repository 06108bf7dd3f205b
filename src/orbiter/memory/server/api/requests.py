"""Request parsing: query, body and headers as the arguments of a call.

Nothing is guessed and nothing is passed over: a name that the call does not have is refused.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from orbiter.memory.errors import QueryError
from orbiter.memory.server.http.error_responses import HTTPProblem
from orbiter.memory.server.http.json_body import SMALL
from orbiter.memory.server.http.scopes import SCOPE_PARAMETERS, check_names
from orbiter.memory.server.http.state import principal_of, state_of
from orbiter.memory.wire import REQUIRED, TARGET_PARAMS, Operation, Param, parse
from orbiter.memory.wire.calls import load_param, load_text
from orbiter.memory.wire.plain_values import short_repr

__all__ = ["ParsedRequest", "check_query", "parse_request"]

_MAX_FIELDS = 100
_UNSCOPED = ("memory", "audit")


class ParsedRequest:
    """What a request asks: whose memories, of which object, with which arguments."""

    def __init__(
        self, scope: dict[str, str], target: dict[str, Any], arguments: dict[str, Any]
    ) -> None:
        self.scope = scope
        self.target = target
        self.arguments = arguments


def check_query(request: Request, *known: str) -> None:
    """Refuse a query with a field that is neither of *known* nor says whose memories are meant."""
    all_known = (*known, *SCOPE_PARAMETERS)
    unknown = next((name for name in _read_query(request) if name not in all_known), None)
    if unknown is not None:
        way = f"it takes `{'`, `'.join(all_known)}`"
        raise QueryError(f"the query has an unknown field {short_repr(unknown)}; {way}")


async def parse_request(
    request: Request, operation: Operation, named: Mapping[str, str]
) -> ParsedRequest:
    """Return what *request* asks of *operation*; *named* is what the path names."""
    query = _read_query(request)
    is_scoped = operation.target not in _UNSCOPED
    scope = {name: query.pop(name) for name in SCOPE_PARAMETERS if is_scoped and name in query}
    raw = await _read_body(request) if operation.verb != "GET" else b""
    is_long = len(raw) > SMALL

    def read() -> ParsedRequest:
        body = _parsed(raw, in_steps=is_long)
        sides = (TARGET_PARAMS[operation.target], operation.params)
        _refuse_unknown(sides, query, body, is_scoped=is_scoped)
        # A name that the key puts in place of what is asked is still a mistake if it is empty.
        check_names((name, value) for name, value in body.items() if value == "")
        target, arguments = (_read(params, named, query, body) for params in sides)
        return ParsedRequest(scope, target, arguments)

    if not is_long:
        return read()
    return await state_of(request).worker.run(principal_of(request).key_id, read)


def _read(
    params: tuple[Param, ...], named: Mapping[str, str], query: Mapping[str, str], body: Any
) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for param in params:
        name = param.wire_name
        if param.place == "path":
            arguments[param.name] = load_param(param, named[name])
        elif param.place == "query" and name in query:
            arguments[param.name] = load_text(param, query[name])
        elif param.place == "body" and name in body:
            arguments[param.name] = load_param(param, body[name])
        elif param.default is REQUIRED:
            raise QueryError(f"`{name}` is missing in the {param.place}")
    return arguments


def _refuse_unknown(
    sides: tuple[tuple[Param, ...], ...],
    query: Mapping[str, str],
    body: Mapping[str, Any],
    *,
    is_scoped: bool,
) -> None:
    params = [param for side in sides for param in side]
    for place, values in (("query", query), ("body", body)):
        known = [param.wire_name for param in params if param.place == place]
        unknown = next((name for name in values if name not in known), None)
        if unknown is not None:
            all_known = [*known, *(SCOPE_PARAMETERS if is_scoped and place == "query" else ())]
            way = f"it takes `{'`, `'.join(all_known)}`" if all_known else "it takes none"
            places = {param.place for param in params if param.wire_name == unknown}
            if place == "query" and "body" in places:
                way = f'`{unknown}` belongs in the body: `{{"{unknown}": …}}`'
            elif place == "body" and (
                "query" in places or (is_scoped and unknown in SCOPE_PARAMETERS)
            ):
                way = f"`{unknown}` belongs in the query: `?{unknown}=…`"
            raise QueryError(f"the {place} has an unknown field {short_repr(unknown)}; {way}")


def _read_query(request: Request) -> dict[str, str]:
    raw: bytes = request.scope.get("query_string", b"")
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            encoding="utf-8",
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        )
    except ValueError:
        raise HTTPProblem(
            400, "the query cannot be read; write `name=value`, percent-encoded UTF-8, with `&`"
        ) from None
    query = dict(pairs)
    if len(query) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise HTTPProblem(400, f"the query has {short_repr(twice)} twice")
    return query


async def _read_body(request: Request) -> bytes:
    raw = await request.body()
    if not raw or raw.isspace():
        return b""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        raise HTTPProblem(
            415,
            f"a body must be `Content-Type: application/json`, not {short_repr(kind)}; "
            "`curl --json` sends it so",
        )
    return raw


def _parsed(raw: bytes, *, in_steps: bool) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        body = parse(raw.decode("utf-8"), in_steps=in_steps)
    except UnicodeDecodeError:
        raise HTTPProblem(400, "the body is not UTF-8") from None
    except ValueError as exc:
        raise HTTPProblem(400, f"the body is not valid JSON: {exc}") from None
    if not isinstance(body, dict):
        raise HTTPProblem(400, f"the body must be a JSON object, not {short_repr(body)[:100]}")
    return body
