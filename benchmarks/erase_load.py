"""Erasing a user with 100,000 memories over REST, and how long others wait for their writes.

`orbiter-memory serve` runs as users run it: a process of its own over a SQLite file. A second user
writes one memory after the other: first alone, then while the first user is erased as a job. The
time of each write is its whole request.

    python -m benchmarks.erase_load [--memories 100000] [--others 20000]
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import httpx
from benchmarks._timing import Table, duration, exit_code

from orbiter.memory import AgentMemory

QUIET = 5.0
"""Seconds that the other user writes alone."""

BATCH = 2_000


async def fill(path: Path, user: str, count: int) -> None:
    """Remember *count* texts of a sentence each."""
    async with AgentMemory(path, embeddings=None, summaries=None) as memory:
        handle = memory.scope(user_id=user)
        for start in range(0, count, BATCH):
            await handle.remember_many(
                [
                    f"note {n}: the train to station {n % 977} leaves at {n % 24} o'clock, bring "
                    f"the {n % 313} tickets and the blue umbrella"
                    for n in range(start, min(start + BATCH, count))
                ]
            )
        await memory.flush()


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[str]:
    """Serve the file by the command; give its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orbiter.memory.cli", "serve", "--url", str(path), "--port", "0"),
        "--json",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ORBITER_MEMORY_MODEL": "none"},
    )
    assert process.stdout is not None
    text = b""
    while b"http://" not in text or not text.endswith(b"\n"):
        text += await process.stdout.readline()
    try:
        yield text.decode()[text.decode().index("http://") :].split('"')[0].split()[0].rstrip("/")
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()


async def write_until(http: httpx.AsyncClient, is_over: asyncio.Event) -> list[float]:
    """Write one memory after the other; return how long each took."""
    times = []
    while not is_over.is_set():
        began = perf_counter()
        answer = await http.post(
            "/v1/memories", params={"user_id": "bob"}, json={"what": f"bob notes {began}"}
        )
        answer.raise_for_status()
        times.append(perf_counter() - began)
        await asyncio.sleep(0.02)  # as one agent would, and within the rate of a key
    return times


async def measure(memories: int, others: int) -> int:
    """Show the table; return 1 if the erasure is not proven."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        await fill(path, "bob", others)
        await fill(path, "ann", memories)
        size = path.stat().st_size
        async with served(path) as url, httpx.AsyncClient(base_url=url, timeout=600) as http:
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(QUIET, over.set)
            quiet = await write_until(http, over)
            over = asyncio.Event()
            writing = asyncio.create_task(write_until(http, over))
            began = perf_counter()
            answer = await http.post(
                "/v1/erase", json={"user_id": "ann"}, headers={"Prefer": "respond-async"}
            )
            job = answer.json()
            while job["state"] in ("queued", "running"):
                where = f"/v1/jobs/{job['id']}"
                job = (await http.get(where, headers={"Prefer": "wait=20"})).json()
            took = perf_counter() - began
            over.set()
            beside = await writing
        left = path.stat().st_size
    report, usual = job["report"], median(quiet)
    title = f"erasing {report['items']:,} memories over REST: {took:.0f} s"
    table = Table(title, "others' writes", "count", "median", "worst", "worst / quiet median")
    for name, times in (("quiet", quiet), ("during the erasure", beside)):
        cells = (f"{len(times):,}", duration(median(times)), duration(max(times)))
        table.add(name, *cells, f"{max(times) / usual:.0f}")
    is_proven = job["state"] == "done" and not report["problems"]
    told = f"{answer.status_code}, {job['state']}, {size / 1e6:.0f} MB to {left / 1e6:.0f} MB"
    table.add("report", "", "", "", "", bar="proven", measured=told, ok=is_proven)
    return exit_code(table)


def main() -> int:
    """Measure as the command line says; return 1 if the erasure is not proven."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--others", type=int, default=20_000)
    given = parser.parse_args()
    return asyncio.run(measure(given.memories, given.others))


if __name__ == "__main__":
    sys.exit(main())
