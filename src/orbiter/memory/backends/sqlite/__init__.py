"""`SQLiteMemoryStore`: one file, many processes, words and vectors beside the rows."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore

__all__ = ["SQLiteMemoryStore"]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "SQLiteMemoryStore": "store",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
