"""Postgres with 1, 8, 16 and 64 partitions: what they cost, and what they save.

    python -m benchmarks.partitions [--memories 100000] [--full]

Each layout has the same memories of 1,000 users, each of a few words. Then single calls are timed,
the layouts taking turns: `add`, `get` by id, the last 20 of a user, and recall by words of a user.
Ratios are to one partition. `--full` takes ten million; that is hours, and 60 GB of disk.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from statistics import median

import asyncpg
from benchmarks._timing import Table, duration
from tests.servers.databases import PostgresServer

from orbiter.memory import HumanMemory, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.recall import recall

LAYOUTS = (1, 8, 16, 64)
MEMORIES, FULL = 100_000, 10_000_000
USERS, BATCH, TIMES = 1_000, 1_000, 60
WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe", "ra") for b in "bcdfghjklmnprstvwz"]
SETTINGS = {"shared_buffers": "512MB", "max_locks_per_transaction": "512", "max_wal_size": "4GB"}


def who(user: int) -> MemoryMetadata:
    return MemoryMetadata(user_id=f"user-{user}")


def memories(count: int) -> list[HumanMemory]:
    """Return memories of a few words, of users in turn."""
    dice = random.Random(7)
    return [
        HumanMemory(id=f"m{n}", content=" ".join(dice.choices(WORDS, k=8)), metadata=who(n % USERS))
        for n in range(count)
    ]


async def fill(store: PostgresMemoryStore, count: int) -> float:
    """Write the memories and index their words; return how many seconds it took."""
    began = time.perf_counter()
    everything = memories(count)
    for start in range(0, count, BATCH):
        await store.add_many(everything[start : start + BATCH])
    await store.catch_up()
    return time.perf_counter() - began


def calls(
    stores: Sequence[PostgresMemoryStore], count: int
) -> dict[str, Callable[[int, int], Awaitable[object]]]:
    """Return what is timed: for a layout, the call of a number."""
    dice = random.Random(11)
    users = [dice.randrange(USERS) for _ in range(TIMES)]
    ids = [f"m{dice.randrange(count)}" for _ in range(TIMES)]

    async def add(layout: int, n: int) -> None:
        item = HumanMemory(content="a new memory", metadata=who(users[n]))
        await stores[layout].add(item)

    async def get(layout: int, n: int) -> object:
        return await stores[layout].get(ids[n])

    async def last(layout: int, n: int) -> object:
        return await stores[layout].search(metadata=who(users[n]), limit=20)

    async def words(layout: int, n: int) -> object:
        question = f"{WORDS[n % len(WORDS)]} {WORDS[(n * 7) % len(WORDS)]}"
        return await recall(stores[layout], question, scope=who(users[n]))

    return {"add": add, "get by id": get, "last 20 of a user": last, "recall by words": words}


async def measure(server: PostgresServer, count: int) -> None:
    """Fill every layout, then time the calls in turns."""
    async with AsyncExitStack() as stack:
        stores: list[PostgresMemoryStore] = []
        filled = []
        for layout in LAYOUTS:
            dsn = await asyncio.to_thread(server.create_database)
            store = PostgresMemoryStore(dsn, min_size=1, max_size=1)
            await store.init(partitions=layout)
            stack.push_async_callback(store.close)
            filled.append(await fill(store, count))
            connection = await asyncpg.connect(dsn)
            await connection.execute("VACUUM ANALYZE")
            await connection.close()
            stores.append(store)
            print(f"{layout} partitions are filled, {filled[-1]:.0f} s", flush=True)
        title = f"{count:,} memories of {USERS:,} users, ratios to one partition"
        table = Table(title, "call", "1 partition", *(f"{n}" for n in LAYOUTS[1:]))
        ratios = [f"{each / filled[0]:.2f}" for each in filled[1:]]
        table.add("fill and index", duration(filled[0]), *ratios)
        for name, call in calls(stores, count).items():
            times: list[list[float]] = [[] for _ in LAYOUTS]
            for n in range(TIMES):
                for place in range(len(LAYOUTS)):
                    began = time.perf_counter()
                    await call(place, n)
                    times[place].append(time.perf_counter() - began)
            # The first calls of a connection also load what it must know of the tables.
            typical = [median(each[10:]) for each in times]
            table.add(
                name, duration(typical[0]), *(f"{each / typical[0]:.2f}" for each in typical[1:])
            )
        table.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--memories", type=int, default=MEMORIES, help="100,000 by default")
    parser.add_argument("--full", action="store_true", help="ten million")
    options = parser.parse_args()
    with PostgresServer.start(settings=SETTINGS) as server:
        asyncio.run(measure(server, FULL if options.full else options.memories))


if __name__ == "__main__":
    main()
