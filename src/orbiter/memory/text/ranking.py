"""Ranked lists: reciprocal rank fusion, recency and diversity, as pure functions.

Scores are only ever compared within one call; nothing here knows what is ranked.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from orbiter.memory.errors import QueryError

__all__ = ["diversify", "fuse_ranks", "recency"]

_Key = TypeVar("_Key", bound=Hashable)


def fuse_ranks(
    rankings: Mapping[str, Sequence[_Key]],
    *,
    weights: Mapping[str, float] | None = None,
    k: int = 60,
) -> list[tuple[_Key, float]]:
    """Return the keys of several rankings, best first, with their reciprocal-rank score.

    A key earns `weight / (k + rank)` from each ranking that names it; 60 is the customary *k*.
    Ties go to the key seen first.
    """
    scores: dict[_Key, float] = {}
    for name, ranking in rankings.items():
        weight = 1.0 if weights is None else weights.get(name, 1.0)
        for rank, key in enumerate(dict.fromkeys(ranking), start=1):
            scores[key] = scores.get(key, 0.0) + weight / (k + rank)
    return sorted(scores.items(), key=lambda pair: -pair[1])


def recency(created_at: datetime, *, now: datetime, half_life_hours: float) -> float:
    """Return 1.0 for what is new, 0.5 for what is one half-life old, and so on.

    A time in the future counts as new.
    """
    if not half_life_hours > 0:
        raise QueryError(f"`half_life_hours` must be greater than 0, not {half_life_hours}")
    hours = max(0.0, (now - created_at).total_seconds() / 3600)
    return float(0.5 ** (hours / half_life_hours))


def diversify(
    scored: Sequence[tuple[_Key, float]],
    similarity: Callable[[_Key, _Key], float],
    *,
    limit: int,
    weight: float = 0.7,
) -> list[_Key]:
    """Return *limit* keys, each chosen for its score and for saying something new.

    Maximal marginal relevance: *weight* 1 looks at scores alone, 0 at newness alone.
    """
    if not 0 <= weight <= 1:
        raise QueryError(f"`weight` must be between 0 and 1, not {weight}")
    left = dict(scored)
    closest = dict.fromkeys(left, 0.0)
    chosen: list[_Key] = []
    while left and len(chosen) < limit:
        best = max(left, key=lambda key: weight * left[key] - (1 - weight) * closest[key])
        chosen.append(best)
        del left[best]
        for key in left:
            closest[key] = max(closest[key], similarity(best, key))
    return chosen
