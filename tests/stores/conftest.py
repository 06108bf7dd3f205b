"""A Postgres database of its own for every test that asks for one."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.servers.databases import PostgresServer, postgres_server

from orbiter.memory.testing.contracts.concurrency_contract import ConcurrencyContract
from orbiter.memory.testing.contracts.insert_contract import InsertContract
from orbiter.memory.testing.contracts.isolation_contract import IsolationContract
from orbiter.memory.testing.contracts.lifecycle_contract import (
    DurabilityContract,
    LifecycleContract,
)
from orbiter.memory.testing.contracts.state_machine_contract import ModelContract

__all__ = ["postgres_dsn", "postgres_server"]

DRIVERS = frozenset(
    name
    for contracts in (
        ModelContract,
        DurabilityContract,
        LifecycleContract,
        ConcurrencyContract,
        InsertContract,
        IsolationContract,
    )
    for name in vars(contracts)
    if name.startswith("test_")
)
"""Contracts that another driver or setting of a store can break; the rest is the same code."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-full` what a class with `is_variant` shares with the one it varies."""
    for item in items:
        if isinstance(item, pytest.Function) and getattr(item.cls, "is_variant", False):
            own = vars(item.cls).get(item.originalname)
            if own is None and item.originalname not in DRIVERS:
                item.add_marker(pytest.mark.full)


@pytest.fixture
async def postgres_dsn(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """Return the address of a fresh, empty database."""
    dsn = await asyncio.to_thread(postgres_server.create_database)
    yield dsn
    await asyncio.to_thread(postgres_server.drop_database, dsn)
