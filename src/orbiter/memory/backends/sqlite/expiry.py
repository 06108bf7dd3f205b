"""Removing items that are over, for good: a few at a time, and every trace of them.

No read depends on it: statements leave out what is over, see `not_expired.py`.
"""

import sqlite3
from datetime import UTC, datetime

from orbiter.memory.backends.sqlite.index_cleanup import forget_some
from orbiter.memory.backends.sqlite.migration_3 import end, has_end
from orbiter.memory.backends.sqlite.not_expired import OVER

__all__ = ["CHUNK", "is_due", "seconds_to_next", "sweep_some"]

CHUNK = 64
"""Items that are removed at a time: some 10 ms in which no one else can write."""


def is_due(connection: sqlite3.Connection) -> bool:
    """Tell whether anything is over and still there."""
    return connection.execute(f"{OVER} LIMIT 1").fetchone() is not None


def seconds_to_next(connection: sqlite3.Connection) -> float | None:
    """Return how long it is until the next item is over; `None` if none has an end."""
    row = connection.execute(f"SELECT min({end()}) FROM memory_items WHERE {has_end()}").fetchone()
    if row[0] is None:
        return None
    return max(0.0, (datetime.fromisoformat(row[0]) - datetime.now(UTC)).total_seconds())


def sweep_some(connection: sqlite3.Connection) -> int:
    """Remove a few items that are over, and what the indexes hold of them; return how many."""
    if not is_due(connection):
        return 0
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"DELETE FROM memory_items WHERE rowid IN ({OVER} LIMIT {CHUNK})")
    removed = int(connection.execute("SELECT changes()").fetchone()[0])
    connection.execute("COMMIT")
    while forget_some(connection):
        pass
    return removed
