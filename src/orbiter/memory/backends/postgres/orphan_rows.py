"""Orphan rows: what is left beside items that are gone, found and removed by `erase`.

Whoever removes an item takes along what was made of it. Where that has failed, because of an
earlier version of the store or a change made by hand, nobody finds these rows any more, and nobody
can tell of which scope they were: so all that we see are looked for.
"""

from collections.abc import Sequence

from orbiter.memory.backends.postgres.derived_tables import LOCKED, OWN
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.sql.dialect import Statement, Steps

__all__ = ["BESIDE", "SOME", "count", "sweep"]

SOME = 500
"""Items whose remains are removed at a time."""

BESIDE = tuple(table for table in OWN if table != "memory_terms")
"""Tables whose rows stand beside one item."""


def sweep(dialect: PostgresDialect) -> Steps[int]:
    """Remove some of what is left; return of how many users, 0 when nothing is left."""
    every = " UNION ".join(
        f"SELECT d.user_key, d.id FROM {table} AS d WHERE {_is_stray(dialect)}" for table in BESIDE
    )
    strays = yield Statement(f"SELECT user_key, id FROM ({every}) AS d ORDER BY 1, 2 LIMIT {SOME}")
    owners = sorted({row[0] for row in strays} | set((yield from _miscounted())))
    if not owners:
        return 0
    yield Statement(LOCKED, [owners])
    for table in BESIDE if strays else ():
        # Asked again behind the lock: there may be an item of that id by now.
        yield Statement(
            f"DELETE FROM {table} AS d USING unnest($1::text[], $2::text[]) AS g (user_key, id)"
            f" WHERE d.user_key = g.user_key AND d.id = g.id AND {_is_stray(dialect)}",
            [[row[0] for row in strays], [row[1] for row in strays]],
        )
    yield from _recount(owners)
    return len(owners)


def count(dialect: PostgresDialect) -> Steps[dict[str, int]]:
    """Return how many rows of items that are gone each table holds."""
    # What waits is about to go: an item has just become another's.
    waits = "SELECT 1 FROM memory_pending AS w WHERE w.user_key = d.user_key AND w.id = d.id"
    counts = {}
    for table in BESIDE:
        if table != "memory_pending":
            rows = yield Statement(
                f"SELECT count(*) FROM {table} AS d WHERE {_is_stray(dialect)}"
                f" AND NOT EXISTS ({waits})"
            )
            counts[table] = int(rows[0][0])
    counts["memory_terms"] = len((yield from _miscounted()))
    return counts


def _is_stray(dialect: PostgresDialect) -> str:
    return f"NOT EXISTS (SELECT 1 FROM memory_items AS i WHERE {dialect.beside('d', 'i')})"


def _miscounted() -> Steps[list[str]]:
    """Return users whose terms are counted though there is no passage of theirs, by their marks."""
    rows = yield Statement(
        "SELECT t.user_key FROM memory_terms AS t WHERE t.term >= ' ' AND t.term < '!'"
        f" AND NOT EXISTS (SELECT 1 FROM memory_passages AS p WHERE p.user_key = t.user_key)"
        f" LIMIT {SOME}"
    )
    return [row[0] for row in rows]


def _recount(owners: Sequence[str]) -> Steps[None]:
    """Count the terms of users whose locks are held."""
    yield Statement("DELETE FROM memory_terms WHERE user_key = ANY ($1::text[])", [owners])
    yield Statement(
        "INSERT INTO memory_terms (term, user_key, passages) SELECT term, user_key, count(*)"
        " FROM memory_passages, unnest(terms) AS term WHERE user_key = ANY ($1::text[])"
        " GROUP BY term, user_key",
        [owners],
    )
