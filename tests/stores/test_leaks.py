"""A million pairs of a row and a question, with ids that look alike: no store leaks one."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.servers.databases import redis_server

from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.redis.store import RedisMemoryStore
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.backends.vector.store import VectorMemoryStore
from orbiter.memory.model.items import new_id
from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.testing import Capabilities, HashEmbeddings, hostile_pairs_leak_nothing

__all__ = ["redis_server"]

FULL = Capabilities(where=True)
ABLE = {
    "sqlite": FULL,
    "postgres": FULL,
    "partitioned": FULL,
    "redis": FULL,
    "vector": Capabilities(
        text="meaning", lifecycle=False, durable=False, shared=False, where=True
    ),
    "short term": Capabilities(lifecycle=False, durable=False, shared=False),
    "short term of sessions": Capabilities(
        lifecycle=False, durable=False, shared=False, scope=("user_id", "session_id", "agent_id")
    ),
}


@pytest.fixture(params=ABLE)
def made(request: pytest.FixtureRequest) -> Any:
    """Return a store that is not opened yet, how it is opened, and what it can do."""
    name, how = request.param, {}
    store: Any
    if name == "sqlite":
        store = SQLiteMemoryStore()
    elif name == "redis":
        url = request.getfixturevalue("redis_server").url()
        store = RedisMemoryStore(url, name=new_id())
    elif name == "vector":
        store = VectorMemoryStore(HashEmbeddings(8))
    elif name.startswith("short term"):
        store = ShortTermMemory(scope="session" if "sessions" in name else "task")
    else:
        store = PostgresMemoryStore(request.getfixturevalue("postgres_dsn"))
        how = {"partitions": 4} if name == "partitioned" else {}
    return store, how, ABLE[name]


@pytest.fixture
async def opened(made: Any) -> AsyncIterator[Any]:
    store, how, able = made
    if hasattr(store, "init"):
        await store.init(**how)
    yield store, able
    if hasattr(store, "close"):
        await store.close()


async def test_no_row_leaks_in_a_million_pairs(opened: Any) -> None:
    store, able = opened

    judged = await hostile_pairs_leak_nothing(store, capabilities=able)

    assert judged >= 1_000_000
