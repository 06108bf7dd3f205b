"""Tools of the library, by name: what they answer quotes memories, and is none itself.

A conversation keeps such an answer as it is. It is never embedded, recalled, summarised or given
to extraction, or each recall would store copies of what it found, also of what is forgotten since.
"""

import re

__all__ = ["AGENT_TOOLS", "MCP_TOOLS", "is_own_tool"]

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

_SERVED = re.compile(
    # Whatever a server of our name has; `search` and `fetch` of others are not ours.
    rf"(?:.*[^a-z])?(?:orbiter[-_]?memory[^a-z].+|{'|'.join(sorted(MCP_TOOLS))})",
    re.DOTALL,
)


def is_own_tool(name: str) -> bool:
    """Tell whether a tool of that name is one of the library's.

    A client may put the name of the server before it, as in `mcp__orbiter-memory__memory_search`.
    """
    return name in AGENT_TOOLS or _SERVED.fullmatch(name.casefold()) is not None
