"""What other processes remember is seen on the page as it happens."""

import asyncio
import sys
from pathlib import Path

import pytest
from mcp.client.stdio import stdio_client
from playwright.async_api import expect
from tests.browser.conftest import Look

from mcp import ClientSession, StdioServerParameters

pytestmark = pytest.mark.asyncio(loop_scope="session")

_CHILD = """
import asyncio, sys
from orbiter.memory import AgentMemory

async def main(path, text):
    async with AgentMemory(path, embeddings=None, summaries=None) as memory:
        await memory.scope(user_id="otto").remember(text)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_another_process_writes_and_the_strip_tells(
    site: str, look: Look, store: Path
) -> None:
    visit = await look(f"{site}/memories")
    await expect(visit.page.locator("[data-dot-text]")).to_have_text("connected")

    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, f"sqlite:///{store}", "The kiln is hot"
    )

    assert await child.wait() == 0
    await expect(visit.page.locator(".live")).to_contain_text("The kiln is hot")
    await expect(visit.page.locator(".live")).to_contain_text("otto")


async def test_an_agent_remembers_through_mcp_and_is_seen(
    site: str, look: Look, store: Path
) -> None:
    visit = await look(f"{site}/memories")
    await expect(visit.page.locator("[data-dot-text]")).to_have_text("connected")
    command = ["-m", "orbiter.memory.cli", "mcp", "--url", f"sqlite:///{store}", "--user", "ada"]
    command += ["--model", "none"]  # the sample's is none that a command line knows

    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=command)) as (read, write),
        ClientSession(read, write) as agent,
    ):
        await agent.initialize()
        told = await agent.call_tool("memory_add", {"texts": ["Ada likes the loom"]})

        assert not told.is_error
        await expect(visit.page.locator(".live")).to_contain_text("Ada likes the loom")
