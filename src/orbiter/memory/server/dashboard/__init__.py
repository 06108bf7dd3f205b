"""The dashboard: pages over the same memory, rendered here, with nothing from elsewhere."""

from importlib import import_module

from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from orbiter.memory.agent import AgentMemory
from orbiter.memory.server.dashboard.scope_cache import forget_figures
from orbiter.memory.server.dashboard.templating import HERE

__all__ = ["note_erasure", "routes"]

_MODULES = (
    "overview_page",
    "memories_page",
    "memory_page",
    "chats_page",
    "recall_lab",
    "context_lab",
    "playground_page",
    "facts_page",
    "users_page",
    "review_page",
    "fact_review",
    "data_page",
    "store_health",
)


async def note_erasure(memory: AgentMemory) -> None:
    """Drop what is cached of *memory*, as names of somebody who was erased may be in it."""
    forget_figures(memory)


def routes() -> list[BaseRoute]:
    """Return every page, its twin, its parts, and what they look like."""
    page_routes: list[BaseRoute] = []
    for name in _MODULES:
        page_routes += import_module(f"{__name__}.{name}").pages.routes
    return [*page_routes, Mount("/static", _WholeFiles(directory=HERE / "static"), name="static")]


class _WholeFiles(StaticFiles):
    """Static files, always whole: they are small, and ranges have cost others their turn.

    Starlette before 0.49.1 took seconds for a long `Range` header (CVE-2025-62727).
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [each for each in scope["headers"] if each[0] not in (b"range", b"if-range")]
        await super().__call__({**scope, "headers": headers}, receive, send)
