"""`from src.memory import …` in a checkout; everyone else imports from `orbiter.memory`."""

from orbiter.memory import (
    ContextManager,
    EpisodicMemory,
    ShortTermMemoryManager,
    get_short_term_memory,
)

__all__ = ["ContextManager", "EpisodicMemory", "ShortTermMemoryManager", "get_short_term_memory"]
