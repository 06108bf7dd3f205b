"""How recent activity is named: by what its scope names, so that all of one user's is found."""

from orbiter.memory.backends._episodes.names import OURS, part_of
from orbiter.memory.items import MemoryMetadata
from orbiter.memory.query import SCOPE_FIELDS, Query

__all__ = ["OURS", "activity_name", "part_of"]


def activity_name(scope: MemoryMetadata) -> str:
    """Return the agent id under which the activity of *scope* is kept.

    An agent that is all a scope names keeps its own. Else each field has a part, a digest of its
    value: whatever a scope names, the ids below it are known by these parts.
    """
    wanted = Query(metadata=scope).wanted
    if set(wanted) == {"agent_id"} and not wanted["agent_id"].startswith(OURS):
        return wanted["agent_id"]
    return OURS + "-".join(part_of(name, wanted.get(name)) for name in SCOPE_FIELDS)
