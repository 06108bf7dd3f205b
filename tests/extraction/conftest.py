"""The memories of tests/agent, and a real HTTP server that speaks the chat API."""

from collections.abc import AsyncIterator, Callable

import pytest
from tests.agent.conftest import (
    alice,
    any_alice,
    any_memory,
    bob,
    memory,
    open_memory,
    postgres_url,
    who,
)
from tests.agent.conftest import any_local_url as any_url  # a queue is worked on beside its store
from tests.agent.conftest import local_url as url
from tests.extraction._server import ChatServer
from tests.listening import listening
from tests.servers.databases import postgres_server, redis_server
from tests.stores.conftest import postgres_dsn
from tests.stores.postgres_recall import role_dsn

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory

__all__ = [
    "alice",
    "any_alice",
    "any_memory",
    "any_url",
    "bob",
    "memory",
    "open_memory",
    "postgres_dsn",
    "postgres_server",
    "postgres_url",
    "redis_server",
    "role_dsn",
    "url",
    "who",
]


@pytest.fixture
def here(open_memory: Callable[..., AgentMemory]) -> ScopedMemory:
    """Return a handle on a store of this process."""
    return open_memory("memory://").scope(user_id="alice")


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    made = ChatServer()
    async with listening(made.serve) as url:
        made.url = f"{url}/v1"
        yield made
