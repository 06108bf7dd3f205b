"""The dashboard: pages over the same memory, rendered here, with nothing from elsewhere."""

from importlib import import_module

from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from orbiter.memory.server.dashboard._render import HERE

__all__ = ["routes"]

_MODULES = (
    "_home",
    "_memory",
    "_chats",
    "_recall_lab",
    "_context_lab",
    "_facts",
    "_assertions",
    "_map",
    "_review",
    "_decisions",
    "_data",
    "_doctor",
    "_lengthy",
)


def routes() -> list[BaseRoute]:
    """Return every page, its twin, its parts, and what they look like."""
    found: list[BaseRoute] = []
    for name in _MODULES:
        found += import_module(f"{__name__}.{name}").pages.routes
    return [*found, Mount("/static", StaticFiles(directory=HERE / "static"), name="static")]
