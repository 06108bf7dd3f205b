"""`RedisMemoryStore` keeps every contract, on one server, and with a TTL on a cluster."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import settings
from tests._redis_commands import shared_commands
from tests.servers.databases import RedisServer, redis_server
from tests.servers.redis_topologies import RedisCluster, redis_cluster

from orbiter.memory import MemoryStore
from orbiter.memory.backends.redis.store import RedisMemoryStore
from orbiter.memory.model.items import new_id
from orbiter.memory.testing import Capabilities, Recipe, StoreConformance

__all__ = ["redis_cluster", "redis_server"]


class TestOneServer(StoreConformance):
    capabilities = Capabilities(
        paging=True,
        where=True,
        bulk_delete=True,
        insert=True,
        insertion_order=True,
        key_value=True,
        facets=True,
        erase=True,
    )
    model_settings = settings(StoreConformance.model_settings, max_examples=20)
    ttl_hours: float | None = None

    @pytest.fixture
    def address(self, redis_server: RedisServer) -> str:
        return redis_server.url()

    @pytest.fixture
    async def store(self, address: str) -> AsyncIterator[RedisMemoryStore]:
        async with RedisMemoryStore(address, name=new_id(), ttl_hours=self.ttl_hours) as store:
            yield store

    def recipe(self, store: MemoryStore) -> Recipe:
        made: Any = store
        return Recipe("tests.stores._reopen:redis_store", (made._url, made.name, self.ttl_hours))


class TestClusterWithATTL(TestOneServer):
    is_variant = True
    ttl_hours = 1.0
    model_settings = settings(TestOneServer.model_settings, max_examples=10)

    @pytest.fixture
    def address(self, redis_cluster: RedisCluster) -> Iterator[str]:
        with shared_commands():
            yield redis_cluster.url()
