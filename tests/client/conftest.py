"""Servers on real sockets, and memories that go through them."""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
from tests.server.conftest import keys, memory, new_key, served

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.sync import run
from orbiter.memory.testing import HashEmbeddings

__all__ = ["keys", "memory", "new_key", "served"]

Beside = Callable[..., str]


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    """Return what starts a server on another thread, for tests that block or have their own loops.

    `beside(keys=…)` is its address; the thread is that of the blocking memories.
    """
    with ExitStack() as stack:

        def start(*, keys: KeyFile | None = None) -> str:
            store = AgentMemory(tmp_path / "beside.db", embeddings=HashEmbeddings(), summaries=None)
            settings = Settings(port=0, with_mcp=False, with_dashboard=False)
            opened = AsyncExitStack()
            stack.callback(lambda: run(opened.aclose()))

            async def begin() -> str:
                app = create_app(store, settings=settings, keys=keys)
                return await opened.enter_async_context(serving(app, settings=settings))

            return run(begin())

        yield start
