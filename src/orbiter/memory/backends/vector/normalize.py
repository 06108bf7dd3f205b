"""Normalized vectors: checked, of length 1, float32. A `VectorMatrix` holds nothing else."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from orbiter.memory.backends.vector.top_k import product

__all__ = ["best_cosines", "direction", "directions", "is_zero"]


def direction(vector: npt.ArrayLike, dimension: int) -> npt.NDArray[np.float32]:
    """Return one vector as a row of length 1, or raise a `ValueError` that says why."""
    try:
        array = np.asarray(vector)
    except ValueError:
        raise ValueError(f"a vector must have {dimension} numbers") from None
    usual = _usual(array, dimension)
    if usual is not None:
        return usual
    made: npt.NDArray[np.float32] = directions(array[None], dimension)[0]
    return made


def is_zero(vector: npt.ArrayLike, dimension: int) -> bool:
    """Tell whether a vector is sound but has zeros only: it is near nothing, and gets no row."""
    try:
        array = np.asarray(vector)
    except ValueError:
        return False
    return array.dtype.kind in "fiu" and array.shape == (dimension,) and not array.any()


def _usual(array: npt.NDArray[np.generic], dimension: int) -> npt.NDArray[np.float32] | None:
    """Return a vector that is nothing special, at a fraction of the cost."""
    if array.dtype.kind == "f" and array.shape == (dimension,):
        exact = array.astype(np.float64)
        with np.errstate(all="ignore"):
            square = float(exact @ exact)
        if 1e-60 < square < 1e60:
            return (exact / math.sqrt(square)).astype(np.float32)
    return None


def directions(vectors: npt.ArrayLike, dimension: int) -> npt.NDArray[np.float32]:
    """Return *vectors*, one per row, as rows of length 1, or raise a `ValueError` that says why."""
    try:
        array = np.asarray(vectors)
    except ValueError:  # of different lengths
        array = np.empty(0, np.object_)
    if array.dtype.kind not in "fiu" or array.ndim != 2:  # numpy would read text as numbers
        raise ValueError(f"vectors must be rows of {dimension} numbers each")
    if array.shape[1] != dimension:
        raise ValueError(f"vectors must have {dimension} numbers, not {array.shape[1]}")
    if len(array) == 1 and (usual := _usual(array[0], dimension)) is not None:
        return usual[None]
    if array.dtype == np.float32 and _are_unit(array):  # as all that are read from a file
        return array
    rows: npt.NDArray[np.floating] = array.astype(np.float32 if array.itemsize < 8 else np.float64)
    # By the largest number first: the square of a very small or large one is 0 or infinite.
    largest = np.abs(rows).max(axis=1, initial=0.0)
    for place in np.flatnonzero(~((largest > 0) & np.isfinite(largest))).tolist():
        what = "only zeros" if largest[place] == 0 else "a NaN or an infinity"
        raise ValueError(f"vector {place} of {len(rows)} has {what} and no direction")
    rows /= largest[:, None]
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows.astype(np.float32, copy=False)


def _are_unit(rows: npt.NDArray[np.float32]) -> bool:
    """Tell whether all rows have length 1, as far as their numbers can say."""
    with np.errstate(all="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
    return bool((np.abs(squares - 1) < _ROUNDED).all())


_ROUNDED = 1e-6
"""How far the square of the length of a float32 vector is from 1 by rounding, at most."""


def best_cosines(vector: npt.ArrayLike, blobs: Sequence[bytes], *, dimension: int) -> list[float]:
    """Return how near the nearest vector of each blob is; a blob holds one or more of length 1."""
    if not blobs:
        return []
    query_vector = direction(vector, dimension)
    counts = [len(blob) // (4 * dimension) for blob in blobs]
    rows = np.frombuffer(b"".join(blobs), np.float32).reshape(-1, dimension)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    best: list[float] = np.maximum.reduceat(product(rows, query_vector), starts).tolist()
    return best
