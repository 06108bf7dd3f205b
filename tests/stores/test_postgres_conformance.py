"""`PostgresMemoryStore` keeps every contract, on whole and on partitioned tables."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from orbiter.memory import MemoryStore, PostgresMemoryStore
from orbiter.memory.testing import Capabilities, Recipe, StoreConformance
from orbiter.memory.testing.servers import PostgresServer


class TestWhole(StoreConformance):
    capabilities = Capabilities(versions=True, paging=True, where=True, bulk_delete=True)

    model_settings = settings(StoreConformance.model_settings, max_examples=20)
    partitions: int | None = None

    @pytest.fixture(scope="class")
    @classmethod
    def template(cls, postgres_server: PostgresServer) -> Iterator[str]:
        """Make the tables once: to copy them takes a third of the time."""
        dsn = postgres_server.create_database()
        asyncio.run(_make_tables(dsn, cls.partitions))
        yield dsn
        postgres_server.drop_database(dsn)

    @pytest.fixture
    async def store(
        self, postgres_server: PostgresServer, template: str
    ) -> AsyncIterator[PostgresMemoryStore]:
        dsn = await asyncio.to_thread(postgres_server.create_database, template=template)
        async with PostgresMemoryStore(dsn) as store:
            yield store
        await asyncio.to_thread(postgres_server.drop_database, dsn)

    def recipe(self, store: MemoryStore) -> Recipe:
        made: Any = store
        return Recipe("orbiter.memory.backends.postgres:PostgresMemoryStore", (made._dsn,))


class TestPartitioned(TestWhole):
    partitions = 4
    model_settings = settings(TestWhole.model_settings, max_examples=10)


async def _make_tables(dsn: str, partitions: int | None) -> None:
    store = PostgresMemoryStore(dsn)
    await store.init(partitions=partitions)
    await store.close()
