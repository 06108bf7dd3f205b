"""`RedisMemoryStore`: items in Redis, by scripts that are each one atomic step."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.backends.redis.store import MAX_BATCH, RedisMemoryStore

__all__ = ["MAX_BATCH", "RedisMemoryStore"]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "MAX_BATCH": "store",
        "RedisMemoryStore": "store",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
