"""Memories in and out: files of other programs are read in, and ours are written for others.

Everything is loaded on first use: most programs move their data once.
"""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.transfer._migrate import Migration, migrate
    from orbiter.memory.transfer.files import export_file, import_file
    from orbiter.memory.transfer.formats.importer import Importer, SourceMemory
    from orbiter.memory.transfer.formats.registry import FORMATS, WRITTEN, import_formats
    from orbiter.memory.transfer.io.archives import Limits
    from orbiter.memory.transfer.io.source_file import SourceFile
    from orbiter.memory.transfer.native import ExportResult, export_records, import_records
    from orbiter.memory.transfer.report import ImportResult, Problem, ReportProblem

__all__ = [
    "FORMATS",
    "WRITTEN",
    "ExportResult",
    "ImportResult",
    "Importer",
    "Limits",
    "Migration",
    "Problem",
    "ReportProblem",
    "SourceFile",
    "SourceMemory",
    "export_file",
    "export_records",
    "import_file",
    "import_formats",
    "import_records",
    "migrate",
]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "FORMATS": "formats.registry",
        "WRITTEN": "formats.registry",
        "ExportResult": "native",
        "ImportResult": "report",
        "Limits": "io.archives",
        "Migration": "_migrate",
        "Problem": "report",
        "export_file": "files",
        "export_records": "native",
        "import_file": "files",
        "import_records": "native",
        "Importer": "formats.importer",
        "ReportProblem": "report",
        "SourceFile": "io.source_file",
        "SourceMemory": "formats.importer",
        "import_formats": "formats.registry",
        "migrate": "_migrate",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
