"""The socket of a server: bound and listening, before anybody is let in."""

import asyncio
import socket
from typing import Any

from orbiter.memory.errors import MemoryConnectionError, QueryError
from orbiter.memory.server.http.settings import Settings

__all__ = ["MAX_WAITING", "Address", "bind_address", "find_addresses", "url_of"]

Address = tuple[Any, Any, Any, Any, Any]
"""What `getaddrinfo` says of an address."""

MAX_WAITING = 2_048
"""Connections that the system holds until they are taken, if it lets us have as many."""


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
    host, port = bound.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 - only shown
    return f"{'https' if settings.tls_cert else 'http'}://{name}:{port}"
