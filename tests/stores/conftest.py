"""A Postgres database of its own for every test that asks for one."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.servers.databases import PostgresServer, postgres_server

__all__ = ["postgres_dsn", "postgres_server"]


@pytest.fixture
async def postgres_dsn(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """Return the address of a fresh, empty database."""
    dsn = await asyncio.to_thread(postgres_server.create_database)
    yield dsn
    await asyncio.to_thread(postgres_server.drop_database, dsn)
