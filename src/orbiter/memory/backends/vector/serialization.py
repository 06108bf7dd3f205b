"""Vectors as a file keeps them: float32, one after the other, the passages of an item in a row."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from orbiter.memory.backends.vector.normalize import direction

__all__ = ["best_cosines"]


def best_cosines(vector: npt.ArrayLike, blobs: Sequence[bytes], *, dimension: int) -> list[float]:
    """Return how near the nearest vector of each blob is; a blob holds one or more of length 1."""
    if not blobs:
        return []
    asked = direction(vector, dimension)
    counts = [len(blob) // (4 * dimension) for blob in blobs]
    rows = np.frombuffer(b"".join(blobs), np.float32).reshape(-1, dimension)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    best: list[float] = np.maximum.reduceat(rows @ asked, starts).tolist()
    return best
