"""`SQLiteMemoryStore`: one file, many processes, words and vectors beside the rows."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore

__all__ = ["SQLiteMemoryStore"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "SQLiteMemoryStore": "store",
    },
)
