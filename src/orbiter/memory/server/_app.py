"""The ASGI application: all routes of the server behind its middleware."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from pkgutil import iter_modules

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from orbiter.memory.agent import AgentMemory
from orbiter.memory.auth import FileKeys, KeyFile, KeyStore, TokenVerifier
from orbiter.memory.server.api import health, job_routes, rest, sse, transfer_routes
from orbiter.memory.server.api.job_files import job_store
from orbiter.memory.server.api.jobs import Jobs
from orbiter.memory.server.http.auth_middleware import AuthMiddleware
from orbiter.memory.server.http.error_responses import ProblemMiddleware
from orbiter.memory.server.http.event_feed import EventFeed
from orbiter.memory.server.http.limits import RequestLimitsMiddleware
from orbiter.memory.server.http.prometheus import Metrics, MetricsMiddleware, serve_metrics
from orbiter.memory.server.http.scopes import ScopeMiddleware
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.state import ServerState
from orbiter.memory.server.http.worker_link import Alone

__all__ = ["create_app"]


def create_app(
    memory: AgentMemory,
    *,
    settings: Settings = Settings(),  # noqa: B008 - it cannot be changed
    keys: KeyFile | KeyStore | None = None,
    port: int | None = None,
    link: Alone | None = None,
) -> Starlette:
    """Return the application over *memory*, for any ASGI server.

    It opens the memory when it starts, and closes it in the end if it was not open before. *keys*
    are who may come in; without any, it answers this computer alone. *port* is the one that
    clients call it by, if it is not that of *settings*. *link* leads to the other processes of
    `serve --workers`.
    """
    link = Alone() if link is None else link
    metrics = Metrics()
    store = FileKeys(keys) if isinstance(keys, KeyFile) else keys
    kept, read_only = settings.job_kept, settings.read_only
    records = job_store(memory, store)
    tokens = None if settings.oidc is None else TokenVerifier(settings.oidc)
    jobs = Jobs(
        memory,
        records,
        kept=kept,
        read_only=read_only,
        link=link,
        keys=store,
        takes_tokens=tokens is not None,
    )
    live = EventFeed(memory, metrics=metrics, link=link)
    server = ServerState(memory, settings, store, live, metrics, jobs, tokens, link=link)
    app = _App(
        routes=_routes(),
        middleware=[
            Middleware(MetricsMiddleware, metrics=metrics, with_log=settings.with_log),
            Middleware(health.ProbeMiddleware),
            Middleware(AuthMiddleware, settings=settings, limits=link.limits),
            Middleware(ProblemMiddleware),
            Middleware(ScopeMiddleware),
            Middleware(RequestLimitsMiddleware, settings=settings),
        ],
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.orbiter = server
    app.state.port = settings.port if port is None else port
    app.state.running = []
    app.state.problem_page = None
    _add_optional(app, settings)
    return app


class _App(Starlette):
    """The application, without Starlette's own two layers: `ProblemMiddleware` does their work."""

    def build_middleware_stack(self) -> ASGIApp:
        if self.exception_handlers:  # whoever runs the application has put in their own
            return super().build_middleware_stack()
        app: ASGIApp = self.router
        for layer, args, kwargs in reversed(self.user_middleware):
            app = layer(app, *args, **kwargs)
        return app


def _routes() -> list[BaseRoute]:
    # Calls go first, as most requests are one. The last route takes everything below `/v1` that
    # none before it does.
    return [
        *rest.call_routes(),
        *health.routes(),
        *sse.routes(),
        *transfer_routes.routes(),
        *job_routes.routes(),
        *rest.routes(),
    ]


def _add_optional(app: Starlette, settings: Settings) -> None:
    if settings.with_mcp:
        from orbiter.memory.server.api.mcp_routes import mount  # noqa: PLC0415 - it may be left out

        mcp_routes, running = mount(app.state.orbiter)
        app.router.routes.extend(mcp_routes)
        app.state.running.append(running)
    if settings.with_dashboard:
        from orbiter.memory.server.dashboard import note_erasure, routes  # noqa: PLC0415
        from orbiter.memory.server.dashboard.page import as_page  # noqa: PLC0415
        from orbiter.memory.server.dashboard.slow_parts import SlowParts  # noqa: PLC0415

        app.state.problem_page = as_page
        app.state.slow_parts = SlowParts()
        app.state.running.append(app.state.slow_parts.running)
        app.router.routes.extend(routes())
        server: ServerState = app.state.orbiter
        server.jobs.after_erasure.append(lambda: note_erasure(server.memory))


_CALLED = (
    *("agent", "context", "conversation", "messages", "model", "recall"),
    *("summarizers", "text", "wire"),
)


def _load_modules() -> None:
    """Import what calls use, which is otherwise loaded on first use.

    An import is work of the event loop: next to long texts of others, the first call of a kind
    kept everybody waiting for a third of a second.
    """
    for name in _CALLED:
        package = import_module(f"orbiter.memory.{name}")
        for each in iter_modules(package.__path__, f"{package.__name__}."):
            with suppress(ModuleNotFoundError):  # of an extra that is not installed
                import_module(each.name)


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    server: ServerState = app.state.orbiter
    async with AsyncExitStack() as stack:
        stack.callback(server.worker.close)
        stack.push_async_callback(server.close_keys)
        stack.push_async_callback(server.link.stop)
        if not server.memory._core.is_open:  # noqa: SLF001 - we close only what we opened
            await stack.enter_async_context(server.memory)
        await asyncio.to_thread(_load_modules)
        await server.share_secret()
        settings = server.settings
        # Before MCP, whose task group would wrap what a taken port raises.
        if settings.metrics_port is not None:
            listener = serve_metrics(
                lambda: health.metrics_text(server),
                host=settings.metrics_host,
                port=settings.metrics_port,
                is_shared=server.link.workers > 1,
            )
            app.state.metrics_port = await stack.enter_async_context(listener)
        for running in app.state.running:
            await stack.enter_async_context(running())
        server.live.start()
        stack.push_async_callback(server.live.stop)
        stack.push_async_callback(server.jobs.stop)
        await server.jobs.start()
        server.metrics.share(server.link)
        yield
