"""Durable writes to Postgres: one after the other, 64 at once, 10,000 in one call, partitions.

python -m benchmarks.postgres_write
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack

import asyncpg
from benchmarks._async_timing import Work, in_turns, one_by_one
from benchmarks._postgres_peers import BARE, OURS, RAW, langgraph, openai_agents, ours, raw, row
from benchmarks._sql_data import items
from benchmarks._sql_peers import Contender, all_of
from benchmarks._timing import Table, duration, exit_code
from benchmarks.sql_write import (
    AT_ONCE,
    CONCURRENT_ROUNDS,
    MANY,
    MANY_ROUNDS,
    SINGLE_ROUNDS,
    SINGLES,
    concurrent_table,
    many_rows,
    race,
    single_table,
    together,
)
from tests.servers.databases import PostgresServer

from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.sql.rows import COLUMNS

SINGLE_BAR = 1.6
PARTITIONS, PARTITIONS_BAR = 8, 0.95
"""Into how many a table is cut, and the rate of writes to them against one table."""
WARM_UP = 50
DURABLE = {"fsync": "on", "shared_buffers": "128MB"}


async def many_table(server: PostgresServer) -> Table:
    bare, indexed = "COPY, primary key only", "COPY, same indexes"
    batch = list(items(MANY))
    rows = list(map(row, batch))
    async with (
        PostgresMemoryStore(server.create_database("many")) as store,
        PostgresMemoryStore(server.create_database("indexed")),
        asyncpg.create_pool(server.dsn("many"), min_size=1) as many,
        asyncpg.create_pool(server.dsn("indexed"), min_size=1) as same,
        asyncpg.create_pool(server.create_database("bare"), min_size=1) as plain,
    ):
        await plain.execute(BARE)

        def copy(pool: asyncpg.Pool) -> Callable[[int], Work]:
            return lambda _: (
                lambda: pool.copy_records_to_table("memory_items", records=rows, columns=COLUMNS)
            )

        def empty(pool: asyncpg.Pool) -> Work:
            return lambda: pool.execute("TRUNCATE memory_items; CHECKPOINT")

        rounds = await in_turns(
            {bare: copy(plain), indexed: copy(same), OURS: lambda _: lambda: store.add_many(batch)},
            rounds=MANY_ROUNDS,
            after={bare: empty(plain), indexed: empty(same), OURS: empty(many)},
        )
    return many_rows(f"{MANY:,} rows in one transaction, Postgres", rounds, OURS, [bare, indexed])


async def partitions_table(server: PostgresServer) -> Table:
    """Return the rate of writes to partitions against that to one table, 64 at once."""
    one, cut = "one table", f"{PARTITIONS} partitions"
    async with (
        PostgresMemoryStore(server.create_database("whole")) as whole,
        AsyncExitStack() as stack,
    ):
        parts = PostgresMemoryStore(server.create_database("parts"))
        await parts.init(partitions=PARTITIONS)
        stack.push_async_callback(parts.close)
        every = [Contender(name=one, add=whole.add), Contender(name=cut, add=parts.add)]
        rounds = await race(
            every, together, calls=AT_ONCE, rounds=CONCURRENT_ROUNDS, warm_up=WARM_UP
        )
    ratio = rounds.ratio(one, cut)
    table = Table("Postgres, partitions", f"{AT_ONCE} durable adds at once", "each")
    table.add(one, duration(rounds.typical(one)))
    bar = f">= {PARTITIONS_BAR}x the rate"
    cells = (cut, duration(rounds.typical(cut)))
    table.add(*cells, measured=f"{ratio:.2f}x", bar=bar, ok=ratio >= PARTITIONS_BAR)
    return table


async def tables(server: PostgresServer) -> list[Table]:
    found = []
    openers = (raw, ours, openai_agents, langgraph)
    async with all_of(
        *(each(server.create_database(f"write_{n}")) for n, each in enumerate(openers))
    ) as every:
        names = [each.name for each in every]
        rounds = await race(every, one_by_one, calls=SINGLES, rounds=SINGLE_ROUNDS, warm_up=WARM_UP)
        found.append(
            single_table(
                "Postgres, one after the other", rounds, names, OURS, RAW, {OURS: SINGLE_BAR}
            )
        )
        rounds = await race(
            every, together, calls=AT_ONCE, rounds=CONCURRENT_ROUNDS, warm_up=WARM_UP
        )
        found.append(
            concurrent_table("Postgres, at once", rounds, names, OURS, RAW, only_peers=True)
        )
    return [*found, await partitions_table(server), await many_table(server)]


def main() -> int:
    with PostgresServer.start(settings=DURABLE) as server:
        return exit_code(*asyncio.run(tables(server)))


if __name__ == "__main__":
    sys.exit(main())
