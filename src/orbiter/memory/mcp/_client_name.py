"""Who calls: the name that a client gives itself, as the source of what it writes."""

import re

from mcp.server.mcpserver import Context

__all__ = ["source_of_call"]

_NO_NAME = re.compile(r"[^A-Za-z0-9._ -]+")
_LONGEST = 60


def source_of_call(ctx: Context) -> str:
    """Return `agent:` with the client's name, so that `quarantine` and `undo` can name it.

    It is worth what an agent says, whatever the client calls itself.
    """
    told = ctx.session.client_params
    name = "" if told is None else _NO_NAME.sub("-", told.client_info.name)[:_LONGEST].strip(" -")
    return f"agent:{name}" if name else "agent"
