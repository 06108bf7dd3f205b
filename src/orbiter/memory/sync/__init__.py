"""`AgentMemory` for programs without `async`: the same names, and every call waits.

The work is done by the async classes, on one background loop of the process; the loop of a caller
is never touched. Type checkers read `__init__.pyi`, which `docs/build_sync.py` writes.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import finalize

from orbiter.memory import agent
from orbiter.memory._lazy import lazy_names
from orbiter.memory.episodic import manager
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.sync._background_loop import close_at_exit, close_soon, run
from orbiter.memory.sync._facade import Blocking, Stream, async_form, blocking_class

__all__ = [
    "AgentMemory",
    "AuditLog",
    "Chat",
    "Facts",
    "FactsView",
    "KeyValue",
    "LongTermMemory",
    "MemoryOrchestrator",
    "PastMemory",
    "ScopedMemory",
    "ShortTermMemoryManager",
    "Stream",
    "async_form",
    "export_file",
    "import_file",
    "migrate",
    "run",
]

# On first use: most programs move their data once, and few extract.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "LongTermMemory": "_first_use",
        "MemoryOrchestrator": "_first_use",
        "export_file": "_first_use",
        "import_file": "_first_use",
        "migrate": "_first_use",
    },
)


# From the inside out: a form must be known before another hands it out.


@blocking_class(manager.ShortTermMemoryManager)
class ShortTermMemoryManager(Blocking[manager.ShortTermMemoryManager]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(partial(manager.ShortTermMemoryManager, *args, **kwargs))


@blocking_class(agent.Chat)
class Chat(Blocking[agent.Chat]):
    def _again(self, value: object) -> Callable[[], object]:
        # A branch that was made is a chat like any other: to fork again would make another one.
        branch: Any = value
        return lambda: self._other()._handle.chat(branch.id)  # noqa: SLF001 - two of a kind


@blocking_class(agent.FactsView)
class FactsView(Blocking[agent.FactsView]):
    pass


@blocking_class(agent.Facts)
class Facts(Blocking[agent.Facts]):
    pass


@blocking_class(agent.KeyValue)
class KeyValue(Blocking[agent.KeyValue]):
    pass


@blocking_class(agent.PastMemory)
class PastMemory(Blocking[agent.PastMemory]):
    pass


@blocking_class(agent.AuditLog)
class AuditLog(Blocking[agent.AuditLog]):
    pass


@blocking_class(agent.ScopedMemory)
class ScopedMemory(Blocking[agent.ScopedMemory]):
    # It waits for nothing itself. Of this handle, an async client may be used in any event loop.
    wrap = agent.ScopedMemory.wrap


@blocking_class(agent.AgentMemory)
class AgentMemory(Blocking[agent.AgentMemory]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(partial(agent.AgentMemory, *args, **kwargs))
        self._used: agent.AgentMemory | None = None

    def _other(self) -> agent.AgentMemory:
        if self._process != os.getpid() and self._used and self._twin.url == "memory://":
            raise UnsupportedError(
                "the contents of `memory://` stayed in the parent process; make a memory here, "
                "or use a file"
            )
        twin = super()._other()
        if self._used is not twin:
            self._used = twin
            close_at_exit(twin)
            finalize(self, close_soon, twin, os.getpid()).atexit = False
        return twin
