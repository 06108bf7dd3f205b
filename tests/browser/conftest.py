"""One browser for the whole run, and a server over sample memories that it looks at."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect
from tests.browser import _chromium
from tests.browser._sample import fill
from tests.browser._visits import Visit, open_visit

from orbiter.memory import AgentMemory
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.testing import HashEmbeddings

# What takes a moment takes longer on a busy machine; how long is no matter of these tests.
expect.set_options(timeout=60_000)

Look = Callable[..., Awaitable[Visit]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Return a browser without a window."""
    program = _chromium.program()
    # Without a sandbox of its own it also starts for root, as in containers. Small shared memory,
    # as these have, must not end it.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    async with (
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=program, args=arguments) as started,
    ):
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the sample memories."""
    return tmp_path_factory.mktemp("browser") / "sample.db"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def memory(store: Path) -> AsyncIterator[AgentMemory]:
    """Return sample memories, of which every test changes only what it has added itself."""
    async with AgentMemory(
        f"sqlite:///{store}", embeddings=HashEmbeddings(), summaries=None
    ) as made:
        await fill(made)
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(memory: AgentMemory) -> AsyncIterator[str]:
    """Return the address of a server over the sample memories."""
    settings = Settings(port=0, with_mcp=False, rate=10_000, burst=10_000)
    async with serving(create_app(memory, settings=settings), settings=settings) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def look(browser: Browser) -> AsyncIterator[Look]:
    """Return what opens pages: `await look(url, dark=True)`; what goes wrong in one is a failure.

    Nothing is asked of anybody else, nothing is refused, and no script fails.
    """
    async with AsyncExitStack() as stack:
        made: list[Visit] = []

        async def start(url: str, **how: object) -> Visit:
            made.append(await stack.enter_async_context(open_visit(browser, url, **how)))  # type: ignore[arg-type]
            return made[-1]

        yield start
        troubles = [trouble for each in made for trouble in each.troubles]
    assert not troubles, "\n".join(troubles)
