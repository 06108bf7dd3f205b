"""Whether the server lives, whether it is ready for requests, and its counts.

`/healthz` and `/readyz` tell their status to anybody, as what starts and watches a server has no
key, and calls it by its number. Why a server is not ready is for those with a key.
"""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbiter.memory.agent import AgentMemory
from orbiter.memory.errors import AccessError, MemoryError
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.http.browser_security import harden
from orbiter.memory.server.http.error_responses import HTTPProblem, problem_of, problem_response
from orbiter.memory.server.http.limits import check_head
from orbiter.memory.server.http.state import ServerState, principal_of, state_of
from orbiter.memory.wire.problems import reason_of

__all__ = ["ProbeMiddleware", "metrics_text", "routes", "why_not_ready"]

_SOON = 2.0
"""Seconds after which a store that has not answered counts as one that does not."""
_ROOM = 32 * 2**20
"""Bytes that must be free where a file is, for writes to go on."""


def routes() -> list[BaseRoute]:
    """Return the doors of this module."""
    return [
        Route("/healthz", _alive, methods=["GET"]),
        Route("/readyz", _ready, methods=["GET"]),
        Route("/metrics", _metrics, methods=["GET"]),
    ]


class ProbeMiddleware:
    """Answers probes without a key by their status alone; it stands before whoever asks for one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._is_ready: asyncio.Task[bool] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a probe, or pass the request on."""
        is_probe = scope["type"] == "http" and scope["path"] in ("/healthz", "/readyz")
        if not is_probe or scope["method"] not in ("GET", "HEAD") or _asks_why(scope):
            await self._app(scope, receive, send)
            return
        scope["route"] = Route(scope["path"], _alive)  # what the metrics call it

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                harden(message, may_keep=False)
            await send(message)

        await (await self._answer(scope))(scope, receive, hardened)

    async def _answer(self, scope: Scope) -> Response:
        try:
            check_head(scope)
        except HTTPProblem as exc:
            return problem_of(exc, Request(scope))
        if scope["path"] == "/healthz" or await self._ready(scope["app"].state.orbiter.memory):
            status = "ok" if scope["path"] == "/healthz" else "ready"
            return JSONResponse({"status": status})
        return JSONResponse({"status": "not ready"}, status_code=503)

    async def _ready(self, memory: AgentMemory) -> bool:
        """Tell whether the store answers; all who ask meanwhile share one question."""
        if self._is_ready is None or self._is_ready.done():
            self._is_ready = asyncio.ensure_future(_is_ready(memory))
        return await asyncio.shield(self._is_ready)


def _asks_why(scope: Scope) -> bool:
    """Tell whether somebody shows a key to learn more.

    That a server lives has no reasons, so no key is looked at: a database of keys that is gone must
    not have anybody restart a server that is well.
    """
    has_key = any(name.lower() == b"authorization" for name, _ in scope["headers"])
    return has_key and scope["path"] != "/healthz"


async def _alive(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _is_ready(memory: AgentMemory) -> bool:
    return all(check["ok"] for check in (await _checks(memory)).values())


async def _checks(memory: AgentMemory) -> dict[str, dict[str, Any]]:
    """Return what must be right for requests to be answered, and what is known of it."""
    checks: dict[str, dict[str, Any]] = {"store": {"ok": True}}
    try:
        async with asyncio.timeout(_SOON):
            await memory.store.get("~ready")  # what it is does not matter
    except (MemoryError, OSError, TimeoutError) as exc:
        # Why is for administrators: it may name the address of the store.
        what = {"ok": False, "found": "the store does not respond", "reason": reason_of(exc)}
        return {"store": what}
    free = await _free_bytes(memory)
    if free is not None:
        checks["disk"] = {"ok": free > _ROOM, "found": f"{free // 2**20:,} MiB free"}
    return checks


async def _free_bytes(memory: AgentMemory) -> int | None:
    """Return how much room the disk of a file has; `None` if the store is not a file."""
    path = str(getattr(memory.store, "db_path", ":memory:"))
    if path == ":memory:":
        return None
    return await asyncio.to_thread(_free_beside, Path(path))


def _free_beside(path: Path) -> int:
    return shutil.disk_usage(path.absolute().parent).free


async def why_not_ready(memory: AgentMemory) -> str:
    """Return what keeps requests from being answered, for anybody; empty if nothing does."""
    return _wrong(await _checks(memory), with_reason=False)


def _wrong(checks: dict[str, dict[str, Any]], *, with_reason: bool) -> str:
    texts = []
    for name, check in checks.items():
        reason = check.get("reason") if with_reason else None
        if not check["ok"]:
            texts.append(f"{name}: {check['found']}" + (f": {reason}" if reason else ""))
    return "; ".join(texts)


async def _ready(request: Request) -> Response:
    """Say to somebody with a key what is right, and what is not."""
    memory = state_of(request).memory
    checks = await _checks(memory)
    wrong = _wrong(checks, with_reason=not principal_of(request).is_bound)
    if wrong:
        return problem_response(503, wrong)
    model = getattr(memory.store, "embeddings", None)
    name = None if model is None else getattr(model, "name", type(model).__name__)
    about: dict[str, Any] = {"model": name or "none: words only"}
    try:
        async with asyncio.timeout(_SOON):
            about["schema"] = (await memory.stats()).schema
    except (MemoryError, OSError, TimeoutError):
        pass  # a store that cannot count, or not now, is left out
    return JSONResponse({"status": "ready", "checks": checks, **about})


async def _metrics(request: Request) -> Response:
    principal = principal_of(request)
    is_bound = any(getattr(principal.scope, name) is not None for name in SCOPE_FIELDS)
    if is_bound or not principal.may("admin"):
        raise AccessError("metrics need an `admin` key that is not bound to a scope")
    text = await metrics_text(state_of(request))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def metrics_text(server: ServerState) -> str:
    """Return the counts of a server, of all its workers together, as Prometheus reads them."""
    store: dict[str, float] = {}
    try:
        async with asyncio.timeout(_SOON):
            stats = await server.memory.stats()
        store = {
            "memories": stats.items,
            "store_bytes": stats.bytes,
            "memories_without_vector": stats.unembedded,
        }
    except (MemoryError, OSError, TimeoutError):
        pass  # a store that cannot count, or not now, is left out: the rest is still of use
    with suppress(OSError):
        free = await _free_bytes(server.memory)
        store |= {} if free is None else {"store_free_bytes": free}
    lines = (await server.metrics.total(server.link)).lines(store)
    return "\n".join([*lines, ""])
