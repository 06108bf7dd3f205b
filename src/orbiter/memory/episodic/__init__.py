"""Episodic short-term memory with a time to live: in Redis, SQLite, or this process."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.episodic.manager import ShortTermMemoryManager, get_short_term_memory
    from orbiter.memory.model.episode import EpisodicMemory

__all__ = ["EpisodicMemory", "ShortTermMemoryManager", "get_short_term_memory"]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "EpisodicMemory": "orbiter.memory.model.episode",
        "ShortTermMemoryManager": "manager",
        "get_short_term_memory": "manager",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
