"""Durable writes: one add after the other, 64 at once, 10,000 in one call; and a row's codec.

Every commit is synced to disk before it counts (`synchronous=FULL`, `fsync=on`).

    python -m benchmarks.sql_write
"""

import asyncio
import math
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

from benchmarks._async_timing import Rounds, Work, in_turns, one_by_one, timed
from benchmarks._sql_data import INSERT, items, raw_table, row
from benchmarks._sql_peers import (
    CHAT,
    OURS,
    RAW,
    REMEMBER,
    Contender,
    all_of,
    chatting,
    langgraph,
    mem0_history,
    openai_agents,
    ours,
    raw,
    remembering,
)
from benchmarks._timing import Table, duration, exit_code

from orbiter.memory.backends.sql.rows import READ, decode, encode
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.model.items import HumanMemory, MemoryItem, MemoryMetadata

SINGLE_BARS = {OURS: 1.3, REMEMBER: 1.5, CHAT: 2.0}
"""How many times as long as a raw add each may take."""
CONCURRENT_BAR = 2.5
BEHIND_BAR = 1.5
"""How many times as long as the store below it a call of a handle may take."""
MANY_BAR = 2.5
SINGLES, SINGLE_ROUNDS = 20, 30
AT_ONCE, CONCURRENT_ROUNDS = 64, 15
WARM_UP = 500
MANY, MANY_ROUNDS = 10_000, 5
CODEC_BAR, CODEC_ROUNDS = 1.2, 500
"""How many times as long as that of a message the row of a plain item may take to make or read."""


def fresh(count: int, number: int) -> list[MemoryItem]:
    """Return items of this moment that no earlier round has added."""
    found, now = list(items(count, first=number * count)), datetime.now(UTC)
    for item in found:
        item.__dict__.update(created_at=now, updated_at=now)
    return found


def together(call: Callable[[Any], Any], values: Sequence[Any]) -> Work:
    """Return work that makes every call at the same time."""

    async def work() -> None:
        await asyncio.gather(*(call(value) for value in values))

    return work


async def race(
    contenders: Sequence[Contender],
    how: Callable[[Callable[[Any], Any], Sequence[Any]], Work],
    *,
    calls: int,
    rounds: int,
    warm_up: int = WARM_UP,
) -> Rounds:
    """Time how long an add takes each of them."""
    for each in contenders:
        # Past its first checkpoint a journal is written over, no longer made longer: cheaper.
        await one_by_one(each.add, list(map(each.take, fresh(warm_up, 1_000 + calls))))()

    def turn(contender: Contender) -> Callable[[int], Work]:
        return lambda number: how(contender.add, list(map(contender.take, fresh(calls, number))))

    return await in_turns(
        {each.name: turn(each) for each in contenders},
        rounds=rounds,
        calls=calls,
        after={each.name: each.settle for each in contenders},
    )


def single_table(
    title: str,
    rounds: Rounds,
    names: Sequence[str],
    ours: str,
    raw: str,
    bars: Mapping[str, float] = SINGLE_BARS,
) -> Table:
    """Compare single writes: ours by *bars* with the raw one, the peers with our store."""
    table = Table(title, "one durable add", "median", "against raw")
    for name in names:
        ratio = rounds.ratio(name, raw)
        cells = (name, duration(rounds.typical(name)), f"{ratio:.2f}x")
        if name == raw:
            table.add(*cells)
        elif name in bars:
            bar = bars[name]
            table.add(*cells, measured=f"{ratio:.2f}x", bar=f"<= {bar}x", ok=ratio <= bar)
        else:
            ahead = rounds.ratio(name, ours)
            table.add(*cells, measured=f"{ahead:.2f}x ours", bar="> ours", ok=ahead > 1)
    return table


def concurrent_table(
    title: str,
    rounds: Rounds,
    names: Sequence[str],
    ours: str,
    raw: str,
    *,
    handles: Sequence[str] = (),
    only_peers: bool = False,
) -> Table:
    """Compare throughput; with *only_peers*, raw commits run side by side and set no bar.

    *handles* are calls that end in our store, and are compared with it.
    """
    table = Table(title, f"{AT_ONCE} durable adds at once", "each", "throughput")
    for name in names:
        ratio, ahead = 1 / rounds.ratio(name, raw), rounds.ratio(name, ours)
        cells = (name, duration(rounds.typical(name)), f"{ratio:.2f}x raw")
        shown = f"{ahead:.2f}x ours"
        if name == raw or (name == ours and only_peers):
            table.add(*cells)
        elif name == ours:
            bar = f">= {CONCURRENT_BAR}x"
            table.add(*cells, measured=f"{ratio:.2f}x", bar=bar, ok=ratio >= CONCURRENT_BAR)
        elif name in handles:
            bar = f"<= {BEHIND_BAR}x ours"
            table.add(*cells, measured=shown, bar=bar, ok=ahead <= BEHIND_BAR)
        else:
            table.add(*cells, measured=shown, bar="> ours", ok=ahead > 1)
    return table


async def many_table(folder: Path) -> Table:
    bare, indexed = "executemany, primary key only", "executemany, same indexes"
    batch = list(items(MANY))
    rows = list(map(row, batch))
    indexing: list[float] = []
    store = SQLiteMemoryStore()

    async def reopen() -> None:
        """Index what was added, which must not slow the others down, and take a new file."""
        nonlocal store
        indexing.append(await timed(store.optimize))
        await store.close()
        store = SQLiteMemoryStore(folder / f"many-{len(indexing)}.db")
        await store.init()

    def insert(name: str, *, with_indexes: bool) -> Callable[[int], Work]:
        def turn(number: int) -> Work:
            path = folder / f"{name}-{number}.db"
            raw_table(path, indexed=with_indexes)

            async def work() -> None:
                with closing(sqlite3.connect(path)) as connection:
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.executemany(INSERT, rows)
                    connection.commit()

            return work

        return turn

    await store.init()
    await reopen()
    rounds = await in_turns(
        {
            bare: insert("bare", with_indexes=False),
            indexed: insert("indexed", with_indexes=True),
            OURS: lambda _: lambda: store.add_many(batch),
        },
        rounds=MANY_ROUNDS,
        after={OURS: reopen},
    )
    await store.close()
    table = many_rows(f"{MANY:,} rows in one transaction, SQLite", rounds, OURS, [bare, indexed])
    table.add("its text index, later, when idle", duration(median(indexing[2:])))
    return table


def many_rows(title: str, rounds: Rounds, ours: str, baselines: Sequence[str]) -> Table:
    table = Table(title, "call", "median")
    for name in baselines:
        ratio = rounds.ratio(ours, name)
        table.add(
            name,
            duration(rounds.typical(name)),
            measured=f"ours {ratio:.2f}x",
            bar=f"<= {MANY_BAR}x",
            ok=ratio <= MANY_BAR,
        )
    table.add(f"{ours}.add_many", duration(rounds.typical(ours)))
    return table


def codec_table() -> Table:
    """Compare the row of what `remember("text")` keeps with that of a message."""
    table = Table("The row of one item, CPU time", "", "a plain item", "a message")
    who = MemoryMetadata(user_id="alice")
    made = [kind(content="I like oolong tea.", metadata=who) for kind in (MemoryItem, HumanMemory)]
    rows = []
    for item in made:
        now = item.created_at.isoformat(timespec="microseconds")
        columns = encode(item)._asdict() | {"created_at": now, "updated_at": now, "version": 1}
        rows.append(tuple(columns[name] for name in READ))
    calls: dict[str, list[Callable[[], object]]] = {
        "encode": [partial(encode, item) for item in made],
        "decode": [partial(decode, each) for each in rows],
    }
    for name, both in calls.items():
        best = [math.inf, math.inf]
        for _ in range(CODEC_ROUNDS):  # in turns; the least, as others share the caches
            for place, call in enumerate(both):
                began = thread_time()
                for _ in range(SINGLES):
                    call()
                best[place] = min(best[place], (thread_time() - began) / SINGLES)
        ratio = best[0] / best[1]
        bar = f"<= {CODEC_BAR}x a message"
        table.add(
            name, *map(duration, best), measured=f"{ratio:.2f}x", bar=bar, ok=ratio <= CODEC_BAR
        )
    return table


async def sqlite_tables(folder: Path) -> list[Table]:
    tables = [codec_table()]
    openers = (raw, ours, remembering, chatting, openai_agents, langgraph, mem0_history)
    async with all_of(*(each(folder) for each in openers)) as every:
        names = [each.name for each in every]
        rounds = await race(every, one_by_one, calls=SINGLES, rounds=SINGLE_ROUNDS)
        tables.append(single_table("SQLite, one after the other", rounds, names, OURS, RAW))
        some = every[:-1]  # mem0's is not async: 64 at once are 64 in a row
        rounds = await race(some, together, calls=AT_ONCE, rounds=CONCURRENT_ROUNDS)
        tables.append(
            concurrent_table(
                "SQLite, at once", rounds, names[:-1], OURS, RAW, handles=(REMEMBER, CHAT)
            )
        )
    tables.append(await many_table(folder))
    return tables


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        tables = asyncio.run(sqlite_tables(Path(folder)))
    return exit_code(*tables)


if __name__ == "__main__":
    sys.exit(main())
