"""`PostgresMemoryStore` behind pgbouncer in transaction mode keeps every contract."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import settings
from tests.servers.databases import PostgresServer
from tests.servers.postgres_replicas import PgBouncer, query
from tests.stores.test_postgres_conformance import TestWhole as WholeContract
from tests.stores.test_postgres_conformance import empty_tables, make_tables

from orbiter.memory import HumanMemory, MemoryStore, PostgresMemoryStore
from orbiter.memory.errors import StorageError
from orbiter.memory.testing import Recipe


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """Start a pgbouncer for one module; where there is none, tests skip."""
    if not postgres_server.is_ours:
        pytest.skip("the pooler stands before a server of our own")
    try:
        pooler = PgBouncer.start(postgres_server)
    except ModuleNotFoundError as exc:
        pytest.skip(str(exc))  # no package of Python's has it, so no run can require it
    with pooler:
        yield pooler


class TestPooled(WholeContract):
    is_variant = True
    model_settings = settings(WholeContract.model_settings, max_examples=5)

    @pytest.fixture(scope="class")
    @classmethod
    def database(cls, postgres_server: PostgresServer, pooler: PgBouncer) -> Iterator[str]:
        dsn = postgres_server.create_database()
        pooled = f"{pooler.url(dsn)}&statement_cache_size=0"
        asyncio.run(make_tables(pooled, None))
        yield dsn
        postgres_server.drop_database(dsn)

    @pytest.fixture
    async def store(self, database: str, pooler: PgBouncer) -> AsyncIterator[PostgresMemoryStore]:
        url = f"{pooler.url(database)}&statement_cache_size=0"
        async with PostgresMemoryStore(url) as store:
            yield store
        await empty_tables(database)

    def recipe(self, store: MemoryStore) -> Recipe:
        made: Any = store
        url = f"{made._dsn}&statement_cache_size=0"
        return Recipe("orbiter.memory.backends.postgres.store:PostgresMemoryStore", (url,))


async def test_no_lock_outlives_its_transaction(
    postgres_server: PostgresServer, pooler: PgBouncer
) -> None:
    dsn = await asyncio.to_thread(postgres_server.create_database)
    url = f"{pooler.url(dsn)}&statement_cache_size=0"
    async with PostgresMemoryStore(url) as one, PostgresMemoryStore(url) as two:
        items = [HumanMemory(id=f"{n % 7}", content=f"{n}") for n in range(60)]
        await asyncio.gather(*(store.add(item, by="ann") for item in items for store in (one, two)))

        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        assert await asyncio.to_thread(query, dsn, locks) == [(0,)]
        assert await two.count() == 7
        assert sum([len(await one.history(f"{n}")) for n in range(7)]) == 120


async def test_prepared_statements_behind_a_pooler_are_refused_with_the_way_out(
    postgres_server: PostgresServer, pooler: PgBouncer
) -> None:
    dsn = await asyncio.to_thread(postgres_server.create_database)
    async with PostgresMemoryStore(f"{pooler.url(dsn)}&statement_cache_size=0"):
        pass

    async def use() -> None:
        async with PostgresMemoryStore(pooler.url(dsn)) as store:
            for _ in range(200):
                await asyncio.gather(*(store.search(limit=n) for n in range(1, 11)))

    with pytest.raises(StorageError, match=r"add `\?statement_cache_size=0` to the URL"):
        await use()
