"""What is in quarantine, and where memories come from: told by a sample of a scope."""

from collections import Counter

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent.quarantine import QUARANTINE
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.trust import source_of

__all__ = ["SAMPLE", "hidden_in", "sources_of"]

SAMPLE = 200
"""Forgotten memories whose history is looked at; each takes a question of its own."""
_MOST_SOURCES = 12


async def hidden_in(handle: ScopedMemory) -> dict[str, list[MemoryItem]] | None:
    """Return what is hidden, by source; `None` where the store keeps nothing that is forgotten."""
    try:
        page = await handle.list(forgotten=True, limit=SAMPLE)
    except UnsupportedError:
        return None
    found: dict[str, list[MemoryItem]] = {}
    for item in page:
        past = await handle.history(item.id)
        if past and past[-1].change == "deleted" and past[-1].by == QUARANTINE:
            found.setdefault(source_of(item), []).append(item)
    return found


async def sources_of(handle: ScopedMemory) -> list[tuple[str, int]]:
    """Return the sources of the newest memories, the most frequent first, and how many."""
    page = await handle.list(limit=1_000)
    return Counter(map(source_of, page)).most_common(_MOST_SOURCES)
