"""Background embedding: rows get their vectors after they are durable, and none is missed.

What waits is written down in the database, never here, so a task that is cancelled or a process
that is killed loses nothing. A task runs only while something waits.
"""

import asyncio
import os
import sys
import time
import weakref
from array import array
from collections.abc import Callable, Sequence
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from orbiter.memory.errors import EmbeddingError
from orbiter.memory.model.items import index_texts
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.tasks.offload import apart
from orbiter.memory.text import words
from orbiter.memory.text.first_person import in_first_person

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "ROUNDED",
    "Embedded",
    "Embedder",
    "Model",
    "PendingItem",
    "Source",
    "check_embeddings",
    "is_unit",
    "passages_of",
]


ROUNDED = 0.001
"""How far from 1 the length of a vector that is kept may be."""


class Model(NamedTuple):
    """Embeddings whose vectors are kept."""

    key: Any
    """What the driver knows it by."""
    name: str
    dimension: int
    is_current: bool
    """Whether it is the one that is searched, and not still on its way to be."""

    def is_of(self, embeddings: Embeddings) -> bool:
        """Tell whether vectors of *embeddings* can be compared with this model's."""
        return (self.name, self.dimension) == (embeddings.name, embeddings.dimension)


class PendingItem(NamedTuple):
    """An item without vectors."""

    key: Any
    """What the driver knows it by, and what tells it whether the item has changed."""
    content: str
    is_put_off: bool = False
    """Whether the embeddings have refused it before."""
    indexed_by: object = None
    """What `metadata.extra` has under that name."""


class Embedded(NamedTuple):
    """What the embeddings made of an item's passages."""

    vectors: "npt.NDArray[np.float32]"
    """A row per passage, of length 1; none for a text that says nothing."""
    details: list[bytes] | None = None
    """The details of each passage, as `Embeddings` makes them; `None` where no passage has any."""
    is_whole: bool = True
    """Whether every passage has a vector; one of zeros is left out."""


class Source(Protocol):
    """Where items wait; `SQLRecall` says what each method means."""

    _model: Model | None

    async def _take_waiting(self, model: Model, count: int) -> list[PendingItem] | None: ...

    async def _keep_vectors(
        self, model: Model, done: Sequence[tuple[PendingItem, Embedded | None]]
    ) -> None: ...

    async def _count_waiting(self, model: Model) -> int | None: ...

    async def _renew(self, stale: Model) -> Model: ...

    async def _complete(self, model: Model) -> Model: ...

    async def _unembedded(self) -> int: ...


CHUNK = 64
"""Items embedded at a time."""

PASSAGES = 128
"""Passages given to the embeddings in one call."""

MAX_PASSAGES = 256
"""Passages of one text that are embedded; a text of some 30,000 words has more."""

LONG = 50_000
"""Characters that are cut into passages in a thread, so that the loop goes on."""

PATIENCE = 16
"""Items that may fail in a row before embedding all is given up for now."""

LOOK_EVERY = 1.0
"""Seconds between two looks, by those who only read, at what other processes may have written."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds before what failed is tried again: they double."""


class Embedder:
    """Embeds what waits in a store, one chunk after the other; never raises into a write."""

    def __init__(self, embeddings: Embeddings, source: Source) -> None:
        self._embeddings = embeddings
        # A task or timer must not keep alive a store that nobody uses.
        self._source = weakref.ref(source)
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._process = os.getpid()
        self._size = CHUNK
        self._pause = FIRST_PAUSE
        self._is_closed = False
        self._is_held = False
        self._has_more = False
        self._has_news = False
        self._is_retrying = False
        self._looked = -LOOK_EVERY
        self._turn: asyncio.Future[None] | None = None
        self._until = 0.0
        self.error: Exception | None = None
        """What went wrong last, until something goes well."""

    # In the background

    def wake(self, *, is_news: bool = False) -> None:
        """See to it that what waits is embedded; during a pause after an error, once it is over.

        *is_news* says that something was written: that need not wait until texts which were
        refused before are tried again.
        """
        if self._is_closed:
            return
        if is_news:
            self._looked = -LOOK_EVERY
        elif time.monotonic() - self._looked < LOOK_EVERY:
            return  # nothing waited a moment ago
        self._has_more = True
        self._has_news = self._has_news or is_news
        if self._is_held:
            return
        if not self._is_at_work() and (self._is_for_news() or not self._is_pausing()):
            self._begin()

    def _is_for_news(self) -> bool:
        """Tell whether something was written since nothing was left but what was put off."""
        return self._is_retrying and self._has_news

    def _begin(self) -> "asyncio.Task[None]":
        loop = asyncio.get_running_loop()
        self._stop_pausing()
        self._process = os.getpid()
        self._task = loop.create_task(self._work(), name="orbiter-embedder")
        return self._task

    def _is_at_work(self) -> bool:
        # Neither a loop that has stopped nor a process that was forked will go on with it.
        task = self._task
        return (
            task is not None
            and not task.done()
            and task.get_loop().is_running()
            and self._process == os.getpid()
        )

    def _is_pausing(self) -> bool:
        timer = self._timer
        return timer is not None and not timer.cancelled() and time.monotonic() < self._until

    def _stop_pausing(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    async def _work(self) -> None:
        while self._has_more and not self._is_closed:
            self._has_more = self._has_news = self._is_retrying = False
            source = self._source()
            if source is None or source._model is None:  # noqa: SLF001 - a part of the store
                return
            model = source._model  # noqa: SLF001
            try:
                while (embedded := await self.embed_some(source, model)) != 0:
                    if embedded is None:
                        model = await source._renew(model)  # noqa: SLF001
                await source._complete(model)  # noqa: SLF001
                if not self._has_news:
                    self._looked = time.monotonic()
            except Exception as exc:  # noqa: BLE001 - kept to be told, and tried again
                self.error = exc
                if not self._is_for_news():
                    self._rest()
                    return
            del source

    def _rest(self) -> None:
        if self._is_closed:
            return
        loop, me = asyncio.get_running_loop(), weakref.ref(self)
        self._until = time.monotonic() + self._pause

        def resume() -> None:
            embedder = me()
            if embedder is not None:
                embedder._timer = None  # noqa: SLF001 - its own
                embedder.wake()

        self._timer = loop.call_later(self._pause, resume)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    async def close(self) -> None:
        """Stop; what is not written by now goes on waiting."""
        self._is_closed = True
        await self._leave_off()

    async def hold(self) -> None:
        """Leave what is under way, and begin nothing until `release`: nobody embeds it."""
        self._is_held = True
        await self._leave_off()

    def release(self) -> None:
        """Go on."""
        self._is_held = False
        self.wake()

    async def _leave_off(self) -> None:
        self._stop_pausing()
        task, self._task = self._task, None
        if task is None or task.done() or self._process != os.getpid():
            return
        loop = task.get_loop()
        if loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})
        elif not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    # In the foreground

    async def catch_up(self, within: float | None) -> None:
        """Return when nothing waits or the time is up; without *within*, raise what fails.

        With it, return also when nothing waits but what was put off, and during a pause.
        """
        deadline = None if within is None else time.monotonic() + within
        earlier = self._task  # which may fail with what is not there any more
        while (source := self._source()) is not None and await source._unembedded():  # noqa: SLF001
            del source
            if self._is_closed or self._is_held:
                return
            if self._is_at_work():
                if deadline is not None and self._is_retrying and not self._has_news:
                    return
            elif deadline is not None and self._is_pausing():
                return
            else:
                self._has_more = True
                self._begin()
            task = self._task
            if not await self._watch(deadline):
                return
            if self.error is not None and deadline is None and task is not earlier:
                raise self.error

    async def _watch(self, deadline: float | None) -> bool:
        """Wait for the task at work; tell whether there is time left.

        With a *deadline*, wait only until it turns to what was put off.
        """
        task, loop = self._task, asyncio.get_running_loop()
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if task is not None and task.get_loop() is loop:
            awaited: set[asyncio.Future[None]] = {task}
            if deadline is not None:
                if self._turn is None or self._turn.get_loop() is not loop:
                    self._turn = loop.create_future()
                awaited.add(self._turn)
            # Cancelled, it leaves the task alone.
            await asyncio.wait(awaited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0.05 if left is None else min(left, 0.05))
        return deadline is None or time.monotonic() < deadline

    async def embed_all(self, model: Model, progress: Callable[[int, int], None] | None) -> int:
        """Embed until nothing waits, or nothing but what failed; return how many were embedded.

        Raises what fails if none could be embedded, or too many in a row could not.
        """
        source = self._source()
        assert source is not None  # noqa: S101 - the caller holds it
        total = await source._count_waiting(model) or 0  # noqa: SLF001
        done = failures = 0
        while True:
            size = self._size
            try:
                embedded = await self.embed_some(source, model)
            except (
                Exception
            ):  # a model may raise anything; it is raised below unless it is one text's
                if size > 1:  # fewer at a time tell which one it is
                    continue
                failures += 1
                if failures >= (await source._count_waiting(model) or 0) and done:  # noqa: SLF001
                    return done
                if failures >= PATIENCE or not done:
                    raise
                continue
            if not embedded:
                return done
            done, failures = done + embedded, 0
            if progress is not None:
                progress(done, max(done, total))

    async def embed_some(self, source: Source, model: Model) -> int | None:
        """Embed a chunk; return how many items were embedded, 0 if none waits.

        Raises what fails if it was all of them; they go on waiting. `None` if the model is gone.
        """
        waiting = await source._take_waiting(model, self._size)  # noqa: SLF001
        if not waiting:
            self._is_retrying = False
            return None if waiting is None else 0
        self._turn_to(put_off=waiting[0].is_put_off)
        try:
            made, error = await self._embed(waiting)
        except Exception:  # a model may raise anything, and it is raised again
            if len(waiting) == 1:  # the others need not wait for it
                await source._keep_vectors(model, [(waiting[0], None)])  # noqa: SLF001
            self._size = max(1, len(waiting) // 2)
            raise
        await source._keep_vectors(model, list(zip(waiting, made, strict=True)))  # noqa: SLF001
        embedded = sum(each is not None for each in made)
        if error is not None and not embedded:
            self._size = 1
            raise error
        self.error, self._pause = error, FIRST_PAUSE
        self._size = min(self._size * 2, CHUNK)
        return embedded

    def _turn_to(self, *, put_off: bool) -> None:
        self._is_retrying = put_off
        if put_off and self._turn is not None:
            turn, self._turn = self._turn, None
            if not turn.done() and turn.get_loop() is asyncio.get_running_loop():
                turn.set_result(None)

    async def _embed(
        self, items: Sequence[PendingItem]
    ) -> tuple[list[Embedded | None], Exception | None]:
        """Return what is made of each text's passages, `None` for what is nothing, and why."""
        is_long = sum(len(item.content) for item in items) > LONG
        cut = await apart(
            is_long, lambda: [passages_of(item.content, item.indexed_by) for item in items]
        )
        flat = [passage for passages in cut for passage in passages]
        made: list[tuple[Sequence[float], bytes]] = []
        for start in range(0, len(flat), PASSAGES):
            part = flat[start : start + PASSAGES]
            answer = await self._ask(part)
            if len(answer) != len(part):
                raise EmbeddingError(
                    f"`{self._embeddings.name}` made {len(answer)} vectors of {len(part)} texts"
                )
            made.extend(answer)
        return await asyncio.to_thread(_checked, self._embeddings, cut, made)

    async def _ask(self, texts: list[str]) -> Sequence[tuple[Sequence[float], bytes]]:
        if self._embeddings.detail_dimension > 0:
            return await self._embeddings.aembed_details(texts)
        return [(vector, b"") for vector in await self._embeddings.aembed_many(texts)]


def check_embeddings(embeddings: object) -> Embeddings | None:
    """Return *embeddings* if it is some, or `None`, else raise a `TypeError`."""
    if embeddings is None or isinstance(embeddings, Embeddings):
        return embeddings
    raise TypeError(f"`embeddings` must be an `Embeddings`, not {embeddings!r}")


def passages_of(content: str, indexed_by: object = None) -> list[str]:
    """Return the passages that are embedded: none of a text that says nothing.

    *indexed_by* is what `metadata.extra` has under that name.
    """
    texts = [text for text in index_texts(content, indexed_by) if text.strip()]
    passages = [passage for text in texts for passage in words.passages(text)][:MAX_PASSAGES]
    return list(map(in_first_person, passages))


def is_unit(vector: bytes) -> bool:
    """Tell whether the numbers of a kept vector are sound: all are of length 1."""
    numbers = array("f", vector[: len(vector) // 4 * 4])
    if sys.byteorder == "big":
        numbers.byteswap()
    length: float = sum(map(mul, numbers, numbers))
    return abs(length - 1) < ROUNDED  # not of a NaN


def _checked(
    embeddings: Embeddings,
    cut: Sequence[Sequence[str]],
    made: Sequence[tuple[Sequence[float], bytes]],
) -> tuple[list[Embedded | None], Exception | None]:
    import numpy as np  # noqa: PLC0415 - nobody needs it before there are vectors

    from orbiter.memory.backends.vector.normalize import directions, is_zero  # noqa: PLC0415

    results: list[Embedded | None] = []
    error: Exception | None = None
    start = 0
    for passages in cut:
        pairs = made[start : start + len(passages)]
        # A vector of zeros is near nothing: that passage has none, and is found by its words.
        rows = [row for row in pairs if not is_zero(row[0], embeddings.dimension)]
        start += len(passages)
        try:
            vectors = np.empty((0, embeddings.dimension), np.float32)
            if rows:
                vectors = directions([vector for vector, _ in rows], embeddings.dimension)
            details = _rows_of([each for _, each in rows], embeddings.detail_dimension)
            is_whole = 0 < len(rows) == len(passages)
            results.append(Embedded(vectors, details, is_whole))
        except ValueError as exc:
            results.append(None)
            error = EmbeddingError(f"`{embeddings.name}`: {exc}")
    return results, error


def _rows_of(details: list[Any], size: int) -> list[bytes] | None:
    """Return *details* if they are rows of *size* bytes, and `None` if they are none at all."""
    for each in details:
        if not isinstance(each, bytes) or (each and len(each) % size):
            what = f"{len(each)} bytes" if isinstance(each, bytes) else repr(each)
            raise ValueError(f"details must be rows of {size} bytes, not {what}")
    return details if any(details) else None
