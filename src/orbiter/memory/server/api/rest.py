"""REST: every request below `/v1` is a call of the table, made as whoever the guard let in."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from orbiter.memory.agent import AgentMemory, Page, ScopedMemory
from orbiter.memory.auth import Principal
from orbiter.memory.errors import AccessError, ItemNotFoundError, QueryError, VersionConflict
from orbiter.memory.model.items import MemoryItem, new_id
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.api.idempotency_check import check_same
from orbiter.memory.server.api.job_routes import answer_job
from orbiter.memory.server.api.openapi import document
from orbiter.memory.server.api.requests import ParsedRequest, parse_request
from orbiter.memory.server.api.routing import BASE, TEMPLATE, allow, is_call, resolve, segments_of
from orbiter.memory.server.http.error_responses import HTTPProblem, complete_report
from orbiter.memory.server.http.json_body import compact_json, is_small, write_json
from orbiter.memory.server.http.scopes import handle_of
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.state import principal_of, state_of
from orbiter.memory.wire import Operation
from orbiter.memory.wire.etags import read_tags

__all__ = ["call_routes", "routes"]


_DOCUMENT = ["openapi.json"]
_PAGE_SIZES = ("limit", "k", "memory_limit")
_SIZES = (*_PAGE_SIZES, "rounds", "budget")
_ONCE = "Idempotency-Key"
_NOT_NAMES = ("name", "by", "read_from")
"""What of the scope of a request is no part of the address of what it made."""

_TAGGED = ("get", "remember", "update", "restore")
"""The calls of a handle whose answer is one memory as it is now."""


_FIRST = 8
"""Memories that are read before it is known how long they are; one may have 9 MiB."""

_DEFAULT = 50
_ENVELOPE = 400
"""Bytes of a memory beside what it holds: the names of its fields, its id and its times."""


def call_routes() -> list[BaseRoute]:
    """Return what answers calls, which no other route does."""
    return [_Calls()]


def routes() -> list[BaseRoute]:
    """Return what answers everything below `/v1` that no route before it does."""
    return [_Rest()]


class _Rest(BaseRoute):
    """One route for all calls: its paths are matched as they came, before they are decoded."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether a request is for this route."""
        path = scope.get("path", "")
        is_ours = scope["type"] == "http" and (path == BASE or path.startswith(f"{BASE}/"))
        return (Match.FULL if is_ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response = await answer(Request(scope, receive))
        if scope["method"] == "HEAD":
            response.body = b""  # the length stays that of the whole
        await response(scope, receive, send)


class _Calls(_Rest):
    """The same for requests that begin as a call does, without looking at every other route."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether a request is for this route."""
        is_ours = scope["type"] == "http" and is_call(scope["path"])
        return (Match.FULL if is_ours else Match.NONE), {}


async def answer(request: Request) -> Response:
    """Return the answer to a request below `/v1`; what is wrong with it is raised."""
    segments = segments_of(request.scope)
    if segments == _DOCUMENT and request.method in ("GET", "HEAD"):
        return _Pieces(write_json(document()), 200, {})
    matched = resolve(segments, request.method)
    if matched == "OPTIONS":
        return Response(status_code=204, headers={"Allow": allow(segments)})
    request.scope[TEMPLATE] = matched.template
    server, principal = state_of(request), principal_of(request)
    operation = matched.operation
    _check_role(operation, principal, server.settings)
    parsed = await parse_request(request, operation, matched.named)
    _check_sizes(operation, parsed, server.settings)
    target = _target(operation, server.memory, principal, parsed)
    key = _read_key(request, operation, parsed)
    await _read_if_match(request, operation, parsed, target)
    arguments = parsed.arguments
    if operation.erases(arguments):
        _check_role(replace(operation, role="admin"), principal, server.settings)
    if operation.is_job(arguments):
        return await answer_job(request, operation, target, arguments)
    result = await _call(request, operation, target, parsed)
    if operation.name == "erase":  # a dry run
        result = await complete_report(principal, result, server.keys, server.memory.url)
    if key is not None:
        stored = [result] if isinstance(result, MemoryItem) else result
        await check_same(key, operation.name, parsed.arguments, stored, target)
    return await _response(request, operation, parsed, result)


# Whether it may be asked


def _check_role(operation: Operation, principal: Principal, settings: Settings) -> None:
    if not principal.may(operation.role):
        raise AccessError(
            f"this needs a key with the role `{operation.role}`; yours has `{principal.role}`"
        )
    if settings.read_only and operation.is_change:
        raise AccessError("this server is read-only; it was started with `--read-only`")


def _check_sizes(operation: Operation, parsed: ParsedRequest, settings: Settings) -> None:
    largest = dict.fromkeys(_PAGE_SIZES, settings.max_page)
    if operation.name == "context":
        largest["budget"] = settings.max_context
        if parsed.arguments.get("budget") is None:
            parsed.arguments["budget"] = settings.max_context
    for name, limit in largest.items():
        size = parsed.arguments.get(name)
        if isinstance(size, int) and size > limit:
            raise QueryError(f"`{name}` must be at most {limit:,} here, not {size:,}")


def _target(
    operation: Operation, memory: AgentMemory, principal: Principal, parsed: ParsedRequest
) -> Any:
    """Return the object of the call, held to what the principal may touch."""
    if operation.target in ("memory", "audit"):
        _hold_to_scope(operation, principal, parsed)
        return memory.audit if operation.target == "audit" else memory
    handle = handle_of(memory, principal, parsed.scope)
    if operation.target == "chat":
        return handle.chat(parsed.target["chat_id"])
    if operation.target == "facts":
        return handle.facts
    if operation.target == "kv":
        return handle.kv
    if operation.target in ("past", "past_facts"):
        past = handle.as_of(parsed.target["moment"])
        return past.facts if operation.target == "past_facts" else past
    return handle


def _hold_to_scope(operation: Operation, principal: Principal, parsed: ParsedRequest) -> None:
    """Let a key of somebody's erase what is theirs, and nobody else's; the rest is everyone's."""
    held = {str(name): getattr(principal.scope, name) for name in SCOPE_FIELDS}
    named = {name: value for name, value in held.items() if value is not None}
    if operation.name == "erase":
        for name, value in named.items():
            if parsed.arguments.get(name) not in (None, value):
                option = name.removesuffix("_id")
                raise AccessError(
                    f"your key is for {option} `{value}`, and cannot erase what is of another"
                )
        parsed.arguments.update(named)
        parsed.arguments["by"] = parsed.arguments.get("by") or principal.name or None
    elif named:
        raise AccessError("this needs a key for everyone's memories; yours is bound to a scope")


# What headers say


def _read_key(request: Request, operation: Operation, parsed: ParsedRequest) -> str | None:
    """Take the key of a request that is to be done once, and return it if a header has it."""
    key = request.headers.get(_ONCE)
    if key is None or all(param.name != "idempotency_key" for param in operation.params):
        return None
    if not key.strip():
        raise QueryError(f"`{_ONCE}` is empty; use a unique string for each request")
    if parsed.arguments.get("idempotency_key", key) != key:
        raise QueryError(f"`{_ONCE}` and `idempotency_key` differ; send one of them")
    parsed.arguments["idempotency_key"] = key
    return key


async def _read_if_match(
    request: Request, operation: Operation, parsed: ParsedRequest, target: Any
) -> None:
    """Take the version that a change expects."""
    if request.method in ("GET", "HEAD"):
        return
    header = request.headers.getlist("if-match")
    if "if-none-match" in request.headers:
        raise HTTPProblem(400, "`If-None-Match` is for a `GET`; a change takes `If-Match`")
    if not header:
        return
    if all(param.name != "expected_version" for param in operation.params):
        raise HTTPProblem(400, "`If-Match` is for a `PATCH` of a memory; send this without it")
    try:
        tags = read_tags(",".join(header))
    except ValueError as exc:
        raise HTTPProblem(400, f"`If-Match` {exc}") from None
    if tags is None:  # `*`: any version will do
        return
    item_id = parsed.arguments["item_id"]
    expected = tags[0] if len(tags) == 1 else None
    if expected is None:
        current = await target.get(item_id)
        if current is None:
            raise ItemNotFoundError(item_id)
        if current.version not in tags:
            raise VersionConflict(item_id, expected=max(tags, default=0), found=current.version)
        expected = current.version
    parsed.arguments["expected_version"] = expected


# The call, and its answer


async def _call(request: Request, operation: Operation, target: Any, parsed: ParsedRequest) -> Any:
    if operation.returns_page:
        return await bounded_page(request, target.list, parsed.arguments)
    if (operation.target, operation.name) == ("scope", "context"):
        return await _context(target, parsed)
    result = await getattr(target, operation.name)(**parsed.arguments)
    if operation.is_absent_404 and result in (None, []):
        way = "`fact-keys` lists the keys" if "key" in parsed.arguments else "`memories` lists them"
        raise ItemNotFoundError(next(iter(parsed.arguments.values())), way=way)
    if operation.verb == "DELETE" and not result:
        raise ItemNotFoundError(parsed.arguments["item"])
    return result


async def _context(handle: ScopedMemory, parsed: ParsedRequest) -> Any:
    """Return a context of a chat, or of memories alone: then of a chat that is nowhere."""
    arguments = dict(parsed.arguments)
    chat_id = arguments.pop("chat_id", None)
    return await handle.chat(new_id() if chat_id is None else chat_id).context(**arguments)


async def _response(
    request: Request, operation: Operation, parsed: ParsedRequest, result: Any
) -> Response:
    headers: dict[str, str] = {}
    is_one = operation.target == "scope" and isinstance(result, MemoryItem)
    if is_one and operation.name in _TAGGED:
        headers["ETag"] = f'"{result.version}"'
        if operation.verb == "GET" and _is_known(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
    if operation.status == 201:
        where = _place(operation, result)
        named = {name: value for name, value in parsed.scope.items() if name not in _NOT_NAMES}
        if where is not None:
            headers["Location"] = f"{BASE}/{where}" + (f"?{urlencode(named)}" if named else "")
    server, key_id = state_of(request), principal_of(request).key_id
    most = None if operation.is_change or operation.returns_page else server.settings.max_answer

    is_quick = is_small(result)

    def write() -> list[bytes]:
        dumped = operation.returns.dump(result)
        if is_quick:
            return [compact_json(dumped).encode()]
        return write_json(dumped, most=most, way=_way(operation))

    pieces = write() if is_quick else await server.worker.run(key_id, write)
    return _Pieces(pieces, operation.status, headers)


def _way(operation: Operation) -> str:
    """Return how to ask for less."""
    sizes = [param.name for param in operation.params if param.name in _SIZES]
    return f"ask for less with `{'` or `'.join(sizes)}`" if sizes else "`export` streams everything"


def _place(operation: Operation, result: Any) -> str | None:
    if operation.id == "scope.remember":
        return f"memories/{quote(result.id, safe='')}"
    return f"chats/{quote(result.id, safe='')}/messages" if operation.id == "chat.fork" else None


def _is_known(request: Request, tag: str) -> bool:
    header = request.headers.get("if-none-match", "")
    tags = [each.strip().removeprefix("W/") for each in header.split(",")]
    return tag in tags or tags == ["*"]


class _Pieces(Response):
    """An answer that is sent piece by piece, as fast as its reader takes them."""

    def __init__(self, pieces: list[bytes], status: int, headers: dict[str, str]) -> None:
        length = {"content-length": str(sum(map(len, pieces)))}
        super().__init__(None, status, {**headers, **length}, media_type="application/json")
        self._pieces = pieces

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        """Send it."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        pieces = [b""] if scope["method"] == "HEAD" else self._pieces
        for piece in pieces[:-1]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": pieces[-1], "more_body": False})


async def bounded_page(
    request: Request, read: Callable[..., Awaitable[Page]], arguments: Mapping[str, Any]
) -> Page:
    """Return the page that *read* returns for *arguments*, or the part of it that is not too long.

    It is read in parts, so that no more than one part too many is ever in memory.
    """
    server, key_id = state_of(request), principal_of(request).key_id
    limit: int = arguments.get("limit", _DEFAULT)
    max_bytes = server.settings.max_page_bytes
    cursor: str | None = arguments.get("cursor")
    items: list[MemoryItem] = []
    ended: dict[str, str] = {}
    size, step = 0, _FIRST
    while True:
        part_limit = min(step, limit - len(items)) if limit > 0 else limit
        page = await read(**{**arguments, "limit": part_limit, "cursor": cursor})
        if is_small(page):
            sizes = _sizes(page)
        else:
            sizes = await server.worker.run(key_id, partial(_sizes, page))
        fits = _fitting(sizes, max_bytes - size, is_first=not items)
        if fits < len(page):
            if fits:
                page = await read(**{**arguments, "limit": fits, "cursor": cursor})
            else:
                page = Page([], next=cursor)
            return Page([*items, *page], next=page.next, ended={**ended, **page.ended})
        items += page
        ended |= page.ended
        size, cursor = size + sum(sizes), page.next
        if cursor is None or len(items) >= limit or size >= max_bytes:
            return Page(items, next=cursor, ended=ended)
        step = max(1, min(limit, int((max_bytes - size) * len(items) / max(size, 1))))


def _sizes(items: Sequence[MemoryItem]) -> list[int]:
    return [_size(each) for each in items]


def _fitting(sizes: Sequence[int], room: int, *, is_first: bool) -> int:
    """Return how many of the next memories have room; the first of a page always has."""
    for count, size in enumerate(sizes):
        room -= size
        if room < 0 and (count or not is_first):
            return count
    return len(sizes)


def _size(item: MemoryItem) -> int:
    """Return about how many bytes of JSON a memory is, whatever fields its class has."""
    extra = item.metadata.extra
    size = _ENVELOPE + (_weight(extra) if extra else 2)
    return size + sum(_weight(each) if each else 2 for each in vars(item).values())


def _weight(value: object) -> int:
    if isinstance(value, str):
        return _length(value)
    if isinstance(value, dict):
        return 2 + sum(_length(str(name)) + 2 + _weight(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(_weight(inner) + 1 for inner in value)
    return 8


def _length(text: str) -> int:
    if text.isascii() and text.isprintable() and "\\" not in text and '"' not in text:
        return len(text) + 2
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))
