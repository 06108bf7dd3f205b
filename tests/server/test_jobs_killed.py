"""A server that is killed in the middle of an erasure goes on with it, and proves it.

Over Postgres the next server is on another machine: it has nothing but the database.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.servers.databases import postgres_server
from tests.stores.conftest import postgres_dsn
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.client import RemoteMemory

__all__ = ["postgres_dsn", "postgres_server"]

SERVER = """
import asyncio, sys
from datetime import timedelta
from orbiter.memory import AgentMemory
from orbiter.memory.backends.sql import erase as _sql_erasing
from orbiter.memory.backends.sql import erase as _sql_erase
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.server.api import job_table, jobs
from orbiter.memory.testing import HashEmbeddings

url, port, stop_after = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
_sql_erasing.SLICE = 5
job_table.LEASE, jobs._BEAT = timedelta(seconds=2), 0.2
checkpoint, count = _sql_erase.checkpoint, 0

async def watched(state):
    global count
    await checkpoint(state)
    count += 1
    if count == stop_after:
        print("middle", flush=True)
        await asyncio.Event().wait()

_sql_erase.checkpoint = watched

async def main():
    memory = AgentMemory(url, embeddings=HashEmbeddings(), summaries=None)
    settings = Settings(port=port, with_mcp=False, with_dashboard=False, rate=1e6, burst=10**6)
    async with serving(create_app(memory, settings=settings), settings=settings) as address:
        print(address, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
COUNT = 40


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, postgres_dsn: str) -> str:
    """Return the address of a store that outlives its server."""
    return f"sqlite:///{tmp_path}/a.db" if request.param == "sqlite" else postgres_dsn


class Server:
    """A server in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.process, self.address = process, address

    async def middle(self) -> None:
        """Wait until it has come to the middle of an erasure, where it stops."""
        assert self.process.stdout is not None
        assert await self.process.stdout.readline() == b"middle\n"

    async def kill(self) -> None:
        """Kill it, as a power cut would."""
        self.process.kill()
        await self.process.wait()


Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path, url: str) -> AsyncIterator[Start]:
    """Return what starts servers over the store."""
    folders: list[Path] = []
    async with AsyncExitStack() as stack:

        @asynccontextmanager
        async def run(port: int, stop_after: int) -> AsyncIterator[Server]:
            folders.append(tmp_path / f"data-{len(folders) if 'postgres' in url else 0}")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", SERVER, url, str(port), str(stop_after)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "XDG_DATA_HOME": str(folders[-1])},
            )
            assert process.stdout is not None
            yield Server(process, (await process.stdout.readline()).decode().strip())
            if process.returncode is None:
                await process.communicate(b"")

        async def begin(*, port: int = 0, stop_after: int = 0) -> Server:
            return await stack.enter_async_context(run(port, stop_after))

        yield begin


async def fill(url: str) -> None:
    async with AgentMemory(url, embeddings=None, summaries=None) as memory:
        for name in ("ann-quillfeather", "bob-ironmonger"):
            await memory.scope(user_id=name).remember_many(
                [f"{name} wrote the {n}th word of a canarybird" for n in range(COUNT)]
            )


def texts_in(folder: Path) -> int:
    """Return how often her name is in any file, read by another process."""
    files = [str(each) for each in folder.rglob("*") if each.is_file()]
    found = subprocess.run(["cat", *files], capture_output=True, check=True).stdout
    return found.count(b"ann-quillfeather")


@pytest.mark.parametrize("stop_after", [3, COUNT // 5 + 2], ids=["among-rows", "before-the-proof"])
async def test_who_waits_has_the_report_after_a_kill(
    url: str, start: Start, tmp_path: Path, stop_after: int
) -> None:
    await fill(url)
    server = await start(stop_after=stop_after)
    client = RemoteMemory(server.address)
    erasing = asyncio.create_task(client.erase(user_id="ann-quillfeather"))
    await server.middle()
    left = await client.scope(user_id="ann-quillfeather").stats()
    written = await client.scope(user_id="bob-ironmonger").remember("bob is let in meanwhile")
    await server.kill()
    assert not erasing.done()

    await start(port=int(server.address.rpartition(":")[2]))
    done = await erasing

    assert done, done
    assert done.items == COUNT > left.items
    assert done.probes > 10
    bob = client.scope(user_id="bob-ironmonger")
    assert (await client.scope(user_id="ann-quillfeather").stats()).items == 0
    assert (await bob.stats()).items == COUNT + 1
    assert await bob.get(written.id) is not None
    await client.close()
    assert texts_in(tmp_path) == 0  # nor in what is kept of the job


async def test_a_job_is_found_after_a_restart_by_its_address(url: str, start: Start) -> None:
    await fill(url)
    server = await start(stop_after=3)
    async with httpx.AsyncClient(base_url=server.address, timeout=HANG) as http:
        answer = await http.post(
            "/v1/erase", json={"user_id": "ann-quillfeather"}, headers={"Prefer": "respond-async"}
        )
    await server.middle()
    await server.kill()

    again = await start()
    async with httpx.AsyncClient(base_url=again.address, timeout=HANG) as http:
        job = answer.json()
        while job["state"] in ("queued", "running"):
            found = await http.get(answer.headers["location"], headers={"Prefer": "wait=20"})
            job = found.json()

    assert job["state"] == "done", job
    assert (job["report"]["items"], job["report"]["problems"]) == (COUNT, [])
    assert job["progress"]["done"] == job["progress"]["total"] == 2 * COUNT
