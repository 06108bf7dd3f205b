"""`PostgresMemoryStore`: one database for many machines."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.backends.postgres.store import PostgresMemoryStore

__all__ = ["PostgresMemoryStore"]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "PostgresMemoryStore": "store",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
