"""`AgentMemory` for programs without `async`: the same names, and every call waits.

The work is done by the async classes, on one background loop of the process; the loop of a caller
is never touched. Type checkers read `__init__.pyi`, which `docs/build_sync.py` writes.
"""

from orbiter.memory.sync._forms import (
    AgentMemory,
    AuditLog,
    Chat,
    Facts,
    FactsView,
    PastMemory,
    ScopedMemory,
    ShortTermMemoryManager,
)
from orbiter.memory.sync._loop import run
from orbiter.memory.sync._streams import Stream

__all__ = [
    "AgentMemory",
    "AuditLog",
    "Chat",
    "Facts",
    "FactsView",
    "PastMemory",
    "ScopedMemory",
    "ShortTermMemoryManager",
    "Stream",
    "run",
]
