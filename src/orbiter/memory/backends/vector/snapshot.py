"""`Look`: a shelf as it was at one moment. Searching it takes no lock and may take its time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orbiter.memory.backends.vector.normalize import direction
from orbiter.memory.backends.vector.subset_product import Subsets
from orbiter.memory.backends.vector.top_k import Rows, ranked

__all__ = ["Look"]

_MOST_WANTED = 200
"""Who wants more than this many is answered exactly: a graph is for few."""


@dataclass(frozen=True, slots=True)
class Look:
    """Some rows of a shelf, or all of them."""

    dimension: int
    seen: Rows
    places: npt.NDArray[np.int64] | None
    subsets: Subsets
    guess: Callable[[npt.NDArray[np.float32], int], npt.NDArray[np.int64]] | None = None
    """What names keys that are probably the nearest; `None` if all are looked at."""
    again: Callable[[npt.NDArray[np.int64]], "Look"] | None = None
    """What returns the rows of such keys."""

    @property
    def numbers(self) -> int:
        """How many numbers a search multiplies."""
        rows = len(self.seen.keys) if self.places is None else len(self.places)
        return rows * self.dimension

    def nearest(self, vector: npt.ArrayLike, count: int) -> list[tuple[int, float]]:
        """Return the *count* nearest keys and their cosines, best first, then by rank."""
        towards = direction(vector, self.dimension)
        if count < 1:
            return []
        if self.guess is not None and self.again is not None and count <= _MOST_WANTED:
            return self.again(self.guess(towards, count)).nearest(vector, count)
        if self.places is not None:
            scores = self.subsets.product(self.seen.vectors, self.places, towards)
        else:
            scores = self.seen.vectors @ towards
            if self.seen.dead is not None:
                np.putmask(scores, self.seen.dead, -np.inf)
        return ranked(self.seen, towards, scores, count, places=self.places)
