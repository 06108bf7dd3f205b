"""ASGI middleware: host, origin, authentication, CSRF token, rate limit.

It runs before everything else, so that no handler can forget to ask.

The order matters: a head that is none, then a name that is not ours, then a page that is not ours,
then the key, then what a browser must show beside it, then how often. Only then is there a
principal. Who is turned away before a key was seen, or with one that has too many connections, is
not kept: the connection ends.
"""

import asyncio
import base64
import binascii
import hmac
import logging
from contextlib import suppress
from typing import get_args
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbiter.memory.auth import LOCAL, OIDCSettings, Principal, Role, TokenVerifier
from orbiter.memory.auth.oidc import ROLE_PREFIX
from orbiter.memory.auth.principals import ended_key
from orbiter.memory.errors import AccessError, MemoryError
from orbiter.memory.server.api.health import why_not_ready
from orbiter.memory.server.http.access_log import REFUSED_KEY
from orbiter.memory.server.http.browser_security import (
    Headers,
    check_host,
    check_origin,
    harden,
    headers_of,
    is_loopback,
)
from orbiter.memory.server.http.connection_limit import mark_authenticated
from orbiter.memory.server.http.error_responses import HTTPProblem, problem_of
from orbiter.memory.server.http.limits import RateLimiter, check_head
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.shared_limits import Limits
from orbiter.memory.server.http.state import ServerState

__all__ = ["TOKEN_HEADER", "AuthMiddleware"]

TOKEN_HEADER = "X-Orbiter-Token"  # noqa: S105 - the name of a header
_ASK = 'Basic realm="orbiter-memory", Bearer realm="orbiter-memory"'
"""Chromium takes a header for one challenge, and asks its user only if that is `Basic`."""
_SAFE = ("GET", "HEAD")
_FOR_PROGRAMS = ("/v1", "/mcp", "/healthz", "/readyz", "/metrics")
_KEPT = "/static/"
_METADATA = "/.well-known/oauth-protected-resource"
_RESOURCES = tuple(f"{_METADATA}{path}" for path in ("/mcp", "/mcp/kg", "/mcp/openai", "/v1"))
_FORWARDED = frozenset(
    {"forwarded", "via", "x-real-ip", "x-client-ip", "cf-connecting-ip", "true-client-ip"}
)
_LINGER = 2.0
"""Seconds to read on after a refusal: who still sends would not see it if the connection broke."""

_LOG = logging.getLogger(__name__)


class AuthMiddleware:
    """Lets in who may come in, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, *, settings: Settings, limits: Limits) -> None:
        self._app = app
        self._settings = settings
        self._request_limiter = RateLimiter(
            rate=settings.rate, burst=settings.burst, limits=limits, name="asked"
        )
        self._failed = RateLimiter(rate=1, burst=30, limits=limits, name="failed")
        self._logged_error = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                may_keep = scope["path"].startswith(_KEPT) and message["status"] in (200, 304)
                harden(message, may_keep=may_keep)
            await send(message)

        headers = headers_of(scope)
        if _is_metadata(scope):
            await self._describe(scope, headers)(scope, receive, hardened)
            return
        try:
            kind, principal = await self._come_from(scope, headers)
            scope.setdefault("state", {})["principal"] = principal  # the log names who is refused
            mark_authenticated(scope, principal.key_id)
        except HTTPProblem as exc:
            await _turn_away(exc, scope, receive, hardened)
            return
        try:
            _check_opens(scope, principal)
            _check_token(scope, headers, scope["app"].state.orbiter, kind, principal)
            self._request_limiter.take(principal.key_id or "local")
        except HTTPProblem as exc:
            await problem_of(exc, Request(scope))(scope, receive, hardened)
            return
        await self._app(scope, receive, hardened)

    async def _come_from(self, scope: Scope, headers: Headers) -> tuple[str, Principal]:
        """Return how a key was shown, and who a request comes from, or raise `HTTPProblem`."""
        state = scope["app"].state
        server: ServerState = state.orbiter
        allowed = self._settings.allowed_hosts
        # What watches a server calls it by any number or name, and with a key learns more.
        is_probe = scope["path"] == "/readyz" and scope["method"] in _SAFE and "host" in headers
        check_head(scope)
        if not is_probe:
            check_host(scope, headers, port=state.port, allowed=allowed)
        check_origin(scope, headers, port=state.port, allowed=allowed)
        try:
            identified = await self._known(scope, headers, server)
        except MemoryError as exc:
            # Keys that cannot be read open nothing: nobody comes in until they can be. Where they
            # are is for the log alone, once, however often somebody without a key asks.
            if str(exc) != self._logged_error:
                self._logged_error = str(exc)
                _LOG.error("all requests are refused: %s", exc)
            detail = "the keys cannot be read; the log of the server has the details"
            if scope["path"] == "/readyz":
                why = await why_not_ready(server.memory) or "the log of the server has the details"
                detail = f"keys: they cannot be read; {why}"
            raise HTTPProblem(503, detail, headers={"Retry-After": "5"}) from None
        self._logged_error = ""
        if identified is None and is_probe:  # without keys, a strange name may be another site's
            check_host(scope, headers, port=state.port, allowed=allowed)
        return ("", _local(scope, headers)) if identified is None else identified

    async def _known(
        self, scope: Scope, headers: Headers, server: ServerState
    ) -> tuple[str, Principal] | None:
        """Return how a key was shown, and whose it is; `None` on a server without keys."""
        if server.keys is None and server.tokens is None:
            return None
        values = headers.get("authorization", [])
        kind, _, credentials = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        kind = kind.lower()
        token = _password(credentials) if kind == "basic" else credentials.strip()
        is_shown = kind in ("bearer", "basic")
        needs_key, principal = server.tokens is not None, None
        if server.tokens is not None and kind == "bearer" and token.count(".") == 2:
            principal = await _subject(scope, headers, server.tokens, token)
        elif server.keys is not None:
            has_keys, principal = await server.keys.identify(token if is_shown else "")
            needs_key = needs_key or has_keys
        if not needs_key:
            return None
        if is_shown:
            if principal is not None:
                return kind, principal
            self._failed.take(str((scope.get("client") or ("",))[0]))
            if self._settings.with_log and server.keys is not None:
                refused = await ended_key(server.keys, token)
                scope.setdefault("state", {})[REFUSED_KEY] = refused
        raise HTTPProblem(
            401,
            "the key is not valid: it is wrong, expired or revoked"
            if is_shown and token
            else "a key is required: send `Authorization: Bearer KEY`, or in a browser use it as "
            "the password",
            headers={"WWW-Authenticate": _challenge(scope, headers, server, is_wrong=is_shown)},
        )

    def _describe(self, scope: Scope, headers: Headers) -> Response:
        """Return whose tokens this server takes, for clients that have none yet (RFC 9728)."""
        state = scope["app"].state
        scope["route"] = Route(_METADATA, endpoint=AuthMiddleware)  # what the metrics call it
        try:
            check_head(scope)
            check_host(scope, headers, port=state.port, allowed=self._settings.allowed_hosts)
        except HTTPProblem as exc:
            return problem_of(exc, Request(scope))
        oidc = state.orbiter.tokens.settings
        return JSONResponse(
            {
                "resource": _base(scope, headers, oidc) + scope["path"].removeprefix(_METADATA),
                "authorization_servers": [oidc.issuer],
                "bearer_methods_supported": ["header"],
                "scopes_supported": [f"{ROLE_PREFIX}{role}" for role in get_args(Role)],
                "resource_name": "orbiter-memory",
            }
        )


def _is_metadata(scope: Scope) -> bool:
    path = scope["path"]
    return (
        (path == _METADATA or path in _RESOURCES)
        and scope["method"] in _SAFE
        and scope["app"].state.orbiter.tokens is not None
    )


def _base(scope: Scope, headers: Headers, oidc: OIDCSettings) -> str:
    """Return the address that clients call the server by: the audience, if that is a URL."""
    for audience in oidc.audiences:
        parts = urlsplit(audience)
        if parts.scheme in ("http", "https") and parts.netloc:
            return f"{parts.scheme}://{parts.netloc}"
    return f"{scope['scheme']}://{headers['host'][0]}"


def _challenge(scope: Scope, headers: Headers, server: ServerState, *, is_wrong: bool) -> str:
    if server.tokens is None:
        return _ASK
    is_mcp = scope["path"].startswith("/mcp")
    place = f"{_base(scope, headers, server.tokens.settings)}{_METADATA}{'/mcp' if is_mcp else ''}"
    wrong = ', error="invalid_token"' if is_wrong else ""
    ask = f'Bearer realm="orbiter-memory", resource_metadata="{place}"{wrong}'
    return ask if is_mcp else f'Basic realm="orbiter-memory", {ask}'


async def _subject(
    scope: Scope, headers: Headers, tokens: TokenVerifier, token: str
) -> Principal | None:
    """Return who comes with the token of an issuer; `None` if it is not valid."""
    try:
        return await tokens.check(token)
    except AccessError as exc:
        place = f"{_base(scope, headers, tokens.settings)}{_METADATA}"
        ask = f'Bearer error="insufficient_scope", resource_metadata="{place}"'
        raise HTTPProblem(403, str(exc), headers={"WWW-Authenticate": ask}) from None


async def _turn_away(why: HTTPProblem, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer somebody whom nobody knows, and end the connection."""
    why.headers["Connection"] = "close"

    async def keep_open(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "more_body": True}
        await send(message)

    await problem_of(why, Request(scope))(scope, receive, keep_open)
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _local(scope: Scope, headers: Headers) -> Principal:
    """Return who asks a server without keys, if it is asked from this computer."""
    ends = (scope.get("client"), scope.get("server"))
    if not all(end is not None and is_loopback(str(end[0])) for end in ends):
        raise HTTPProblem(
            401,
            "a server without keys accepts requests from its own computer only",
            headers={"WWW-Authenticate": _ASK},
        )
    if any(name in _FORWARDED or name.startswith("x-forwarded") for name in headers):
        raise HTTPProblem(
            403, "a server without keys accepts no requests from a proxy; create a key first"
        )
    return LOCAL


def _check_opens(scope: Scope, principal: Principal) -> None:
    """Refuse a key that names no user, and was not made for all of them."""
    if principal.opens_nothing and scope["path"] not in ("/healthz", "/readyz"):
        raise HTTPProblem(
            403,
            f"the key `{principal.key_id}` names no user, so it opens nobody's memories; create "
            "one with `--user NAME`, or with `--all-users` if it is for those of all users",
        )


def _check_token(
    scope: Scope, headers: Headers, server: ServerState, kind: str, principal: Principal
) -> None:
    """Refuse a change that a browser sends without what our own pages know."""
    if scope["method"] in _SAFE or (kind != "basic" and _is_for_programs(scope["path"])):
        return
    values = headers.get(TOKEN_HEADER.lower(), [])
    right = server.token_for(principal)
    if len(values) != 1 or not hmac.compare_digest(values[0].encode(), right.encode()):
        raise HTTPProblem(
            403,
            f"a change from a browser needs `{TOKEN_HEADER}`; reload the page, and retry. "
            "Programs send the key as `Authorization: Bearer KEY`",
        )


def _is_for_programs(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in _FOR_PROGRAMS)


def _password(credentials: str) -> str:
    try:
        decoded = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return decoded.partition(":")[2]
