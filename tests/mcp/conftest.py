"""Servers of the protocol in this process, and clients for both eras of the protocol."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tests.mcp.sdk_client import ERAS, Client, connected

from orbiter.memory import AgentMemory, ScopedMemory
from orbiter.memory.mcp import Profile, build

if TYPE_CHECKING:
    from orbiter.memory.mcp.sdk_server import MemoryServer

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """Return how the client begins."""
    return str(request.param)


@pytest.fixture
async def memory() -> AsyncIterator[AgentMemory]:
    """Return a memory of this process, by words alone."""
    async with AgentMemory("memory://", embeddings=None, summaries=None) as made:
        yield made


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    """Return the handle of alice."""
    return memory.scope(user_id="alice")


@pytest.fixture
async def connect(alice: ScopedMemory) -> Connect:
    """Return what connects a client to a server of alice's memories."""

    def make(
        tools: Profile = "memory", *, mode: str = "auto", read_only: bool = False
    ) -> AbstractAsyncContextManager[Client]:
        _now["handle"] = alice
        return Client(_built(tools, read_only), mode=mode)

    return make


_now: dict[str, ScopedMemory] = {}


@cache
def _built(tools: Profile, read_only: bool) -> "MemoryServer":
    """Return a server for all tests: it asks for the handle at every call."""
    return build(lambda _: _now["handle"], tools=tools, read_only=read_only)


@asynccontextmanager
async def over_http(
    url: str, key: str | None = None, *, mode: str = "auto"
) -> AsyncIterator[Client]:
    """Connect to the address of a server with a key."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with connected(url, headers, mode) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool that must succeed; return its structure."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that must not succeed; return what the model is told."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    assert result.structured_content is None
    return text_of(result)


def text_of(result: Any) -> str:
    """Return what a model without a sense of structure is shown."""
    [content] = result.content
    return str(content.text)
