"""From what was measured to an order: weights, points and reasons. Deterministic and pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from orbiter.memory import words
from orbiter.memory.items import MemoryItem
from orbiter.memory.recall._features import Table
from orbiter.memory.recall._pool import speaker_of

__all__ = ["Scored", "score", "without_repeats"]

_NEAR = 50
"""How far down the list a repeat may stand: what says the same scores the same, or nearly."""
_ALIKE = 0.9
"""Share of terms in common from which two items say the same."""
_DENIALS = frozenset(("cannot", "never", "no", "none", "nobody", "nor", "not", "nothing"))


@dataclass(frozen=True, slots=True)
class Scored:
    """An item with the points that each column of the table gives it."""

    item: MemoryItem
    place: int
    """Its row in the table."""
    points: dict[str, float]

    @property
    def score(self) -> float:
        """The sum of its points."""
        return sum(self.points.values())


def score(table: Table, weights: Mapping[str, float], eligible: frozenset[str]) -> list[Scored]:
    """Return the eligible items, best first; of equals the newest, then by id."""
    used = [name for name in weights if name in table.columns]
    scored = [
        Scored(item, place, {name: weights[name] * table.columns[name][place] for name in used})
        for place, item in enumerate(table.items)
        if item.id in eligible
    ]
    return sorted(
        scored, key=lambda one: (-one.score, -one.item.created_at.timestamp(), one.item.id)
    )


def without_repeats(
    scored: Sequence[Scored], terms: Mapping[str, frozenset[str]], *, limit: int
) -> list[tuple[Scored, list[MemoryItem]]]:
    """Return at most *limit* items, each with those further down that say the same.

    *terms* are the terms of each item, by id.
    """
    chosen: list[tuple[Scored, list[MemoryItem]]] = []
    for one in scored:
        same = next(
            (
                repeats
                for earlier, repeats in chosen[-_NEAR:]
                if _is_alike(terms[earlier.item.id], terms[one.item.id])
                and _who(earlier.item) == _who(one.item)
                and _hinges(earlier.item.content) == _hinges(one.item.content)
            ),
            None,
        )
        if same is not None:
            same.append(one.item)
        elif len(chosen) < limit:
            chosen.append((one, []))
        else:
            break
    return chosen


def _who(item: MemoryItem) -> tuple[str, str | None]:
    return item.memory_type, speaker_of(item)


@lru_cache(maxsize=4096)
def _hinges(content: str) -> tuple[str, ...]:
    """Return what makes two texts differ that have all other words in common: numbers and noes."""
    return tuple(
        "not" if is_denial else word
        for word in words.tokens(content)
        if (is_denial := word in _DENIALS or word.endswith("n't")) or any(map(str.isdigit, word))
    )


def _is_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    if not one or not other:
        return False
    return len(one & other) >= _ALIKE * len(one | other)
