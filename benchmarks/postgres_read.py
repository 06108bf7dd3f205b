"""Reading from Postgres: the last 20 of a session, and substring search with a user filter.

    python -m benchmarks.postgres_read [--full]

`--full` adds a million rows.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from statistics import median
from typing import Any

import asyncpg
from benchmarks._async_timing import Work, in_turns
from benchmarks._postgres_peers import (
    BARE,
    OURS,
    langgraph,
    openai_agents,
    ours,
    raw_reader,
    row,
)
from benchmarks._sql_data import items, many_rows, texts
from benchmarks._sql_peers import all_of
from benchmarks._statements import Tally, counted_postgres
from benchmarks._timing import Table, exit_code
from benchmarks.postgres_write import DURABLE
from benchmarks.recall_speed import START, WHO, Stand, memories, questions
from benchmarks.sql_read import CALLS, ROUNDS, check, growth, ranking, turn
from benchmarks.sql_search import Search, load, search_table, searching, sizes
from tests.servers.databases import PostgresServer

from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.sql.rows import COLUMNS
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.recall import recall

SMALL = 1_000
SCAN = (
    "SELECT id, content, memory_type, status, metadata, extra_json, created_at, updated_at, version"
    " FROM memory_items WHERE deleted = 0 AND metadata->>'user_id' = $1"
    " AND content ILIKE $2 ORDER BY created_at DESC LIMIT 10"
)


async def peers_table(server: PostgresServer) -> Table:
    batch = list(items(SMALL))
    openers = (ours, openai_agents, langgraph)
    bases = [server.create_database() for _ in openers]
    async with (
        all_of(*(each(dsn) for each, dsn in zip(openers, bases, strict=True))) as filled,
        raw_reader(bases[0]) as plain,
    ):
        for each in filled:
            assert each.fill is not None
            await each.fill(batch)
        await analyze(bases[0])
        every = [*filled, plain]
        for each in every:
            await check(each, SMALL)
        rounds = await in_turns(
            {each.name: turn(each, SMALL) for each in every}, rounds=ROUNDS, calls=CALLS
        )
    title = f"Last 20 of one session, {SMALL:,} rows, Postgres"
    return ranking(title, rounds, every, OURS, limits=[plain.name])


async def recall_table(server: PostgresServer) -> Table:
    """Return how many statements one recall takes: of notes, and of a conversation."""
    table = Table("Statements of one recall, 1,000 memories, Postgres", "")
    now = START + timedelta(days=400)
    kinds = {
        "notes": [MemoryItem(content=text, metadata=WHO) for text in texts(SMALL)],
        "a conversation": list(memories(SMALL)),
    }
    for name, batch in kinds.items():
        dsn = server.create_database()
        async with PostgresMemoryStore(dsn, embeddings=Stand()) as store:
            await store.add_many(batch)
            await store.catch_up()
            counts = []
            for question in questions(21):
                with counted_postgres(dsn) as tally:
                    await recall(store, question, scope=WHO, now=now)
                    counts.append((await Tally.look(tally)).statements)
            typical = int(median(counts))
            table.add(name, measured=str(typical), bar="<= 6", ok=typical <= 6)
    return table


async def growth_table(server: PostgresServer, sizes: Sequence[int]) -> Table:
    async with AsyncExitStack() as stack:
        turns: dict[str, Callable[[int], Work]] = {}
        for size in sizes:
            dsn = server.create_database()
            store = await stack.enter_async_context(ours(dsn))
            await copy_rows(dsn, size)
            plain = await stack.enter_async_context(raw_reader(dsn))
            await check(store, size)
            turns[f"{size:,}"] = turn(store, size)
            turns[f"raw {size:,}"] = turn(plain, size)
        rounds = await in_turns(turns, rounds=ROUNDS, calls=CALLS)
    return growth(rounds, [f"{size:,}" for size in sizes], "Postgres", OURS)


async def copy_rows(dsn: str, size: int) -> None:
    """Fill a store's table from outside; its text index is not asked and would take minutes."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("DROP INDEX IF EXISTS memory_items_words")
    rows = (
        (*each[:6], datetime.fromisoformat(each[6]), datetime.fromisoformat(each[7]), 0, 1)
        for each in many_rows(size)
    )
    await connection.copy_records_to_table("memory_items", records=rows, columns=COLUMNS)
    await connection.execute("VACUUM ANALYZE memory_items")
    await connection.close()


async def analyze(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def search_tables(server: PostgresServer, size: int, rounds: int) -> list[Table]:
    dsn, scanned = server.create_database(), server.create_database()
    bare, indexed = await asyncpg.connect(scanned), await asyncpg.connect(dsn)
    await bare.execute(BARE)

    async def insert(batch: Sequence[MemoryItem]) -> None:
        await bare.copy_records_to_table("memory_items", records=map(row, batch))

    def by_scan(connection: asyncpg.Connection) -> Search:
        async def scan(user: str, needle: str) -> list[str]:
            return [each[0] for each in await connection.fetch(SCAN, user, f"%{needle}%")]

        return scan

    async with PostgresMemoryStore(dsn) as store:
        selective = await load(store, insert, size)
        await store.optimize()
        await bare.execute("VACUUM ANALYZE memory_items")
        ways = {"scan": by_scan(bare), "indexed": by_scan(indexed), "search": searching(store)}
        table = await search_table(f"{size:,} rows, Postgres", ways, selective, rounds)
        await indexed.execute("VACUUM FULL memory_items")
        await bare.execute("VACUUM FULL memory_items")
    total = "SELECT pg_total_relation_size('memory_items')"
    parts: list[Any] = await indexed.fetch(
        "SELECT relname, pg_relation_size(oid) FROM pg_class"
        " WHERE relname LIKE 'memory_items%' ORDER BY 2 DESC LIMIT 7"
    )
    bytes_table = sizes(
        f"{size:,} rows, Postgres",
        size,
        await bare.fetchval(total),
        await indexed.fetchval(total),
        {each[0]: each[1] for each in parts},
    )
    for connection in (bare, indexed):
        await connection.close()
    return [table, bytes_table]


async def tables(server: PostgresServer, *, full: bool) -> list[Table]:
    grown = (SMALL, 100_000, 1_000_000) if full else (SMALL, 100_000)
    found = [
        await recall_table(server),
        await peers_table(server),
        await growth_table(server, grown),
    ]
    found += await search_tables(server, 100_000, 3)
    return found + (await search_tables(server, 1_000_000, 3) if full else [])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="a million rows as well")
    full = parser.parse_args().full
    with PostgresServer.start(settings=DURABLE) as server:
        return exit_code(*asyncio.run(tables(server, full=full)))


if __name__ == "__main__":
    sys.exit(main())
