"""Protocols: what a store, an embedder, a summarizer and a clock must do.

Whatever does it will serve; `AgentStore`, what `AgentMemory` works with, is in `agent_store`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import CosineQuery, Order, Query, WordMatches
from orbiter.memory.model.reading import WordReader
from orbiter.memory.model.validation import StructuralMeta

if TYPE_CHECKING:
    from orbiter.memory.model import reports

__all__ = [
    "BackupStore",
    "BatchStore",
    "BulkDeleteStore",
    "Clock",
    "ConversationIndex",
    "ConversationStore",
    "DetailStore",
    "Embeddings",
    "HistoryStore",
    "InsertStore",
    "LexicalStore",
    "Lifecycle",
    "MaintainedStore",
    "MemoryStore",
    "NewestMessagesStore",
    "OffloadStore",
    "PagedStore",
    "Reranker",
    "ScoredNeighbours",
    "Summarizer",
    "VectorReader",
    "VectorStore",
    "VersionedStore",
    "check_is_one_text",
    "reads_newest",
]

_T = TypeVar("_T")


@runtime_checkable
class MemoryStore(Protocol, metaclass=StructuralMeta):
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
        """Return the items that match every given filter, at most *limit* of them.

        Fewer only if there are no more: a caller takes a shorter list for all there is.
        """
        ...

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Remove what matches, or everything; return how many."""
        ...


@runtime_checkable
class BatchStore(Protocol, metaclass=StructuralMeta):
    """A store that takes many items at once: all are kept, or none."""

    async def add_many(self, items: Sequence[MemoryItem]) -> None:
        """Store or update every item of *items*, in order, as one step."""
        ...


@runtime_checkable
class InsertStore(Protocol, metaclass=StructuralMeta):
    """A store that can store items only if they are new, as one step: what is done once needs it.

    An id is used from its first write on, also after the item was deleted, until that is purged,
    erased or over.
    """

    async def insert(self, items: Sequence[MemoryItem]) -> bool:
        """Store every item of *items*, or nothing if one of their ids is used; tell which."""
        ...

    async def used_ids(self, item_ids: Sequence[str]) -> set[str]:
        """Return those of *item_ids* that are used, so that `insert` would store nothing."""
        ...


@runtime_checkable
class BulkDeleteStore(Protocol, metaclass=StructuralMeta):
    """A store that removes many items by their ids at once."""

    async def delete_many(self, item_ids: Sequence[str], *, by: str | None = None) -> int:
        """Remove the items of these ids, as `delete` does; return how many were there."""
        ...


@runtime_checkable
class VersionedStore(Protocol, metaclass=StructuralMeta):
    """A store that keeps what an item was: writes can be conditional, deletions undone."""

    async def add(
        self, item: MemoryItem, *, expected_version: int | None = None, by: str | None = None
    ) -> None:
        """Store *item* over the expected version only, or raise `VersionConflict`."""
        ...

    async def delete(
        self, item_id: str, *, by: str | None = None, expected_version: int | None = None
    ) -> bool:
        """Remove one item so that it can be restored; tell whether it was there.

        With *expected_version*, only if it is still that one, or raise `VersionConflict`.
        """
        ...

    async def restore(self, item_id: str, *, by: str | None = None) -> bool:
        """Bring a removed item back; tell whether there was one."""
        ...

    async def purge(
        self, *, metadata: MemoryMetadata | None = None, deleted_before: datetime | None = None
    ) -> int:
        """Remove for good what was removed; return how many items."""
        ...

    async def history(self, item_id: str) -> "list[reports.ItemVersion]":
        """Return every version of an item, oldest first."""
        ...

    async def count(self, *, include_deleted: bool = False) -> int:
        """Return how many items there are."""
        ...


class PagedStore(Protocol):
    """A store whose `search` takes bounds of time and a filter, and can be walked page by page."""

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
        where: Where | None = None,
        order: Order = "time",
    ) -> list[MemoryItem]:
        """Return at most *limit* items, nearest to the cursor.

        With the *order* `insertion` they are of a conversation, whose `session_id` or `task_id`
        *metadata* names, and in the order in which they were added.
        """
        ...


@runtime_checkable
class LexicalStore(Protocol, metaclass=StructuralMeta):
    """A store that finds items by their terms, as `orbiter.memory.text.words` makes them."""

    async def match_words(self, terms: Sequence[str], query: Query) -> WordMatches:
        """Return the items that hold any of *terms* and match *query*, its text aside.

        The filters apply before the cut at `asked.limit`.
        """
        ...


@runtime_checkable
class VectorStore(Protocol, metaclass=StructuralMeta):
    """A store that keeps vectors of its items' passages; an item is as near as its nearest one."""

    @property
    def embeddings(self) -> "Embeddings | None":
        """What makes the vectors; `None` if the store keeps none."""
        ...

    async def nearest(
        self, vector: Sequence[float], query: Query
    ) -> list[tuple[MemoryItem, float]]:
        """Return items that match *query*, its text aside, with their cosines, nearest first.

        The filters apply before the cut at `asked.limit`.
        """
        ...

    async def similarities(
        self, vector: Sequence[float], item_ids: Sequence[str]
    ) -> dict[str, float]:
        """Return the cosine of each of the items that has a vector."""
        ...

    async def catch_up(self, *, within: float | None = None) -> int:
        """Index and embed what waits, for at most *within* seconds; return how many items wait."""
        ...


@runtime_checkable
class VectorReader(Protocol, metaclass=StructuralMeta):
    """A store whose vectors can be had, as for a map of its items."""

    async def vectors(self, item_ids: Sequence[str]) -> dict[str, bytes]:
        """Return, for each item that has them, the vectors of its passages, in order.

        They are of length 1, as little-endian float32, one after the other.
        """
        ...


@runtime_checkable
class DetailStore(Protocol, metaclass=StructuralMeta):
    """A store that keeps the vectors of its items' words beside those of passages."""

    async def details(self, item_ids: Sequence[str]) -> dict[str, list[bytes]]:
        """Return, for each item that has them, the words of each passage, in order.

        A passage is as `Embeddings.aembed_details` gives it.
        """
        ...


@runtime_checkable
class OffloadStore(Protocol, metaclass=StructuralMeta):
    """A store with threads of its own, on which many reads in a row can be done at once."""

    async def offload(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return what *work* returns, which runs on such a thread as far as that is possible.

        It may do nothing but read and compute, as it may be begun again. Items that it reads may
        be others', too: what is handed out must be a copy.
        """
        ...


@runtime_checkable
class ConversationStore(Protocol, metaclass=StructuralMeta):
    """A store that can show what was said around an item."""

    async def around(self, item_ids: Sequence[str], *, span: int) -> list[list[MemoryItem]]:
        """Return stretches of conversation: each item with *span* items before and after it.

        Only what has the same user and session is conversation. A stretch is in the order in which
        it was added, without a session in that of time; stretches that overlap are one, so every
        item stands in one stretch, once.
        """
        ...


@runtime_checkable
class ScoredNeighbours(Protocol, metaclass=StructuralMeta):
    """A store that reads what was said around items, and how near that is, at once."""

    async def around_scored(
        self, item_ids: Sequence[str], query: CosineQuery, *, span: int
    ) -> tuple[list[list[MemoryItem]], dict[str, float]]:
        """Return what `around` does, and the cosines that *query* asks for."""
        ...


@runtime_checkable
class ConversationIndex(Protocol, metaclass=StructuralMeta):
    """A store that can tell which conversations it holds."""

    async def conversations(
        self, *, metadata: MemoryMetadata | None = None, limit: int = 50
    ) -> "list[reports.ConversationInfo]":
        """Return at most *limit* conversations that match *metadata*, most recent first.

        Messages that name the same user, session, task and agent are one conversation; what
        names neither a session nor a task is none.
        """
        ...


@runtime_checkable
class NewestMessagesStore(Protocol, metaclass=StructuralMeta):
    """A store that reads the end of a conversation in one step; others are asked page by page."""

    async def newest_messages(
        self, scope: MemoryMetadata, *, limit: int, rounds: int | None = None
    ) -> tuple[list[MemoryItem], list[MemoryItem], bool]:
        """Return what was added last to just this conversation, the last first.

        That is at most *limit* items, and no more than *rounds* take; then the system messages
        that came before these, and whether there is nothing else. Only what is accepted counts.
        """
        ...


def reads_newest(store: object) -> TypeGuard[NewestMessagesStore]:
    """Tell whether *store* is a `NewestMessagesStore`; every read of a chat asks that.

    To ask `isinstance` of a protocol takes some microseconds.
    """
    return getattr(store, "newest_messages", None) is not None


@runtime_checkable
class Lifecycle(Protocol, metaclass=StructuralMeta):
    """A store that is opened and closed; both calls may be repeated."""

    async def init(self) -> None:
        """Open it."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


@runtime_checkable
class HistoryStore(VersionedStore, Protocol, metaclass=StructuralMeta):
    """A store that can be read as it was: undoing and the past need it."""

    async def as_of(self, moment: datetime) -> list[MemoryItem]:
        """Return items as they were stored at *moment*."""
        ...


@runtime_checkable
class MaintainedStore(Protocol, metaclass=StructuralMeta):
    """A store that counts and checks what it holds, and can embed it again."""

    async def stats(self) -> "reports.StoreStats":
        """Return how much the store holds, and how much of it is still to be indexed."""
        ...

    async def verify(self, *, repair: bool = False) -> "reports.Verification":
        """Check everything that is stored; with *repair*, rebuild the search structures."""
        ...

    async def reindex(self, *, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed every item again; return how many."""
        ...


@runtime_checkable
class BackupStore(Protocol, metaclass=StructuralMeta):
    """A store that is copied to a file and restored from one."""

    async def backup(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Copy the store to a new file while it is in use."""
        ...

    async def restore_backup(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> "reports.Restored":
        """Replace this store, which must be closed, by a copy of a backup."""
        ...


def check_is_one_text(text: object) -> None:
    """Raise `QueryError` for what `embed` is given instead of a text, such as a list of them."""
    if not isinstance(text, str):
        way = "; use `embed_many` for several" if isinstance(text, Sequence) else ""
        raise QueryError(f"`embed` takes one text, not a `{type(text).__name__}`{way}")


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

    def embed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text, in the order given."""
        return [self.embed(text) for text in texts]

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text, in the order given, without blocking the loop."""
        return [await self.aembed(text) for text in texts]

    @property
    def detail_dimension(self) -> int:
        """How long the vector of a word is; 0 if there are none."""
        return 0

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        """Return the vector of each text, as `aembed` gives it, and those of its words.

        These are signed bytes: a row of `detail_dimension` for each word, in the order of the
        words, every number 127 times that of a vector of length 1, rounded. A text may have none,
        and has none where `detail_dimension` is 0.
        """
        return [(vector, b"") for vector in await self.aembed_many(texts)]

    @property
    def reader(self) -> WordReader | None:
        """What judges a question beside notes by the vectors of their words, if there is one."""
        return None

    async def coverage(self, text: str) -> float:  # noqa: ARG002 - of most models it is all one
        """Return how well the model knows the language of *text*, from 0 to 1.

        Recall weighs meaning by it: 0 goes by words alone.
        """
        return 1.0

    @property
    def name(self) -> str:
        """What the model is called; vectors of one name can be compared with each other."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @property
    def replaces(self) -> tuple[str, ...]:
        """The names of models that this one takes the place of.

        A store with vectors of one of them is opened and embeds everything again in the
        background; one with vectors of any other model is refused.
        """
        return ()


@runtime_checkable
class Summarizer(Protocol, metaclass=StructuralMeta):
    """Answers a prompt that holds a conversation with a summary of it."""

    async def summarize(self, prompt: str) -> str:
        """Return the summary that *prompt* asks for."""
        ...


@runtime_checkable
class Reranker(Protocol, metaclass=StructuralMeta):
    """Reads a question together with texts, as a cross-encoder does, and scores each text."""

    async def rerank(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """Return how well each text answers *question*, in the order given.

        From 0, not at all, to 1; numbers of another range count by their order and distances. It
        must not block the event loop. What it raises is reported, and recall answers without it.
        """
        ...


class Clock(Protocol):
    """Tells the time; pass `datetime.now(UTC)` in a lambda, or a manual one in tests."""

    def __call__(self) -> datetime:
        """Return the present instant, timezone-aware."""
        ...
