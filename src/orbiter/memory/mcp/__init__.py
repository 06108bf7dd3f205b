"""The memory as tools, resources and prompts of the Model Context Protocol.

`build` makes a server over whatever handle a call is for; how messages reach it is for the caller.
Whose memories a call is about is decided there, and never by the model that calls. The protocol's
SDK is loaded by `build`, so that nobody pays for it who serves nothing.
"""

from typing import TYPE_CHECKING, Literal, get_args

from orbiter.memory._lazy import missing_extra
from orbiter.memory.errors import QueryError
from orbiter.memory.mcp._caller import HandleOfCall

if TYPE_CHECKING:
    from orbiter.memory.mcp.sdk_server import MemoryServer

__all__ = ["PROFILES", "HandleOfCall", "Profile", "build"]

Profile = Literal["memory", "kg", "openai"]
"""The tools of the server: `memory`, `kg` (knowledge graph) or `openai` (search and fetch)."""

PROFILES: tuple[Profile, ...] = get_args(Profile)
"""All of them."""


def build(
    handle_of_call: HandleOfCall,
    *,
    tools: Profile = "memory",
    read_only: bool = False,
    name: str = "orbiter-memory",
) -> "MemoryServer":
    """Return a server with the *tools* of a profile; with *read_only*, only those that read."""
    if tools not in PROFILES:
        raise QueryError(f"`tools` must be one of `{'`, `'.join(PROFILES)}`, not `{tools}`")
    try:
        import mcp  # noqa: F401, PLC0415
    except ModuleNotFoundError as exc:
        if exc.name != "mcp":
            raise
        raise missing_extra("the Model Context Protocol needs its SDK", "mcp") from exc
    from orbiter.memory.mcp.sdk_server import build_server  # noqa: PLC0415 - it loads the SDK

    return build_server(handle_of_call, tools=tools, read_only=read_only, name=name)
