"""`CachedEmbeddings`: any embedder, asked only once for each text.

The cache only ever saves work: where it cannot be read or written, the model is asked instead.
"""

import asyncio
import os
import sqlite3
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from orbiter.memory.embeddings._vector_file import Detailed, VectorFile
from orbiter.memory.embeddings.responses import is_finite, pack, unpack
from orbiter.memory.errors import EmbeddingError, QueryError, StorageError
from orbiter.memory.model.protocols import Embeddings, check_is_one_text
from orbiter.memory.model.query import check_size
from orbiter.memory.model.reading import WordReader

__all__ = ["CachedEmbeddings"]


class CachedEmbeddings(Embeddings):
    """Keeps the vectors of *embeddings* in a SQLite file, by model, dimension and text.

    Details are kept with the vectors where they were asked for.

    The file is made at first use, for its owner's eyes only; many processes may share it, and
    several models. It holds no text, only its SHA-256, and at most `max_entries` vectors: the
    oldest go first. A vector that comes from it is exactly the one that the model gave, in the
    precision of float32.

    A cache that is damaged, locked or full is passed over, with one `RuntimeWarning`. Tasks that
    ask for one text at the same time share one call.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        path: str | os.PathLike[str],
        *,
        max_entries: int = 100_000,
        busy_timeout: float = 1.0,
    ) -> None:
        if check_size("max_entries", max_entries) == 0:
            raise QueryError("`max_entries` must be 1 or more, not 0")
        if not busy_timeout >= 0:
            raise QueryError(f"`busy_timeout` must be 0 seconds or more, not {busy_timeout}")
        if not (text := os.fspath(path)) or text == ":memory:" or "\0" in text:
            raise QueryError(f"`path` must name a file, not {path!r}")
        self.embeddings = embeddings
        self._file = VectorFile(
            os.path.abspath(text),  # noqa: PTH100 - `Path.resolve` would look at the disk
            model=embeddings.name,
            dimension=embeddings.dimension,
            detail_dimension=embeddings.detail_dimension,
            max_entries=max_entries,
            busy_timeout=busy_timeout,
        )
        self._has_warned = False
        self._under_way: Waiting[list[float]] = {}
        self._details_under_way: Waiting[Detailed] = {}

    @property
    def dimension(self) -> int:
        """How long every vector is."""
        return self.embeddings.dimension

    @property
    def detail_dimension(self) -> int:
        """How long the vector of a word is; 0 if there are none."""
        return self.embeddings.detail_dimension

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.embeddings.name

    @property
    def replaces(self) -> tuple[str, ...]:
        """The names of models that the model takes the place of."""
        return self.embeddings.replaces

    @property
    def reader(self) -> WordReader | None:
        """What judges by the vectors of words, if the model has a reader."""
        return self.embeddings.reader

    async def coverage(self, text: str) -> float:
        """Return how well the model knows the language of *text*, from 0 to 1."""
        return await self.embeddings.coverage(text)

    @property
    def hits(self) -> int:
        """How many texts were found in the file."""
        return self._file.hits

    @property
    def misses(self) -> int:
        """How many texts were not."""
        return self._file.misses

    def embed(self, text: str) -> list[float]:
        """Return the vector of *text*."""
        check_is_one_text(text)
        return self.embed_many([text])[0]

    async def aembed(self, text: str) -> list[float]:
        """Return the vector of *text*, without blocking the event loop."""
        check_is_one_text(text)
        return (await self.aembed_many([text]))[0]

    def embed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text, in the order given; the model sees only new ones."""
        known = self._find(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            known |= self._keep(missing, self.embeddings.embed_many(missing))
        return [list(known[text]) for text in texts]

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Do what `embed_many` does, without blocking the event loop."""
        known = await asyncio.to_thread(self._find, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        known |= await shared(missing, self._ask, under_way=self._under_way)
        return [list(known[text]) for text in texts]

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        """Return the vector and the details of each text; the model sees only new ones.

        A text whose vector was kept without them is new.
        """
        if not self.detail_dimension:
            return await super().aembed_details(texts)
        known = await asyncio.to_thread(self._find_details, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        known |= await shared(missing, self._ask_details, under_way=self._details_under_way)
        return [(list(vector), details) for vector, details in map(known.__getitem__, texts)]

    def forget(self, texts: Sequence[str]) -> int:
        """Remove the vectors of *texts* from the file, of every model; return how many.

        A file that cannot be written is a `StorageError`: what was asked for is not done.
        """
        try:
            return self._file.forget(texts)
        except (sqlite3.Error, OSError) as exc:
            raise StorageError(
                f"the cache `{self._file.path}` still has the vectors of these texts: {exc}; try "
                "again, or delete the file: it will be rebuilt"
            ) from exc

    def close(self) -> None:
        """Close the file; the embedder it was made with stays open. Another call opens it again."""
        try:
            self._file.close()
        except sqlite3.Error as exc:
            self._warn(exc)

    def __repr__(self) -> str:
        return f"CachedEmbeddings({self.embeddings!r}, {self._file.path!r})"

    async def _ask(self, texts: list[str]) -> dict[str, list[float]]:
        vectors = await self.embeddings.aembed_many(texts)
        return await asyncio.to_thread(self._keep, texts, vectors)

    async def _ask_details(self, texts: list[str]) -> dict[str, Detailed]:
        detailed = await self.embeddings.aembed_details(texts)
        return await asyncio.to_thread(self._keep_details, texts, detailed)

    def _find(self, texts: Sequence[str]) -> dict[str, list[float]]:
        try:
            return self._file.find(list(dict.fromkeys(texts)))
        except (sqlite3.Error, OSError) as exc:
            self._warn(exc)
            return {}

    def _find_details(self, texts: Sequence[str]) -> dict[str, Detailed]:
        try:
            return self._file.find_details(list(dict.fromkeys(texts)))
        except (sqlite3.Error, OSError) as exc:
            self._warn(exc)
            return {}

    def _keep(self, texts: list[str], vectors: list[list[float]]) -> dict[str, list[float]]:
        new = dict(zip(texts, self._rounded(len(texts), vectors), strict=True))
        try:
            self._file.keep(new)
        except (sqlite3.Error, OSError) as exc:
            self._warn(exc)
        return new

    def _keep_details(self, texts: list[str], detailed: list[Detailed]) -> dict[str, Detailed]:
        vectors = self._rounded(len(texts), [vector for vector, _ in detailed])
        details = [rows for _, rows in detailed]
        if any(len(rows) % self.detail_dimension for rows in details):
            raise EmbeddingError(
                f"`{self.name}` gave details that are not rows of {self.detail_dimension} bytes"
            )
        new = dict(zip(texts, zip(vectors, details, strict=True), strict=True))
        try:
            self._file.keep_details(new)
        except (sqlite3.Error, OSError) as exc:
            self._warn(exc)
        return new

    def _rounded(self, count: int, vectors: list[list[float]]) -> list[list[float]]:
        if [len(vector) for vector in vectors] != [self.dimension] * count:
            raise EmbeddingError(
                f"`{self.name}` did not answer {count} texts with as many vectors of "
                f"{self.dimension} numbers"
            )
        # Rounded at once, so that the first answer is what every later one will be.
        rounded = [unpack(pack(vector)) for vector in vectors]
        if not all(map(is_finite, rounded)):
            raise EmbeddingError(
                f"`{self.name}` gave a vector with a NaN or an infinity, which is not kept"
            )
        return rounded

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"the cache `{self._file.path}` is not used: {error}",
                RuntimeWarning,
                stacklevel=4,
            )


_T = TypeVar("_T")

Waiting = dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[_T]]
"""What is being worked out, by loop, because a future belongs to one; an entry lives as long as
its call."""


async def shared(
    texts: Sequence[str],
    ask: Callable[[list[str]], Awaitable[dict[str, _T]]],
    *,
    under_way: Waiting[_T],
) -> dict[str, _T]:
    """Return what *ask* gives for each of *texts*, all different, by text.

    What another task is asking for already is waited for instead, and its error is ours; if that
    task is cancelled, the rest is asked for here.
    """
    loop = asyncio.get_running_loop()
    known: dict[str, _T] = {}
    missing = list(texts)
    while missing:
        ours = [text for text in missing if (loop, text) not in under_way]
        theirs = {text: under_way[loop, text] for text in missing if (loop, text) in under_way}
        if ours:
            known |= await _lead(ours, ask, under_way)
        for text, future in theirs.items():
            await asyncio.wait([future])
            if not future.cancelled():
                known[text] = future.result()
        # Whose caller was cancelled is left over, and is ours now.
        missing = [text for text in missing if text not in known]
    return known


async def _lead(
    texts: list[str],
    ask: Callable[[list[str]], Awaitable[dict[str, _T]]],
    under_way: Waiting[_T],
) -> dict[str, _T]:
    """Ask, and have whoever asks for *texts* meanwhile wait for the answer."""
    loop = asyncio.get_running_loop()
    futures: dict[str, asyncio.Future[_T]] = {text: loop.create_future() for text in texts}
    under_way |= {(loop, text): future for text, future in futures.items()}
    try:
        values = await ask(texts)
        for text, future in futures.items():
            future.set_result(values[text])
    except Exception as exc:  # whatever it is, those who share the call get it, too
        for future in futures.values():
            future.set_exception(exc)
            future.exception()  # nobody need be waiting
        raise
    finally:
        for text, future in futures.items():
            future.cancel()  # does nothing unless this call was cancelled
            del under_way[loop, text]
    return values
