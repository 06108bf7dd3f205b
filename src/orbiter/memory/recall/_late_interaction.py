"""Late interaction: how well each word of the question is met by the words of a candidate.

Only for the best candidates, whose word vectors the store keeps; numpy is at hand where there is
a model. A word of the question may also be met by what was said just before or after, which is
how people talk: "Did you go hiking?" – "Yes, with my sister."
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orbiter.memory.recall._features import FeatureTable, standardise
from orbiter.memory.recall._signals import check_columns

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

__all__ = ["add_details"]

_ALONE, _TOGETHER = "detail", "neighbour_detail"
check_columns("word_vectors", (_ALONE, _TOGETHER))

_UNRELATED = 0.3
"""How near the nearest of a dozen words is that has nothing to do with a word, roughly."""


def add_details(
    table: FeatureTable,
    places: Sequence[int],
    *,
    asked: bytes,
    kept: Mapping[str, Sequence[bytes]],
    dimension: int,
) -> None:
    """Add the columns `detail` and `neighbour_detail` to *table*, measured at *places*.

    *asked* and *kept* are word vectors as `Embeddings.aembed_details` gives them. What has none is
    average, and so is every other row.
    """
    question = _unpacked(asked, dimension)
    met: dict[int, Floats | None] = {}

    def meeting(place: int | None) -> "Floats | None":
        if place is None or not len(question):
            return None
        if place not in met:
            met[place] = _met(question, kept.get(table.items[place].id, ()), dimension)
        return met[place]

    alone: list[float | None] = []
    together: list[float | None] = []
    for place in places:
        own = meeting(place)
        near = [meeting(table.before[place]), own, meeting(table.after[place])]
        known = [each for each in near if each is not None]
        alone.append(None if own is None else _mean(own))
        together.append(None if own is None else _mean(functools.reduce(_larger, known)))
    for name, values in ((_ALONE, alone), (_TOGETHER, together)):
        column = [0.0] * len(table.items)
        for place, value in zip(places, standardise(values, absent=_UNRELATED), strict=True):
            column[place] = value
        table.columns[name] = column


def _met(question: "Floats", passages: Sequence[bytes], dimension: int) -> "Floats | None":
    """Return how near the nearest word of the best passage is to each word asked."""
    best = None
    for passage in passages:
        words = _unpacked(passage, dimension)
        if len(words):
            near = (question @ words.T).max(axis=1)
            best = near if best is None or near.mean() > best.mean() else best
    return best


def _unpacked(rows: bytes, dimension: int) -> "Floats":
    import numpy as np  # noqa: PLC0415 - where there is a model there is numpy, and only there

    return np.frombuffer(rows, np.int8).reshape(-1, dimension).astype(np.float32) / np.float32(127)


def _larger(one: "Floats", other: "Floats") -> "Floats":
    return one.clip(min=other)


def _mean(values: "Floats") -> float:
    return float(values.mean())
