"""The socket of a server: bound and listening, before anybody is let in."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from orbiter.memory.errors import MemoryConnectionError, QueryError
from orbiter.memory.server.http.settings import Settings

__all__ = ["MAX_WAITING", "Address", "ask_ready", "bind_address", "find_addresses", "url_of"]

Address = tuple[Any, Any, Any, Any, Any]
"""What `getaddrinfo` says of an address."""

MAX_WAITING = 2_048
"""Connections that the system holds until they are taken, if it lets us have as many."""
_LOCAL = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - only asked
"""How this computer calls a server on all its addresses."""
_PATIENCE = 4.0
"""Seconds that a server has to say whether it is ready: a probe is given 5."""


async def find_addresses(settings: Settings) -> list[Address]:
    """Return the addresses that the host has; `QueryError` if it has none."""
    try:
        return await asyncio.get_running_loop().getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as exc:
        raise QueryError(f"there is no address `{settings.host}`: {exc}") from exc


def bind_address(settings: Settings, addresses: list[Address]) -> socket.socket:
    """Return a socket that listens on one of *addresses*."""
    family, _, _, _, address = min(addresses, key=lambda each: each[0] != socket.AF_INET)
    # By its name: of a socket without, asyncio leaves Nagle's delay on, 40 ms for each answer.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(MAX_WAITING)  # a port that another program took shows here
        bound.setblocking(False)  # noqa: FBT003 - the standard library's
    except OSError as exc:
        bound.close()
        raise MemoryConnectionError(
            f"port {settings.port} of `{settings.host}` cannot be served: {exc.strerror}; "
            "choose another with `--port`, or `--port 0` for any that is free"
        ) from exc
    return bound


def url_of(settings: Settings, bound: socket.socket) -> str:
    """Return the address of a server as this computer calls it."""
    return _url(settings, *bound.getsockname()[:2])


def _url(settings: Settings, host: str, port: int) -> str:
    host = _LOCAL.get(host, host)
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{name}:{port}"


def ask_ready(settings: Settings) -> tuple[str, str | None]:
    """Return the URL of a server that was started with *settings*, and why it is not ready.

    Its certificate is for its public name, which is not the one that it is called by here: it is
    not verified, and nothing is sent but the question.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415

    host = _LOCAL.get(settings.host, settings.host)
    url = _url(settings, host, settings.port)
    connection: Callable[..., HTTPConnection] = HTTPConnection
    if settings.tls_cert:
        import ssl  # noqa: PLC0415 - few need it

        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - of this computer alone
        connection = partial(HTTPSConnection, context=context)
    try:
        with closing(connection(host, settings.port, timeout=_PATIENCE)) as client:
            client.request("GET", "/readyz")
            answer = client.getresponse()
            said = answer.read(MAX_WAITING).decode(errors="replace")
    except (OSError, HTTPException) as exc:
        return url, str(exc) or type(exc).__name__
    return url, None if answer.status == 200 else f"it answers {answer.status} {said}"
