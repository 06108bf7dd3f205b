"""Memories for the SQL benchmarks: texts of 200 characters, in interleaved sessions."""

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks._texts import docstrings

from orbiter.memory.backends.sql.rows import COLUMNS, encode, iso
from orbiter.memory.backends.sqlite import migrations
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata

CHARACTERS = 200
SESSION_ITEMS = 50
USERS = 100
LARGEST, FEWEST = "user-0", f"user-{USERS - 1}"
"""In a skewed population: who has three of five memories, and who has one session."""
START = datetime(2026, 1, 1, tzinfo=UTC)

BARE = """CREATE TABLE memory_items (
    id TEXT PRIMARY KEY, content TEXT NOT NULL, memory_type TEXT NOT NULL, status TEXT NOT NULL,
    metadata TEXT NOT NULL, extra_json TEXT NOT NULL, created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL, deleted INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1)"""
"""The ten columns, and no index but the primary key's."""
INDEXES = re.findall(r"CREATE INDEX [^;]+", migrations.FIRST)
INSERT = f"INSERT INTO memory_items VALUES ({', '.join('?' * len(COLUMNS))})"


@lru_cache(maxsize=1)
def vocabulary() -> tuple[list[str], list[float]]:
    """Return words from documentation, the frequent ones first, and Zipf's cumulative weights."""
    counts = Counter(
        word for text in docstrings() for word in re.findall(r"[a-z]{2,12}", text.lower())
    )
    words = [word for word, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    return words, list(accumulate(1 / rank for rank in range(1, len(words) + 1)))


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """Yield sentences of 200 characters."""
    rng = random.Random(seed)
    words, weights = vocabulary()
    for _ in range(count):
        text = " ".join(rng.choices(words, cum_weights=weights, k=45))
        while len(text) < CHARACTERS:
            text += " " + rng.choices(words, cum_weights=weights)[0]
        yield text[: CHARACTERS - 1].capitalize() + "."


def items(count: int, *, first: int = 0, skewed: bool = False) -> Iterator[MemoryItem]:
    """Yield messages of sessions of 50 that go on at the same time, as those of many users do.

    Sessions are dealt to 100 users in turn; *skewed* gives one of them most, and one very few.
    """
    at_once = max(1, min(USERS, count // SESSION_ITEMS))
    for number, text in enumerate(texts(count, first), start=first):
        block, place = divmod(number, at_once * SESSION_ITEMS)
        session = block * at_once + place % at_once
        user = _skewed(session) if skewed else f"user-{session % USERS}"
        metadata = MemoryMetadata(user_id=user, session_id=f"session-{session}")
        kind = AIMemory if place // at_once % 2 else HumanMemory
        moment = START + timedelta(seconds=number)
        yield kind(content=text, metadata=metadata, created_at=moment, updated_at=moment)


def _skewed(session: int) -> str:
    if session == 7:
        return FEWEST
    return LARGEST if session % 5 < 3 else f"user-{1 + session % (USERS - 2)}"


def row(item: MemoryItem) -> tuple[Any, ...]:
    """Return the ten columns of an item as a store writes them to SQLite."""
    made = encode(item)
    return (*made[:6], iso(made.created_at), iso(made.updated_at), 0, 1)


def raw_table(path: Path, rows: Sequence[Sequence[Any]] = (), *, indexed: bool) -> None:
    """Make a file with one table that holds *rows*, with or without the store's indexes."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(BARE)
    for statement in INDEXES if indexed else ():
        connection.execute(statement)
    connection.executemany(INSERT, rows)
    connection.commit()
    connection.close()


def many_rows(count: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of *count* items of `items`, without making the items; texts come again."""
    at_once = max(1, min(USERS, count // SESSION_ITEMS))
    pool = list(texts(min(count, 10_000)))
    for number in range(count):
        block, place = divmod(number, at_once * SESSION_ITEMS)
        session = block * at_once + place % at_once
        who = f'{{"user_id":"user-{session % USERS}","session_id":"session-{session}"}}'
        kind = "ai" if place // at_once % 2 else "human"
        moment = iso(START + timedelta(seconds=number))
        text = pool[number % len(pool)]
        yield f"{number:032x}", text, kind, "accepted", who, "{}", moment, moment, 0, 1


def write_rows(path: Path, count: int) -> None:
    """Put *count* rows into a closed store's file, as indexed: for reading, not for text search."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    indexes = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        " AND tbl_name = 'memory_items'"
    ).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    connection.executemany(INSERT, many_rows(count))
    for _, statement in indexes:
        connection.execute(statement)
    connection.execute(
        "UPDATE memory_meta SET value = (SELECT max(rowid) FROM memory_items)"
        " WHERE key = 'indexed_to'"
    )
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
