"""Protocols: what a store, an embedder, a summarizer and a clock must do.

Whatever does it will serve; `AgentStore`, what `AgentMemory` works with, is in `agent_store`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import CosineQuery, Query, WordMatches
from orbiter.memory.model.reading import WordReader
from orbiter.memory.model.validation import StructuralMeta

if TYPE_CHECKING:
    from orbiter.memory.model import reports

__all__ = [
    "BackupStore",
    "Clock",
    "ConversationStore",
    "DetailStore",
    "Embeddings",
    "HistoryStore",
    "LexicalStore",
    "MaintainedStore",
    "MemoryStore",
    "Reranker",
    "Summarizer",
    "VectorStore",
    "check_is_one_text",
]

Clock = Callable[[], datetime]
"""Tells the present instant, timezone-aware: `lambda: datetime.now(UTC)`, or a test's own."""


@runtime_checkable
class MemoryStore(Protocol, metaclass=StructuralMeta):
    """Keeps items. `docs/concepts.md` says what each method means in every store.

    Other methods of `AgentStore` are used if they are there: `init` and `close`, `add_many`,
    `insert` and `used_ids`, `delete_many`, `conversations`. `StoreAdapter` does without.
    """

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
class HistoryStore(Protocol, metaclass=StructuralMeta):
    """A store that keeps what items were: deletions can be undone, and the past be read."""

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

    async def as_of(self, moment: datetime) -> list[MemoryItem]:
        """Return items as they were stored at *moment*."""
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
class DetailStore(Protocol, metaclass=StructuralMeta):
    """A store whose vectors can be had: those of passages, and of the words in them."""

    async def vectors(self, item_ids: Sequence[str]) -> dict[str, bytes]:
        """Return, for each item that has them, the vectors of its passages, in order.

        They are of length 1, as little-endian float32, one after the other.
        """
        ...

    async def details(self, item_ids: Sequence[str]) -> dict[str, list[bytes]]:
        """Return, for each item that has them, the words of each passage, in order.

        A passage is as `Embeddings.aembed_details` gives it.
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

    async def around_scored(
        self, item_ids: Sequence[str], query: CosineQuery, *, span: int
    ) -> tuple[list[list[MemoryItem]], dict[str, float]]:
        """Return what `around` does, and the cosines that *query* asks for."""
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
