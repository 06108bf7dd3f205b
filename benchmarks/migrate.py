"""Moving 100,000 memories from SQLite to Postgres and back, against `add_many` of the same.

A move reads every record, writes it with its versions, reads all of them back and compares; it
must take no more than twice the time in which `add_many` writes as many items, once each, before
the move and after it. Beside that stands what it takes to make the versions, too, as the move
writes them. What comes back must be the same, byte for byte.

    python -m benchmarks.migrate
"""

import argparse
import asyncio
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks._async_timing import timed
from benchmarks._databases import Database, PostgresDatabase, SQLiteDatabase
from benchmarks._sql_data import items
from benchmarks._timing import Table, duration, exit_code

from orbiter.memory.backends.registry import open_store
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.transfer._migrate import Migration, migrate
from orbiter.memory.transfer.movable_store import MovableStore
from orbiter.memory.transfer.native import pages_of

COUNT = 100_000
BATCH = 10_000
BAR = 0.5
VERSIONS = 10
"""One of so many memories has an earlier version."""


async def add_all(url: str, memories: Sequence[MemoryItem]) -> float:
    """Return the seconds that `add_many` takes for all of them, some thousands in a call."""
    seconds = 0.0
    async with open_store(url) as store:
        for start in range(0, len(memories), BATCH):
            seconds += await timed(partial(store.add_many, memories[start : start + BATCH]))
    return seconds


async def change_some(url: str, memories: Sequence[MemoryItem]) -> float:
    """Give some memories a past, and delete a few; return the seconds that takes."""
    async with open_store(url) as store:
        changed = [item.model_copy(update={"content": "changed"}) for item in memories[::VERSIONS]]
        seconds = await timed(partial(store.add_many, changed))
        ids = [item.id for item in memories[:: VERSIONS * 10]]
        return seconds + await timed(partial(store.delete_many, ids))


async def fingerprint(url: str) -> tuple[int, str]:
    """Return how many records a store holds, and the digest of all their lines."""
    count, digest = 0, hashlib.sha256()
    store: MovableStore
    async with open_store(url) as store:
        async for page in pages_of(store):
            for record in page:
                digest.update(record.to_line().encode())
                count += 1
    return count, digest.hexdigest()


async def race(sqlite: Database, postgres: Database, count: int) -> list[Table]:
    memories = list(items(count))
    first, last, between = sqlite.new(), sqlite.new(), postgres.new()
    await add_all(first, memories)
    await change_some(first, memories)
    table = Table(
        f"{count:,} memories from store to store",
        "move", "time", "`add_many`", "and versions", "against both",
    )  # fmt: skip
    moves: list[Migration] = []
    for source, target, kind in ((first, between, postgres), (between, last, sqlite)):
        moved: list[Migration] = []

        async def work(source: str = source, target: str = target) -> None:
            moved.append(await migrate(source, target))  # noqa: B023 - called in this round

        before, after = kind.new(), kind.new()
        adding = await add_all(before, memories)
        seconds = await timed(work)
        adding = (adding + await add_all(after, memories)) / 2
        changing = await change_some(after, memories)
        for url in (before, after):
            await kind.drop(url)
        moves += moved
        ratio = adding / seconds
        table.add(
            f"to {kind.name}",
            duration(seconds),
            duration(adding),
            duration(changing),
            f"{(adding + changing) / seconds:.2f}x",
            measured=f"{ratio:.2f}x the speed",
            bar=f">= {BAR}x",
            ok=ratio >= BAR,
        )
    same = await fingerprint(first) == await fingerprint(last)
    proof = Table("There and back", "what", "result")
    proof.add("both moves", "", measured=f"{[*map(bool, moves)]}", bar="verified", ok=all(moves))
    proof.add("all lines", "", measured="the same" if same else "differ", bar="the same", ok=same)
    return [table, proof]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=COUNT, help="how many memories")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        SQLiteDatabase(Path(folder)) as sqlite,
        PostgresDatabase() as postgres,
    ):
        return exit_code(*asyncio.run(race(sqlite, postgres, given.count)))


if __name__ == "__main__":
    sys.exit(main())
