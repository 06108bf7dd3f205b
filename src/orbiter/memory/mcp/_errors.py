"""What went wrong, for a model: what it was, and what to do; never a traceback."""

import logging

from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from orbiter.memory.errors import ItemNotFoundError, MemoryError, VersionConflict

__all__ = ["refused", "told_of"]

_TOOL_WORDS = (
    ("list() shows what there is", "`memory_list` shows what there is"),
    ("start anew without it", "call again without `cursor`"),
    (
        "; `facts.put(key, value)` records another, `facts.retract(id)` takes it back",
        "; it cannot be changed here: add a memory that says what is true now",
    ),
)
"""What an error advises a programmer to do, and what that is for a model."""
_UNKNOWN = "there is no such argument; leave it out. Whose memories these are is settled elsewhere"


def told_of(error: BaseException) -> str:
    """Return what went wrong in words that a model can act on."""
    if isinstance(error, VersionConflict):
        if not error.found:
            return f"the memory `{error.item_id}` was deleted meanwhile; nothing was changed"
        return (
            f"the memory `{error.item_id}` has version {error.found} by now, not "
            f"{error.expected}; nothing was changed. Read it again with `memory_get`, and repeat "
            f"the change with `expected_version` {error.found} if it is still right"
        )
    if isinstance(error, ItemNotFoundError):
        return (
            f"there is no memory `{error.item_id}` here; `memory_search` and `memory_list` show "
            "what there is"
        )
    if isinstance(error, ValidationError):
        return "; ".join(
            _fault(fault["loc"], _UNKNOWN if fault["type"] == "extra_forbidden" else fault["msg"])
            for fault in error.errors()
        )
    if isinstance(error, MemoryError):
        text = str(error)
        for said, way in _TOOL_WORDS:
            text = text.replace(said, way)
        return text
    logging.getLogger("orbiter.memory").error("a call failed", exc_info=error)
    return "the memory failed inside; nobody needs to repeat the call. The server's log says why"


def _fault(place: tuple[int | str, ...], text: str) -> str:
    where = ".".join(str(each) for each in place)
    said = text.removeprefix("Value error, ")
    return f"`{where}`: {said}" if where else said


def refused(text: str) -> CallToolResult:
    """Return the answer to a call that did nothing."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
