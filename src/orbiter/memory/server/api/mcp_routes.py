"""The Model Context Protocol over HTTP: `/mcp`, and `/mcp/kg` and `/mcp/openai` for other tools.

There are no sessions: each request is whole in itself, in the protocol's newer era as in the older
one, so that there is no id that another could use, and any process may answer the next request.
Whose memories a call is about follows from the key of its own request, or, where that leaves it
open, from the address that a person has written into a client: `/mcp?user_id=alice`.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from orbiter.memory.agent.default_user import default_user_of
from orbiter.memory.errors import QueryError
from orbiter.memory.mcp import PROFILES, Profile, build
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.http.scopes import handle_of
from orbiter.memory.server.http.state import ServerState, principal_of, state_of

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings

    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.mcp.sdk_server import Context, MemoryServer

__all__ = ["mount"]

_PATHS: dict[Profile, str] = {"memory": "/mcp", "kg": "/mcp/kg", "openai": "/mcp/openai"}
_USER_VARIABLE = "ORBITER_MEMORY_USER"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SCOPE_PARAMETERS = (*SCOPE_FIELDS, "name", "by")
"""What an address may say of whose memories it means: never everyone's, which are no agent's."""


def mount(
    server: ServerState,
) -> tuple[list[BaseRoute], Callable[[], AbstractAsyncContextManager[None]]]:
    """Return the routes, and what must be entered while they are served, once for each time."""
    doors = Doors(server)
    routes: list[BaseRoute] = [
        # What is left out, a stream from the server and the end of a session, is a plain 405.
        Route(path, endpoint=Door(doors, profile), methods=["POST"], name=f"mcp-{profile}")
        for profile, path in _PATHS.items()
    ]
    return routes, doors.open


class Doors:
    """What answers: for each profile, one that reads and writes and one that only reads."""

    def __init__(self, server: ServerState) -> None:
        self._settings = server.settings
        self._memory = server.memory
        self._default_user: str | None = None
        self._managers: dict[tuple[Profile, bool], StreamableHTTPSessionManager] = {}
        self._security: TransportSecuritySettings | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer while the block runs."""
        from mcp.server.transport_security import TransportSecuritySettings  # noqa: PLC0415

        self._security = TransportSecuritySettings(enable_dns_rebinding_protection=True)
        for name in (*_LOOPBACK, *self._settings.allowed_hosts):
            self._allow(name)
        async with AsyncExitStack() as stack:
            for profile in PROFILES:
                for read_only in (False, True):
                    manager = _server(profile, read_only).http_manager(
                        self._security, max_body=self._settings.max_body
                    )
                    await stack.enter_async_context(manager.run())
                    self._managers[profile, read_only] = manager
            try:
                yield
            finally:
                self._managers.clear()

    async def answer(self, profile: Profile, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, which the guard has let in."""
        principal = principal_of(Request(scope))
        read_only = self._settings.read_only or not principal.may("write")
        if principal.key_id is None:
            self._default_user = self._default_user or await default_user_of(self._memory)
            scope["state"]["default_user"] = self._default_user
        server = scope.get("server")
        if server:
            # The guard lets a request call us by the number that it came to; so must the SDK.
            number = str(server[0])
            self._allow(f"[{number}]" if ":" in number else number)
        await self._managers[profile, read_only].handle_request(scope, receive, send)

    def _allow(self, name: str) -> None:
        """Have the SDK's own check let pass what the guard lets pass; that one knows the port."""
        known = self._security
        if known is None or name in known.allowed_hosts:
            return
        names = [name] if name.rpartition(":")[2].isdigit() else [name, f"{name}:*"]
        known.allowed_hosts += names
        known.allowed_origins += [f"{scheme}://{n}" for scheme in ("http", "https") for n in names]


class Door:
    """One path, as an ASGI application."""

    def __init__(self, doors: Doors, profile: Profile) -> None:
        self._doors = doors
        self._profile = profile

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._doors.answer(self._profile, scope, receive, send)


@cache
def _server(profile: Profile, read_only: bool) -> "MemoryServer":  # noqa: FBT001 - a key
    """Return the tools of a profile; they find everything else in the request that they serve."""
    return build(_handle_of_call, tools=profile, read_only=read_only)


def _handle_of_call(ctx: "Context") -> "ScopedMemory":
    request = ctx.request_context.request
    if not isinstance(request, Request):
        raise QueryError("this call has no HTTP request, so it has no user")
    server, principal = state_of(request), principal_of(request)
    query = request.query_params
    fields = {name: query[name] for name in _SCOPE_PARAMETERS if name in query}
    names_nobody = not any(
        name in fields or getattr(principal.scope, name) is not None for name in SCOPE_FIELDS
    )
    if names_nobody and principal.key_id is None:
        # On this computer alone, and without a key: whoever the command line would take it for.
        fields["user_id"] = _named_user() or request.state.default_user
    elif names_nobody:
        raise QueryError(
            "this key is for everyone's memories, and an agent needs a user: add "
            "`?user_id=NAME` to the URL of the server, or use a key created with `--user`"
        )
    return handle_of(server.memory, principal, fields)


def _named_user() -> str | None:
    named = os.environ.get(_USER_VARIABLE)
    if named == "":
        raise QueryError(f"`{_USER_VARIABLE}` is empty on the server; give a name, or unset it")
    return named
