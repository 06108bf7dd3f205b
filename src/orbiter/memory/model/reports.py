"""What a store tells about itself: an item's past, its conversations, its size and its health."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from orbiter.memory.model.items import MemoryItem, MemoryMetadata, Role

__all__ = ["ConversationInfo", "ItemVersion", "Restored", "StoreStats", "Verification"]

SPOKEN: tuple[Role, ...] = ("system", "human", "ai", "tool")
"""The types of the items that conversations are made of."""


@dataclass(frozen=True, slots=True)
class ConversationInfo:
    """One conversation: the messages that name the same user, session, task and agent."""

    metadata: MemoryMetadata
    """Whose it is; the fields that its messages do not name are `None`."""
    items: int
    """How many messages it has."""
    first_at: datetime
    """When its first message was created."""
    last_at: datetime
    """When its last message was created."""


@dataclass(frozen=True, slots=True)
class ItemVersion:
    """One version of an item: what it was, and who made it so, when."""

    item: MemoryItem
    change: Literal["added", "updated", "deleted", "restored"]
    at: datetime
    """When the store wrote it; for a first version that says it was created about then, that."""
    by: str | None
    """Who was named as `by=`; else the item's own agent or user."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What `AgentMemory.restore` did."""

    path: Path
    """The file of the store."""
    items: int
    """How many items it now holds, those that were forgotten aside."""
    replaced: Path | None
    """Where the file that was there before is kept; `None` if there was none."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How much a store holds."""

    items: int
    deleted: int
    """Soft-deleted items, which `purge` removes."""
    versions: int
    """Earlier versions kept for `history`."""
    bytes: int
    """Size on disk, indexes and search structures included."""
    unindexed: int
    """Items that text search still reads one by one until they are indexed."""
    schema: int
    """Version of the tables' layout."""
    unembedded: int = 0
    """Items that wait for their vectors; search by meaning does not find them yet."""
    embedding_error: str | None = None
    """What the embeddings raised last in this process, until they work again."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found. It is true when nothing is wrong, or everything was repaired."""

    checked: int
    """Rows that were read."""
    problems: tuple[str, ...]
    repaired: bool
    """Whether the search structures were built anew."""

    def __bool__(self) -> bool:
        return not self.problems
