"""Polling a store for new items, whoever writes them: pages back to what is known already."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbiter.memory.agent.scope import ScopedMemory
    from orbiter.memory.model.filters import Where
    from orbiter.memory.model.items import MemoryItem

__all__ = ["PAGE", "SeenIds", "since"]

PAGE = 200
_MAX_SEEN = 10_000
"""The newest that are known by id; what comes later and is older than all of these is not told."""

_Place = tuple[datetime, str]
"""Where a memory stands in the order of time."""


class SeenIds:
    """What was there or was told: the ids of the newest, and where the rest begins.

    The rest is never new, not even when newer ones are forgotten and a page reaches it.
    """

    def __init__(self, items: "Iterable[MemoryItem]", *, is_all: bool) -> None:
        self._places = {item.id: _place(item) for item in items}
        self._rest = None if is_all else min(self._places.values(), default=None)

    def add(self, items: "Iterable[MemoryItem]") -> None:
        """Know these, too."""
        self._places |= {item.id: _place(item) for item in items}
        if len(self._places) > _MAX_SEEN:
            newest = sorted(self._places.values())[-_MAX_SEEN:]
            self._places = {item_id: (at, item_id) for at, item_id in newest}
            self._rest = newest[0]

    def has(self, item: "MemoryItem") -> bool:
        """Tell whether *item* is not new."""
        return item.id in self._places or self.is_rest(item)

    def is_rest(self, item: "MemoryItem") -> bool:
        """Tell whether nothing from *item* on can be new."""
        return self._rest is not None and _place(item) <= self._rest


async def since(
    memory: "ScopedMemory",
    known: SeenIds,
    *,
    memory_type: str | None = None,
    where: "Where | None" = None,
) -> "list[MemoryItem]":
    """Return what is not *known*, oldest first: pages are read back to one without anything new."""
    fresh: list[MemoryItem] = []
    cursor: str | None = None
    while True:
        page = await memory.list(limit=PAGE, cursor=cursor, memory_type=memory_type, where=where)
        new = [item for item in page if not known.has(item)]
        fresh += new
        # Clocks of several machines interleave, so only a page without any new one ends the walk.
        if not new or page.next is None or known.is_rest(page[-1]):
            return fresh[::-1]
        cursor = page.next


def _place(item: "MemoryItem") -> _Place:
    return item.created_at, item.id
