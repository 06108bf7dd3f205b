"""Blocking names that few programs need: extraction, import, export and migration."""

from collections.abc import Callable
from typing import Any

from orbiter.memory import extraction, transfer
from orbiter.memory.sync._facade import Blocking, blocking_class, blocking_function, unwrap

__all__ = [
    "LongTermMemory",
    "MemoryOrchestrator",
    "export_file",
    "import_file",
    "migrate",
]


def _of_twins(make: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[], Any]:
    """Return what makes an async object of the twins of *args*, those of this process."""
    return lambda: make(*map(unwrap, args), **{name: unwrap(each) for name, each in kwargs.items()})


@blocking_class(extraction.LongTermMemory)
class LongTermMemory(Blocking[extraction.LongTermMemory]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_of_twins(extraction.LongTermMemory, args, kwargs))


@blocking_class(extraction.MemoryOrchestrator)
class MemoryOrchestrator(Blocking[extraction.MemoryOrchestrator]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_of_twins(extraction.MemoryOrchestrator, args, kwargs))


export_file = blocking_function(transfer.export_file)
import_file = blocking_function(transfer.import_file)
migrate = blocking_function(transfer.migrate)
