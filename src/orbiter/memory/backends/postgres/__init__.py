"""`PostgresMemoryStore`: one database for many machines."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.backends.postgres.store import PostgresMemoryStore

__all__ = ["PostgresMemoryStore"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "PostgresMemoryStore": "store",
    },
)
