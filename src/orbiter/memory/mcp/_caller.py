"""The calling client: whose memories a call is about, and its name."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from orbiter.memory.agent import ScopedMemory

if TYPE_CHECKING:
    from orbiter.memory.mcp._sdk import Context

__all__ = [
    "HandleOfCall",
    "source_of_call",
]

HandleOfCall = Callable[["Context"], ScopedMemory]
"""Returns whose memories a call is about; over HTTP, `request_context.request` is its request."""

_NO_NAME = re.compile(r"[^A-Za-z0-9._ -]+")
_LONGEST = 60


def source_of_call(ctx: "Context") -> str:
    """Return `agent:` with the client's name, so that `quarantine` and `undo` can name it.

    It is worth what an agent says, whatever the client calls itself.
    """
    params = ctx.session.client_params
    client = {} if params is None else params.model_dump(mode="json", by_alias=True)["clientInfo"]
    name = _NO_NAME.sub("-", client.get("name", ""))[:_LONGEST].strip(" -")
    return f"agent:{name}" if name else "agent"
