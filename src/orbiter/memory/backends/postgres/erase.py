"""Erasing in Postgres: what stands beside the rows, dead rows and old keys, and the proof.

Everything after the first transaction may be done again, and is done whether or not that found any
row: whoever was killed, or was kept from finishing by a reader, calls `erase` again. What a server
keeps besides, its log and its copies, is not reached from here; see `docs/forgetting.md`.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from orbiter.memory.backends.postgres import orphan_rows
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.migration_2 import OWNER
from orbiter.memory.backends.sql import erase
from orbiter.memory.backends.sql.dialect import Args, Rows, Statement, Steps
from orbiter.memory.backends.sql.erase import Span, scoped
from orbiter.memory.backends.sql.erase_probes import Probe
from orbiter.memory.model.reports import Erasure

__all__ = [
    "BEHIND",
    "DEAD",
    "EMPTY",
    "FORGET_SAMPLES",
    "HORIZON",
    "KEYED",
    "LEAVES",
    "PATIENCE",
    "RESAMPLE",
    "RIGHTS",
    "SAMPLES",
    "SOURCES",
    "UNFINISHED",
    "Ours",
    "look",
    "orphans",
    "owned",
    "remove",
    "rows",
    "statistics",
    "tables",
    "traces",
]

PATIENCE = 5.0
"""Seconds that dead rows wait for transactions that may still see them."""

SOURCES = (
    "memory_items",
    "memory_versions",
    "memory_audit",
    "memory_audit_head",
    "memory_vectors",
    "memory_details",
)
"""Tables that hold what others said themselves; a trace that one of them holds proves nothing."""

SAMPLES = (
    "what the planner keeps as samples (it is renewed when the table has rows again, or by a"
    " superuser: DELETE FROM pg_statistic)"
)

KEYED = ("memory_passages_terms", "memory_terms_pkey")
"""Indexes whose keys are words. A key stays in such an index when the last row is gone that had it,
so they are made anew."""


class Ours(NamedTuple):
    """A table of ours, as the catalog has it."""

    name: str
    columns: list[str]
    has_id: bool
    has_owner: bool


def remove(dialect: PostgresDialect, wanted: dict[Any, str], span: Span | None) -> Steps[Erasure]:
    """Remove the rows and versions of a scope; triggers take along what stands beside them.

    With *span*, only those whose ids are within it; without, also what names the scope elsewhere.
    """
    # All at once, in the order in which everybody locks: items that are another's by now, too.
    yield from dialect.lock_rows((yield from erase.ids_of(dialect, wanted, span)))
    args = Args(dialect)
    where = scoped(dialect, wanted, args, span)
    vectors = yield Statement(
        f"SELECT count(DISTINCT i.id) FROM (SELECT * FROM memory_items WHERE {where}) AS i"
        f" JOIN memory_vectors AS v ON v.id = i.id AND v.user_key = {OWNER.format('i.')}",
        args,
    )
    counts = yield from erase.remove(dialect, wanted, span)
    if (
        span is None and "user_id" in wanted
    ):  # where a walk over all users has come to; it begins anew
        yield Statement(
            "UPDATE memory_models SET last_user = '', last_id = '' WHERE last_user = $1",
            [wanted["user_id"]],
        )
    return replace(counts, vectors=int(vectors[0][0]))


# Dead rows

HORIZON = "SELECT (txid_current() % 4294967296)::text"
"""The number of a transaction that begins after what was removed."""

_SEES = "age({0}) >= age($1::text::xid) AND {0} IS NOT NULL"
BEHIND = (
    "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'"
    f" AND {_SEES.format('backend_xmin')})"
    f" + (SELECT count(*) FROM pg_replication_slots WHERE {_SEES.format('xmin')})"
    " + (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
    " AND age(transaction) >= age($1::text::xid))"
)
"""How many there are who may still see what was there before a transaction of that number."""

RIGHTS = (
    "SELECT bool_and(pg_has_role(relowner, 'USAGE')), pg_has_role('pg_read_all_stats', 'USAGE')"
    " FROM pg_class WHERE oid = ANY (SELECT to_regclass(name)::oid FROM unnest($1::text[]) AS name)"
)
"""Whether the tables are ours to clean, and whether we see what others do."""

DEAD = (
    "SELECT coalesce(sum(pg_stat_get_dead_tuples(c.oid)), 0)::bigint FROM pg_class AS c"
    " WHERE c.relkind = 'r' AND c.relname LIKE 'memory\\_%'"
    " AND c.relnamespace = (SELECT relnamespace FROM pg_class"
    " WHERE oid = to_regclass('memory_items'))"
)
"""How many dead rows the last cleaning had to leave."""

EMPTY = (
    "SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relkind = 'r' AND"
    " c.relname LIKE 'memory\\_%' AND c.relnamespace = (SELECT relnamespace FROM pg_class"
    " WHERE oid = to_regclass('memory_items')) AND c.relname <> 'memory_audit'"
)
"""Every table and part of a table."""

FORGET_SAMPLES = (
    (
        "DELETE FROM pg_statistic WHERE starelid = '{0}'::regclass OR starelid IN"
        " (SELECT indexrelid FROM pg_index WHERE indrelid = '{0}'::regclass)"
    ),
    (
        "DELETE FROM pg_statistic_ext_data WHERE stxoid IN"
        " (SELECT oid FROM pg_statistic_ext WHERE stxrelid = '{0}'::regclass)"
    ),
)
"""Samples of a table that is empty now are never renewed; only a superuser can drop them."""

RESAMPLE = {
    "memory_pending": "INSERT INTO memory_pending (user_key, id) VALUES ('', '~')",
    "memory_unembedded": "INSERT INTO memory_unembedded (model, user_key, id) VALUES (0, '', '~')",
}
"""What gives an empty queue samples that name nobody: a row that nobody ever sees."""

LEAVES = (
    "SELECT i.indexrelid::regclass::text FROM pg_index AS i"
    " JOIN pg_class AS c ON c.oid = i.indexrelid AND c.relkind = 'i'"
    " WHERE i.indexrelid = ANY (SELECT to_regclass(name)::oid FROM unnest($1::text[]) AS name)"
    " OR i.indexrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = ANY"
    " (SELECT to_regclass(name)::oid FROM unnest($1::text[]) AS name)) ORDER BY 1"
)
"""The indexes `KEYED`, or their parts."""

UNFINISHED = (
    "SELECT i.indexrelid::regclass::text FROM pg_index AS i JOIN pg_class AS c"
    " ON c.oid = i.indexrelid WHERE NOT i.indisvalid"
    " AND c.relname ~ '^memory_.*_cc(new|old)[0-9]*$'"
    " AND c.relnamespace = (SELECT relnamespace FROM pg_class"
    " WHERE oid = to_regclass('memory_items'))"
)
"""What is left of making an index anew by someone who was killed."""


# Looking for what is left


def tables() -> Steps[list[Ours]]:
    """Return every table of ours that is there, with the columns that may hold a text."""
    rows = yield Statement(
        "SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum),"
        " bool_or(a.attname = 'id'), bool_or(a.attname = 'user_key') FROM pg_class AS c"
        " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " AND a.atttypid = ANY (ARRAY['text', 'jsonb', 'json', 'text[]', 'varchar', 'bytea']"
        "::regtype[]) WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition"
        " AND (c.relname LIKE 'memory\\_%' OR c.relname LIKE 'episodic\\_%')"
        " AND c.relnamespace = (SELECT relnamespace FROM pg_class"
        " WHERE oid = to_regclass('memory_items')) GROUP BY c.relname ORDER BY 1"
    )
    return [Ours(*row) for row in rows]


def traces(table: Ours, probes: list[str]) -> Steps[list[str]]:
    """Return the traces that a table holds, in any case."""
    texts = " || ' ' || ".join(f"coalesce(t.{name}::text, '')" for name in table.columns)
    rows = yield Statement(
        "SELECT p FROM unnest($1::text[]) AS p WHERE EXISTS"
        f" (SELECT 1 FROM {table.name} AS t WHERE strpos(lower({texts}), lower(p)) > 0)",
        [probes],
    )
    return [row[0] for row in rows]


def statistics(probes: list[str]) -> Steps[list[str]]:
    """Return the traces that the planner's samples hold."""
    rows = yield Statement(
        "SELECT DISTINCT p FROM unnest($1::text[]) AS p, (SELECT tablename,"
        " concat_ws(' ', histogram_bounds, most_common_vals, most_common_elems) FROM pg_stats"
        " UNION ALL SELECT tablename, most_common_vals::text FROM pg_stats_ext)"
        " AS s (name, samples)"
        " WHERE s.name LIKE 'memory\\_%' AND strpos(s.samples, p) > 0",
        [probes],
    )
    return [row[0] for row in rows]


def orphans(table: Ours, item_ids: list[str]) -> Steps[int]:
    """Return how many rows of a table stand beside items that are gone."""
    rows = yield Statement(
        f"SELECT count(*) FROM {table.name} AS t WHERE t.id = ANY ($1::text[])"
        " AND NOT EXISTS (SELECT 1 FROM memory_items AS i WHERE i.id = t.id)",
        [item_ids],
    )
    return int(rows[0][0])


def owned(table: Ours, user_id: str) -> Steps[int]:
    """Return how many rows of a table belong to a user who has no items."""
    rows = yield Statement(
        f"SELECT count(*) FROM {table.name} WHERE user_key = $1 AND NOT EXISTS"
        f" (SELECT 1 FROM memory_items AS i WHERE {OWNER.format('i.')} = $1)",
        [user_id],
    )
    return int(rows[0][0])


def look(
    dialect: PostgresDialect, wanted: dict[Any, str], probes: list[Probe], item_ids: list[str]
) -> Steps[tuple[int, list[str]]]:
    """Return how many tables there are, and what is left where."""
    texts = [each.trace.decode(errors="replace") for each in probes if not each.is_term]
    texts = [text for text in texts if "\ufffd" not in text and "\0" not in text]
    names = [text for text in texts if text in wanted.values()]
    found: dict[str, list[str]] = {}
    problems = []
    every = yield from tables()
    for table in every:
        if table.name not in SOURCES:
            # What is made of another's words may look the same; it is asked for by its owner.
            several = names if table.has_id or table.has_owner else texts
            found[f"the table `{table.name}`"] = yield from traces(table, several)
        if table.has_owner and "user_id" in wanted:
            left = yield from owned(table, wanted["user_id"])
            problems += (
                [f"{left} rows of `{table.name}` are of nobody; `verify` it"] if left else []
            )
        is_beside = table.has_id and table.name != "memory_items"
        if is_beside and (left := (yield from orphans(table, item_ids))):
            problems.append(f"{left} rows of `{table.name}` belong to nothing; `verify` it")
    for name, left in (yield from orphan_rows.count(dialect)).items():
        if left and not any(f"`{name}`" in problem for problem in problems):
            problems.append(f"{left} rows of `{name}` belong to nothing; call `erase` again")
    found[SAMPLES] = yield from statistics(texts)
    asked = sorted({probe for several in found.values() for probe in several})
    held: set[str] = set()
    for table in every if asked else ():
        if table.name in SOURCES:
            held.update((yield from traces(table, asked)))
    # Samples are also of what is made of another's words; whose that is was asked above.
    made = [table for table in every if table.has_id or table.has_owner]
    for table in made if set(found[SAMPLES]) - held else ():
        found[SAMPLES] = sorted(
            set(found[SAMPLES]) - set((yield from traces(table, found[SAMPLES])))
        )
    for where, several in found.items():
        if left := len(set(several) - held):
            problems.append(f"{where} holds {left} traces of it; call `erase` again")
    return len(every), problems


def rows(sql: str, *args: object) -> Steps[Rows]:
    """Ask one thing."""
    return (yield Statement(sql, list(args)))
