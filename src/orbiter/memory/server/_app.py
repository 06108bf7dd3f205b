"""The application: every door of the server, behind one guard."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from orbiter.memory.agent import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.server.api import health, job_routes, rest, sse, transfer_routes
from orbiter.memory.server.api.job_files import JobFiles, folder_for
from orbiter.memory.server.api.jobs import Jobs
from orbiter.memory.server.http.auth_middleware import Guard
from orbiter.memory.server.http.error_responses import Problems, problem_of, shown_problem
from orbiter.memory.server.http.event_feed import Live
from orbiter.memory.server.http.limits import Limited
from orbiter.memory.server.http.prometheus import Measured, Metrics
from orbiter.memory.server.http.scopes import ScopeCheck
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.state import Shared

__all__ = ["create_app"]


def create_app(
    memory: AgentMemory,
    *,
    settings: Settings = Settings(),  # noqa: B008 - it cannot be changed
    keys: KeyFile | None = None,
    port: int | None = None,
) -> Starlette:
    """Return the application over *memory*, for any ASGI server.

    It opens the memory when it starts, and closes it in the end if it was not open before. *keys*
    are who may come in; without any, it answers this computer alone. *port* is the one that
    clients call it by, if it is not that of *settings*.
    """
    metrics = Metrics()
    folder = folder_for(memory, keys)
    files = None if folder is None else JobFiles(folder)
    jobs = Jobs(memory, files, kept=settings.job_kept, read_only=settings.read_only)
    shared = Shared(memory, settings, keys, Live(memory, metrics=metrics), metrics, jobs)
    app = Starlette(
        routes=_routes(),
        middleware=[
            Middleware(Measured, metrics=metrics, with_log=settings.with_log),
            Middleware(Guard, settings=settings),
            Middleware(Problems),
            Middleware(ScopeCheck),
            Middleware(Limited, settings=settings),
        ],
        exception_handlers={HTTPException: _problem},
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.orbiter = shared
    app.state.port = settings.port if port is None else port
    app.state.running = []
    app.state.transfers = Counter()
    app.state.streams = Counter()
    app.state.problem_page = None
    _add_optional(app, settings)
    return app


def _routes() -> list[BaseRoute]:
    # The last one takes everything below `/v1` that none before it does.
    return [
        *health.routes(),
        *sse.routes(),
        *transfer_routes.routes(),
        *job_routes.routes(),
        *rest.routes(),
    ]


def _add_optional(app: Starlette, settings: Settings) -> None:
    if settings.with_mcp:
        from orbiter.memory.server.api.mcp_routes import mount  # noqa: PLC0415 - it may be left out

        found, running = mount(app.state.orbiter)
        app.router.routes.extend(found)
        app.state.running.append(running)
    if settings.with_dashboard:
        from orbiter.memory.server.dashboard import routes  # noqa: PLC0415
        from orbiter.memory.server.dashboard.page import as_page  # noqa: PLC0415
        from orbiter.memory.server.dashboard.slow_parts import Works  # noqa: PLC0415

        app.state.problem_page = as_page
        app.state.works = Works()
        app.state.running.append(app.state.works.running)
        app.router.routes.extend(routes())


def _problem(request: Request, error: Exception) -> Response:
    return shown_problem(problem_of(error, request), request)


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    shared: Shared = app.state.orbiter
    async with AsyncExitStack() as stack:
        stack.callback(shared.worker.close)
        if not shared.memory._core.is_open:  # noqa: SLF001 - we close only what we opened
            await stack.enter_async_context(shared.memory)
        for running in app.state.running:
            await stack.enter_async_context(running())
        shared.live.start()
        stack.push_async_callback(shared.live.stop)
        stack.push_async_callback(shared.jobs.stop)
        await shared.jobs.resume()
        yield
