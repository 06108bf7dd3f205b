"""Keys of recent activity, made of a scope, so that all of one user's is found by them."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Query

__all__ = ["OURS", "activity_name", "own_name", "part_of", "pattern_of"]

OURS = "scope-"
"""How the names begin that are made of scopes."""


def part_of(name: str, value: str | None) -> str:
    """Return the part of a name that stands for one field of a scope."""
    return "0" if value is None else blake2b(f"{name}:{value}".encode(), digest_size=12).hexdigest()


def pattern_of(wanted: Mapping[Any, str]) -> str:
    """Return the pattern of all names of a scope and below it."""
    parts = (part_of(name, wanted[name]) if name in wanted else "*" for name in SCOPE_FIELDS)
    return OURS + "-".join(parts)


def own_name(wanted: Mapping[Any, str]) -> str | None:
    """Return the agent's own name if an agent is all that a scope names: that is kept under it."""
    return wanted["agent_id"] if set(wanted) == {"agent_id"} else None


def activity_name(scope: MemoryMetadata) -> str:
    """Return the agent id under which the activity of *scope* is kept.

    An agent that is all a scope names keeps its own. Else each field has a part, a digest of its
    value: whatever a scope names, the ids below it are known by these parts.
    """
    wanted = Query(metadata=scope).wanted
    if set(wanted) == {"agent_id"} and not wanted["agent_id"].startswith(OURS):
        return wanted["agent_id"]
    return OURS + "-".join(part_of(name, wanted.get(name)) for name in SCOPE_FIELDS)
