"""Stores for processes that the kit starts: no more is imported than a store needs."""

from orbiter.memory.backends.redis.store import RedisMemoryStore


def redis_store(url: str, name: str, ttl_hours: float | None = None) -> RedisMemoryStore:
    return RedisMemoryStore(url, name=name, ttl_hours=ttl_hours)
