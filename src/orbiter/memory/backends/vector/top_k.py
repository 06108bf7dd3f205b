"""The k nearest rows of a matrix: the product with some rows, and the best of many scores.

Scores are exact, and the same however they were made. Reading scattered rows costs many times what
reading adjacent ones does, so a subset that is asked for again is copied together.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Rows", "SubsetProduct", "product", "ranked"]

_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int64]

_CHUNK = 4096
"""How many rows are scored again at a time: ties of a whole matrix must not copy it at once."""


_AT_ONCE = 400_000
"""How many numbers are multiplied at a time. For larger products OpenBLAS wakes threads of its own
(from 460,800 on), which keep their cores busy for 20 ms and more after a product of 10 ms."""


def product(vectors: _Floats, towards: _Floats, out: _Floats | None = None) -> _Floats:
    """Return `vectors @ towards`, made by this thread alone."""
    step = max(1, _AT_ONCE // len(towards))
    scores = np.empty(len(vectors), np.float32) if out is None else out
    for start in range(0, len(vectors), step):
        np.dot(vectors[start : start + step], towards, out=scores[start : start + step])
    return scores


@dataclass(frozen=True, slots=True)
class Rows:
    """What a reader sees: rows that nobody writes to any more, and which of them are dead."""

    vectors: _Floats
    keys: _Integers
    ranks: _Integers
    dead: npt.NDArray[np.bool_] | None


def ranked(
    seen: Rows, towards: _Floats, scores: _Floats, count: int, *, places: _Integers | None = None
) -> list[tuple[int, float]]:
    """Return the best *count* keys and their cosines; of equals, the one of the lowest rank.

    Of equal ranks, too, the highest key comes first.
    *scores* are those of the rows at *places*, or of all; minus infinity is the score of a row
    that does not count.
    """
    # A product over a matrix rounds each row by where it stands. So what may be among the best is
    # scored again, in one way for all: equal vectors are equal, whatever the filter.
    slack = 2e-6 + 8e-9 * len(towards)
    wanted = min(count, len(scores))
    while wanted:
        near = _at_least(scores, wanted, slack)
        rows = near if places is None else places[near]
        cosines = _exact(seen.vectors, rows, towards)
        order = np.lexsort((-seen.keys[rows], seen.ranks[rows], -cosines))
        best: dict[int, float] = {}
        for key, cosine in zip(
            seen.keys[rows[order]].tolist(), cosines[order].tolist(), strict=True
        ):
            best.setdefault(key, cosine)
        if len(best) >= count or wanted == len(scores):
            return list(best.items())[:count]
        wanted = min(4 * wanted, len(scores))  # several of the best rows have one key
    return []


def _at_least(scores: _Floats, wanted: int, slack: float) -> _Integers:
    """Return where the best *wanted* scores are, and those that are as good within *slack*."""
    if wanted < len(scores):
        least = np.partition(scores, len(scores) - wanted)[len(scores) - wanted] - slack
        if least > -2:
            return np.flatnonzero(scores >= least)
    return np.flatnonzero(scores > -2)  # whatever counts


def _exact(vectors: _Floats, rows: _Integers, towards: _Floats) -> npt.NDArray[np.float64]:
    cosines, exact = np.empty(len(rows)), towards.astype(np.float64)
    for start in range(0, len(rows), _CHUNK):
        some = vectors[rows[start : start + _CHUNK]].astype(np.float64)
        np.einsum("ij,j->i", some, exact, out=cosines[start : start + _CHUNK])
    return np.minimum(cosines, 1.0, out=cosines)


_LONG = 256
"""Stretches of so many adjacent rows, on average, are as good as one."""
_RUN = 32
"""Shorter stretches than this, on average, are not worth a product of their own."""
_DENSE = 8
"""One row in so many, or more: multiplying all that lie between costs less than copying these."""
_GATHERED = 256
"""How many scattered rows are copied at a time: they stay in the cache of one core."""
_WORTH = 256
"""Subsets of fewer rows are never kept: copying them takes microseconds."""
_MAX_BYTES = 64 << 20
"""Larger subsets are never kept."""


@dataclass(frozen=True, slots=True)
class _Subset:
    rows: _Integers
    vectors: _Floats | None
    """`None` as long as it was asked for once only."""

    def begins(self, rows: _Integers) -> bool:
        """Tell whether *rows* are these and at most a few new ones."""
        size = len(self.rows)
        return size <= len(rows) <= size + size // 8 and bool((rows[:size] == self.rows).all())


class SubsetProduct:
    """Products with rows of one matrix that only grows; remembers the subset last asked for.

    Threads may share it: what is remembered is one reference to what never changes.
    """

    def __init__(self) -> None:
        self._last: _Subset | None = None

    def product(self, vectors: _Floats, rows: _Integers, towards: _Floats) -> _Floats:
        """Return `vectors[rows] @ towards`; *rows* ascend."""
        count = len(rows)
        if not count:
            return np.empty(0, np.float32)
        span = int(rows[-1] - rows[0]) + 1
        if span == count:
            return product(vectors[rows[0] : rows[-1] + 1], towards)
        kept = self._last
        if kept is not None and kept.begins(rows):
            if kept.vectors is None and count * vectors[0].nbytes <= _MAX_BYTES:
                kept = self._last = _Subset(rows, vectors[rows])
            if kept.vectors is not None:
                return _with_rest(kept.vectors, vectors, rows, towards)
        ends = np.flatnonzero(np.diff(rows) != 1) + 1
        stretches = len(ends) + 1
        if count >= _WORTH and count < _LONG * stretches:
            self._last = _Subset(rows, None)
        if count >= _RUN * stretches:
            return _by_stretch(vectors, rows, ends, towards)
        return _scattered(vectors, rows, towards)


def _by_stretch(vectors: _Floats, rows: _Integers, ends: _Integers, towards: _Floats) -> _Floats:
    scores = np.empty(len(rows), np.float32)
    start = 0
    for end in [*ends.tolist(), len(rows)]:
        first = int(rows[start])
        product(vectors[first : first + end - start], towards, scores[start:end])
        start = end
    return scores


def _with_rest(kept: _Floats, vectors: _Floats, rows: _Integers, towards: _Floats) -> _Floats:
    scores = np.empty(len(rows), np.float32)
    product(kept, towards, scores[: len(kept)])
    if len(rows) > len(kept):
        product(vectors[rows[len(kept) :]], towards, scores[len(kept) :])
    return scores


def _scattered(vectors: _Floats, rows: _Integers, towards: _Floats) -> _Floats:
    first, last = int(rows[0]), int(rows[-1])
    if len(rows) * _DENSE >= last - first + 1:
        return product(vectors[first : last + 1], towards)[rows - first]
    scores = np.empty(len(rows), np.float32)
    buffer = np.empty((min(_GATHERED, len(rows)), len(towards)), np.float32)
    for start in range(0, len(rows), _GATHERED):
        some = rows[start : start + _GATHERED]
        copied = buffer[: len(some)]
        vectors.take(some, axis=0, out=copied, mode="clip")
        np.dot(copied, towards, out=scores[start : start + len(some)])
    return scores
