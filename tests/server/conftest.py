"""Servers on real sockets, over real stores; each test says what of it is its own."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, Role
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.testing import HashEmbeddings

Served = Callable[..., Awaitable[str]]
Client = Callable[..., httpx.AsyncClient]


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    """Return a file of keys that has none yet."""
    return KeyFile(tmp_path / "agent.db.keys.json")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    """Return a memory in a file, which makes no summaries."""
    async with AgentMemory(
        f"sqlite:///{tmp_path}/agent.db", embeddings=HashEmbeddings(), summaries=None
    ) as made:
        yield made


@pytest.fixture
async def served(memory: AgentMemory) -> AsyncIterator[Served]:
    """Return what starts servers: `await served(keys=…, read_only=True)` is the address.

    The memory is the fixture's unless another is given; the rest are fields of `Settings`. The
    application is the attribute `app` of what is called.
    """
    async with AsyncExitStack() as stack:

        async def start(
            memory: AgentMemory = memory, keys: KeyFile | None = None, **settings: object
        ) -> str:
            wanted = replace(Settings(port=0), **settings)  # type: ignore[arg-type]  # as the test says
            start.app = create_app(memory, settings=wanted, keys=keys)  # type: ignore[attr-defined]
            return await stack.enter_async_context(serving(start.app, settings=wanted))  # type: ignore[attr-defined]

        yield start


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Return what makes clients: `client(url, key)` shows the key with every request."""
    async with AsyncExitStack() as stack:
        made: list[httpx.AsyncClient] = []

        def make(url: str, key: str | None = None, **more: object) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            waits: dict[str, Any] = {"timeout": HANG, **more}
            made.append(httpx.AsyncClient(base_url=url, headers=headers, **waits))
            stack.push_async_callback(made[-1].aclose)
            return made[-1]

        yield make


def new_key(keys: KeyFile, role: Role = "write", user: str | None = None) -> str:
    """Make a key of *user*; return what opens the door."""
    return keys.create(scope=MemoryMetadata(user_id=user), role=role)[1]


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what nobody tells of, but for no more than a minute."""
    async with asyncio.timeout(HANG):
        while not is_so():  # noqa: ASYNC110 - what is looked at belongs to the system
            await asyncio.sleep(0.02)


def new_user() -> str:
    """Return a name that nobody else has."""
    return f"user-{secrets.token_hex(4)}"
