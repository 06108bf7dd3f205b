"""Making a tool: the smallest schema that says the same, and all four hints.

Every token of a definition is paid in every turn of every conversation, so titles, defaults of
nothing and `null` as an alternative are left out. What is checked is the function's own signature.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel

__all__ = ["Definition", "answer", "make_tool"]

_Schema = dict[str, Any]


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
        annotations=ToolAnnotations(
            title=definition.title,
            read_only_hint=definition.reads,
            destructive_hint=definition.destroys,
            idempotent_hint=definition.repeats,
            open_world_hint=False,
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
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=result.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


def _slim(schema: _Schema) -> _Schema:
    """Return *schema* without what says nothing."""
    found = {name: _slimmed(name, value) for name, value in schema.items() if name != "title"}
    choices = found.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [each for each in choices if each != {"type": "null"}]
        if len(rest) == 1:
            del found["anyOf"]
            found = {**rest[0], **found}
    if found.get("default", ...) in (None, ""):
        del found["default"]
    return found


def _slimmed(name: str, value: Any) -> Any:
    if name in ("properties", "$defs") and isinstance(value, dict):
        return {each: _slim(inner) for each, inner in value.items()}
    if isinstance(value, dict):
        return _slim(value)
    if isinstance(value, list):
        return [_slim(each) if isinstance(each, dict) else each for each in value]
    return value
