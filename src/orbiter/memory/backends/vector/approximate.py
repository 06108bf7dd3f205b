"""Which keys are probably the nearest, by usearch's HNSW graph; the matrix scores them itself.

Adding a vector to the graph costs about a millisecond, so writing only takes note of it, and the
next search catches up.
"""

import threading
from collections import deque

import numpy as np
import numpy.typing as npt

from orbiter.memory._lazy import missing_extra
from orbiter.memory.embeddings import onnx_runtime

onnx_runtime.share()

try:
    from usearch.index import Index
except ModuleNotFoundError as exc:
    raise missing_extra("approximate search needs usearch", "ann") from exc

__all__ = ["Candidates"]

_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int64]


class Candidates:
    """A graph over the vectors of a matrix, built by the first search. Threads may share it."""

    def __init__(self, dimension: int, keys: _Integers, vectors: _Floats) -> None:
        self._index = Index(
            ndim=dimension, metric="ip", dtype="f16", expansion_search=128, multi=True
        )
        self._lock = threading.Lock()
        self._notes: deque[tuple[_Integers, _Floats | None]] = deque([(keys, vectors)])

    def put(self, keys: _Integers, vectors: _Floats) -> None:
        """Take note of vectors, one for each of *keys*; what these had must be removed first."""
        self._notes.append((keys, vectors))

    def remove(self, key: int) -> None:
        """Take note that *key* is gone."""
        self._notes.append((np.array([key], np.int64), None))

    def nearest(self, towards: _Floats, count: int) -> _Integers:
        """Return the keys of more than *count* vectors that are probably the nearest."""
        with self._lock:
            while self._notes:
                keys, vectors = self._notes.popleft()
                if vectors is None:
                    self._index.remove(keys.view(np.uint64))
                else:
                    # Of two threads that add at once, one may leave the other's vector where no
                    # search comes by: up to 11 of 2,000 were lost.
                    self._index.add(keys.view(np.uint64), vectors, threads=1)
            matches = self._index.search(towards, 2 * count + 32)
            keys = np.asarray(matches.keys)
        return keys.view(np.int64)
