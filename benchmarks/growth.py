"""What grows with a store: facts of one key, `stats`, an export, the dashboard, an erasure.

    python -m benchmarks.growth [--full]

All of it is the CPU time of this process, over a SQLite file: other programs may be busy. `--full`
goes up to a million memories.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import process_time

import httpx
from benchmarks._timing import Table, duration, exit_code
from benchmarks.erase_load import fill

from orbiter.memory import AgentMemory, SQLiteMemoryStore
from orbiter.memory.server import create_app
from orbiter.memory.transfer import export_file

EARLIER = (0, 300, 900)
"""How many values a key had before."""

FLAT_BAR, LINEAR_BAR, ERASE_BAR = 2.0, 1.5, 15.0
"""Growth of what should be flat; of the time for each memory; and seconds for 100,000 of them."""

CALLS = 25

Call = Callable[[], Awaitable[object]]


async def cpu_of(call: Call, calls: int = 1) -> float:
    """Return the CPU time of a call, the least of several: threads that index work beside it."""
    times = []
    for _ in range(calls):
        began = process_time()
        await call()
        times.append(process_time() - began)
    return min(times)


async def of_facts(folder: Path) -> Table:
    """Return what asking and changing one key costs, and a recall beside it."""
    every = [await _facts_costs(folder / f"{count}.db", count) for count in EARLIER]
    table = Table("Facts: earlier values of one key", "", *map(str, EARLIER))
    for name in every[0]:
        times = [each[name] for each in every]
        grown = times[-1] / times[0]
        table.add(
            name,
            *map(duration, times),
            measured=f"{grown:.1f} ×",
            bar=f"≤ {FLAT_BAR:g} ×",
            ok=grown <= FLAT_BAR,
        )
    return table


async def _facts_costs(path: Path, count: int) -> dict[str, float]:
    async with AgentMemory(path, embeddings=None, summaries=None) as memory:
        alice, values = memory.scope(user_id="alice"), iter(range(10**6))

        async def put() -> None:
            await alice.facts.put("city", f"town {next(values)}")

        for _ in range(count + 1):
            await put()
        await alice.remember("Alice likes oolong tea.")
        await memory.flush()
        return {
            "facts.get": await cpu_of(lambda: alice.facts.get("city"), CALLS),
            "facts.put": await cpu_of(put, CALLS),
            "recall": await cpu_of(lambda: alice.recall("which city"), CALLS),
        }


async def of_size(path: Path, size: int) -> dict[str, float]:
    """Return what each call costs among so many memories of one user; the last erases them."""
    await fill(path, "ann", size)
    async with SQLiteMemoryStore(path) as store:
        await store.optimize()  # what is not indexed yet is counted row by row
    costs = {}
    async with AgentMemory(path, embeddings=None, summaries=None) as memory:
        ann = memory.scope(user_id="ann")
        for name, call in (("scope.stats", ann.stats), ("memory.stats", memory.stats)):
            await call()
            costs[name] = await cpu_of(call, CALLS)
        app = create_app(memory)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app, client=("127.0.0.1", 1)),
                base_url="http://127.0.0.1:8765",
            ) as browser,
        ):

            async def home() -> None:
                (await browser.get("/")).raise_for_status()

            await home()
            costs["dashboard home"] = await cpu_of(home, 5)
        costs["export_file"] = await cpu_of(lambda: export_file(ann, path.with_suffix(".jsonl")))
        began = process_time()
        done = await memory.erase(user_id="ann")
        costs["erase"] = process_time() - began
        if not done or done.items != size:
            raise SystemExit(f"the erasure is not proven: {done}")
    return costs


def size_table(sizes: Sequence[int], costs: Sequence[dict[str, float]]) -> Table:
    """Return how each call grows: flat, or by what it returns or removes."""
    table = Table("CPU time, memories of one user", "", *(f"{size:,}" for size in sizes))
    for name in costs[0]:
        times = [each[name] for each in costs]
        is_flat = name in ("scope.stats", "memory.stats", "dashboard home")
        grown = times[-1] / times[0] / (1 if is_flat else sizes[-1] / sizes[0])
        bar = FLAT_BAR if is_flat else LINEAR_BAR
        table.add(
            name if is_flat else f"{name}, growth for each memory",
            *map(duration, times),
            measured=f"{grown:.2f} ×",
            bar=f"≤ {bar:g} ×",
            ok=grown <= bar,
        )
    if 100_000 in sizes:
        took = costs[sizes.index(100_000)]["erase"]
        table.add(
            "erase of 100,000",
            *[""] * len(sizes),
            measured=duration(took),
            bar=f"≤ {ERASE_BAR:g} s",
            ok=took <= ERASE_BAR,
        )
    return table


async def tables(sizes: Sequence[int]) -> list[Table]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = await of_facts(folder)
        costs = []
        for size in sizes:
            print(f"    {size:,} memories …", file=sys.stderr, flush=True)
            costs.append(await of_size(folder / f"size-{size}.db", size))
    return [facts, size_table(sizes, costs)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="up to a million memories")
    sizes = (1_000, 10_000, 100_000, *((1_000_000,) if parser.parse_args().full else ()))
    return exit_code(*asyncio.run(tables(sizes)))


if __name__ == "__main__":
    sys.exit(main())
