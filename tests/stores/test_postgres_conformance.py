"""`PostgresMemoryStore` keeps every contract, on whole and on partitioned tables."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import settings
from tests.servers.databases import PostgresServer

from orbiter.memory import MemoryStore, PostgresMemoryStore
from orbiter.memory.testing import Capabilities, Recipe, StoreConformance

asyncpg = importlib.import_module("asyncpg")  # it ships no types, so mypy refuses the statement


class TestWhole(StoreConformance):
    capabilities = Capabilities(
        versions=True,
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
    partitions: int | None = None

    @pytest.fixture(scope="class")
    @classmethod
    def database(cls, postgres_server: PostgresServer) -> Iterator[str]:
        """Make the tables once: a database of its own takes longer than most contracts."""
        dsn = postgres_server.create_database()
        asyncio.run(make_tables(dsn, cls.partitions))
        yield dsn
        postgres_server.drop_database(dsn)

    @pytest.fixture
    async def store(self, database: str) -> AsyncIterator[PostgresMemoryStore]:
        async with PostgresMemoryStore(database) as store:
            yield store
        await empty_tables(database)

    def recipe(self, store: MemoryStore) -> Recipe:
        made: Any = store
        return Recipe("orbiter.memory.backends.postgres.store:PostgresMemoryStore", (made._dsn,))


class TestPartitioned(TestWhole):
    is_variant = True
    partitions = 4
    model_settings = settings(TestWhole.model_settings, max_examples=10)


# Nobody whom a contract killed or cancelled writes on. Without the triggers, which would note each
# row that goes. What tells versions stays.
EMPTY = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
SET session_replication_role = replica;
DO $$ DECLARE name text; BEGIN
    FOR name IN
        SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
            AND NOT relispartition
            AND relname NOT IN ('memory_audit_head', 'memory_schema', 'memory_words')
    LOOP EXECUTE format('DELETE FROM %I', name); END LOOP;
END $$
"""


async def empty_tables(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(EMPTY)
    finally:
        await connection.close()


async def make_tables(dsn: str, partitions: int | None) -> None:
    store = PostgresMemoryStore(dsn)
    await store.init(partitions=partitions)
    await store.close()
