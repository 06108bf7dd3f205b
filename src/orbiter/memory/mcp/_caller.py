"""Whose memories a call is about, and the name that the calling client gives itself."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context

    from orbiter.memory.agent import ScopedMemory

__all__ = ["HandleOfCall", "source_of_call"]

HandleOfCall = Callable[["Context"], "ScopedMemory"]
"""Returns whose memories a call is about; over HTTP, `request_context.request` is its request."""

_NO_NAME = re.compile(r"[^A-Za-z0-9._ -]+")
_LONGEST = 60


def source_of_call(ctx: "Context") -> str:
    """Return `agent:` with the client's name, so that `quarantine` and `undo` can name it.

    It is worth what an agent says, whatever the client calls itself.
    """
    told = ctx.session.client_params
    name = "" if told is None else _NO_NAME.sub("-", told.client_info.name)[:_LONGEST].strip(" -")
    return f"agent:{name}" if name else "agent"
