"""recall-minilm on ONNX Runtime: one text at a time, so that a text has one vector.

The model's integers are scaled by the largest value of a batch: beside other texts, the same text
would get another vector. Nothing here knows of event loops; every method blocks and may be called
from several threads at once. WordPiece is BERT's: the numbers of its pieces must be those of the
reference tokenizer, as a model understands no others. Stores keep what `code` gives beside the
model's name: what it returns for a text may only change together with that name.
"""

import os
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from orbiter.memory.text.words import COMMON

# From 1.29 on, ONNX Runtime reports to its maker, and must be told not to before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import orbiter_memory_minilm

from orbiter.memory.embeddings import libstdcxx
from orbiter.memory.errors import EmbeddingError

libstdcxx.repair()

import onnxruntime  # noqa: E402 - after the repair

UNKNOWN, START, END = "[UNK]", "[CLS]", "[SEP]"

_MAX_WORD = 100
"""A longer word is unknown, as in the reference; this also bounds the search for pieces."""

_CJK = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)

Word = tuple[int, ...]
"""The pieces of one word."""


class _Letters(dict[int, str | None]):
    """What becomes of each character; worked out when it is first met."""

    def __missing__(self, code: int) -> str | None:
        self[code] = result = _letter(code)
        return result


def _letter(code: int) -> str | None:
    letter = chr(code)
    category = unicodedata.category(letter)
    if letter in "\t\n\r" or category[0] == "Z":
        return " "
    # What is unassigned to this Python may be an emoji to the next; it counts as a letter.
    is_unseen = category[0] == "C" and category != "Cn"
    if is_unseen or category == "Mn" or code == 0xFFFD:
        return None
    if is_mark(letter) or any(low <= code <= high for low, high in _CJK):
        return f" {letter} "
    return letter.lower()


def is_mark(letter: str) -> bool:
    """Tell whether *letter* is punctuation, which is always a word of its own."""
    # ASCII's `$+<=>^`|~` are symbols to Unicode and punctuation to BERT.
    return unicodedata.category(letter)[0] == "P" or (letter.isascii() and not letter.isalnum())


class WordPiece:
    """Splits texts by a vocabulary. Safe to share between threads."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._pieces = vocabulary
        self.start, self.end = self._numbers[START], self._numbers[END]
        self._unknown: Word = (self._numbers[UNKNOWN],)
        self._letters = _Letters()
        # Most words of a text were met before, in it or in another one.
        self._word = lru_cache(maxsize=2**14)(self._split)

    def words(self, text: str) -> list[Word]:
        """Return the pieces of each word of *text*; a mark or a CJK character is a word."""
        if not text.isascii():
            text = unicodedata.normalize("NFD", text)
        found = text.translate(self._letters).split()
        # A word that is too long for the vocabulary is not remembered either.
        return [self._word(w) if len(w) <= _MAX_WORD else self._split(w) for w in found]

    def names(self, words: Sequence[Word]) -> list[str]:
        """Return the pieces as text; those inside a word begin with `##`."""
        return [self._pieces[number] for word in words for number in word]

    def _split(self, word: str) -> Word:
        if word in self._numbers:
            return (self._numbers[word],)
        if len(word) > _MAX_WORD:
            return self._unknown
        found: list[int] = []
        begin, prefix = 0, ""
        while begin < len(word):
            end = len(word)
            while (number := self._numbers.get(prefix + word[begin:end])) is None:
                end -= 1
                if end == begin:
                    return self._unknown
            found.append(number)
            begin, prefix = end, "##"
        return tuple(found)


Floats = NDArray[np.float32]

DIMENSION = 384
ROOM = 254
"""How many pieces the model reads at a time: 256 with the two that frame them."""
MAX_PARTS = 32
MAX_CHARS = 2**20


class MiniLM:
    """The loaded model."""

    def __init__(self) -> None:
        try:
            vocabulary = orbiter_memory_minilm.VOCABULARY.read_text(encoding="utf-8")
            # Not `splitlines`: some pieces are characters that it takes for the end of a line.
            self._pieces = WordPiece(vocabulary.removesuffix("\n").split("\n"))
            self._session = _session(str(orbiter_memory_minilm.MODEL))
        except Exception as exc:  # the runtime has a dozen errors of its own, all without a cure
            raise _damaged(exc) from exc
        self._projection: Floats | None = None
        self._reading = Lock()

    def vector(self, text: str) -> list[float]:
        """Return the vector of *text*, of length 1."""
        parts = self._parts(text)
        return _pooled([self._run(part, "v")[0][0] for part in parts], parts)

    def details(self, text: str) -> tuple[list[float], bytes]:
        """Return the vector of *text*, and those of its telling words as rows of signed bytes."""
        parts = self._parts(text)
        matrix = self._matrix()
        vectors, tokens = zip(*(self._run(part, "v", "tokens") for part in parts), strict=True)
        inner = np.concatenate([found[0][1:-1] for found in tokens])
        names = [name for part in parts for name in self._pieces.names(part)]
        return _pooled([found[0] for found in vectors], parts), code(inner, names, matrix)

    def token_vectors(self, text: str) -> Floats:
        """Return a vector of length 1 for each token of *text*."""
        found = [self._run(part, "tokens")[0][0][1:-1] for part in self._parts(text)]
        return np.concatenate(found)

    def tokens(self, text: str) -> list[str]:
        """Return what `token_vectors` has a vector for."""
        return [name for part in self._parts(text) for name in self._pieces.names(part)]

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
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        found: list[Floats] = self._session.run(list(outputs), given)
        return found


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


def _session(path: str) -> "onnxruntime.InferenceSession":
    options = onnxruntime.SessionOptions()
    # A text is too small to share among threads; two texts at a time use two cores better.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Weights of the layers that compute in floating point are decoded once, not for every text.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.log_severity_level = 3  # it would write warnings to stderr
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


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

_ENDINGS = frozenset(("s", "t", "m", "re", "ve", "ll", "d"))
"""What is left of `it's`, `can't` or `we'll` behind the apostrophe."""


def projection(path: Path, *, width: int) -> Floats:
    """Return the matrix at *path*, from *width* numbers to as many as details have.

    A `ValueError` if it is none.
    """
    matrix: Floats = np.load(path, allow_pickle=False)
    if matrix.shape != (width, DETAIL_DIMENSION) or matrix.dtype != np.float32:
        raise ValueError(f"`{path}` holds {matrix.dtype} {matrix.shape}, not what it should")
    return matrix


def code(vectors: Floats, pieces: Sequence[str], matrix: Floats) -> bytes:
    """Return the telling ones of *vectors*, which belong to *pieces*, as rows of signed bytes.

    Where no piece tells anything, all count. There are at most `MAX_ROWS`, the first.
    """
    telling = [number for number, piece in enumerate(pieces) if is_telling(piece)]
    rows = _project((vectors[telling] if telling else vectors)[:MAX_ROWS], matrix)
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


@lru_cache(maxsize=2**14)
def is_telling(piece: str) -> bool:
    """Tell whether a word piece says something about what a text is about."""
    name = piece.removeprefix("##")
    return name not in COMMON and name not in _ENDINGS and not all(map(is_mark, name))
