"""A memory on each store, and users that no other test has.

The servers' databases are shared by the whole run: making one costs more than most tests.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.stores.conftest import postgres_dsn

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.testing.servers import (
    PostgresServer,
    RedisServer,
    postgres_server,
    redis_server,
)

__all__ = ["postgres_dsn", "postgres_server", "redis_server"]

Open = Callable[..., AgentMemory]


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the address of a database that the tests of this folder share."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


def _url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return server.url()
    return "memory://" if kind == "memory" else f"sqlite:///{folder}/agent.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a durable store that keeps what items were."""
    return _url(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres", "redis", "memory"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a store of any kind."""
    return _url(request.param, request, tmp_path)


@pytest.fixture
async def open_memory() -> AsyncIterator[Open]:
    """Return what makes memories, which are closed in the end."""
    made: list[AgentMemory] = []

    def make(url: str | Path | None = None, **options: object) -> AgentMemory:
        settings = {"embeddings": HashEmbeddings(), "summaries": None, **options}
        made.append(AgentMemory(url, **settings))  # type: ignore[arg-type]  # as the test says
        return made[-1]

    yield make
    for memory in made:
        await memory.close()


@pytest.fixture
async def memory(url: str, open_memory: Open) -> AgentMemory:
    """Return a memory that makes no summaries."""
    return open_memory(url)


@pytest.fixture
async def any_memory(any_url: str, open_memory: Open) -> AgentMemory:
    """Return a memory on a store of any kind, which makes no summaries."""
    return open_memory(any_url)


@pytest.fixture
def who() -> str:
    """Return what makes the names of one test its own."""
    return secrets.token_hex(4)


@pytest.fixture
def alice(memory: AgentMemory, who: str) -> ScopedMemory:
    return memory.scope(user_id=f"alice-{who}")


@pytest.fixture
def bob(memory: AgentMemory, who: str) -> ScopedMemory:
    return memory.scope(user_id=f"bob-{who}")


@pytest.fixture
def any_alice(any_memory: AgentMemory, who: str) -> ScopedMemory:
    return any_memory.scope(user_id=f"alice-{who}")


@pytest.fixture
def any_bob(any_memory: AgentMemory, who: str) -> ScopedMemory:
    return any_memory.scope(user_id=f"bob-{who}")
