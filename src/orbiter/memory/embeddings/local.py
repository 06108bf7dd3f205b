"""`LocalEmbeddings`: a sentence model on this machine, with no key, no network and no torch."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from orbiter.memory._lazy import missing_extra
from orbiter.memory.model.protocols import Embeddings, check_is_one_text
from orbiter.memory.model.reading import Beside, Verdict, WordReader
from orbiter.memory.tasks.event_loop import bounded_gather
from orbiter.memory.tasks.worker_threads import Forkable
from orbiter.memory.text.languages import ENGLISH, language_of
from orbiter.memory.text.words import is_of_other_script, tokens

if TYPE_CHECKING:
    from orbiter.memory.embeddings._minilm import Floats, MiniLM
    from orbiter.memory.embeddings._reader import Reader

__all__ = ["LocalEmbeddings", "local_reader"]

_T = TypeVar("_T")

_WORKERS = 2
"""Threads for many texts, and as many for queries, which wait for no list of texts."""

_RECENT = 128
"""Queries whose answers are kept: what is asked again, of another scope or for a context."""

_LONG = 2_000
"""Characters of a query that is not kept."""


class LocalEmbeddings(Embeddings):
    """Vectors of recall-minilm (int8), 384 numbers each, of length 1.

    It is all-MiniLM-L6-v2, tuned so that a question lies near what answers it. Stores with vectors
    of the original, which it was before, embed everything again in the background.

    A text has one vector, bit for bit, whatever else is embedded beside it. Case and accents do
    not count. The model was trained on English: another language works by the words and names it
    shares with English, Chinese and Japanese by single characters; what the vocabulary does not
    know counts as one unknown word. `coverage` says how much that is, and recall weighs meaning by
    it.

    A text of more than 254 word pieces is read in parts of about equal length and has the mean of
    their vectors; of one with more than 32 parts, 32 from all over are read. A text without any
    word has the vector of the empty text, which is as long as any other.

    Its details are those of the first 256 word pieces. `reader` judges by them what answers a
    question, and what replaces an older memory.

    The model is loaded when it is first needed, 25 MB. Objects do not share it: make one, and use
    it from as many tasks and threads as you like.
    """

    def __init__(self) -> None:
        if (module := _missing()) is not None:
            raise missing_extra(
                f"LocalEmbeddings needs {module.replace('_', '-')}", "local", name=module
            )
        self._engine = _Engine()

    @property
    def dimension(self) -> int:
        """How long every vector is: 384."""
        return 384

    @property
    def name(self) -> str:
        """What the model is called."""
        import orbiter_memory_minilm  # noqa: PLC0415 - an extra

        return orbiter_memory_minilm.NAME

    @property
    def replaces(self) -> tuple[str, ...]:
        """The models that it was before."""
        import orbiter_memory_minilm  # noqa: PLC0415 - an extra

        return orbiter_memory_minilm.REPLACES

    def embed(self, text: str) -> list[float]:
        """Return the vector of *text*, worked out on the calling thread."""
        check_is_one_text(text)
        return self._engine.model().vector(text)

    async def aembed(self, text: str) -> list[float]:
        """Return the vector of *text*, worked out on a thread of this object's."""
        check_is_one_text(text)
        return list(await self._engine.at_once(self.embed, text))

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text, in the order given.

        Cancelled, it begins no further text; one under way is finished and thrown away.
        """
        return await self._engine.many(self.embed, texts)

    @property
    def detail_dimension(self) -> int:
        """How long the vector of a word is: 64."""
        return 64

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        """Return the vector of each text and those of its words, from one run of the model.

        Cancelled, it does what `aembed_many` does. A single text is taken for a query.
        """
        if len(texts) == 1:
            vector, details = await self._engine.at_once(self._details, texts[0])
            return [(list(vector), details)]
        return await self._engine.many(self._details, texts)

    async def coverage(self, text: str) -> float:
        """Return the share of *text* that the vocabulary knows as whole words; 1 for English.

        The model was trained on English: pieces of words and single characters mean little to it.
        """
        words = tokens(text)
        if language_of(words, text) == ENGLISH and not any(map(is_of_other_script, words)):
            return 1.0
        return await self._engine.at_once(self._coverage, text)

    @property
    def reader(self) -> WordReader:
        """The reader trained with the model."""
        return self._engine.reader

    def token_vectors(self, text: str) -> "Floats":
        """Return one row of length 1 for each of `tokens(text)`, float32, for late interaction."""
        return self._engine.model().token_vectors(text)

    async def atoken_vectors(self, text: str) -> "Floats":
        """Do what `token_vectors` does, on a thread of this object's."""
        return (await self._engine.at_once(self.token_vectors, text)).copy()

    def tokens(self, text: str) -> list[str]:
        """Return the word pieces that the model reads; inside a word they begin with `##`."""
        return self._engine.model().tokens(text)

    def __repr__(self) -> str:
        return "LocalEmbeddings()"

    def _coverage(self, text: str) -> float:
        return self._engine.model().coverage(text)

    def _details(self, text: str) -> tuple[list[float], bytes]:
        return self._engine.model().details(text)


_MAX_READ = 512
"""Texts whose words are remembered: names, and notes of stores that keep no words."""


class _WordReader(WordReader):
    """The reader of an engine; loaded when it is first needed, 2 MB."""

    def __init__(self, engine: "_Engine") -> None:
        self._engine = engine
        self._lock = Lock()
        self._reader: Reader | None = None
        self._words: OrderedDict[bytes, tuple[list[float], bytes]] = OrderedDict()

    @property
    def name(self) -> str:
        import orbiter_memory_minilm  # noqa: PLC0415 - an extra

        return orbiter_memory_minilm.NAME

    def words(self, text: str) -> tuple[list[float], bytes]:
        key = _key(text)
        found = self._words.get(key)
        if found is None:
            found = self._words[key] = self._engine.model().details(text)
            if len(self._words) > _MAX_READ:
                self._words.popitem(last=False)  # in one step: threads share it
        return found

    def nearness(self, question: bytes, words: bytes) -> float:
        from orbiter.memory.embeddings._reader import nearness, unpacked  # noqa: PLC0415

        return nearness(unpacked(question), unpacked(words))

    def read(self, question: bytes, notes: Sequence[Beside]) -> list[Verdict]:
        return self._loaded().read(question, notes)

    def compare(self, older: bytes, newer: Sequence[Beside]) -> list[Verdict]:
        return self._loaded().compare(older, newer)

    def _loaded(self) -> "Reader":
        with self._lock:
            if self._reader is None:
                from orbiter.memory.embeddings._reader import Reader  # noqa: PLC0415

                self._reader = Reader()
            return self._reader


def _key(text: str) -> bytes:
    """Return what stands for a text in memory, which need not know its words."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


@cache
def _shared() -> LocalEmbeddings | None:
    return LocalEmbeddings() if _missing() is None else None


def local_reader() -> WordReader | None:
    """Return a reader for stores whose embeddings have none; `None` without the extra `local`."""
    embeddings = _shared()
    return None if embeddings is None else embeddings.reader


def _missing() -> str | None:
    modules = ("numpy", "onnxruntime", "orbiter_memory_minilm")
    return next((module for module in modules if find_spec(module) is None), None)


class _Engine(Forkable):
    """The model, loaded once, and the threads that run it."""

    _model: "MiniLM | None"
    _pool: ThreadPoolExecutor
    _queries: ThreadPoolExecutor
    _recent: OrderedDict[tuple[str, bytes], Any]
    reader: WordReader

    def __init__(self) -> None:
        super().__init__()
        self._begin()

    async def at_once(self, call: Callable[[str], _T], text: str) -> _T:
        """Return `call(text)`: a query, which does not stand behind many texts.

        One that was asked lately is answered from memory, which knows its hash and not its words.
        What is returned is not to be changed.
        """
        key = (call.__name__, _key(text))
        answer: _T | None = self._recent.get(key)
        if answer is None:
            answer = await asyncio.get_running_loop().run_in_executor(self._queries, call, text)
            if len(text) <= _LONG:
                self._recent[key] = answer
                if len(self._recent) > _RECENT:
                    self._recent.popitem(last=False)  # in one step: threads share it
        return answer

    async def many(self, call: Callable[[str], _T], texts: Sequence[str]) -> list[_T]:
        """Return `call(text)` for each text."""
        loop = asyncio.get_running_loop()

        async def one(text: str) -> _T:
            return await loop.run_in_executor(self._pool, call, text)

        # One more than can run, so that no thread waits for the loop.
        return await bounded_gather(one, texts, limit=_WORKERS + 1)

    def model(self) -> "MiniLM":
        """Return the model; the first caller loads it."""
        model = self._model
        if model is None:
            with self._lock:
                if self._model is None:
                    # Here, because loading takes as long as twenty texts do.
                    from orbiter.memory.embeddings._minilm import MiniLM  # noqa: PLC0415

                    self._model = MiniLM()
                model = self._model
        return model

    def after_in_child(self) -> None:
        """Load the model again; the parent's may be in the midst of a text, and is never freed."""
        self._parents = (self._model, self._pool, self._queries)
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._model = None
        # Starts its threads when they are needed, and lets the interpreter end.
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="orbiter-embed")
        self._queries = ThreadPoolExecutor(_WORKERS, thread_name_prefix="orbiter-embed-query")
        self._recent = OrderedDict()
        self.reader = _WordReader(self)
