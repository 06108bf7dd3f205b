"""The long tiers of the crash tests: `make soak`, or `python benchmarks/soak.py --scale 0.1`.

Every fault is one that `tests/crash` injects a few times. Exits 1 if anything acknowledged was
lost, anything was torn, hung or leaked.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.crash._faults import (  # noqa: E402 - found by the line above
    Figures,
    cancel_writes,
    cut_power,
    fail_disk,
    folder,
    kill_writers,
    open_and_close,
    write_from_processes,
)
from tests.crash._postgres_load import Load  # noqa: E402
from tests.servers.databases import PostgresServer  # noqa: E402
from tests.stores.side_by_side import run as side_by_side  # noqa: E402

from orbiter.memory import PostgresMemoryStore  # noqa: E402

Round = Callable[[int, random.Random], Awaitable[Figures]]


async def _kill(number: int, dice: random.Random) -> Figures:
    figures = Figures()
    with folder() as place:
        for each in range(10):
            figures += await kill_writers(place / "m.db", dice, f"w{number}-{each}")
    return figures


async def _cut(number: int, dice: random.Random) -> Figures:
    return await cut_power("normal" if number % 2 else "full", dice, cuts=25)


async def _cancel(number: int, dice: random.Random) -> Figures:
    with folder() as place:
        return await cancel_writes(place / "m.db", dice, storms=500)


async def _fail(number: int, dice: random.Random) -> Figures:
    figures = await fail_disk(number // 2 + 1, for_good=bool(number % 2))
    return figures if figures.is_clean else _named(f"call {number // 2 + 1}", figures)


async def _open(number: int, dice: random.Random) -> Figures:
    with folder() as place:
        return await open_and_close(place / "m.db", times=100)


async def _processes(number: int, dice: random.Random) -> Figures:
    with folder() as place:
        return await write_from_processes(place / "m.db", processes=5, writers=20, adds=50)


async def _restart(number: int, dice: random.Random) -> Figures:
    """Restart a server ten times under eight writers; some of its deaths are sudden."""
    server = await asyncio.to_thread(PostgresServer.start, settings={"fsync": "on"})
    try:
        dsn = await asyncio.to_thread(server.create_database)
        store = PostgresMemoryStore(dsn)
        await store.init(partitions=4 if number % 2 else None)
        async with Load(store) as load:
            for _ in range(10):
                await asyncio.to_thread(server.restart, mode=dice.choice(["fast", "immediate"]))
                await asyncio.sleep(dice.random())
        await store.close()
        verdict = await load.judge(dsn)
        return Figures(
            cycles=10,
            acknowledged=load.acknowledged.total(),
            lost=len(verdict.lost) + len(load.errors),
            torn=len(verdict.doubled),
        )
    finally:
        await asyncio.to_thread(server.close)


async def _compare(number: int, dice: random.Random) -> Figures:
    """Do the same to SQLite and to whole and partitioned tables of Postgres."""
    steps = 5_000
    await side_by_side(steps, dice.randrange(10**9))
    return Figures(cycles=steps, acknowledged=steps)


def _named(what: str, figures: Figures) -> Figures:
    print(f"\n{what}: {figures}", flush=True)
    return figures


TIERS: dict[str, tuple[Round, int]] = {
    "kill -9": (_kill, 1_000),
    "power cuts": (_cut, 5_000),
    "cancelled writes": (_cancel, 100_000),
    "failing disk": (_fail, 2_000),
    "open and close": (_open, 1_000),
    "adds from 5 processes": (_processes, 50_000),
    "Postgres restarts": (_restart, 100),
    "side by side": (_compare, 100_000),
}
"""By name: a round, and how many cycles are wanted."""


async def _run(name: str, scale: float, deadline: float, seed: int) -> Figures:
    work, cycles = TIERS[name]
    wanted, figures, dice, number = cycles * scale, Figures(), random.Random(seed), 0
    started = time.monotonic()
    while figures.cycles < wanted and time.monotonic() < deadline:
        figures += await work(number, dice)
        number += 1
        passed = time.monotonic() - started
        print(f"\r{name}: {figures.cycles:,} of {wanted:,.0f}, {passed:.0f} s", end="", flush=True)
    print(flush=True)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the cycles")
    parser.add_argument("--minutes", type=float, default=120.0, help="at most, shared by all tiers")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--tier", choices=TIERS, action="append", help="only this one; repeatable")
    options = parser.parse_args()
    names = options.tier or list(TIERS)
    print(f"seed {options.seed}")
    results = {}
    for name in names:
        deadline = time.monotonic() + options.minutes * 60 / len(names)
        results[name] = asyncio.run(_run(name, options.scale, deadline, options.seed))
    print(f"\n{'tier':<24}{'cycles':>9}{'acknowledged':>14}{'lost':>6}{'torn':>6}{'hung':>6}"
          f"{'leaked':>8}")  # fmt: skip
    for name, each in results.items():
        print(f"{name:<24}{each.cycles:>9,}{each.acknowledged:>14,}{each.lost:>6,}{each.torn:>6,}"
              f"{each.hung:>6,}{each.leaked:>8,}")  # fmt: skip
    return int(not all(each.is_clean for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
