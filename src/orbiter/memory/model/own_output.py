"""Tools of the library, by name: what they answer quotes memories, and is none itself.

A conversation keeps such an answer as it is. It is never embedded, recalled, summarised or given
to extraction, or each recall would store copies of what it found, also of what is forgotten since.
"""

import re
from collections.abc import Iterator
from typing import Any

from orbiter.memory.model.fences import has_fence
from orbiter.memory.model.tool_calls import ARGUMENTS

__all__ = ["AGENT_TOOLS", "HOSTED_TEXT", "MCP_TOOLS", "hosted_answers", "is_own_tool", "own_calls"]

# The first five are those of `memory_tools`; `memory` is Claude's memory tool over a handle,
# `load_memory` asks the memory service of the Agent Development Kit, `search_memory` the store of
# Strands.
AGENT_TOOLS = frozenset(
    (
        "recall",
        "remember",
        "update",
        "forget",
        "know",
        "memory",
        "load_memory",
        "search_memory",
    )
)
"""Tools that a program gives to a model as functions. Behind a prefix, such a name is others'."""

MCP_TOOLS = frozenset(
    (
        "memory_search",
        "memory_context",
        "memory_get",
        "memory_list",
        "memory_add",
        "memory_know",
        "memory_update",
        "memory_delete",
        "create_entities",
        "create_relations",
        "add_observations",
        "delete_entities",
        "delete_observations",
        "delete_relations",
        "read_graph",
        "search_nodes",
        "open_nodes",
    )
)
"""Tools of the MCP server whose names are its own, behind whatever prefix a client gives them."""

HOSTED_TEXT = {"mcp_call": "output", "mcp_tool_result": "content"}
"""The parts of a message in which a provider says what a server answered it, and where in them."""

_SERVED = re.compile(
    # Whatever a server of our name has; `search` and `fetch` of others are not ours. LibreChat puts
    # the server behind the tool.
    rf"(?:.*[^a-z])?(?:orbiter[-_]?memory[^a-z].+|(?:{'|'.join(sorted(MCP_TOOLS))})(?:_mcp_.+)?)"
    r"|.+_mcp_orbiter[-_]?memory",
    re.DOTALL,
)


def is_own_tool(name: str) -> bool:
    """Tell whether a tool of that name is one of the library's.

    A client may put the name of the server before it, as in `mcp__orbiter-memory__memory_search`.
    """
    return name in AGENT_TOOLS or _SERVED.fullmatch(name.casefold()) is not None


def own_calls(value: object) -> Iterator[dict[str, Any]]:
    """Yield the calls of our tools with arguments in the JSON *value*, of whatever provider."""
    for part in _objects(value):
        name = part.get("name") or part.get("tool_name")
        if not isinstance(name, str) or not any(part.get(each) for each in ARGUMENTS):
            continue
        if is_own_tool(name) or is_own_tool(_served_name(part)):
            yield part


def hosted_answers(native: object) -> Iterator[dict[str, Any]]:
    """Yield what our MCP server answered where a provider calls it: a part of the model's message.

    These are `mcp_call` of OpenAI's Responses, and `mcp_tool_result` of Anthropic's Messages.
    """
    called: set[str] = set()
    for part in _objects(native):
        kind = str(part.get("type"))
        if kind in ("mcp_call", "mcp_tool_use") and is_own_tool(_served_name(part)):
            called.add(str(part.get("id")))
        id = part.get("id" if kind == "mcp_call" else "tool_use_id")
        if kind in HOSTED_TEXT and (
            str(id) in called or has_fence(str(part.get(HOSTED_TEXT[kind])))
        ):
            yield part


def _served_name(part: dict[str, Any]) -> str:
    return f"{part.get('server_label') or part.get('server_name')}__{part.get('name')}"


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inside:
        yield from _objects(each)
