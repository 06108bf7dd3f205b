"""One process for REST, MCP and the dashboard, over one `AgentMemory`.

`create_app` is the ASGI application, for any server; `serving` runs it on uvicorn.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from orbiter.memory._lazy import missing_extra
from orbiter.memory.server.http.settings import DEFAULT_PORT, Settings

if TYPE_CHECKING:
    from orbiter.memory.server._app import create_app
    from orbiter.memory.server.http.uvicorn_server import serving

__all__ = ["DEFAULT_PORT", "Settings", "create_app", "serving"]

_HOMES = {"create_app": "_app", "serving": "http.uvicorn_server"}
_NEEDED = ("jinja2", "markupsafe", "mcp", "starlette", "httptools", "uvicorn")
"""What the extra brings."""


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
        try:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        except ModuleNotFoundError as exc:
            if exc.name and exc.name.partition(".")[0] in _NEEDED:
                raise missing_extra(f"a server needs {exc.name}", "server") from exc
            raise


def __dir__() -> list[str]:
    return sorted(__all__)
