"""`RedisMemoryStore`: items in Redis, by scripts that are each one atomic step."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.backends.redis.store import RedisMemoryStore

__all__ = ["RedisMemoryStore"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "RedisMemoryStore": "store",
    },
)
