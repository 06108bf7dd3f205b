"""The candidates of one question, with the conversation around them. Values only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orbiter.memory.model.items import MemoryItem, role_of
from orbiter.memory.tasks.offload import is_much_text

__all__ = ["Clusters", "Pool", "are_many", "is_spoken", "is_talk", "speaker_of"]

_MANY = 40
"""Candidates that are weighed in a millisecond or two; more are not for the event loop's thread."""


def are_many(items: Iterable[MemoryItem]) -> bool:
    """Tell whether *items* are so many or so long that they are weighed in a thread."""
    return is_much_text(items, many=_MANY)


def speaker_of(item: MemoryItem) -> str | None:
    """Return the name of who spoke, from `metadata.extra["speaker"]`; `None` without one."""
    name = item.metadata.extra.get("speaker")
    return name.strip() if isinstance(name, str) and name.strip() else None


def is_spoken(item: MemoryItem) -> bool:
    """Tell whether somebody said it; what nobody did was put here for itself."""
    return role_of(item) is not None or speaker_of(item) is not None


def is_talk(item: MemoryItem) -> bool:
    """Tell whether it is part of a conversation, so that what stands around it belongs to it."""
    return item.metadata.session_id is not None and is_spoken(item)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The ids of items that belong to a flood or to a series, and which one that is."""

    copies: Mapping[str, int] = field(default_factory=dict)
    """Items that say the same: one of them is enough."""
    series: Mapping[str, int] = field(default_factory=dict)
    """Items that differ in nothing but their numbers: each is a fact."""

    def __bool__(self) -> bool:
        return bool(self.copies or self.series)


@dataclass(frozen=True, slots=True)
class Pool:
    """Items to choose from; those that do not match the filters only lend their context."""

    windows: Sequence[Sequence[MemoryItem]]
    """Each a piece of one conversation, in the order of time."""
    eligible: frozenset[str]
    """Ids of those that may be returned."""
    frequency: Mapping[str, int] = field(default_factory=dict)
    passages: int = 0
    similarity: Mapping[str, float] | None = None
    """The cosine of each item that has a vector; `None` when no model is in use."""
    query_token_vectors: bytes = b""
    """The vectors of the question's words, where the model gives them."""
    token_dimension: int = 0
    clusters: Clusters = field(default_factory=Clusters)
    """Items that are copies of many others, or differ from them in their numbers alone."""

    @property
    def items(self) -> list[MemoryItem]:
        """Every item, stretch by stretch."""
        return [item for window in self.windows for item in window]
