"""Maintenance of a Postgres store, as steps: figures, verification and repair.

What is derived from an item that is pending is right: it is about to be rebuilt. Repairing makes
what is wrong pending.
"""

from collections.abc import Sequence

from orbiter.memory.backends.postgres import derived_tables, schema
from orbiter.memory.backends.postgres.derived_tables import NO_VECTORS, columns
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.models import Kind
from orbiter.memory.backends.postgres.term_index import expected, indexing, read_indexed_by
from orbiter.memory.backends.postgres.where import not_expired
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.backends.sql.embedder import ROUNDED, is_unit, passages_of
from orbiter.memory.backends.sql.store import CHUNK

__all__ = [
    "VERIFIED",
    "Wrong",
    "compare",
    "folded_texts",
    "forget_commits",
    "invalid_indexes",
    "miscounts",
    "orphans",
    "rebuild",
    "recount",
    "refold",
    "some_items",
    "stats",
]


def stats() -> Steps[Rows]:
    return (
        yield Statement(
            f"SELECT (SELECT count(*) FROM memory_items WHERE deleted = 0 AND {not_expired()}),"
            f" (SELECT count(*) FROM memory_items WHERE deleted = 1 AND {not_expired()}),"
            " (SELECT count(*) FROM memory_versions WHERE memory_type IS NOT NULL),"
            " (SELECT sum(pg_total_relation_size(relid))::bigint FROM"
            " (SELECT to_regclass(name)::oid FROM unnest($1::text[]) AS name UNION ALL"
            " SELECT inhrelid FROM unnest($1::text[]) AS name, pg_inherits"
            " WHERE inhparent = to_regclass(name)) AS tables (relid))",
            [[*schema.TABLES, schema.ENTRIES, *derived_tables.TABLES]],
        )
    )


def invalid_indexes() -> Steps[Rows]:
    return (
        yield Statement(
            "SELECT indexrelid::regclass::text FROM pg_index, unnest($1::text[]) AS name"
            " WHERE indrelid = to_regclass(name) AND NOT (indisvalid AND indisready)",
            [[*schema.TABLES, schema.ENTRIES, *derived_tables.TABLES]],
        )
    )


def folded_texts(everything: str, last: str) -> Steps[Rows]:
    return (
        yield Statement(
            f"SELECT id, content, CASE WHEN digest = {schema.DIGEST} THEN folded END"
            f" FROM {everything} LEFT JOIN memory_folded USING (id)"
            " WHERE id > $1 AND octet_length(content) <> char_length(content)"
            f" ORDER BY id LIMIT {CHUNK}",
            [last],
        )
    )


def refold(wrong: list[tuple[str, str, str]]) -> Steps[None]:
    yield Statement(
        "INSERT INTO memory_folded (id, folded, digest)"
        f" SELECT $1, $2, {schema.DIGEST} FROM (SELECT $3::text AS content) AS given"
        " ON CONFLICT (id) DO UPDATE SET digest = excluded.digest, folded = excluded.folded",
        wrong,
        many=True,
    )


def forget_commits() -> Steps[None]:
    """Remove the tokens of transactions that nobody can be waiting for any more."""
    yield Statement("DELETE FROM memory_commits WHERE at < now() - interval '1 hour'")


VERIFIED = 500
"""Items read at a time."""

Wrong = tuple[str, str, str]
"""An owner, an item, and what is wrong with it."""


def some_items(dialect: PostgresDialect, kind: Kind, last: str) -> Steps[Rows]:
    """Return the next items by id, and what is kept of them; `None` where they wait.

    Of a model that made fewer vectors than an item has passages, a mark says that there are no
    more. So a number of vectors is `None` behind a mark, and -1 if one cannot be right.
    """
    is_damaged = "octet_length(v.embedding) <> 4 * m.dimension"
    embeddings = (
        "(SELECT array_agg(v.embedding) FROM memory_vectors AS v, memory_models AS m"
        " WHERE v.model = m.number AND v.user_key = c.user_key AND v.id = c.id)"
    )
    if kind.is_vector:
        # In this order: of another length, its length might not even be computed; see `padded`.
        is_damaged = (
            "CASE WHEN vector_dims(v.embedding) <> (m.dimension + 15) / 16 * 16 THEN true"
            f" ELSE abs(vector_norm(v.embedding) - 1) > {ROUNDED} END"
        )
        embeddings = "NULL::bytea[]"
    vectors = (
        "(SELECT min(CASE WHEN x.is_wrong THEN -1 WHEN x.has_mark THEN NULL ELSE x.n END)"
        " FROM memory_models AS m, LATERAL (SELECT count(*)::int AS n,"
        f" coalesce(bool_or({is_damaged}) OR max(v.passage) + 1 <> count(*), false) AS is_wrong,"
        " EXISTS (SELECT 1 FROM memory_details AS d WHERE d.model = m.number"
        f" AND d.user_key = c.user_key AND d.id = c.id AND d.passage = {NO_VECTORS}) AS has_mark"
        " FROM memory_vectors AS v WHERE v.model = m.number AND v.user_key = c.user_key"
        " AND v.id = c.id) AS x WHERE m.is_walked AND NOT EXISTS (SELECT 1"
        " FROM memory_unembedded AS u WHERE u.model = m.number AND u.user_key = c.user_key"
        " AND u.id = c.id))"
    )
    return (
        yield Statement(
            f"WITH chosen AS MATERIALIZED (SELECT id, {dialect.owner} AS user_key, content,"
            f" {indexing('memory_items')} AS indexed_by FROM {dialect.everything}"
            f" WHERE id > $1 AND deleted = 0 ORDER BY id LIMIT {VERIFIED})"
            " SELECT c.user_key, c.id, c.content, c.indexed_by,"
            " (SELECT array_agg(array_to_string(p.terms, ' ')"
            " ORDER BY p.passage) FROM memory_passages AS p WHERE p.user_key = c.user_key"
            f" AND p.id = c.id), {vectors}, {embeddings}, EXISTS (SELECT 1 FROM memory_pending AS w"
            " WHERE w.user_key = c.user_key AND w.id = c.id) FROM chosen AS c ORDER BY c.id",
            [last],
        )
    )


def compare(rows: Rows) -> list[Wrong]:
    """Return what is wrong with items that `some_items` returned. Slow enough for a thread."""
    wrong: list[Wrong] = []
    for owner, item_id, content, value, kept, vectors, embeddings, is_waiting in rows:
        if is_waiting:
            continue
        indexed_by = read_indexed_by(value)
        if (kept or []) != expected(owner, content, indexed_by):
            wrong.append((owner, item_id, "has no terms, or the terms of another text"))
        elif vectors == -1 or not all(map(is_unit, embeddings or ())):
            wrong.append((owner, item_id, "has vectors that are damaged, or lacks some"))
        elif vectors is not None and vectors < len(passages_of(content, indexed_by)):
            what = "lacks some of its vectors" if vectors else "has no vectors"
            wrong.append((owner, item_id, f"{what} and is not queued for embedding"))
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
        (owner, item_id, "does not exist, but its terms or vectors do") for owner, item_id in rows
    ] + [(owner, item_id, "has details of vectors that do not exist") for owner, item_id in stray]


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


def rebuild(wrong: Sequence[Wrong]) -> Steps[None]:
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
