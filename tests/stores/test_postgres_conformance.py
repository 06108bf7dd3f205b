"""`PostgresMemoryStore` keeps every contract, on whole and on partitioned tables."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orbiter.memory import MemoryStore, PostgresMemoryStore
from orbiter.memory.testing import Capabilities, Recipe, StoreConformance


class TestWhole(StoreConformance):
    capabilities = Capabilities(versions=True, paging=True, where=True, bulk_delete=True)

    @pytest.fixture
    async def store(self, postgres_dsn: str) -> AsyncIterator[PostgresMemoryStore]:
        async with PostgresMemoryStore(postgres_dsn) as store:
            yield store

    def recipe(self, store: MemoryStore) -> Recipe:
        made: Any = store
        return Recipe("orbiter.memory.backends.postgres:PostgresMemoryStore", (made._dsn,))


class TestPartitioned(TestWhole):
    @pytest.fixture
    async def store(self, postgres_dsn: str) -> AsyncIterator[PostgresMemoryStore]:
        store = PostgresMemoryStore(postgres_dsn)
        await store.init(partitions=4)
        yield store
        await store.close()
