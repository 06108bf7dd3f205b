"""`VectorMemoryStore`: items in this process, found by what they mean.

Nothing is kept before its vector is there and sound; from then on a write is one step for every
task of the event loop. The arithmetic, and numpy, are in the
other modules of this package.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from orbiter.memory._lazy import missing_extra
from orbiter.memory.backends.arguments import check_several, is_item_id
from orbiter.memory.errors import EmbeddingError, EmptyFilterError, QueryError
from orbiter.memory.model.copying import copy_item, validated_copy
from orbiter.memory.model.expiry_heap import ExpiryHeap
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import (
    INDEXED_BY,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    index_texts,
)
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query, check_size

if TYPE_CHECKING:
    from orbiter.memory.backends.vector.index import ScoredItems

__all__ = ["VectorMemoryStore"]

_OFF_LOOP = 4_000_000
"""From so many numbers on, about a millisecond, a search leaves the event loop to others."""


class VectorMemoryStore:
    """Keeps items and the vectors that *embeddings* makes of them, in memory.

    Each user's vectors lie together, so a search that names a user looks at nobody else's. Items
    are copied on the way in and out. Embedding takes time; of several `add` calls for one id that
    overlap, the one called last wins, and each counts as a version. An item without text, or one
    that is not indexed, has no vector: only a search without a query finds it. One that is indexed
    by several texts has a vector of each, and is as near as the nearest.

    With *approximate_from*, a search by meaning among a user's items that no other filter narrows
    is approximate once the user has so many; it needs the extra `[ann]`.
    """

    def __init__(self, embeddings: Embeddings, *, approximate_from: int | None = None) -> None:
        if not isinstance(embeddings, Embeddings):
            raise TypeError(f"`embeddings` must be an `Embeddings`, not {embeddings!r}")
        try:  # here and not above: without numpy, this module can be imported all the same
            from orbiter.memory.backends.vector.index import VectorIndex  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise missing_extra("VectorMemoryStore needs numpy", "vector") from exc
        self._embeddings = embeddings
        if approximate_from is not None:
            check_size("approximate_from", approximate_from)
        self._index: VectorIndex = VectorIndex(approximate_from)
        self._expiry = ExpiryHeap()
        self._calls = 0
        # For ids that are being added: how often, and which call is the last that was kept.
        self._waiting: Counter[str] = Counter()
        self._latest: dict[str, int] = {}

    @property
    def embeddings(self) -> Embeddings:
        """What makes the vectors."""
        return self._embeddings

    def __len__(self) -> int:
        self._sweep()
        return len(self._index)

    def __repr__(self) -> str:
        return f"VectorMemoryStore(items={len(self)}, dimension={self._embeddings.dimension})"

    # Writing

    async def add(self, item: MemoryItem) -> None:
        """Keep *item* and its vector, or update the one with its id.

        If its text cannot be embedded, `EmbeddingError` or the model's own error is raised and
        nothing has changed. A text that is stored already is not embedded again.
        """
        await self._add([validated_copy(item)], self._called())

    async def add_many(self, items: Sequence[MemoryItem]) -> None:
        """Keep or update every item of *items*, in order, all or none; equal texts count once."""
        check_several(items)
        call, taken = self._called(), []
        for item in tuple(items):
            taken.append(validated_copy(item))
            if not len(taken) % 1000:
                await asyncio.sleep(0)  # others may go on while a large batch is prepared
        await self._add(taken, call)

    def _called(self) -> int:
        self._calls += 1
        return self._calls

    async def _add(self, items: list[MemoryItem], call: int) -> None:
        ids = {item.id for item in items}
        self._waiting.update(ids)
        try:
            vectors = await self._vectors(items)
            # From here on nothing waits, and nothing can fail.
            for item in items:
                self._sweep()
                if call < self._latest.get(item.id, 0):
                    if self._index.get(item.id) is not None:  # else the later one is over
                        self._index.count_version(item.id)
                    continue
                made = [vectors[text] for text in _texts(item) if vectors[text] is not None]
                self._index.keep(item, made, self._embeddings.dimension)
                self._expiry.note(item.id, item.expires_at)
                self._latest[item.id] = call
        finally:
            self._waiting.subtract(ids)
            for item_id in ids:
                if not self._waiting[item_id]:
                    del self._waiting[item_id]
                    self._latest.pop(item_id, None)

    def _sweep(self) -> None:
        """Remove what is over."""
        for item_id in self._expiry.expired():
            self._index.remove(item_id)

    async def _vectors(self, items: list[MemoryItem]) -> dict[str, Any]:
        """Return the vector of each text: that which is stored, a new one, or `None`.

        Blanks have none, and neither has a text whose vector is zero: it is near nothing.
        """
        self._sweep()
        vectors: dict[str, Any] = {}
        for item in items:
            known = self._index.vectors_of(item.id)
            for text in _texts(item):
                if vectors.get(text) is None:
                    vectors[text] = known.get(text)
        unknown = [text for text, vector in vectors.items() if vector is None and text.strip()]
        if unknown:
            vectors.update(zip(unknown, await self._embed(unknown), strict=True))
        return vectors

    async def clear(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Remove what matches, or everything without a filter; return how many."""
        query = Query(metadata=metadata)
        if metadata is not None and not query.wanted:
            raise EmptyFilterError()
        self._sweep()
        removed = self._index.clear(query)
        for item_id in removed:
            self._latest.pop(item_id, None)
            self._expiry.note(item_id, None)
        return len(removed)

    async def delete(self, item_id: str) -> bool:
        """Remove one item for good; tell whether it was there."""
        if not is_item_id(item_id):
            return False
        self._sweep()
        self._latest.pop(item_id, None)
        self._expiry.note(item_id, None)
        return self._index.remove(item_id)

    # Reading

    async def get(self, item_id: str) -> MemoryItem | None:
        """Return the item of that id, or `None`."""
        self._sweep()
        item = self._index.get(item_id) if is_item_id(item_id) else None
        return None if item is None else copy_item(item)

    async def search(
        self,
        *,
        query: str = "",
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        limit: int = 10,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Where | None = None,
    ) -> list[MemoryItem]:
        """Return at most *limit* items that match every given filter.

        With a *query*, those nearest in meaning, best first, of equals the one added first;
        without one, or with blanks only, the newest first. Filters apply before the cut. *since*
        and *until* bound `created_at`, the second excluded; *where* says what must hold of fields
        and of keys of `metadata.extra`: see `docs/backends.md#where`.
        """
        filters = Query(
            query, metadata, memory_type, status, limit, since=since, until=until, where=where
        )
        if not filters.limit or not len(self):  # which removes what is over
            return []
        if not query.strip():
            return [copy_item(item) for item in self._index.newest(filters)]
        (vector,) = await self._embed([query])
        if vector is None:
            return []
        return [copy_item(item) for item, _ in await self._nearest(vector, filters)]

    async def nearest(
        self, vector: Sequence[float], query: Query
    ) -> list[tuple[MemoryItem, float]]:
        """Return items that match *query*, its text aside, with their cosines, nearest first."""
        (towards,) = self._checked([vector], QueryError, "`vector`")
        return [(copy_item(item), cosine) for item, cosine in await self._nearest(towards, query)]

    async def similarities(
        self, vector: Sequence[float], item_ids: Sequence[str]
    ) -> dict[str, float]:
        """Return the cosine of each of the items that is here and has a vector."""
        (towards,) = self._checked([vector], QueryError, "`vector`")
        self._sweep()
        return self._index.similarities(towards, item_ids)

    async def catch_up(self, *, within: float | None = None) -> int:  # noqa: ARG002 - of the protocol
        """Return 0: what `add` has kept is embedded."""
        return 0

    async def _nearest(self, vector: Any, query: Query) -> "ScoredItems":
        self._sweep()
        snapshots = self._index.snapshot(query)
        if snapshots.numbers < _OFF_LOOP:
            return snapshots.nearest(vector, query.limit)
        return await asyncio.to_thread(snapshots.frozen().nearest, vector, query.limit)

    # Embedding

    async def _embed(self, texts: list[str]) -> Any:
        """Return a sound vector for each text, `None` for one of zeros, or raise."""
        made: Any
        if len(texts) == 1:
            made = [await self._embeddings.aembed(texts[0])]
        else:
            made = await self._embeddings.aembed_many(texts)
            count = len(made) if hasattr(made, "__len__") else 0
            if count != len(texts):
                raise EmbeddingError(
                    f"{self._model_name()} answered {len(texts)} texts with {count} vectors"
                )
        check = partial(self._checked, made, EmbeddingError, self._model_name(), may_be_zero=True)
        if len(made) * self._embeddings.dimension < _OFF_LOOP:
            return check()
        return await asyncio.to_thread(check)

    def _checked(
        self,
        vectors: Sequence[Any],
        error: type[Exception],
        origin: str,
        *,
        may_be_zero: bool = False,
    ) -> Any:
        """Return each vector at length 1, in one array or a list of them; `None` for zeros."""
        from orbiter.memory.backends.vector.normalize import (  # noqa: PLC0415
            direction,
            directions,
            is_zero,
        )

        dimension = self._embeddings.dimension
        if len(vectors) > 1:
            with suppress(TypeError, ValueError):  # in one piece; who is to blame is found below
                return directions(vectors, dimension)
        try:
            return [
                None if may_be_zero and is_zero(vector, dimension) else direction(vector, dimension)
                for vector in vectors
            ]
        except (TypeError, ValueError) as exc:
            raise error(f"{origin} gave no usable vector: {exc}") from exc

    def _model_name(self) -> str:
        return f"the model `{self._embeddings.name}`"


def _texts(item: MemoryItem) -> list[str]:
    return index_texts(item.content, item.metadata.extra.get(INDEXED_BY))
