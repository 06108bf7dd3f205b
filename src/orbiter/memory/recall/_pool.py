"""The candidates of one question, with the conversation around them. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orbiter.memory.items import MemoryItem

__all__ = ["Pool", "speaker_of"]


def speaker_of(item: MemoryItem) -> str | None:
    """Return the name of who spoke, from `metadata.extra["speaker"]`; `None` without one."""
    name = item.metadata.extra.get("speaker")
    return name.strip() if isinstance(name, str) and name.strip() else None


@dataclass(frozen=True, slots=True)
class Pool:
    """Items to choose from; those that do not match the filters only lend their context."""

    stretches: Sequence[Sequence[MemoryItem]]
    """Each a piece of one conversation, in the order of time."""
    eligible: frozenset[str]
    """Ids of those that may be returned."""
    frequency: Mapping[str, int] = field(default_factory=dict)
    passages: int = 0
    similarity: Mapping[str, float] | None = None
    """The cosine of each item that has a vector; `None` when no model is in use."""
    asked: bytes = b""
    """The vectors of the question's words, where the model gives them."""
    asked_dimension: int = 0

    @property
    def items(self) -> list[MemoryItem]:
        """Every item, stretch by stretch."""
        return [item for stretch in self.stretches for item in stretch]
