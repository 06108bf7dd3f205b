"""The long tiers of the crash tests: `make soak`, or `python benchmarks/soak.py --scale 0.1`.

Every fault is one that `tests` injects a few times. All of it takes many hours, so it can be
stopped at any moment: what was done is kept in `build/soak.json` after every round, the next run
goes on there, and the table has the sums over all runs. Exits 1 if anything acknowledged was lost,
anything was torn, hung or leaked, in this run or one before. Refused requests are counted by
themselves: more clients than a server has time for may be refused, and lose nothing by it.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.server_load import (  # noqa: E402 - found by the line above
    GROWTH,
    USERS,
    free_port,
    handles_of,
    load,
    missing,
    resident,
    running,
)
from tests.crash._faults import (  # noqa: E402
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
from tests.server.every_door import ask_everywhere  # noqa: E402
from tests.servers.databases import PostgresServer  # noqa: E402
from tests.stores.side_by_side import run as side_by_side  # noqa: E402

from orbiter.memory import PostgresMemoryStore  # noqa: E402
from orbiter.memory.auth import KeyFile  # noqa: E402
from orbiter.memory.model.items import MemoryMetadata  # noqa: E402

KEPT = ROOT / "build" / "soak.json"
CLIENTS = 200
HANDLES = 50
"""More files and sockets than in its second minute that a server may have open."""

LONGEST = 900.0
"""Seconds after which a round counts as hung, and a busy machine is no excuse."""

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
            refused=len(load.errors),
            lost=len(verdict.lost),
            torn=len(verdict.doubled),
        )
    finally:
        await asyncio.to_thread(server.close)


async def _compare(number: int, dice: random.Random) -> Figures:
    """Do the same to SQLite and to whole and partitioned tables of Postgres."""
    steps = 5_000
    await side_by_side(steps, dice.randrange(10**9))
    return Figures(cycles=steps, acknowledged=steps)


async def _doors(number: int, dice: random.Random) -> Figures:
    """Have a hundred users whose names look alike ask through every door."""
    with folder() as place:
        verdict = await ask_everywhere(place, dice, users=100)
    for each in [*verdict.leaked, *verdict.missing]:
        print(f"\n{each}", flush=True)
    return Figures(cycles=verdict.pairs, lost=len(verdict.missing), leaked=len(verdict.leaked))


@asynccontextmanager
async def _clients() -> AsyncIterator[Round]:
    """Serve 200 clients from one process, which is looked at after every minute."""
    with tempfile.TemporaryDirectory() as name:
        place, port = Path(name), free_port()
        kept = KeyFile(place / "keys.json")
        keys = [
            kept.create(scope=MemoryMetadata(user_id=f"user-{n}"), role="write")[1]
            for n in range(USERS)
        ]
        serve = ("-m", "orbiter.memory.cli", "serve", "--url", str(place / "agent.db"))
        more = ("--port", str(port), "--keys", str(place / "keys.json"), "--rate", "100000")
        async with running(*serve, *more, port=port) as pid:
            seen: list[tuple[int, int]] = []

            async def minute(number: int, dice: random.Random) -> Figures:
                tally = await load(port, keys, pid, clients=CLIENTS, seconds=60, writes=0.5)
                seen.append((resident(pid), handles_of(pid)))
                size, handles = seen[-1]
                # Its caches fill in the first ten minutes; a leak goes on.
                early, (_, few) = seen[min(len(seen) - 1, 10)][0], seen[min(len(seen) - 1, 1)]
                sys.stderr.write(f"{size / 1e6:,.0f} MB, {handles} handles ")
                figures = Figures(
                    cycles=1,
                    acknowledged=len(tally.stored),
                    refused=len(tally.errors),
                    lost=await missing(port, tally.stored),
                    leaked=int(size > early + GROWTH) + int(handles > few + HANDLES),
                )
                is_fine = figures.is_clean and not tally.errors
                return figures if is_fine else _named(repr(tally.errors[:3]), figures)

            yield minute


def _named(what: str, figures: Figures) -> Figures:
    print(f"\n{what}: {figures}", flush=True)
    return figures


class Tier(NamedTuple):
    """A fault, and how often it is wanted."""

    open: Callable[[], AbstractAsyncContextManager[Round]]
    """Gives a round of it, and holds what all rounds of a run need."""
    cycles: int
    may_refuse: bool = False
    """Whether a request may be answered with an error, as by a server that has no time for it."""


def _alone(work: Round, cycles: int) -> Tier:
    """Return the tier of a round that needs nothing but itself."""
    return Tier(lambda: nullcontext(work), cycles)


TIERS: dict[str, Tier] = {
    "kill -9": _alone(_kill, 10_000),
    "power cuts": _alone(_cut, 5_000),
    "cancelled writes": _alone(_cancel, 100_000),
    "failing disk": _alone(_fail, 2_000),
    "open and close": _alone(_open, 1_000),
    "adds from 5 processes": _alone(_processes, 50_000),
    "Postgres restarts": _alone(_restart, 100),
    "side by side": _alone(_compare, 1_000_000),
    "pairs of users": _alone(_doors, 1_000_000),
    "minutes of 200 clients": Tier(_clients, 360, may_refuse=True),
}


def _is_clean(name: str, figures: Figures) -> bool:
    """Return whether nothing went wrong in a tier; a file may hold one that is no more."""
    may_refuse = name in TIERS and TIERS[name].may_refuse
    return figures.is_clean and (may_refuse or not figures.refused)


@dataclass
class Sum:
    """What all runs of a tier did."""

    rounds: int = 0
    seconds: float = 0.0
    figures: Figures = field(default_factory=Figures)

    @classmethod
    def all_of(cls, path: Path) -> "dict[str, Sum]":
        """Return the sums that a file holds, of every tier that was ever run."""
        if not path.exists():
            return {}
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: cls(each["rounds"], each["seconds"], Figures(**each["figures"]))
            for name, each in kept.items()
        }


def _keep(sums: dict[str, Sum], path: Path) -> None:
    """Write the sums down; a run that is killed meanwhile leaves those before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    kept = {name: asdict(each) for name, each in sums.items()}
    beside.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    beside.replace(path)


async def _run(name: str, wanted: float, deadline: float, sums: dict[str, Sum], path: Path) -> None:
    """Go on with a tier until there are as many cycles as are wanted, or the time is over."""
    done = sums.setdefault(name, Sum())
    if done.figures.cycles >= wanted:
        return
    try:
        async with TIERS[name].open() as work:
            while done.figures.cycles < wanted and time.monotonic() < deadline:
                seed, began = time.time_ns() % 10**9, time.monotonic()
                async with asyncio.timeout(LONGEST):
                    figures = await work(done.rounds, random.Random(seed))
                if not _is_clean(name, figures):
                    print(f"\n{name}: seed {seed}", flush=True)
                done.figures += figures
                done.rounds += 1
                done.seconds += time.monotonic() - began
                _keep(sums, path)
                told = f"{done.figures.cycles:,} of {wanted:,.0f}, {done.seconds:,.0f} s in all"
                print(f"\r{name}: {told}", end="", flush=True)
    except TimeoutError as exc:  # what was silent is ended by now; the next tier goes on
        print(f"\n{name}: hung: {str(exc) or f'a round did not end in {LONGEST:g} s'}", flush=True)
        done.figures += Figures(hung=1)
        _keep(sums, path)
    print(flush=True)


def _table(sums: dict[str, Sum]) -> str:
    columns = ("cycles", "acknowledged", "refused", "lost", "torn", "hung", "leaked")
    lines = [f"{'tier':<24}{'hours':>7}" + "".join(f"{name:>14}" for name in columns)]
    for name, each in sums.items():
        values = asdict(each.figures)
        told = "".join(f"{values[column]:>14,}" for column in columns)
        lines.append(f"{name:<24}{each.seconds / 3600:>7.2f}{told}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the cycles")
    parser.add_argument("--minutes", type=float, help="at most, shared by all tiers")
    parser.add_argument("--tier", choices=TIERS, action="append", help="only this one; repeatable")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file with the sums")
    parser.add_argument("--fresh", action="store_true", help="begin at nothing")
    options = parser.parse_args()
    names = options.tier or list(TIERS)
    sums = {} if options.fresh else Sum.all_of(options.kept)
    try:
        for name in names:
            share = float("inf") if options.minutes is None else options.minutes * 60 / len(names)
            wanted = TIERS[name].cycles * options.scale
            asyncio.run(_run(name, wanted, time.monotonic() + share, sums, options.kept))
    except KeyboardInterrupt:
        print("\nstopped; the next run goes on here")
    print(f"\n{_table(sums)}")
    return int(not all(_is_clean(name, each.figures) for name, each in sums.items()))


if __name__ == "__main__":
    sys.exit(main())
