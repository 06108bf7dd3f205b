"""`AgentStore`: the protocol of the store that `AgentMemory` works with, and how it is named."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import Cursor, Order
from orbiter.memory.model.validation import StructuralMeta

if TYPE_CHECKING:
    from orbiter.memory.model.records import Record, Written
    from orbiter.memory.model.reports import ConversationInfo, Erasure

__all__ = ["AgentStore", "AsyncContextStore", "store_label", "store_name"]


@runtime_checkable
class AgentStore(Protocol, metaclass=StructuralMeta):
    """The store that `AgentMemory` works with.

    `AgentMemory(store=…)` takes any `MemoryStore`; one that lacks something of this is used by way
    of a `StoreAdapter`, which does it in the process. Of a whole `AgentStore` more is used if it is
    there: words and vectors (`LexicalStore`, `VectorStore`), the past (`HistoryStore`),
    `MaintainedStore` and `BackupStore`.
    """

    async def init(self) -> None:
        """Open it. May be repeated."""
        ...

    async def close(self) -> None:
        """Close it. May be repeated."""
        ...

    async def __aenter__(self) -> Self:
        """Open it."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        ...

    async def add(
        self,
        item: MemoryItem,
        *,
        expected_version: int | None = None,
        within: MemoryMetadata | None = None,
    ) -> None:
        """Store *item*, over the expected version only, and over no item that is not *within*.

        0 means that there is no such item yet. Else `VersionConflict` or `AccessError` is raised,
        and nothing is written.
        """
        ...

    async def add_many(
        self, items: Sequence[MemoryItem], *, within: MemoryMetadata | None = None
    ) -> None:
        """Store or update every item of *items*, in order, all or none; *within* as for `add`."""
        ...

    async def insert(self, items: Sequence[MemoryItem]) -> bool:
        """Store every item of *items*, or nothing if one of their ids is used; tell which.

        An id is used from its first write on, also after the item was deleted, until that is
        purged, erased or over.
        """
        ...

    async def used_ids(self, item_ids: Sequence[str]) -> set[str]:
        """Return those of *item_ids* that are used, so that `insert` would store nothing."""
        ...

    async def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None`."""
        ...

    async def delete_many(self, item_ids: Sequence[str]) -> int:
        """Remove the items of these ids; return how many were there."""
        ...

    async def count(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Return how many items match *metadata*."""
        ...

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Remove what matches, or everything; return how many."""
        ...

    async def erase(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        by: str | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> "Erasure":
        """Remove for good all that *metadata* names, and check that nothing is left.

        With *item_ids*, only the items of these ids that it names.
        """
        ...

    async def conversations(
        self, *, metadata: MemoryMetadata | None = None, limit: int = 50
    ) -> "list[ConversationInfo]":
        """Return at most *limit* conversations that match *metadata*, most recent first."""
        ...

    async def search(  # noqa: PLR0913 - the filters of a store
        self,
        *,
        query: str = "",
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        limit: int = 10,
        before: MemoryItem | str | Cursor | None = None,
        after: MemoryItem | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Where | None = None,
        order: Order = "time",
    ) -> list[MemoryItem]:
        """Return at most *limit* items, newest first, nearest to the cursor."""
        ...

    async def records(
        self,
        *,
        after: str | None = None,
        limit: int = 1000,
        metadata: MemoryMetadata | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> "list[Record]":
        """Return the next records, in an order that does not change; for export and moving."""
        ...

    async def put_records(
        self,
        records: "Sequence[Record]",
        *,
        within: MemoryMetadata | None = None,
        overwrite: bool = False,
    ) -> "Written":
        """Write records exactly, all or none; return how many were not there so.

        What went on by itself here stays, unless *overwrite*, and is named in the answer.
        """
        ...


class AsyncContextStore(ABC):
    """A store for `async with`: it is opened on entering, and closed on leaving."""

    @abstractmethod
    async def init(self) -> None:
        """Open it. May be repeated."""

    @abstractmethod
    async def close(self) -> None:
        """Close what `init` opened. May be repeated; `init` opens again."""

    async def __aenter__(self) -> Self:
        await self.init()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def store_name(store: object) -> str:
    """Return how errors call *store*: by its class, or that of the store behind an adapter."""
    inner = getattr(store, "store", None) if _is_ours(store) else None
    return type(store).__name__ if inner is None else store_name(inner)


def store_label(store: object) -> str:
    """Return what may be shown of *store*: the URL of one of ours, else its class, as `<ToyStore>`.

    No more of another package's store is shown: its repr or its URL may hold a password.
    """
    url = getattr(store, "url", None) if _is_ours(store) else None
    return str(url or f"<{type(store).__name__}>")


def _is_ours(store: object) -> bool:
    return type(store).__module__.startswith("orbiter.memory.")
