"""A memory on each store, and users that no other test has.

The servers' databases are shared by the whole run: making one costs more than most tests.
"""

import secrets
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.agent._served import SERVED, served
from tests.servers.databases import (
    PostgresServer,
    RedisServer,
    postgres_server,
    redis_server,
)
from tests.stores.conftest import postgres_dsn

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.testing import HashEmbeddings

__all__ = ["postgres_dsn", "postgres_server", "redis_server"]

Open = Callable[..., AgentMemory]

DOORS = frozenset(("postgres", "redis", "memory", "http"))
EVERY_DOOR = frozenset(
    f"test_{name}"
    for name in (
        *("as_of", "chat", "counts", "entry_pages", "erase", "errors", "events", "evict", "facts"),
        *("forget_permanently", "idempotency", "random_histories", "redaction", "scope"),
        *("telemetry", "turn_killed", "urls", "users"),
    )
)
"""Modules of what depends on the store, or on the way to a server: they run through each.

All others ask what is decided above the stores, so SQLite alone answers in `make test`, and the
others in `make test-full`.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-full` what another store has no part in."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder and item.path.stem not in EVERY_DOOR:
            parameters = getattr(item, "callspec", None)
            if parameters and not DOORS.isdisjoint(map(str, parameters.params.values())):
                item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the address of a database that the tests of this folder share."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


def _url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "postgres":
        # Tests share the database: what another one has just written may not be embedded yet.
        warnings.filterwarnings("ignore", "[0-9,]+ memories are not embedded yet")
        return str(request.getfixturevalue("postgres_url"))
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return server.url()
    if kind == "http":
        return f"{SERVED}{folder}/agent.db"
    return "memory://" if kind == "memory" else f"sqlite:///{folder}/agent.db"


@pytest.fixture(params=["sqlite", "postgres", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a durable store that keeps what items were, or of one on a server."""
    return _url(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def local_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an address as `url` does, for tests of what only the store's own process has."""
    return _url(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres", "redis", "memory", "http"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a store of any kind."""
    return _url(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres", "redis", "memory"])
def any_local_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an address as `any_url` does, for tests of what only the store's own process has."""
    return _url(request.param, request, tmp_path)


@pytest.fixture
async def open_memory() -> AsyncIterator[Open]:
    """Return what makes memories, which are closed in the end."""
    made: list[AgentMemory] = []

    async with served() as serve:

        def make(url: str | Path | None = None, **options: object) -> AgentMemory:
            settings = {"embeddings": HashEmbeddings(), "summaries": None, **options}
            is_served = isinstance(url, str) and url.startswith(SERVED)
            # On a server, the options are those of the memory that it serves.
            place = f"sqlite:///{str(url).removeprefix(SERVED)}" if is_served else url
            memory = AgentMemory(place, **settings)  # type: ignore[arg-type]  # as the test says
            made.append(serve(memory) if is_served else memory)
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
async def local_memory(local_url: str, open_memory: Open) -> AgentMemory:
    """Return a memory as `memory` does, whose store is in this process."""
    return open_memory(local_url)


@pytest.fixture
async def any_local_memory(any_local_url: str, open_memory: Open) -> AgentMemory:
    """Return a memory as `any_memory` does, whose store is in this process."""
    return open_memory(any_local_url)


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


@pytest.fixture
def local_alice(local_memory: AgentMemory, who: str) -> ScopedMemory:
    return local_memory.scope(user_id=f"alice-{who}")


@pytest.fixture
def any_local_alice(any_local_memory: AgentMemory, who: str) -> ScopedMemory:
    return any_local_memory.scope(user_id=f"alice-{who}")


@pytest.fixture
def any_local_bob(any_local_memory: AgentMemory, who: str) -> ScopedMemory:
    return any_local_memory.scope(user_id=f"bob-{who}")
