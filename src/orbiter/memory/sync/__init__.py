"""`AgentMemory` for programs without `async`: the same names, and every call waits.

The work is done by the async classes, on one background loop of the process; the loop of a caller
is never touched. Type checkers read `__init__.pyi`, which `docs/build_sync.py` writes.
"""

from importlib import import_module

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
_LATER = {
    "LongTermMemory": "_extracting",
    "MemoryOrchestrator": "_extracting",
    "export_file": "_moving",
    "import_file": "_moving",
    "migrate": "_moving",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
