"""The vectors of a text's telling words, small enough to be kept: which they are, and how coded.

Stores keep what these functions give beside the model's name: what they return for a text may only
change together with that name.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orbiter.memory.embeddings._wordpiece import is_mark
from orbiter.memory.text.words import COMMON

Floats = NDArray[np.float32]

DIMENSION = 64
MAX_ROWS = 256
"""How many words of a text have a vector: the first ones, 16 KB of them."""

_ENDINGS = frozenset(("s", "t", "m", "re", "ve", "ll", "d"))
"""What is left of `it's`, `can't` or `we'll` behind the apostrophe."""


def projection(path: Path, *, width: int) -> Floats:
    """Return the matrix at *path*, from *width* numbers to `DIMENSION`; a `ValueError` if not."""
    matrix: Floats = np.load(path, allow_pickle=False)
    if matrix.shape != (width, DIMENSION) or matrix.dtype != np.float32:
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
    rows = np.empty((len(vectors), DIMENSION), dtype=np.float32)
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
