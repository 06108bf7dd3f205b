"""Whether the server lives, whether its store answers, and its counts."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from orbiter.memory.errors import AccessError, MemoryError
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.http.error_responses import problem_response
from orbiter.memory.server.http.state import principal_of, state_of

__all__ = ["routes"]

_SOON = 2.0
"""Seconds after which a store that has not answered counts as one that does not."""


def routes() -> list[BaseRoute]:
    """Return the doors of this module."""
    return [
        Route("/healthz", _alive, methods=["GET"]),
        Route("/readyz", _ready, methods=["GET"]),
        Route("/metrics", _metrics, methods=["GET"]),
    ]


async def _alive(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    """Ask the store for something; what it is does not matter."""
    try:
        async with asyncio.timeout(_SOON):
            await state_of(request).memory.store.get("~ready")
    except (MemoryError, OSError, TimeoutError):
        return problem_response(503, "the store does not respond")
    return JSONResponse({"status": "ready"})


async def _metrics(request: Request) -> Response:
    principal = principal_of(request)
    is_bound = any(getattr(principal.scope, name) is not None for name in SCOPE_FIELDS)
    if is_bound or not principal.may("admin"):
        raise AccessError("metrics need an `admin` key that is not bound to a scope")
    server = state_of(request)
    store: dict[str, float] = {}
    try:
        async with asyncio.timeout(_SOON):
            stats = await server.memory.stats()
        store = {"memories": stats.items, "store_bytes": stats.bytes}
    except (MemoryError, OSError, TimeoutError):
        pass  # a store that cannot count, or not now, is left out: the rest is still of use
    lines = server.metrics.lines(store)
    return PlainTextResponse("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")
