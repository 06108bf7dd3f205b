"""Memories in and out: files of other programs are read in, and ours are written for others.

Everything is loaded on first use: most programs move their data once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbiter.memory.transfer._files import WRITTEN, export_file, import_file
    from orbiter.memory.transfer._known import FORMATS
    from orbiter.memory.transfer._limits import Limits
    from orbiter.memory.transfer._migrate import Migration, migrate
    from orbiter.memory.transfer._native import Exported, export_records, import_records
    from orbiter.memory.transfer._report import Imported, Problem

__all__ = [
    "FORMATS",
    "WRITTEN",
    "Exported",
    "Imported",
    "Limits",
    "Migration",
    "Problem",
    "export_file",
    "export_records",
    "import_file",
    "import_records",
    "migrate",
]

_HOMES = {
    "FORMATS": "_known",
    "WRITTEN": "_files",
    "Exported": "_native",
    "Imported": "_report",
    "Limits": "_limits",
    "Migration": "_migrate",
    "Problem": "_report",
    "export_file": "_files",
    "export_records": "_native",
    "import_file": "_files",
    "import_records": "_native",
    "migrate": "_migrate",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
