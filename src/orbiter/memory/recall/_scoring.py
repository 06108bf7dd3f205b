"""Scoring: from measured features to an order, and without repeats. Deterministic and pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count, groupby
from operator import attrgetter, eq

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.recall._features import FeatureTable
from orbiter.memory.recall.near_duplicates import Clusters, text_tokens, who_says

__all__ = ["Scored", "in_time", "score", "without_repeats"]

_NO_CLUSTERS = Clusters()


class Scored:
    """An item with the points that each column of the table gives it."""

    __slots__ = ("_points", "item", "place", "score")

    def __init__(
        self, item: MemoryItem, place: int, points: "Points", score: float | None = None
    ) -> None:
        self.item = item
        self.place = place
        """Its row in the table."""
        self._points = points
        self.score = sum(self.points.values()) if score is None else score
        """The sum of its points."""

    @property
    def points(self) -> Mapping[str, float]:
        """What each column gives it."""
        return self._points(self.place) if callable(self._points) else self._points


Points = Mapping[str, float] | Callable[[int], Mapping[str, float]]
"""The points of an item, or how they are found at its place: few are ever asked for theirs."""


def score(table: FeatureTable, weights: Mapping[str, float], places: Sequence[int]) -> list[Scored]:
    """Return the items at *places*, best first; of equals the newest, then by id."""
    columns, items = table.columns, table.items
    used = {name: weight for name, weight in weights.items() if name in columns}

    def points(place: int) -> dict[str, float]:
        return {name: weight * columns[name][place] for name, weight in used.items()}

    are_all = len(places) == len(items) and all(map(eq, places, count()))
    totals = [0.0] * len(places)
    for name, weight in used.items():
        column = columns[name]
        if any(column):
            values = column if are_all else [column[at] for at in places]
            totals = [total + weight * value for total, value in zip(totals, values, strict=True)]
    scored = [
        Scored(items[at], at, points, total) for at, total in zip(places, totals, strict=True)
    ]
    scored.sort(key=attrgetter("score"), reverse=True)
    if len(set(totals)) < len(totals):
        return [
            one for _, equals in groupby(scored, attrgetter("score")) for one in _newest(equals)
        ]
    return scored


def _newest(equals: Iterable[Scored]) -> list[Scored]:
    listed = list(equals)
    if len(listed) > 1:
        listed.sort(key=lambda one: (-one.item.created_at.timestamp(), one.item.id))
    return listed


def without_repeats(
    scored: Sequence[Scored],
    *,
    limit: int,
    clusters: Clusters = _NO_CLUSTERS,
    is_all: bool = True,
) -> list[tuple[Scored, list[MemoryItem]]]:
    """Return at most *limit* items, each with those further down that say the same.

    All of one flood of the *clusters* say the same. A series has half of the places, and more only
    if these items are *is_all* there is.
    """
    chosen: list[tuple[Scored, list[MemoryItem]]] = []
    repeats: dict[object, list[MemoryItem]] = {}
    of_series: Counter[int] = Counter()
    waiting: list[tuple[Scored, list[MemoryItem]]] = []
    for one in scored:
        said = who_says(one.item), text_tokens(one.item.content)
        flood = clusters.copies.get(one.item.id, said)
        same = repeats.get(flood, repeats.get(said))
        if same is None and len(chosen) == limit:
            break
        if same is not None:
            same.append(one.item)
        else:
            same = []
            series = clusters.series.get(one.item.id)
            if series is not None:
                of_series[series] += 1
            is_too_many = series is not None and of_series[series] > (limit + 1) // 2
            (waiting if is_too_many else chosen).append((one, same))
        repeats[flood] = repeats[said] = same
    if len(chosen) == limit or not waiting or not is_all:
        return chosen
    order = {one.item.id: place for place, one in enumerate(scored)}
    both = [*chosen, *waiting[: limit - len(chosen)]]
    return sorted(both, key=lambda each: order[each[0].item.id])


def in_time(item: MemoryItem) -> tuple[datetime, str]:
    """Return what sorts items by when they were said."""
    return item.created_at, item.id
