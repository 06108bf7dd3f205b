"""What a store, an embedder, a summarizer and a clock must do; whatever does it will serve."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from orbiter.memory.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.reports import ItemVersion

__all__ = [
    "BatchStore",
    "Clock",
    "Embeddings",
    "Lifecycle",
    "MemoryStore",
    "PagedStore",
    "Summarizer",
    "VersionedStore",
]


@runtime_checkable
class MemoryStore(Protocol):
    """Keeps items. `docs/concepts.md` says what each method means in every store."""

    async def add(self, item: MemoryItem) -> None:
        """Store *item*, or update the one with its id; return once it is kept."""
        ...

    async def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None`."""
        ...

    async def search(
        self,
        *,
        query: str = "",
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        limit: int = 10,
    ) -> list[MemoryItem]:
        """Return at most *limit* items that match every given filter."""
        ...

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Remove what matches, or everything; return how many."""
        ...


@runtime_checkable
class BatchStore(Protocol):
    """A store that takes many items at once: all are kept, or none."""

    async def add_many(self, items: Sequence[MemoryItem]) -> None:
        """Store or update every item of *items*, in order, as one step."""
        ...


@runtime_checkable
class VersionedStore(Protocol):
    """A store that keeps what an item was: writes can be conditional, deletions undone."""

    async def add(
        self, item: MemoryItem, *, expected_version: int | None = None, by: str | None = None
    ) -> None:
        """Store *item* over the expected version only, or raise `VersionConflict`."""
        ...

    async def delete(self, item_id: str, *, by: str | None = None) -> bool:
        """Remove one item so that it can be restored; tell whether it was there."""
        ...

    async def restore(self, item_id: str, *, by: str | None = None) -> bool:
        """Bring a removed item back; tell whether there was one."""
        ...

    async def purge(
        self, *, metadata: MemoryMetadata | None = None, deleted_before: datetime | None = None
    ) -> int:
        """Remove for good what was removed; return how many items."""
        ...

    async def history(self, item_id: str) -> list[ItemVersion]:
        """Return every version of an item, oldest first."""
        ...

    async def count(self, *, include_deleted: bool = False) -> int:
        """Return how many items there are."""
        ...


class PagedStore(Protocol):
    """A store whose `search` can be bounded in time and walked page by page."""

    async def search(  # noqa: PLR0913 - the seed's filters and the paging
        self,
        *,
        query: str = "",
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        limit: int = 10,
        before: MemoryItem | str | None = None,
        after: MemoryItem | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[MemoryItem]:
        """Return at most *limit* items, nearest to the cursor."""
        ...


@runtime_checkable
class Lifecycle(Protocol):
    """A store that is opened and closed; both calls may be repeated."""

    async def init(self) -> None:
        """Open it."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


class Embeddings(ABC):
    """Turns text into vectors of one fixed dimension."""

    @abstractmethod
    def embed(self, text: str) -> list[float]:
        """Return the vector of *text*."""

    @abstractmethod
    async def aembed(self, text: str) -> list[float]:
        """Return the vector of *text* without blocking the event loop."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How long every vector is."""


@runtime_checkable
class Summarizer(Protocol):
    """Answers a prompt that holds a conversation with a summary of it."""

    async def summarize(self, prompt: str) -> str:
        """Return the summary that *prompt* asks for."""
        ...


class Clock(Protocol):
    """Tells the time; pass `datetime.now(UTC)` in a lambda, or a manual one in tests."""

    def __call__(self) -> datetime:
        """Return the present instant, timezone-aware."""
        ...
