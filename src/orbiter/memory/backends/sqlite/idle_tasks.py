"""Idle tasks of the writer thread: indexing, and removing expired items."""

import sqlite3
from datetime import UTC, datetime

from orbiter.memory.backends.sql.dialect import Statement, Steps
from orbiter.memory.backends.sqlite import schema, term_index, trigram_index, vectors
from orbiter.memory.backends.sqlite.file_checks import Connection
from orbiter.memory.backends.sqlite.migrations import end, has_end
from orbiter.memory.backends.sqlite.schema import EXPIRED

__all__ = [
    "EXPIRED_CHUNK",
    "JOURNAL_PAGES",
    "WRITTEN_BACK",
    "chore",
    "forget_some",
    "is_due",
    "seconds_to_next",
    "start_over",
    "sweep_some",
    "uncleaned",
]


def chore(connection: sqlite3.Connection, *, is_idle: bool) -> bool:
    """Do a chunk of what is to be done; tell whether there may be more."""
    if is_idle and sweep_some(connection):
        return True
    if trigram_index.chore(connection, is_idle=is_idle):
        return True
    if not is_idle:
        # Terms can wait, since who asks for them has them listed; writers shall not wait for them.
        return term_index.waits(connection) >= term_index.CHUNK
    if term_index.waits(connection) >= term_index.CHUNK and term_index.list_some(connection):
        return True
    if vectors.tidy(connection):
        return True
    _write_back(connection)
    return False


def _write_back(connection: sqlite3.Connection) -> None:
    """Write the journal into the file if it has grown, so that no commit has to."""
    changed = connection.total_changes
    if isinstance(connection, Connection) and changed - connection.written_back >= WRITTEN_BACK:
        connection.written_back = changed
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


WRITTEN_BACK = 256
"""Rows changed since the journal was written back last, from which on that is done when idle.

The first commit after it begins the journal anew, and syncs twice: so it must not be done for every
few rows."""

JOURNAL_PAGES = 2_000
"""How long the journal may become before SQLite has a commit write it back. An `add` changes two
rows and some ten pages, so that much less than this is there when it is done by `WRITTEN_BACK`."""

_INDEXED_TO = "(SELECT value FROM memory_meta WHERE key = 'indexed_to')"


def forget_some(connection: sqlite3.Connection) -> bool:
    """Bring a few changed rows up to date in a transaction; tell whether more may wait."""
    for table, steps in (
        ("memory_unlisted", term_index.relist_some),
        ("memory_unindexed", _settle),
    ):
        if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
            term_index.change(connection, steps())
            return True
    return False


def start_over(connection: sqlite3.Connection) -> None:
    """Empty the indexes of which a third or more has to be taken out, in a transaction each.

    Rows that stay are indexed again like new ones: to take a text out takes twice as long as to
    index one. Until then, searches read them.
    """
    for table, mark, waiting, *counts in (
        ("memory_words", "indexed_to", "memory_unindexed"),
        ("memory_terms", "listed_to", "memory_unlisted", "memory_owners", "memory_counts"),
    ):
        if not schema.has_index(connection, table):
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            goes, stays = connection.execute(
                f"SELECT (SELECT count(*) FROM {waiting}), (SELECT count(*) FROM memory_items)"
            ).fetchone()
            if 2 * goes > stays:
                connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")
                for each in (waiting, *counts):
                    connection.execute(f"DELETE FROM {each}")
                connection.execute("UPDATE memory_meta SET value = 0 WHERE key = ?", [mark])
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def uncleaned(connection: sqlite3.Connection) -> int:
    """Return how many rows wait to be brought up to date."""
    sql = "SELECT (SELECT count(*) FROM memory_unlisted) + (SELECT count(*) FROM memory_unindexed)"
    return int(connection.execute(sql).fetchone()[0])


def _settle() -> Steps[None]:
    sizes = yield Statement(
        term_index.waiting(
            "memory_unindexed",
            "place, ifnull(length(indexed), 0)",
            _INDEXED_TO,
            trigram_index.CHUNK,
        )
    )
    if sizes:
        yield from trigram_index.settle(len(term_index.chunk(sizes)))


EXPIRED_CHUNK = 64
"""Items that are removed at a time: some 10 ms in which no one else can write."""


def is_due(connection: sqlite3.Connection) -> bool:
    """Tell whether anything is over and still there."""
    return connection.execute(f"{EXPIRED} LIMIT 1").fetchone() is not None


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
    connection.execute(f"DELETE FROM memory_items WHERE rowid IN ({EXPIRED} LIMIT {EXPIRED_CHUNK})")
    removed = int(connection.execute("SELECT changes()").fetchone()[0])
    connection.execute("COMMIT")
    while forget_some(connection):
        pass
    return removed
