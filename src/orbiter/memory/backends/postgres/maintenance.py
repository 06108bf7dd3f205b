"""What looking after the tables of a Postgres store asks the server, as steps."""

from orbiter.memory.backends.postgres import migration_2, schema
from orbiter.memory.backends.postgres.not_expired import not_expired
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.backends.sql.store import CHUNK

__all__ = ["folded_texts", "forget_commits", "invalid_indexes", "refold", "stats"]


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
            [[*schema.TABLES, *migration_2.TABLES]],
        )
    )


def invalid_indexes() -> Steps[Rows]:
    return (
        yield Statement(
            "SELECT indexrelid::regclass::text FROM pg_index, unnest($1::text[]) AS name"
            " WHERE indrelid = to_regclass(name) AND NOT (indisvalid AND indisready)",
            [[*schema.TABLES, *migration_2.TABLES]],
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
