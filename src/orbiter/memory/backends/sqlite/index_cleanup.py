"""What the indexes still hold of rows that were purged or changed, removed a little at a time.

Taking a long text out of an index costs many times what removing its row does, and no one else can
write meanwhile. So the rows go first, and these short transactions follow.
"""

import sqlite3

from orbiter.memory.backends.sql.dialect import Statement, Steps
from orbiter.memory.backends.sqlite import term_index, trigram_index

__all__ = ["forget_some", "waits"]

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


def waits(connection: sqlite3.Connection) -> int:
    """Return how many rows wait to be brought up to date."""
    sql = "SELECT (SELECT count(*) FROM memory_unlisted) + (SELECT count(*) FROM memory_unindexed)"
    return int(connection.execute(sql).fetchone()[0])


def _settle() -> Steps[None]:
    sizes = yield Statement(
        "SELECT place, ifnull(length(indexed), 0) FROM memory_unindexed"
        f" ORDER BY place <= {_INDEXED_TO}, place LIMIT {trigram_index.CHUNK}"
    )
    if sizes:
        yield from trigram_index.settle(len(term_index.chunk(sizes)))
