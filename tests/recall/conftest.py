"""Stores to recall from, and a recall that may say once more how it answers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.servers.databases import PostgresServer, postgres_server

from orbiter.memory import PostgresMemoryStore, SQLiteMemoryStore
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.recall import _modes
from orbiter.memory.testing import HashEmbeddings

__all__ = ["postgres_dsn", "postgres_server"]


MODELS = pytest.mark.parametrize(
    ("backend", "model"),
    [("sqlite", None), ("sqlite", HashEmbeddings(256)), ("postgres", HashEmbeddings(256))],
    indirect=["backend"],
    ids=["sqlite by words", "sqlite by vectors", "postgres by both"],
)


class Opening(Protocol):
    """Opens a new store."""

    def __call__(
        self, embeddings: Embeddings | None = None
    ) -> AbstractAsyncContextManager[Any]: ...


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> Iterator[str]:
    """Return a database with the tables of a store: to copy them is faster than to make them."""
    dsn = postgres_server.create_database()

    async def make_tables() -> None:
        async with PostgresMemoryStore(dsn):
            pass

    asyncio.run(make_tables())
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
async def postgres_dsn(
    postgres_server: PostgresServer, postgres_template: str
) -> AsyncIterator[str]:
    """Return the address of a database whose tables are empty."""
    dsn = await asyncio.to_thread(postgres_server.create_database, template=postgres_template)
    yield dsn
    await asyncio.to_thread(postgres_server.drop_database, dsn)


@pytest.fixture(autouse=True)
def _silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_modes, "_warned", {"no model"})


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    """Return which store to open."""
    return str(request.param)


@pytest.fixture
def opened(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """Return a function that opens the store, with embeddings of its own."""
    address: Any = tmp_path / "memory.db"
    kind: Any = SQLiteMemoryStore
    if backend == "postgres":
        address, kind = request.getfixturevalue("postgres_dsn"), PostgresMemoryStore

    @asynccontextmanager
    async def make(embeddings: Embeddings | None = None) -> AsyncIterator[Any]:
        async with kind(address, embeddings=embeddings) as store:
            yield store

    return make
