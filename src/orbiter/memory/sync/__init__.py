"""`AgentMemory` for programs without `async`: the same names, and every call waits.

The work is done by the async classes, on one background loop of the process; the loop of a caller
is never touched. Type checkers read `__init__.pyi`, which `docs/build_sync.py` writes.
"""

from orbiter.memory._lazy import lazy_names
from orbiter.memory.sync._background_loop import run
from orbiter.memory.sync._classes import (
    AgentMemory,
    AuditLog,
    Chat,
    Facts,
    FactsView,
    PastMemory,
    ScopedMemory,
    ShortTermMemoryManager,
)
from orbiter.memory.sync._streams import Stream

__all__ = [
    "AgentMemory",
    "AuditLog",
    "Chat",
    "Facts",
    "FactsView",
    "LongTermMemory",
    "MemoryOrchestrator",
    "PastMemory",
    "ScopedMemory",
    "ShortTermMemoryManager",
    "Stream",
    "export_file",
    "import_file",
    "migrate",
    "run",
]

# On first use: most programs move their data once, and few extract.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "LongTermMemory": "_extraction",
        "MemoryOrchestrator": "_extraction",
        "export_file": "_transfer",
        "import_file": "_transfer",
        "migrate": "_transfer",
    },
)
