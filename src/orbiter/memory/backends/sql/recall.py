"""`SQLRecall`: search by words, by meaning, and around an item, for every SQL store.

Nothing derived stands between a caller and a durable write. Terms and vectors are made from the
rows afterwards, any number of times with the same outcome, and can be thrown away.
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from importlib import import_module
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from orbiter.memory.backends.arguments import check_several_ids
from orbiter.memory.backends.sql.embedder import Embedded, Embedder, Model, PendingItem
from orbiter.memory.backends.sql.history import deciding_facts
from orbiter.memory.backends.sql.neighbours import newest
from orbiter.memory.backends.sql.operations import SQLDatabase
from orbiter.memory.backends.sql.rows import READ, decode, decode_all, usual_metadata
from orbiter.memory.errors import EmbeddingsMismatchError, QueryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import (
    SCOPE_FIELDS,
    CosineQuery,
    Query,
    WordMatches,
    check_size,
)
from orbiter.memory.tasks.offload import has_loop

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["SQLRecall", "check_vector", "decode_shared"]

_T = TypeVar("_T")

_FRESH = 0.25
"""Seconds for which a search that has seen that nothing waits is believed, once: a recall asks for
that right after it."""


class SQLRecall(SQLDatabase):
    """The search structures of a SQL store; what is below says how they are kept."""

    _embeddings: Embeddings | None = None
    _embedder: Embedder | None = None
    _model: Model | None = None
    _writes = 0
    _caught_up = (-1, 0.0)
    """After how many writes of this process a search saw that nothing waits, and until when that is
    taken as it is."""

    # What a driver does. A driver's `init` ends with `_start_embedding`, before which the tables
    # must be up to date, and its `close` begins with `_stop_embedding`.

    @abstractmethod
    async def _index_words(self) -> None:
        """Index the terms of every row that was committed before the call."""

    @abstractmethod
    async def _match_words(
        self, terms: Sequence[str], query: Query
    ) -> tuple[list[MemoryItem], dict[str, int], int]:
        """Return items, best first, the frequency of each of the distinct *terms*, and `passages`.

        What waits is indexed first, so that all that this process has written is found.
        """

    @abstractmethod
    async def _models(self) -> list[Model]:
        """Return the models whose vectors are kept: the current one, and one that is to be it."""

    @abstractmethod
    async def _begin_model(self, name: str, dimension: int) -> Model:
        """Register a model beside the current one, for which every item waits; return it.

        One that was begun and not finished goes on; others that were not finished are dropped.
        The first model of a store is current at once.
        """

    @abstractmethod
    async def _finish_model(self, model: Model) -> None:
        """Make *model* the current one and drop all others with their vectors, as one step."""

    @abstractmethod
    async def _take_waiting(self, model: Model, count: int) -> list[PendingItem] | None:
        """Return at most *count* items, not deleted, that have no vectors of *model* yet.

        Those that were put off come when there are no others, and never among them. `None` if
        the model is no longer there.
        """

    @abstractmethod
    async def _keep_vectors(
        self, model: Model, done: Sequence[tuple[PendingItem, Embedded | None]]
    ) -> None:
        """Write what was made of each item whose content is unchanged; the others go on waiting.

        The details stand and go with the vectors, and apart from them: who reads vectors reads no
        details. A text that says nothing has neither, and waits no more. `None` puts an item off:
        it goes on waiting, after all others. Does nothing if the model is no longer there.
        """

    @abstractmethod
    async def _count_waiting(self, model: Model) -> int | None:
        """Return how many items, not deleted, have no vectors of *model* yet.

        `None` if the model is no longer there.
        """

    @abstractmethod
    async def _nearest(
        self, model: Model, vector: Sequence[float], query: Query
    ) -> list[tuple[MemoryItem, float]] | None:
        """Return items and cosines, nearest first; `None` if the model is no longer there."""

    @abstractmethod
    async def _around(
        self, item_ids: Sequence[str], span: int, scored: tuple[Model, CosineQuery] | None = None
    ) -> tuple[list[list[MemoryItem]], dict[str, float]] | None:
        """Return each item with *span* before and after it, overlaps made one, in order.

        With *scored*, the cosines come with them that this asks for; `None` if the model is no
        longer there.
        """

    @abstractmethod
    async def _similarities(
        self, model: Model, vector: Sequence[float], item_ids: Sequence[str]
    ) -> dict[str, float] | None:
        """Return the cosine of each item that has vectors; `None` if the model is not there."""

    @abstractmethod
    async def _vectors(self, model: Model, item_ids: Sequence[str]) -> dict[str, bytes] | None:
        """Return the vectors of each item that has any; `None` if the model is not there."""

    @abstractmethod
    async def _details(
        self, model: Model, item_ids: Sequence[str]
    ) -> dict[str, list[bytes]] | None:
        """Return the details of each item that has them; `None` if the model is not there."""

    # Models

    @property
    def embeddings(self) -> Embeddings | None:
        """What makes the vectors; `None` if the store keeps none."""
        return self._embeddings

    async def _start_embedding(self) -> None:
        """Register the store's model, or raise `EmbeddingsMismatchError`; embed what waits."""
        if self._embeddings is None:
            return
        import_module("orbiter.memory.backends.vector.matrix")  # says what to install, if anything
        self._model = await self._resolve(self._embeddings, begin=True)
        self._embed_with(self._embeddings)

    async def _stop_embedding(self) -> None:
        """Stop embedding; what waits goes on waiting in the database."""
        embedder, self._embedder, self._model = self._embedder, None, None
        if embedder is not None:
            await embedder.close()

    def _embed_with(self, embeddings: Embeddings) -> None:
        if self._embedder is None:
            self._embedder = Embedder(embeddings, self)
        self._embedder.wake()

    def _wrote(self, *, is_news: bool = True) -> None:
        """Have what was written embedded; called after every write.

        Without *is_news* nothing is known to be written, but others may have.
        """
        self._writes += is_news
        if self._embedder is not None:
            self._embedder.wake(is_news=is_news)

    async def _resolve(self, embeddings: Embeddings, *, begin: bool) -> Model:
        models = await self._models()
        if not models and begin:
            made = await self._begin_model(embeddings.name, embeddings.dimension)
            if made.is_current:
                return made
            # Another process was first, and one beside the current is none that is needed.
            models = await self._models()
            await self._finish_model(next(model for model in models if model.is_current))
        current = next((model for model in models if model.is_current), None)
        if current is not None and current.is_of(embeddings):
            return current
        if begin and current is not None and current.name in embeddings.replaces:
            # Until it is complete, what has no vectors of it yet is found by its words.
            return await self._begin_model(embeddings.name, embeddings.dimension)
        raise EmbeddingsMismatchError(
            repr(self),
            stored=(current.name, current.dimension) if current else None,
            given=(embeddings.name, embeddings.dimension),
        )

    async def _renew(self, stale: Model) -> Model:
        """Return the model that another process put in the place of *stale*, of the same name.

        Raises `EmbeddingsMismatchError` if it is another one.
        """
        assert self._embeddings is not None  # noqa: S101 - there was a model
        model = await self._resolve(self._embeddings, begin=False)
        if self._model is stale:  # and was not closed meanwhile
            self._model = model
        return model

    async def _complete(self, model: Model) -> Model:
        """Return the current model, which *model* is to be once nothing waits for it."""
        if model.is_current:
            return model
        await self._finish_model(model)
        return await self._renew(model)

    async def _ask(self, model: Model, ask: Callable[[Model], Awaitable[_T | None]]) -> _T:
        """Return what is asked of a model, or of the one in its place."""
        while (found := await ask(model)) is None:
            model = await self._renew(model)
        return found

    # Finding

    async def match_words(self, terms: Sequence[str], query: Query) -> WordMatches:
        """Return the items that hold any of *terms* and match *query*, its text aside.

        Best first, of equals the newest. What this process has written is found. A term that
        stands in more than some thousands of passages counts for the newest of them only, and
        its frequency is an estimate.
        """
        if isinstance(terms, str) or not all(isinstance(term, str) for term in terms):
            raise QueryError(f"`terms` must be a list of terms, not {terms!r}")
        return WordMatches(*await self._match_words(list(dict.fromkeys(terms)), query))

    async def nearest(
        self, vector: Sequence[float], query: Query
    ) -> list[tuple[MemoryItem, float]]:
        """Return items that match *query*, its text aside, with their cosines, nearest first.

        What is not embedded yet is not found: see `catch_up`. Without `embeddings` nothing is.
        """

        def ask(model: Model) -> Awaitable[Any]:
            check_vector(vector, model.dimension)
            return self._nearest(model, vector, query)

        return await self._with_model(ask) or []

    async def similarities(
        self, vector: Sequence[float], item_ids: Sequence[str]
    ) -> dict[str, float]:
        """Return the cosine of each of the items that has a vector."""
        ids = check_several_ids(item_ids)

        def ask(model: Model) -> Awaitable[Any]:
            check_vector(vector, model.dimension)
            return self._similarities(model, vector, ids)

        return await self._with_model(ask) or {}

    async def vectors(self, item_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the vectors of each of the items that has any: those of its passages, in order.

        They are of length 1, as little-endian float32, one after the other.
        """
        ids = check_several_ids(item_ids)
        return await self._with_model(lambda model: self._vectors(model, ids)) or {}

    async def details(self, item_ids: Sequence[str]) -> dict[str, list[bytes]]:
        """Return the details of each of the items that has them: those of its passages, in order.

        They are kept where the embeddings make some, see `Embeddings.aembed_details`. A passage
        without any has `b""`; an item none of whose passages has any is absent.
        """
        ids = check_several_ids(item_ids)
        return await self._with_model(lambda model: self._details(model, ids)) or {}

    async def _with_model(self, ask: Callable[[Model], Awaitable[Any]]) -> Any:
        if self._embeddings is None or self._model is None:
            await self._read(lambda: self._operations.get(""), alone=True)  # a closed store says so
            return None
        found = await self._ask(self._model, ask)
        if has_loop():  # else `offload` does so when it is back
            self._wrote(is_news=False)
        return found

    async def around(self, item_ids: Sequence[str], *, span: int) -> list[list[MemoryItem]]:
        """Return stretches of conversation: each item with *span* items before and after it.

        Only what has the same user and session is conversation; items without a session have
        each other. A stretch is as it was added, without a session in the order of time; stretches
        that overlap are one. They come
        in the order of the items asked for; one that is deleted or not there has none.
        """
        check_size("span", span)
        stretches, _ = await self._neighbours(check_several_ids(item_ids), span)
        return stretches

    async def around_scored(
        self, item_ids: Sequence[str], query: CosineQuery, *, span: int
    ) -> tuple[list[list[MemoryItem]], dict[str, float]]:
        """Return stretches as `around` does, and the cosines that *query* asks for, in one read."""
        check_size("span", span)
        check_several_ids(query.others)
        return await self._neighbours(check_several_ids(item_ids), span, query)

    async def _neighbours(
        self, item_ids: Sequence[str], span: int, query: CosineQuery | None = None
    ) -> tuple[list[list[MemoryItem]], dict[str, float]]:
        def ask(model: Model) -> Awaitable[Any]:
            assert query is not None  # noqa: S101 - else nothing asks
            check_vector(query.vector, model.dimension)
            return self._around(item_ids, span, (model, query))

        if query is None or self._embeddings is None or self._model is None:
            return await self._around(item_ids, span) or ([], {})
        both: tuple[list[list[MemoryItem]], dict[str, float]] = await self._with_model(ask)
        return both

    async def deciding_facts(
        self,
        key: str,
        *,
        metadata: MemoryMetadata,
        as_of: datetime,
        known_at: datetime,
        starts: Sequence[datetime] = (),
    ) -> list[MemoryItem]:
        """Return the assertions that decide which fact of *key* holds then; see `FactIndex`."""
        dialect = self._operations.dialect
        steps = partial(deciding_facts, dialect, key, metadata, as_of, known_at, starts)
        rows = await self._read(steps, alone=True)
        return await decode_all(list({row[0]: row for row in rows}.values()))

    async def newest_messages(
        self, scope: MemoryMetadata, *, limit: int, rounds: int | None = None
    ) -> tuple[list[MemoryItem], list[MemoryItem], bool]:
        """Return what was added last to just this conversation, the last first.

        That is at most *limit* items, and no more than *rounds* take; then the system messages
        that came before these, and whether there is nothing else. Only what is accepted counts.
        """
        steps = partial(newest, self._operations.dialect, scope, limit, rounds)
        rows, systems, is_all = await self._read(steps, alone=True)
        usual = usual_metadata(*(getattr(scope, name) for name in SCOPE_FIELDS))
        before = await decode_all(systems, usual=usual)
        return await decode_all(rows, usual=usual), before, is_all

    # Catching up

    async def catch_up(self, *, within: float | None = None) -> int:
        """Index and embed what waits, for at most *within* seconds; return how many items wait.

        Without *within*, it goes on until nothing waits, and what the embeddings raise is raised.
        With it, nothing waits for texts that they refused before, nor for embeddings that failed
        a moment ago: these are tried again in the background. Nor are words indexed, as a search
        for words does so itself. Without any time for it, what a search has seen a moment ago is
        not asked again.
        """
        writes, until = self._caught_up
        self._caught_up = (-1, 0.0)
        if within == 0.0 and writes == self._writes and monotonic() < until:
            return 0
        waiting, are_words_due = await self._what_waits()
        if waiting and self._embedder is not None:
            await self._embedder.catch_up(within)
        if within is None and (waiting or are_words_due):
            await self._index_words()
        return await self._unembedded() if waiting else 0

    async def _what_waits(self) -> tuple[int, bool]:
        """Return how many items wait for vectors, and whether rows may wait for the word index."""
        return await self._unembedded(), True

    def _saw_waiting(self, waiting: int | None, *, writes: int) -> None:
        """Keep what a search saw that began after so many *writes*; `None` is not known."""
        self._caught_up = (writes, monotonic() + _FRESH) if waiting == 0 else (-1, 0.0)

    async def _unembedded(self) -> int:
        return 0 if self._model is None else await self._ask(self._model, self._count_waiting)

    async def reindex(self, *, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed every item again with the store's embeddings; return how many it embedded.

        It may be called instead of `init`, with another model than the stored vectors are of:
        then it opens the store. Reading and writing go on meanwhile; other processes keep the
        old vectors until all new ones are there. Killed or failed, it goes on where it was when
        it is called again; failed, it closes what it opened, and a store that was open goes on
        with the old vectors. *progress* is called with items done and items in all.
        """
        if self._embeddings is None:
            raise QueryError(f"{self!r} has no `embeddings` to embed its items with")
        import_module("orbiter.memory.backends.vector.matrix")
        await self._open()
        is_open = self._model is not None
        try:
            model = await self._begin_model(self._embeddings.name, self._embeddings.dimension)
            if not is_open:
                self._model = model
            done = await Embedder(self._embeddings, self).embed_all(model, progress)
            await self._finish_model(model)
            self._model = await self._resolve(self._embeddings, begin=True)
        except BaseException:  # cancellation included
            if not is_open:
                await self.close()
            raise
        self._embed_with(self._embeddings)
        return done


class _SharedItems:
    """Items of rows that were read before, the newest of them, in at most so many bytes.

    An item is only given for a row that is the same in every column, so none is ever out of date.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # A plain dictionary takes ever longer to find its oldest, the more were given up.
        self._held: OrderedDict[str, tuple[Sequence[Any], MemoryItem, int]] = OrderedDict()
        self._bytes = 0
        self._changing = Lock()

    def item_of(self, row: Sequence[Any]) -> MemoryItem:
        """Return the item of *row*, which others may have, too."""
        held = self._held.get(row[0])
        if held is not None and held[0] == row:
            return held[1]
        item = decode(row)
        size = _SHARED_ITEM + len(row[_CONTENT]) + len(row[_METADATA]) + len(row[_EXTRA])
        with self._changing:
            self._bytes += size - self._held.pop(row[0], (row, item, 0))[2]
            self._held[row[0]] = row, item, size
            while self._bytes > self._max_bytes:
                self._bytes -= self._held.popitem(last=False)[1][2]
        return item

    def cache_clear(self) -> None:
        """Forget everything, as `erase` has it done."""
        with self._changing:
            self._held.clear()
            self._bytes = 0


_CONTENT, _METADATA, _EXTRA = map(READ.index, ("content", "metadata", "extra_json"))
_SHARED_ITEM = 2_000
"""Bytes of an item and its row, beside their texts."""
_shared_items = _SharedItems(max_bytes=16 * 2**20)
decode_shared = _shared_items.item_of
"""Return the item of a row as `decode` does, but one that is not the caller's own: he may neither
change it nor hand it out. Recall reads the same hundreds of rows for question after question."""


def check_vector(vector: Sequence[float], dimension: int) -> "npt.NDArray[np.float32]":
    """Return a vector as one of length 1, or raise a `QueryError` that says what is wrong."""
    from orbiter.memory.backends.vector.normalize import direction  # noqa: PLC0415 - an extra

    try:
        return direction(vector, dimension)
    except (TypeError, ValueError) as exc:
        raise QueryError(f"`vector` cannot be compared: {exc}") from None
