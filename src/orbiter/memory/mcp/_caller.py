"""The calling client: whose memories a call is about, its name, and the key of what it writes."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import MemoryItem

if TYPE_CHECKING:
    from orbiter.memory.mcp._sdk import Context

__all__ = [
    "HandleOfCall",
    "remember_once",
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


_MAX_LIVES = 64
"""How often a text may be changed and said again before it is simply stored."""


async def remember_once(
    handle: ScopedMemory,
    text: str,
    *,
    kind: str,
    tags: Sequence[str] | None = None,
    importance: float | None = None,
    source: str | None = None,
    extra: Mapping[str, object] | None = None,
) -> MemoryItem:
    """Keep *text*; where it is kept already, as it was given here, return that.

    What was forgotten since, or says something else by now, stays as it is, and this is a new
    memory. The names of all these lives follow from what was given, so that writers who meet choose
    the same.
    """
    fields = json.dumps([text, sorted(tags or ()), importance, extra], sort_keys=True)
    digest = blake2b(fields.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    for life in range(_MAX_LIVES):
        item = await handle.remember(
            text,
            tags=tags,
            importance=importance,
            source=source,
            extra=extra,
            idempotency_key=f"{kind}:{digest}:{life}",
        )
        # A repeated key answers with what it stored, also if that was forgotten.
        there = await handle.get(item.id)
        if there is not None and there.content == text:
            return there
    return await handle.remember(text, tags=tags, importance=importance, source=source, extra=extra)
