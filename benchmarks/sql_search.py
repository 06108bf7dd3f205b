"""Substring search with a user filter against a scan, and the bytes all of it takes on disk.

    python -m benchmarks.sql_search [--full]

The scan is what a table without indexes can do: `json_extract` for the user, `LIKE` for the text.
`--full` adds a million rows.
"""

import argparse
import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiosqlite
from benchmarks._async_timing import Work, in_turns
from benchmarks._sql_data import FEWEST, INSERT, LARGEST, items, raw_table, row
from benchmarks._timing import Table, duration, exit_code

from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.model.items import MemoryItem, MemoryMetadata

SELECTIVE_BAR, NEVER_BAR, BYTES_BAR = 20.0, 1.2, 3.0
ORDINARY = "user-4"
BATCH = 10_000
SCAN = (
    "SELECT id, content, memory_type, status, metadata, extra_json, created_at, updated_at, version"
    " FROM memory_items WHERE deleted = 0 AND json_extract(metadata, '$.user_id') = ?"
    " AND content LIKE ? ORDER BY created_at DESC LIMIT 10"
)
NEEDLES = {
    "common": "the ",
    "absent": "zebra quagga",
    "absent, common trigrams": "theand",
    "2 characters": "th",
    "2 characters, absent": "zq",
}

ONLY_LARGEST = ("absent, common trigrams", "2 characters, absent")
"""The worst cases; whoever has fewer rows is answered from these, without an index."""
USERS = {ORDINARY: "ordinary", FEWEST: "with few rows", LARGEST: "with most rows"}

Search = Callable[[str, str], Awaitable[Sequence[str]]]


async def load(
    store: SQLMemoryStore, insert: Callable[[Sequence[MemoryItem]], Awaitable[object]], size: int
) -> dict[str, str]:
    """Fill the store and, by *insert*, a bare table; return a selective needle for each user."""
    texts: dict[str, list[str]] = {user: [] for user in USERS}
    batch: list[MemoryItem] = []
    for number, item in enumerate(items(size, skewed=True), start=1):
        batch.append(item)
        if item.metadata.user_id in texts:
            texts[item.metadata.user_id].append(item.content)
        if number % BATCH == 0 or number == size:
            await store.add_many(batch)
            await insert(batch)
            batch = []
    return {user: rare(some) for user, some in texts.items()}


def rare(texts: Sequence[str]) -> str:
    """Return a piece of one of *texts*, two words long, that few others of them hold."""
    for text in texts:
        needle = " ".join(text.split()[10:12])
        if len(needle) > 8 and sum(needle in other for other in texts) < 10:
            return needle
    raise AssertionError("every pair of words is common")


def searching(store: SQLMemoryStore) -> Search:
    """Return the store's search, for ids."""

    async def search(user: str, needle: str) -> list[str]:
        who = MemoryMetadata(user_id=user)
        return [found.id for found in await store.search(query=needle, metadata=who)]

    return search


async def sqlite_tables(folder: Path, size: int, rounds: int) -> list[Table]:
    path, scanned = folder / f"{size}.db", folder / f"{size}-raw.db"
    raw_table(scanned, indexed=False)
    async with (
        SQLiteMemoryStore(path) as store,
        aiosqlite.connect(scanned) as bare,
        aiosqlite.connect(path) as indexed,
    ):

        async def insert(batch: Sequence[MemoryItem]) -> None:
            await bare.executemany(INSERT, map(row, batch))
            await bare.commit()

        def by_scan(connection: aiosqlite.Connection) -> Search:
            async def scan(user: str, needle: str) -> list[str]:
                rows = await connection.execute_fetchall(SCAN, (user, f"%{needle}%"))
                return [row[0] for row in rows]

            return scan

        selective = await load(store, insert, size)
        await store.optimize()
        ways = {"scan": by_scan(bare), "indexed": by_scan(indexed), "search": searching(store)}
        table = await search_table(f"{size:,} rows, SQLite", ways, selective, rounds)
        await indexed.close()
        return [table, await bytes_table(store, path, scanned, size)]


async def search_table(
    where: str, ways: dict[str, Search], selective: dict[str, str], rounds: int
) -> Table:
    title = f"Search for a text among the memories of one user, {where}"
    table = Table(title, "user", "needle", "scan", "scan by the user's index", "search")
    for user, label in USERS.items():
        for kind, needle in {"selective": selective[user], **NEEDLES}.items():
            if user != LARGEST and kind in ONLY_LARGEST:
                continue
            add_row(table, label, kind, *await compare(ways, user, needle, rounds))
    return table


async def compare(
    ways: dict[str, Search], user: str, needle: str, rounds: int
) -> tuple[list[str], float]:
    found = {name: await way(user, needle) for name, way in ways.items()}
    if len(set(map(tuple, found.values()))) != 1:
        raise AssertionError(f"`{needle}` of {user}: {found}")

    def turn(way: Search) -> Callable[[int], Work]:
        return lambda _: lambda: way(user, needle)

    timed = await in_turns({name: turn(way) for name, way in ways.items()}, rounds=rounds)
    return [duration(timed.typical(name)) for name in ways], timed.ratio("scan", "search")


def add_row(table: Table, user: str, kind: str, times: Sequence[str], faster: float) -> None:
    is_selective = kind == "selective" and user != "with few rows"
    if is_selective:
        bar, ok = f">= {SELECTIVE_BAR:.0f}x", faster >= SELECTIVE_BAR
    else:
        bar, ok = f">= {1 / NEVER_BAR:.2f}x", faster >= 1 / NEVER_BAR
    table.add(user, kind, *times, measured=f"{faster:.1f}x faster", bar=bar, ok=ok)


async def bytes_table(store: SQLiteMemoryStore, path: Path, scanned: Path, size: int) -> Table:
    await store.optimize()
    await store.vacuum()
    raw = sqlite3.connect(scanned, isolation_level=None)
    raw.execute("VACUUM")
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    return sizes(f"{size:,} rows, SQLite", size, file_size(scanned), file_size(path), parts(path))


def file_size(path: Path) -> int:
    return path.stat().st_size


def sizes(where: str, count: int, bare: int, ours: int, parts: dict[str, int]) -> Table:
    table = Table(f"Bytes on disk per memory of 200 characters, {where}", "what", "bytes")
    table.add("bare table, primary key only", f"{bare / count:.0f}")
    table.add(
        "the store, every index",
        f"{ours / count:.0f}",
        measured=f"{ours / bare:.2f}x",
        bar=f"<= {BYTES_BAR:.0f}x",
        ok=ours <= BYTES_BAR * bare,
    )
    for name, part in parts.items():
        table.add(f"  {name}", f"{part / count:.0f}")
    return table


def parts(path: Path) -> dict[str, int]:
    """Return the bytes of each table and index, where SQLite can tell."""
    connection = sqlite3.connect(path)
    try:
        rows: list[Any] = connection.execute(
            "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 7"
        ).fetchall()
    except sqlite3.OperationalError:
        rows = []
    finally:
        connection.close()
    return dict(rows)


async def all_tables(folder: Path, *, full: bool) -> list[Table]:
    tables = await sqlite_tables(folder, 100_000, 5)
    return tables + (await sqlite_tables(folder, 1_000_000, 3) if full else [])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="a million rows as well")
    full = parser.parse_args().full
    with tempfile.TemporaryDirectory() as folder:
        tables = asyncio.run(all_tables(Path(folder), full=full))
    return exit_code(*tables)


if __name__ == "__main__":
    sys.exit(main())
