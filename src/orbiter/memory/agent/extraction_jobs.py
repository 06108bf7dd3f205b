"""Items that the library keeps for itself among the memories: extraction jobs and summaries.

Neither is a memory, so neither counts against a budget nor says the same as one. A job is besides
not shown unless its type is asked for; a summary is, as a draft.
"""

from collections.abc import Iterable, Mapping, Sequence

from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.agent.runtime import Store
from orbiter.memory.model.derived import EXTRACTION
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = [
    "JOB",
    "NOT_OURS",
    "NO_JOB",
    "cursor_id",
    "free_messages",
    "is_job",
    "without_jobs",
]

JOB = EXTRACTION
"""The type of what says what is to be extracted, and how far that has come."""

NOT_OURS: Where = {"memory_type": {"$nin": [JOB, "summary"]}}
"""The filter for what somebody has said or remembered."""

NO_JOB: Where = {"memory_type": {"$ne": JOB}}
"""The filter for everything but jobs."""

_WAITING = ("open", "failed")


def is_job(item: MemoryItem) -> bool:
    """Tell whether *item* is about extraction."""
    return item.memory_type == JOB


def without_jobs(where: Where | None, memory_type: str | None = None) -> Where | None:
    """Return the filter *where* that leaves jobs out, unless types are asked for."""
    if memory_type is not None or _names_type(where):
        return where
    return {"$and": [where, NO_JOB]} if where else NO_JOB


def _names_type(where: object) -> bool:
    waiting = [where]  # in place of a recursion: it may be too deep, which the store tells
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            if "memory_type" in part:
                return True
            waiting.extend(part.values())
        elif isinstance(part, Sequence) and not isinstance(part, str):
            waiting.extend(part)
    return False


def cursor_id(conversation: MemoryMetadata) -> str:
    """Return the id of what says how far the extraction of a conversation has come."""
    return derived_id(conversation, "extraction cursor")


async def free_messages(store: Store, items: Iterable[MemoryItem]) -> None:
    """Have the messages of jobs that go before they are done found again.

    Without its cursor a conversation is looked at from its beginning; what is queued already, or
    done, is not queued again.
    """
    lost = {
        cursor_id(MemoryMetadata(**{name: getattr(item.metadata, name) for name in SCOPE_FIELDS}))
        for item in items
        if is_job(item) and item.metadata.extra.get("extraction") in _WAITING
    }
    if lost:
        await store.delete_many(sorted(lost))
