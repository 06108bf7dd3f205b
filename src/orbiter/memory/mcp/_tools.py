"""Making a tool: the smallest schema that says the same, and all four hints.

Every token of a definition is paid in every turn of every conversation, so titles, defaults of
nothing and `null` as an alternative are left out. What is checked is the function's own signature.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mcp.types import CallToolResult, ToolAnnotations
from pydantic import BaseModel, ValidationError

from orbiter.memory.errors import ItemNotFoundError, MemoryError, VersionConflict
from orbiter.memory.mcp._sdk import Tool
from orbiter.memory.wire.problems import log_fault, status_of

__all__ = ["Definition", "answer", "error_text", "make_tool", "plain", "refused"]


_Schema = dict[str, Any]


_MISTAKES = (*range(400, 500), 501)
"""The statuses of what a caller can mend; the rest are faults of the store or what it needs."""

_MAX_NAME = 256
_MAX_TOLD = 4_000
_TOOL_WORDS = (
    ("list() shows the memories here", "`memory_list` shows the memories here"),
    ("start again without it", "call again without `cursor`"),
    (
        "; `facts.put(key, value)` records a new value, `facts.retract(id)` withdraws this one",
        "; `memory_know` with its key records another value",
    ),
)
"""What an error advises a programmer to do, and what that is for a model."""

_SCOPES = ("user", "session", "task", "agent", "scope", "everyone", "owner")
_SETTLED = "there is no such argument; leave it out. The server decides whose memories these are"


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool: what it does, and what kind of thing that is."""

    run: Callable[..., Awaitable[CallToolResult]]
    title: str
    description: str
    reads: bool = False
    destroys: bool = False
    repeats: bool = True
    """Whether the same call again changes nothing more."""
    is_strict: bool = True
    """Whether an argument that it does not have is a mistake to be told."""


def make_tool(definition: Definition) -> Tool:
    """Return the tool as the SDK has it; its name is the function's."""
    tool = Tool.from_function(
        definition.run,
        title=definition.title,
        description=definition.description,
        annotations=ToolAnnotations.model_validate(
            {
                "title": definition.title,
                "readOnlyHint": definition.reads,
                "destructiveHint": definition.destroys,
                "idempotentHint": definition.repeats,
                "openWorldHint": False,
            }
        ),
    )
    if definition.is_strict:
        # Above all one that would mean somebody else's memories.
        tool.fn_metadata.arg_model.model_config["extra"] = "forbid"
        tool.fn_metadata.arg_model.model_rebuild(force=True)
    tool.parameters = _slim(tool.parameters)
    if tool.fn_metadata.output_schema is not None:
        tool.fn_metadata.output_schema = _slim(tool.fn_metadata.output_schema)
    return tool


def answer(result: BaseModel, text: str) -> CallToolResult:
    """Return *result* for programs, and *text* for a model that is shown no structure."""
    structure = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return CallToolResult.model_validate(
        {"content": [{"type": "text", "text": text}], "structuredContent": structure}
    )


def _slim(schema: _Schema) -> _Schema:
    """Return *schema* without what says nothing."""
    slim = {name: _slimmed(name, value) for name, value in schema.items() if name != "title"}
    choices = slim.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [each for each in choices if each != {"type": "null"}]
        if len(rest) == 1:
            del slim["anyOf"]
            slim = {**rest[0], **slim}
    if slim.get("default", ...) in (None, ""):
        del slim["default"]
    return slim


def _slimmed(name: str, value: Any) -> Any:
    if name in ("properties", "$defs") and isinstance(value, dict):
        return {each: _slim(inner) for each, inner in value.items()}
    if isinstance(value, dict):
        return _slim(value)
    if isinstance(value, list):
        return [_slim(each) if isinstance(each, dict) else each for each in value]
    return value


def error_text(error: BaseException, *, is_far: bool = False, takes: Iterable[str] = ()) -> str:
    """Return what went wrong in words that a model can act on.

    With *is_far* it goes to another computer, which is not told where the store is. The tool that
    was called *takes* arguments of these names.
    """
    if isinstance(error, VersionConflict):
        return _changed(error)
    if isinstance(error, ItemNotFoundError):
        return (
            f"there is no memory `{plain(error.item_id)}` here; `memory_search` and `memory_list` "
            "list the memories"
        )
    if isinstance(error, ValidationError):
        return "; ".join(
            _fault(
                fault["loc"],
                _unknown(fault["loc"], list(takes))
                if fault["type"] == "extra_forbidden"
                else fault["msg"],
            )
            for fault in error.errors()
        )
    is_fault = status_of(error) not in _MISTAKES
    if isinstance(error, MemoryError) and not (is_far and is_fault):
        text = str(error)
        for said, way in _TOOL_WORDS:
            text = text.replace(said, way)
        return _one_line(text, _MAX_TOLD)
    # Never its words: they may be a memory's.
    log_fault(logging.getLogger("orbiter.memory"), "a call", error)
    what = (
        "the store failed; try again"
        if isinstance(error, MemoryError)
        else ("internal error; do not try again")
    )
    return f"{what}. The log of the server has the details"


def _changed(error: VersionConflict) -> str:
    name = plain(error.item_id)
    if not error.found:
        return f"the memory `{name}` was deleted meanwhile; nothing was changed"
    return (
        f"the memory `{name}` has version {error.found} by now, not {error.expected}; nothing was "
        "changed. Read it again with `memory_get`, and repeat the change with `expected_version` "
        f"{error.found} if it is still right"
    )


def plain(name: str, *, most: int = _MAX_NAME) -> str:
    """Return a name that somebody gave as it may stand between backticks.

    An id is free text: it must not look like words of this server, nor steer a terminal.
    """
    return _one_line(name, most).replace("`", "'")


def _one_line(text: str, most: int) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text[:most])
    return printable if len(text) <= most else f"{printable}…"


def _unknown(place: tuple[int | str, ...], takes: list[str]) -> str:
    """Say what to do about an argument that a tool has not."""
    name = str(place[0]) if place else ""
    if name.lower().startswith(_SCOPES):
        return _SETTLED
    near = get_close_matches(name, takes, n=1)
    if len(place) == 1 and near:
        return f"there is no such argument; did you mean `{near[0]}`?"
    listed = f"; there are `{'`, `'.join(takes)}`" if takes and len(place) == 1 else ""
    return f"there is no such argument, leave it out{listed}"


def _fault(place: tuple[int | str, ...], text: str) -> str:
    where = plain(".".join(str(each) for each in place))
    said = text.removeprefix("Value error, ")
    return f"`{where}`: {said}" if where else said


def refused(text: str) -> CallToolResult:
    """Return the answer to a call that did nothing."""
    return CallToolResult.model_validate(
        {"content": [{"type": "text", "text": text}], "isError": True}
    )
