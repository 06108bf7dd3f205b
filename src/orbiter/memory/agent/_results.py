"""What the calls of `AgentMemory` return: a page, what was forgotten, counts, an event."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from orbiter.memory.items import MemoryItem, MemoryMetadata

__all__ = ["EventKind", "Forgotten", "MemoryEvent", "Page", "ScopeStats"]

EventKind = Literal[
    "remembered",
    "updated",
    "forgotten",
    "restored",
    "recalled",
    "said",
    "assembled",
    "summarized",
    "summary failed",
    "forked",
    "missed",
]
"""What can happen. `said`: messages came into a chat. `missed`: the reader was too slow."""


class Page(list[MemoryItem]):
    """Some items, newest first, and where the next page begins."""

    def __init__(self, items: list[MemoryItem], *, next: str | None) -> None:
        super().__init__(items)
        self.next = next
        """Pass it as `cursor=` to get the page of older items; `None` if this is the last."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What `forget` removed, or would remove. It is true if there is anything."""

    items: tuple[MemoryItem, ...]
    dry_run: bool = False

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[MemoryItem]:
        return iter(self.items)

    def __repr__(self) -> str:
        return f"Forgotten({len(self)} items, dry_run={self.dry_run})"


@dataclass(frozen=True, slots=True)
class ScopeStats:
    """How much is remembered in a scope."""

    items: int
    forgotten: int | None
    """What `restore` can still bring back; `None` where the store keeps nothing of it."""


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """Something that happened through an `AgentMemory` of this process; it holds no content."""

    kind: EventKind
    at: datetime
    scope: MemoryMetadata
    item_ids: tuple[str, ...] = ()
    detail: str = ""
