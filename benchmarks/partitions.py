"""Postgres with 1, 8, 16 and 64 partitions: what they cost, and what they save.

    python -m benchmarks.partitions [--memories 100000] [--layouts 1 8 16 64] [--full]

Each layout has the same memories of a few words, 1,000 of each user. The first 100,000 are written
by the store; the others are copies of them under other names, made by the server. Then single calls
are timed, the layouts taking turns: `add`, `get` by id, the last 20 of a user, and recall by words
of a user. Ratios are to the first layout. `--full` takes ten million: an hour or more for two
layouts, and 20 GB of disk for each.
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
WRITTEN = 100_000
"""By the store; more are copies of these."""
EACH, BATCH, TIMES = 1_000, 1_000, 60
WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe", "ra") for b in "bcdfghjklmnprstvwz"]
SETTINGS = {
    "shared_buffers": "2GB",
    "max_locks_per_transaction": "512",
    "max_wal_size": "4GB",
    "maintenance_work_mem": "1GB",
    # On a disk, as ten million have no room in memory; and it is not the disk that is timed.
    "fsync": "on",
    "synchronous_commit": "off",
}
COPY = """
SET session_replication_role = replica;
INSERT INTO memory_items (id, content, memory_type, status, metadata, extra_json, created_at,
    updated_at, deleted, version, user_key)
  SELECT id || '{0}', content, memory_type, status,
    jsonb_build_object('user_id', user_key || '{0}'), extra_json, created_at, updated_at, deleted,
    version, user_key || '{0}' FROM memory_items WHERE user_key = ANY({1});
INSERT INTO memory_ids SELECT id || '{0}', user_key || '{0}' FROM memory_items
  WHERE user_key = ANY({1});
INSERT INTO memory_passages (user_key, id, passage, terms)
  SELECT user_key || '{0}', id || '{0}', passage,
    array_replace(terms, ' ' || user_key, ' ' || user_key || '{0}')
  FROM memory_passages WHERE user_key = ANY({1});
INSERT INTO memory_terms (term, user_key, passages)
  SELECT CASE WHEN term = ' ' || user_key THEN term || '{0}' ELSE term END, user_key || '{0}',
    passages FROM memory_terms WHERE user_key = ANY({1});
"""
"""Everything of the written users, once more, with a name that ends in another number."""

INDEXES = """
SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
FROM pg_index WHERE indrelid IN ('memory_items'::regclass, 'memory_passages'::regclass)
  AND NOT indisunique
"""


def who(number: int, count: int) -> str:
    """Return the user of a memory: of the written ones, or of a copy."""
    written = min(count, WRITTEN)
    copy = number // written
    user = f"user-{number % written % max(1, written // EACH)}"
    return f"{user}-{copy}" if copy else user


def named(number: int, count: int) -> str:
    """Return the id of a memory."""
    written = min(count, WRITTEN)
    copy = number // written
    return f"m{number % written}-{copy}" if copy else f"m{number % written}"


def scope(user: str) -> MemoryMetadata:
    return MemoryMetadata(user_id=user)


def memories(count: int) -> list[HumanMemory]:
    """Return memories of a few words, of users in turn."""
    dice = random.Random(7)
    return [
        HumanMemory(
            id=named(n, count),
            content=" ".join(dice.choices(WORDS, k=8)),
            metadata=scope(who(n, count)),
        )
        for n in range(count)
    ]


async def copy_all(
    connection: "asyncpg.Connection[asyncpg.Record]", users: str, times: int
) -> None:
    """Copy what was written. Indexes are made again after it: that takes a fraction of the time."""
    indexes = await connection.fetch(INDEXES)
    for each in indexes:
        await connection.execute(f"DROP INDEX {each['name']}")
    for copy in range(1, times + 1):
        await connection.execute(COPY.format(f"-{copy}", users))
        if copy % 10 == 0:
            print(f"{copy} of {times} copies", flush=True)
    for each in indexes:
        await connection.execute(each["definition"].replace(" ON ONLY ", " ON "))


async def fill(
    store: PostgresMemoryStore, connection: "asyncpg.Connection[asyncpg.Record]", count: int
) -> float:
    """Write the memories and index their words; return how many seconds the store took."""
    began = time.perf_counter()
    everything = memories(min(count, WRITTEN))
    for start in range(0, len(everything), BATCH):
        await store.add_many(everything[start : start + BATCH])
    await store.catch_up()
    took = time.perf_counter() - began
    if count > WRITTEN:
        users = ",".join(sorted({who(n, count) for n in range(WRITTEN)}))
        await copy_all(connection, f"'{{{users}}}'", count // WRITTEN - 1)
    await connection.execute("VACUUM ANALYZE")
    return took


def calls(
    stores: Sequence[PostgresMemoryStore], count: int
) -> dict[str, Callable[[int, int], Awaitable[object]]]:
    """Return what is timed: for a layout, the call of a number."""
    dice = random.Random(11)
    users = [scope(who(dice.randrange(count), count)) for _ in range(TIMES)]
    ids = [named(dice.randrange(count), count) for _ in range(TIMES)]

    async def add(layout: int, n: int) -> None:
        item = HumanMemory(content="a new memory", metadata=users[n])
        await stores[layout].add(item)

    async def get(layout: int, n: int) -> object:
        return await stores[layout].get(ids[n])

    async def last(layout: int, n: int) -> object:
        return await stores[layout].search(metadata=users[n], limit=20)

    async def words(layout: int, n: int) -> object:
        question = f"{WORDS[n % len(WORDS)]} {WORDS[(n * 7) % len(WORDS)]}"
        return await recall(stores[layout], question, scope=users[n])

    return {"add": add, "get by id": get, "last 20 of a user": last, "recall by words": words}


async def measure(server: PostgresServer, count: int, layouts: Sequence[int]) -> None:
    """Fill every layout, then time the calls in turns."""
    async with AsyncExitStack() as stack:
        stores: list[PostgresMemoryStore] = []
        filled, sizes = [], []
        for layout in layouts:
            began = time.perf_counter()
            dsn = await asyncio.to_thread(server.create_database)
            store = PostgresMemoryStore(dsn, min_size=1, max_size=1)
            await store.init(partitions=layout)
            stack.push_async_callback(store.close)
            connection = await asyncpg.connect(dsn)
            filled.append(await fill(store, connection, count))
            sizes.append(await connection.fetchval("SELECT pg_database_size(current_database())"))
            await connection.close()
            stores.append(store)
            print(f"{layout} partitions: {time.perf_counter() - began:.0f} s", flush=True)
        written = min(count, WRITTEN)
        title = f"{count:,} memories, {EACH:,} of a user, ratios to the first layout"
        table = Table(title, "call", *(f"{n} partitions" for n in layouts))
        ratios = [f"{each / filled[0]:.2f}" for each in filled[1:]]
        table.add(f"write and index {written:,}", duration(filled[0]), *ratios)
        table.add("bytes of a memory", *(f"{size // count:,}" for size in sizes))
        for name, call in calls(stores, count).items():
            times: list[list[float]] = [[] for _ in layouts]
            # Twice: the first calls read what they need from the disk, which was filled last for
            # the last layout, and load what a connection must know of the tables.
            for n in [*range(TIMES), *range(TIMES)]:
                for place in range(len(layouts)):
                    began = time.perf_counter()
                    await call(place, n)
                    times[place].append(time.perf_counter() - began)
            typical = [median(each[TIMES:]) for each in times]
            table.add(
                name, duration(typical[0]), *(f"{each / typical[0]:.2f}" for each in typical[1:])
            )
        table.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--memories", type=int, default=MEMORIES, help="100,000 by default")
    parser.add_argument("--layouts", type=int, nargs="+", default=LAYOUTS, help="partitions")
    parser.add_argument("--full", action="store_true", help="ten million")
    options = parser.parse_args()
    count = FULL if options.full else options.memories
    if count > WRITTEN and count % WRITTEN:
        parser.error(f"more than {WRITTEN:,} memories are multiples of it, not {count:,}")
    with PostgresServer.start(settings=SETTINGS) as server:
        asyncio.run(measure(server, count, options.layouts))


if __name__ == "__main__":
    main()
