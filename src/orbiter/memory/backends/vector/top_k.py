"""The best of many scores, by key: exact, and the same however the scores were made."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Rows", "ranked"]

_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int64]

_CHUNK = 4096
"""How many rows are scored anew at a time: ties of a whole shelf must not copy it at once."""


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
    # scored anew, in one way for all: equal vectors are equal, whatever the filter.
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
