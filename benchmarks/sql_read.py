"""The last 20 messages of one session: what it costs as the table grows, and against others.

python -m benchmarks.sql_read [--full]
"""

import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks._async_timing import Rounds, Work, in_turns, one_by_one
from benchmarks._sql_data import SESSION_ITEMS, USERS, items, raw_table, row, write_rows
from benchmarks._sql_peers import (
    LIMIT,
    OURS,
    Contender,
    all_of,
    langgraph,
    openai_agents,
    ours,
    raw_readers,
)
from benchmarks._timing import Table, duration, exit_code

from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.model.items import MemoryMetadata

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SMALL = SIZES[0]
GROWTH_BAR = 1.5
CALLS, ROUNDS = 100, 11


def some_sessions(size: int, count: int) -> list[MemoryMetadata]:
    """Return sessions from all over a table of *size* rows."""
    rng = random.Random(size)
    chosen = (rng.randrange(size // SESSION_ITEMS) for _ in range(count))
    return [MemoryMetadata(user_id=f"user-{n % USERS}", session_id=f"session-{n}") for n in chosen]


def turn(contender: Contender, size: int) -> Callable[[int], Work]:
    assert contender.last is not None
    last = contender.last
    return lambda _: one_by_one(last, some_sessions(size, CALLS))


async def check(contender: Contender, size: int) -> None:
    assert contender.last is not None
    found = await contender.last(some_sessions(size, 1)[0])
    if len(found) != 20:
        raise AssertionError(f"{contender.name} found {len(found)} of 20 items")


async def peers_table(folder: Path) -> Table:
    batch = list(items(SMALL))
    raw_table(folder / "indexed.db", list(map(row, batch)), indexed=True)
    async with (
        all_of(*(each(folder) for each in (ours, openai_agents, langgraph))) as filled,
        raw_readers(folder / "indexed.db") as readers,
    ):
        for each in filled:
            assert each.fill is not None
            await each.fill(batch)
        every = [*filled, *readers]
        for each in every:
            await check(each, SMALL)
        await filled[0].settle()
        rounds = await in_turns(
            {each.name: turn(each, SMALL) for each in every}, rounds=ROUNDS, calls=CALLS
        )
    title = f"Last 20 of one session, {SMALL:,} rows, SQLite"
    return ranking(title, rounds, every, OURS, limits=[LIMIT])


def ranking(
    title: str, rounds: Rounds, every: Sequence[Contender], ours: str, *, limits: Sequence[str]
) -> Table:
    """Compare with each; *limits* are as fast as can be, and set no bar."""
    table = Table(title, "call", "median")
    for each in every:
        cells = (each.name, duration(rounds.typical(each.name)))
        ahead = rounds.ratio(each.name, ours)
        if each.name == ours:
            table.add(*cells)
        elif each.name in limits:
            table.add(*cells, measured=f"{ahead:.2f}x ours")
        else:
            table.add(*cells, measured=f"{ahead:.2f}x ours", bar="> ours", ok=ahead > 1)
    return table


async def growth_table(folder: Path) -> Table:
    async with AsyncExitStack() as stack:
        turns: dict[str, Callable[[int], Work]] = {}
        for size in SIZES:
            path = folder / f"{size}.db"
            async with SQLiteMemoryStore(path):
                pass
            write_rows(path, size)
            store = await stack.enter_async_context(SQLiteMemoryStore(path))
            (plain, _) = await stack.enter_async_context(raw_readers(path))
            kept = contender(store)
            await check(kept, size)
            turns[f"{size:,}"] = turn(kept, size)
            turns[f"raw {size:,}"] = turn(plain, size)
        rounds = await in_turns(turns, rounds=ROUNDS, calls=CALLS)
    return growth(rounds, [f"{size:,}" for size in SIZES], "SQLite", OURS)


def contender(store: SQLiteMemoryStore) -> Contender:
    return Contender(
        name=OURS, add=store.add, last=lambda who: store.search(metadata=who, limit=20)
    )


def growth(rounds: Rounds, sizes: Sequence[str], where: str, ours: str) -> Table:
    table = Table(f"Last 20 of one session by rows kept, {where}", "call", *sizes)
    for name, prefix in ((ours, ""), ("raw, rows as tuples", "raw ")):
        names = [prefix + size for size in sizes]
        grown = rounds.ratio(names[-1], names[0])
        times = (duration(rounds.typical(name)) for name in names)
        if prefix:
            table.add(name, *times, measured=f"{grown:.2f}x")
        else:
            bar = f"<= {GROWTH_BAR}x"
            table.add(name, *times, measured=f"{grown:.2f}x", bar=bar, ok=grown <= GROWTH_BAR)
    return table


async def sqlite_tables(folder: Path) -> list[Table]:
    return [await peers_table(folder), await growth_table(folder)]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        tables = asyncio.run(sqlite_tables(Path(folder)))
    return exit_code(*tables)


if __name__ == "__main__":
    sys.exit(main())
