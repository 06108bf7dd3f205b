"""What a store's search structures find for recall: values only, nothing decided yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orbiter.memory.model.items import MemoryItem

__all__ = ["WordMatches"]


@dataclass(frozen=True, slots=True)
class WordMatches:
    """Items that hold terms of a question, and how telling these terms are.

    The *rarity* of a term is `ln(1 + (passages - f + 0.5) / (f + 0.5))`, where `f` is its
    frequency. An item counts by its best passage: the sum of the rarities of the terms in it.
    """

    items: Sequence[MemoryItem]
    """Best first, of equals the newest."""
    frequency: Mapping[str, int]
    """In how many passages of the user's each asked term stands."""
    passages: int
    """How many passages the user has in all."""
