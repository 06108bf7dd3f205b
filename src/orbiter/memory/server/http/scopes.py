"""Scope of a request: what it asks for, limited to what its key allows.

A name that is there but empty is refused before any route is looked for: taken for a name that was
left out, it would widen what the request is about to all that its key opens. So is a name that is
not the key's: answered for the key's own, a program could take one user's memories for another's.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from orbiter.memory.agent import AgentMemory, ScopedMemory
from orbiter.memory.agent.interface import check_source
from orbiter.memory.agent.scope import sign_writes
from orbiter.memory.auth import Principal, Role
from orbiter.memory.errors import AccessError, QueryError
from orbiter.memory.model.items import DEFAULT_USER
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.http.state import principal_of, state_of

__all__ = ["SCOPE_PARAMETERS", "ScopeMiddleware", "check_may", "check_names", "handle_of"]

SCOPE_PARAMETERS = (*SCOPE_FIELDS, "everyone", "name", "by", "read_from")
"""What every request may say about whose memories it means, and where it reads them."""

_NAMES = (*SCOPE_FIELDS, "name", "by", "read_from")
_TRUE, _FALSE = ("true", "1", "yes"), ("", "false", "0", "no")


class ScopeMiddleware:
    """Middleware that refuses a scope field that is empty, or not the key's, in any query."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or raise `QueryError` or `AccessError`."""
        if scope["type"] == "http" and scope.get("query_string"):
            query = scope.get("query_string", b"").decode("latin-1")
            pairs = parse_qsl(query, keep_blank_values=True, errors="replace")
            check_names(pairs)
            _check_held(pairs, scope["state"]["principal"])
        await self._app(scope, receive, send)


def check_names(pairs: Iterable[tuple[str, str]]) -> None:
    """Raise `QueryError` if one of *pairs* is a scope field without a value."""
    for name, value in pairs:
        if name in _NAMES and not value:
            raise QueryError(f"`{name}` is empty; give a name, or leave `{name}` out")


def _check_held(pairs: Iterable[tuple[str, str]], principal: Principal) -> None:
    """Raise `AccessError` if one of *pairs* names somebody else than the key does.

    `DEFAULT_USER` is nobody else: so a program says that it names no user.
    """
    for name, value in pairs:
        held = getattr(principal.scope, name) if name in SCOPE_FIELDS else None
        if held not in (None, value) and (name, value) != ("user_id", DEFAULT_USER):
            raise AccessError(
                f"this key is for {name} `{held}`, not `{value}`; leave `{name}` out, or use a key "
                f"for `{value}`"
            )


def handle_of(memory: AgentMemory, principal: Principal, params: Mapping[str, str]) -> ScopedMemory:
    """Return the handle for a request that asks for the scope in *params*.

    What the key names need not be asked for; another name there is an `AccessError`. Only an
    administrator's key that names nobody reaches everyone's memories, and only an administrator
    acts in another's name. A name that is empty is a `QueryError`, also where the key names
    somebody.
    """
    fields = dict(params)
    check_names(fields.items())
    _check_held(fields.items(), principal)
    source = check_source(fields.get("read_from"))
    held = {name: getattr(principal.scope, name) for name in SCOPE_FIELDS}
    is_bound = any(value is not None for value in held.values())
    scope = {
        name: held[name] if held[name] is not None else fields.get(name) for name in SCOPE_FIELDS
    }
    by = fields.get("by") if principal.may("admin") else None
    signed = by or principal.name or None
    wants_everyone = _is_true(fields.get("everyone", "")) and not is_bound
    names_somebody = any(value is not None for value in scope.values())
    if wants_everyone and principal.may("admin"):
        if names_somebody:
            raise QueryError("`everyone=true` and a name cannot be combined; leave one out")
        return memory.unscoped(by=signed, read_from=source)
    if not names_somebody:
        raise QueryError(f"name {_names()}, or everyone=true")
    handle = memory.scope(**scope, name=fields.get("name"), by=signed, read_from=source)
    return handle if principal.source is None else sign_writes(handle, principal.source)


def check_may(connection: HTTPConnection, role: Role) -> None:
    """Raise `AccessError` unless whoever asks may do what *role* may, on this server."""
    if not principal_of(connection).may(role):
        raise AccessError(f"this needs a key with the role `{role}`")
    if role == "write" and state_of(connection).settings.read_only:
        raise AccessError("this server is read-only")


def _names() -> str:
    return f"{', '.join(SCOPE_FIELDS[:-1])} or {SCOPE_FIELDS[-1]}"


def _is_true(text: str) -> bool:
    said = text.lower()
    if said not in _TRUE + _FALSE:
        raise QueryError(f"`everyone` must be `true` or `false`, not `{text}`")
    return said in _TRUE
