"""recall-minilm on ONNX Runtime: one text at a time, so that a text has one vector.

The model's integers are scaled by the largest value of a batch: beside other texts, the same text
would get another vector. Nothing here knows of event loops; every method blocks and may be called
from several threads at once. Stores keep what `code` gives beside the model's name: what it returns
for a text may only change together with that name.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import orbiter_memory_minilm
from numpy.typing import NDArray

from orbiter.memory.embeddings.onnx_runtime import onnx_session
from orbiter.memory.errors import EmbeddingError
from orbiter.memory.text.word_piece import UNKNOWN, Word, WordPiece, is_mark, read_vocabulary

Floats = NDArray[np.float32]

DIMENSION = 384
ROOM = 254
"""How many pieces the model reads at a time: 256 with the two that frame them."""
MAX_PARTS = 32
MAX_CHARS = 2**20
_COVERED = 4_096
"""Characters by which a text's language is judged."""


class MiniLM:
    """The loaded model."""

    def __init__(self) -> None:
        try:
            self._pieces = WordPiece(read_vocabulary(orbiter_memory_minilm.VOCABULARY))
            self._session = onnx_session(orbiter_memory_minilm.MODEL)
        except Exception as exc:  # the runtime has a dozen errors of its own, all without a cure
            raise _damaged(exc) from exc
        self._projection: Floats | None = None
        self._reading = Lock()

    def vector(self, text: str) -> list[float]:
        """Return the vector of *text*, of length 1."""
        parts = self._parts(text)
        return _pooled([self._run(part, "v")[0][0] for part in parts], parts)

    def details(self, text: str) -> tuple[list[float], bytes]:
        """Return the vector of *text*, and those of its words as rows of signed bytes."""
        parts = self._parts(text)
        matrix = self._matrix()
        vectors, tokens = zip(*(self._run(part, "v", "tokens") for part in parts), strict=True)
        inner = np.concatenate([output[0][1:-1] for output in tokens])
        return _pooled([output[0] for output in vectors], parts), code(inner, matrix)

    def token_vectors(self, text: str) -> Floats:
        """Return a vector of length 1 for each token of *text*."""
        arrays = [self._run(part, "tokens")[0][0][1:-1] for part in self._parts(text)]
        return np.concatenate(arrays)

    def tokens(self, text: str) -> list[str]:
        """Return what `token_vectors` has a vector for."""
        return [name for part in self._parts(text) for name in self._pieces.names(part)]

    def coverage(self, text: str) -> float:
        """Return the share of the letters of *text* that stand in words of one piece."""
        letters = whole = 0
        for word in self._pieces.words(shorten(text)[:_COVERED]):
            names = self._pieces.names([word])
            size = sum(len(name.removeprefix("##")) for name in names)
            if all(map(is_mark, names[0])):
                continue
            letters += size
            # Chinese and Japanese characters are words of one letter, which mean little alone.
            is_whole = len(names) == 1 and names[0].isascii() and names[0] != UNKNOWN
            whole += size if is_whole else 0
        return whole / letters if letters else 0.0

    def _parts(self, text: str) -> list[list[Word]]:
        parts = list(split(self._pieces.words(shorten(text))))
        return spread(parts, MAX_PARTS)

    def _matrix(self) -> Floats:
        # Here and not with the model: who wants no details need not wait for it. One thread at a
        # time: numpy reads a file's head with Python's parser, which two at once can confuse.
        with self._reading:
            if self._projection is None:
                try:
                    self._projection = projection(orbiter_memory_minilm.DETAILS, width=DIMENSION)
                except Exception as exc:  # cut off, of another shape, or not in an older one
                    raise _damaged(exc) from exc
            return self._projection

    def _run(self, part: Sequence[Word], *outputs: str) -> list[Floats]:
        frame = self._pieces
        numbers = [frame.start, *(number for word in part for number in word), frame.end]
        ids = np.array([numbers], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        arrays: list[Floats] = self._session.run(list(outputs), inputs)
        return arrays


def _damaged(error: Exception) -> EmbeddingError:
    return EmbeddingError(
        f"the model of LocalEmbeddings cannot be loaded: {error}; install it again: "
        "pip install --force-reinstall --no-deps orbiter-memory-minilm"
    )


def _pooled(vectors: Sequence[Floats], parts: Sequence[Sequence[Word]]) -> list[float]:
    """Return the mean of the parts' *vectors*, of length 1; that of a single part as it is."""
    if len(vectors) == 1:
        return _plain(vectors[0])
    weights = [sum(map(len, part)) for part in parts]
    pooled = np.average(np.asarray(vectors, dtype=np.float64), axis=0, weights=weights)
    return _plain((pooled / np.linalg.norm(pooled)).astype(np.float32))


def _plain(vector: Floats) -> list[float]:
    numbers: list[float] = vector.tolist()
    return numbers


def shorten(text: str) -> str:
    """Return *text*, or pieces from all over it if it is too long to be read in bounded time."""
    if len(text) <= MAX_CHARS:
        return text
    width = MAX_CHARS // MAX_PARTS
    step = (len(text) - width) / (MAX_PARTS - 1)
    starts = [round(number * step) for number in range(MAX_PARTS)]
    return " ".join(text[start : start + width] for start in starts)


def split(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield *words* in order, in as few parts as the model can read, of about one length."""
    left = sum(map(len, words))
    parts_left = max(1, -(-left // ROOM))
    part: list[Word] = []
    size = 0
    for word in words:
        # A part is full when it has its share of what is left, or no room for the next word.
        if part and (size + len(word) > ROOM or size >= left / parts_left):
            yield part
            left, parts_left = left - size, max(1, parts_left - 1)
            part, size = [], 0
        part.append(word)
        size += len(word)
    yield part


def spread(parts: list[list[Word]], limit: int) -> list[list[Word]]:
    """Return *parts*, or *limit* of them from all over: the first, the last, and between."""
    if len(parts) <= limit:
        return parts
    step = (len(parts) - 1) / (limit - 1)
    return [parts[round(number * step)] for number in range(limit)]


DETAIL_DIMENSION = 64
MAX_ROWS = 256
"""How many words of a text have a vector: the first ones, 16 KB of them."""


def projection(path: Path, *, width: int) -> Floats:
    """Return the matrix at *path*, from *width* numbers to as many as details have.

    A `ValueError` if it is none.
    """
    matrix: Floats = np.load(path, allow_pickle=False)
    if matrix.shape != (width, DETAIL_DIMENSION) or matrix.dtype != np.float32:
        raise ValueError(f"`{path}` holds {matrix.dtype} {matrix.shape}, not what it should")
    return matrix


def code(vectors: Floats, matrix: Floats) -> bytes:
    """Return the first `MAX_ROWS` of *vectors* as rows of signed bytes.

    Every word has one: "not" and "my sister's" decide what an answer is.
    """
    rows = _project(vectors[:MAX_ROWS], matrix)
    # A row of zeros stays one: it is near nothing.
    lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    coded: NDArray[np.int8] = np.rint(127 * (rows / lengths)).astype(np.int8)
    return coded.tobytes()


def _project(vectors: Floats, matrix: Floats) -> Floats:
    rows = np.empty((len(vectors), DETAIL_DIMENSION), dtype=np.float32)
    # A few rows at a time, which BLAS does on this thread: on busy cores, waking its own threads
    # takes up to ten times as long as the work.
    for start in range(0, len(rows), 8):
        part = slice(start, start + 8)
        np.matmul(vectors[part], matrix, out=rows[part])
    return rows
