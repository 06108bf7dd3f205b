"""Whether what is derived is what the rows say, and how it is put right.

An item that waits is right: it is about to be made anew. Repairing has what is wrong wait.
"""

from collections.abc import Sequence

from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.migration_2 import NO_VECTORS, columns
from orbiter.memory.backends.postgres.term_index import expected
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps

__all__ = ["CHUNK", "Wrong", "compare", "make_anew", "miscounts", "orphans", "recount", "some"]

CHUNK = 500
"""Items read at a time."""

Wrong = tuple[str, str, str]
"""An owner, an item, and what is wrong with it."""


def some(dialect: PostgresDialect, last: str) -> Steps[Rows]:
    """Return the next items by id, and what is kept of them; `None` where they wait."""
    return (
        yield Statement(
            f"WITH chosen AS MATERIALIZED (SELECT id, {dialect.owner} AS user_key, content"
            f" FROM {dialect.everything} WHERE id > $1 AND deleted = 0 ORDER BY id LIMIT {CHUNK})"
            " SELECT c.user_key, c.id, c.content, (SELECT array_agg(array_to_string(p.terms, ' ')"
            " ORDER BY p.passage) FROM memory_passages AS p WHERE p.user_key = c.user_key"
            " AND p.id = c.id), EXISTS (SELECT 1 FROM memory_models AS m WHERE m.is_walked"
            " AND NOT EXISTS (SELECT 1 FROM memory_unembedded AS u WHERE u.model = m.number"
            " AND u.user_key = c.user_key AND u.id = c.id) AND NOT EXISTS (SELECT 1"
            " FROM memory_vectors AS v WHERE v.model = m.number AND v.user_key = c.user_key"
            " AND v.id = c.id) AND NOT EXISTS (SELECT 1 FROM memory_details AS d"
            " WHERE d.model = m.number AND d.user_key = c.user_key AND d.id = c.id"
            f" AND d.passage = {NO_VECTORS})), EXISTS (SELECT 1 FROM memory_pending AS w"
            " WHERE w.user_key = c.user_key AND w.id = c.id) FROM chosen AS c ORDER BY c.id",
            [last],
        )
    )


def compare(rows: Rows) -> list[Wrong]:
    """Return what is wrong with items that `some` returned. Slow enough for a thread."""
    wrong: list[Wrong] = []
    for owner, item_id, content, kept, is_unembedded, is_waiting in rows:
        if is_waiting:
            continue
        if (kept or []) != expected(owner, content):
            wrong.append((owner, item_id, "has no terms, or those of another text"))
        elif is_unembedded and content.strip():
            wrong.append((owner, item_id, "has no vectors and does not wait for them"))
    return wrong


def orphans(dialect: PostgresDialect) -> Steps[list[Wrong]]:
    """Return what is kept of items that are not there."""
    rows = yield Statement(
        "SELECT DISTINCT d.user_key, d.id FROM (SELECT user_key, id FROM memory_passages"
        " UNION ALL SELECT user_key, id FROM memory_vectors UNION ALL SELECT user_key, id"
        f" FROM memory_details WHERE passage = {NO_VECTORS}) AS d WHERE NOT EXISTS"
        f" (SELECT 1 FROM memory_items AS i WHERE {dialect.beside('d', 'i')} AND i.deleted = 0)"
        " AND NOT EXISTS (SELECT 1 FROM memory_pending AS p WHERE p.user_key = d.user_key"
        " AND p.id = d.id) ORDER BY 1, 2"
    )
    stray = yield Statement(
        "SELECT DISTINCT user_key, id FROM memory_details AS d WHERE model IN (SELECT number"
        f" FROM memory_models) AND passage <> {NO_VECTORS}"
        " AND NOT EXISTS (SELECT 1 FROM memory_vectors AS v"
        " WHERE v.user_key = d.user_key AND v.id = d.id AND v.model = d.model"
        " AND v.passage = d.passage) AND NOT EXISTS (SELECT 1 FROM memory_pending AS p"
        " WHERE p.user_key = d.user_key AND p.id = d.id) ORDER BY 1, 2"
    )
    return [
        (owner, item_id, "is not there, its terms or vectors are") for owner, item_id in rows
    ] + [(owner, item_id, "has details of vectors that are not there") for owner, item_id in stray]


_COUNTED = (
    "SELECT term, user_key, count(*) AS passages FROM memory_passages, unnest(terms) AS term"
    " GROUP BY term, user_key"
)


def miscounts() -> Steps[Rows]:
    """Return users some of whose terms are counted wrongly."""
    return (
        yield Statement(
            f"SELECT DISTINCT user_key FROM memory_terms FULL JOIN ({_COUNTED}) AS counted"
            " USING (term, user_key) WHERE memory_terms.passages IS DISTINCT FROM counted.passages"
        )
    )


def make_anew(wrong: Sequence[Wrong]) -> Steps[None]:
    """Have items wait for what is to be made of them."""
    yield Statement(
        "INSERT INTO memory_pending (user_key, id) SELECT * FROM unnest($1::text[], $2::text[])",
        columns(wrong, 2),
    )


def recount() -> Steps[None]:
    """Count the terms of all users whom we see; whoever makes terms waits meanwhile."""
    yield Statement("LOCK TABLE memory_passages IN SHARE ROW EXCLUSIVE MODE")
    yield Statement("DELETE FROM memory_terms")
    yield Statement(f"INSERT INTO memory_terms {_COUNTED}")
