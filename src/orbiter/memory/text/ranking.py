"""Ranked lists: reciprocal rank fusion, recency and the cut for a prompt, as functions.

Scores are only ever compared within one call; nothing here knows what is ranked.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.errors import QueryError
from orbiter.memory.text.words import is_filler

__all__ = [
    "ANSWERED",
    "MIN_RELEVANCE",
    "asked_for_prompt",
    "check_relevance",
    "for_prompt",
    "fuse_ranks",
    "is_answered",
    "least_relevance",
    "recency",
]

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


MIN_RELEVANCE = 0.005
"""`min_relevance` of every recall, unless it is given: what is lower clearly does not answer. `0`
leaves out nothing."""
ANSWERED = 0.05
"""What the most relevant memory needs: with less, nothing answers the question."""
_SURE, _BESIDE_SURE, _IN_PROMPT = 0.7, 0.05, 0.01
"""Beside a memory that surely answers, others need more for their place in a prompt."""


class Relevant(Protocol):
    """A hit of recall, or anything else that may answer a question."""

    @property
    def content(self) -> str:
        """What it says."""
        ...

    @property
    def relevance(self) -> float:
        """The probability that it does, from 0 to 1."""
        ...


_Hit = TypeVar("_Hit", bound=Relevant)


def least_relevance(best: float) -> float:
    """Return what a memory needs for a place in a prompt, where the most relevant has *best*."""
    return _BESIDE_SURE if best >= _SURE else _IN_PROMPT


def is_answered(hits: Iterable[Relevant]) -> bool:
    """Tell whether any of *hits* is relevant enough to say that the question is answered."""
    return any(hit.relevance >= ANSWERED for hit in hits)


def asked_for_prompt(min_relevance: float | None) -> float:
    """Return the `min_relevance` of a recall whose hits `for_prompt` chooses from.

    By default all of them: it judges each beside the best, and what it leaves out can be named.
    """
    return 0.0 if min_relevance is None else min_relevance


def for_prompt(hits: Sequence[_Hit], min_relevance: float | None = None) -> list[_Hit]:
    """Return those of *hits* that belong into a prompt, in their order.

    With *min_relevance*, those that reach it. Else what surely does not answer is left out, and all
    of them if nothing answers; so is what is only polite, such as "Okay, noted.". What hardly does
    comes last, and so does what only asks: there may be no room for all. It is left out beside a
    sure answer. Hits over time stay in its order, and none of them is left out for its relevance:
    each part of a long matter says little of it.
    """
    if min_relevance is not None:
        return [hit for hit in hits if hit.relevance >= min_relevance]
    telling = [hit for hit in hits if not is_filler(hit.content)]
    if not is_answered(telling):
        return []
    if getattr(hits, "spread", False):
        return telling
    least = least_relevance(max(hit.relevance for hit in telling))
    kept = [hit for hit in telling if hit.relevance >= least]
    kept.sort(key=lambda hit: hit.relevance < ANSWERED or _only_asks(hit.content))
    return kept


_STATEMENT = lazy_pattern(r"[.!。！]\s|\n")


def _only_asks(text: str) -> bool:
    """Tell whether a text is a single question: whoever asked the same before knew no answer."""
    return text.rstrip().endswith(("?", "？")) and _STATEMENT.search(text.strip()) is None


def check_relevance(value: object) -> float:
    """Return *value* if it is a number from 0 to 1, else raise `QueryError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise QueryError(f"`min_relevance` must be a number from 0 to 1, not {value!r}")
    return float(value)
