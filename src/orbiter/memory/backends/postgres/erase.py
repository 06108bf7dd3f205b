"""Erasing in Postgres: what stands beside the rows, dead rows and old keys, and the proof.

Everything after the first transaction may be done again, and is done whether or not that found any
row: whoever was killed, or was kept from finishing by a reader, calls `erase` again. What a server
keeps besides, its log and its copies, is not reached from here; see `docs/forgetting.md`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

from orbiter.memory.backends.postgres import orphan_rows
from orbiter.memory.backends.postgres.derived_tables import OWNER
from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.driver import Driver
from orbiter.memory.backends.sql import erase
from orbiter.memory.backends.sql.dialect import Args, Rows, Statement, Steps
from orbiter.memory.backends.sql.erase import ErasureTarget, Span, scoped
from orbiter.memory.backends.sql.erase_probes import Probe, Probes
from orbiter.memory.model.reports import IN_PAGES, Erasure

__all__ = [
    "BEHIND",
    "DEAD",
    "DROP_ANSWERS",
    "DROP_JOBS",
    "EMPTY",
    "FORGET_SAMPLES",
    "HORIZON",
    "JOBS",
    "KEYED",
    "LEAVES",
    "PATIENCE",
    "PAUSE",
    "RENEWING",
    "RESAMPLE",
    "RIGHTS",
    "SAMPLES",
    "SOURCES",
    "STOP_JOBS",
    "UNFINISHED",
    "Ours",
    "Read",
    "Scrubbing",
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
    "memory_entries",
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
so they are rebuilt."""


class Ours(NamedTuple):
    """A table of ours, as the catalog has it."""

    name: str
    columns: list[str]
    has_id: bool
    has_owner: bool


def remove(dialect: PostgresDialect, target: ErasureTarget, span: Span | None) -> Steps[Erasure]:
    """Remove the rows and versions that go; triggers take along what stands beside them.

    With *span*, only those whose ids are within it; without, also what names the scope elsewhere.
    """
    # All at once, in the order in which everybody locks: items that are another's by now, too.
    yield from dialect.lock_rows((yield from erase.ids_of(dialect, target, span)))
    args = Args(dialect)
    where = scoped(dialect, target, args, span)
    vectors = yield Statement(
        f"SELECT count(DISTINCT i.id) FROM (SELECT * FROM memory_items WHERE {where}) AS i"
        f" JOIN memory_vectors AS v ON v.id = i.id AND v.user_key = {OWNER.format('i.')}",
        args,
    )
    counts = yield from erase.remove(dialect, target, span)
    if span is None and "user_id" in target.names:
        # Where a walk over all users has come to; it starts over.
        yield Statement(
            "UPDATE memory_models SET last_user = '', last_id = '' WHERE last_user = $1",
            [target.names["user_id"]],
        )
    return replace(counts, vectors=int(vectors[0][0]))


# Dead rows

HORIZON = "SELECT (txid_current() % 4294967296)::text"
"""The number of a transaction that begins after what was removed."""

_SEES = "age({0}) >= age($1::text::xid) AND {0} IS NOT NULL"
BEHIND = (
    "SELECT (SELECT count(*) FROM pg_stat_activity"
    " WHERE (datname = current_database() OR datname IS NULL)"
    " AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'"
    f" AND (({_SEES.format('backend_xmin')}) OR ({_SEES.format('backend_xid')})))"
    f" + (SELECT count(*) FROM pg_replication_slots WHERE {_SEES.format('xmin')})"
    " + (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
    " AND age(transaction) >= age($1::text::xid))"
)
"""How many keep what was there before a transaction of that number: VACUUM leaves it to them.

Those are who may still see it, whoever has written and not ended, which has a number and perhaps
sees nothing, and standbys, which belong to no database.
"""

RIGHTS = (
    "SELECT bool_and(pg_has_role(relowner, 'USAGE')), pg_has_role('pg_read_all_stats', 'USAGE')"
    " FROM pg_class WHERE oid = ANY (SELECT to_regclass(name)::oid FROM unnest($1::text[]) AS name)"
)
"""Whether the tables are ours to clean, and whether we see what others do."""

DEAD = (
    "SELECT coalesce(sum(pg_stat_get_dead_tuples(c.oid)), 0)::bigint FROM pg_class AS c"
    " LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid"
    " WHERE c.relkind = 'r' AND coalesce(i.inhparent, c.oid) = ANY"
    " (SELECT to_regclass(name)::oid FROM unnest($1::text[]) AS name)"
)
"""How many dead rows the last cleaning of tables, and of their parts, had to leave."""

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
"""What is left of a `REINDEX CONCURRENTLY` that was killed."""


# What servers keep

JOBS = (
    "SELECT oid::regclass::text, pg_has_role(relowner, 'USAGE')"
    " AND has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'UPDATE')"
    " AND has_table_privilege(oid, 'DELETE') FROM pg_class WHERE relname = 'orbiter_jobs' AND"
    " relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('memory_items'))"
)
"""The table of the jobs of servers, if there is one, and whether it is ours to change and clean."""

DROP_JOBS = (
    "DELETE FROM {0} WHERE ended_at IS NULL AND scope @> $1 AND alive_until < clock_timestamp()"
)
"""Jobs that no server does."""

STOP_JOBS = "UPDATE {0} SET is_stopped = true WHERE ended_at IS NULL AND scope @> $1 RETURNING id"
"""Jobs that a server does: it removes them when it hears of this."""

DROP_ANSWERS = (
    "UPDATE {0} SET answer = NULL, scope = NULL WHERE answer IS NOT NULL AND NOT"
    " (is_erasure AND $2) AND NOT EXISTS (SELECT FROM jsonb_each_text($1::jsonb) AS wanted"
    " WHERE scope ->> wanted.key <> wanted.value)"
)
"""Answers that may quote memories of a scope; the second says that proofs of erasures stay."""


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
        " UNION ALL SELECT tablename, most_common_vals::text FROM pg_stats_ext"
        " UNION ALL SELECT tablename, concat_ws(' ', histogram_bounds, most_common_vals)"
        " FROM pg_stats_ext_exprs)"
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
    by_place: dict[str, list[str]] = {}
    problems = []
    every = yield from tables()
    for table in every:
        if table.name not in SOURCES:
            # What is made of another's words may look the same; it is asked for by its owner.
            several = names if table.has_id or table.has_owner else texts
            by_place[f"the table `{table.name}`"] = yield from traces(table, several)
        if table.has_owner and "user_id" in wanted:
            left = yield from owned(table, wanted["user_id"])
            problems += (
                [f"{left} rows of `{table.name}` belong to no user; call `verify`"] if left else []
            )
        is_beside = table.has_id and table.name != "memory_items"
        if is_beside and (left := (yield from orphans(table, item_ids))):
            problems.append(f"{left} rows of `{table.name}` belong to nothing; call `verify`")
    for name, left in (yield from orphan_rows.count(dialect)).items():
        if left and not any(f"`{name}`" in problem for problem in problems):
            problems.append(f"{left} rows of `{name}` belong to nothing; repeat the erasure")
    by_place[SAMPLES] = yield from statistics(texts)
    suspects = sorted({probe for several in by_place.values() for probe in several})
    held: set[str] = set()
    for table in every if suspects else ():
        if table.name in SOURCES:
            held.update((yield from traces(table, suspects)))
    # Samples are also of what is made of another's words; whose that is was asked above.
    made = [table for table in every if table.has_id or table.has_owner]
    for table in made if set(by_place[SAMPLES]) - held else ():
        by_place[SAMPLES] = sorted(
            set(by_place[SAMPLES]) - set((yield from traces(table, by_place[SAMPLES])))
        )
    for where, several in by_place.items():
        if left := len(set(several) - held):
            problems.append(f"{where} holds {left} traces of it; repeat the erasure")
    return len(every), problems


def rows(sql: str, *args: object) -> Steps[Rows]:
    """Ask one thing."""
    return (yield Statement(sql, list(args)))


_T = TypeVar("_T")

RENEWING = 0x6F72626974657202
"""The advisory lock of whoever rebuilds indexes: "orbiter" and a two."""

PAUSE = 0.05

_NOT_OURS = (
    "the rows are dead but still on disk: only the owner of the tables can remove them; "
    "erase or optimize as that role"
)
_JOBS_NOT_OURS = (
    "the table `orbiter_jobs` of a server may name it, and this role may not clean that table: "
    "erase through the server"
)
_JOBS_RUN = "a server has not stopped a job of it yet; repeat the erasure"
_STILL_SEEN = (
    "a transaction that began before may still see what was erased, so it is still on disk; "
    "repeat the erasure when it has ended"
)


class Read(Protocol):
    """Runs steps that change nothing."""

    async def __call__(self, steps: Callable[[], Steps[_T]], /) -> _T: ...


class Scrubbing:
    """One cleaning of one database."""

    def __init__(
        self, driver: Driver, dialect: PostgresDialect, pool: Callable[[], Any], read: Read
    ) -> None:
        self._driver = driver
        self._dialect = dialect
        self._pool = pool
        self._read = read

    async def run(
        self, target: ErasureTarget, probes: Probes, forget: Callable[[], Awaitable[None]]
    ) -> Erasure:
        """Clean the tables and look for *probes*; *forget* removes what is of nothing by now."""
        wanted = target.names
        traces = probes.taken()
        await forget()
        try:
            problems = [*await self._clean(), *await self._drop_jobs(target)]
        except self._driver.failures as exc:
            problems = [f"{self._driver.translate(exc)}; then repeat the erasure"]
        tables, left = await self._read(lambda: look(self._dialect, wanted, traces, probes.ids))
        found = (*problems, *left)
        return Erasure(tables=tables, probes=len(traces), problems=found, not_searched=(IN_PAGES,))

    async def _drop_jobs(self, target: ErasureTarget) -> list[str]:
        """Have no server do anything for whom is erased, and keep no request and answer of it."""
        there = await self._read(lambda: rows(JOBS))
        if not there:
            return []
        table, is_ours = there[0]
        if not is_ours:
            return [_JOBS_NOT_OURS]
        scope, until = json.dumps(target.wanted), monotonic() + PATIENCE
        async with self._driver.lease(self._pool()) as connection:
            while target.names:
                await connection.execute(DROP_JOBS.format(table), scope)
                if not await connection.fetch(STOP_JOBS.format(table), scope):
                    break
                if monotonic() > until:
                    return [_JOBS_RUN]
                await asyncio.sleep(PAUSE)
            await connection.execute(DROP_ANSWERS.format(table), scope, not target.names)
            await connection.execute(f"VACUUM (ANALYZE) {table}")
        return []

    async def _clean(self) -> list[str]:
        names = [table.name for table in await self._read(tables)]
        rights = await self._read(lambda: rows(RIGHTS, names))
        owns, sees_all = rights[0]
        if not owns:
            return [_NOT_OURS]
        is_seen = await self._is_still_seen()
        await self._each("VACUUM", names)  # alone: ANALYZE sets the count of dead rows to 0
        if not is_seen and not sees_all:  # of others' transactions we know by what they kept
            is_seen = await self._are_rows_kept(names)
        await self._each("ANALYZE", names)
        await self._forget_samples()  # which leaves dead rows of its own
        if is_seen:
            return [_STILL_SEEN]
        await self._renew_indexes()
        return []

    async def _forget_samples(self) -> None:
        """Have the planner forget its samples of tables that are empty: ANALYZE keeps them."""
        async with self._driver.lease(self._pool()) as connection:
            is_super = await connection.fetchval("SELECT current_setting('is_superuser')") == "on"
            for (name,) in await connection.fetch(EMPTY):
                if is_super and not await connection.fetch(f"SELECT 1 FROM {name} LIMIT 1"):
                    for command in FORGET_SAMPLES:
                        await connection.execute(command.format(name))
            if is_super:
                for name in ("pg_statistic", "pg_statistic_ext_data"):
                    await connection.execute(f"VACUUM {name}")
                return
            for name, insert in RESAMPLE.items():
                async with connection.transaction():
                    await connection.execute("SELECT set_config('orbiter.user_id', '', true)")
                    await connection.execute(insert)
                    await connection.execute(f"ANALYZE {name}")
                    await connection.execute(f"DELETE FROM {name} WHERE user_key = '' AND id = '~'")

    async def _is_still_seen(self) -> bool:
        """Wait until nobody can see what was removed; tell whether someone still can."""
        number = (await self._read(lambda: rows(HORIZON)))[0][0]
        until = monotonic() + PATIENCE
        while (await self._read(lambda: rows(BEHIND, number)))[0][0]:
            if monotonic() > until:
                return True
            await asyncio.sleep(PAUSE)
        return False

    async def _are_rows_kept(self, names: list[str]) -> bool:
        """Clean until no dead row is left; tell whether some still are.

        Once is not enough: Postgres counts what a connection removed up to a minute later, and
        then counts rows as dead that were cleaned meanwhile.
        """
        until = monotonic() + PATIENCE
        while (await self._read(lambda: rows(DEAD, names)))[0][0]:
            if monotonic() > until:
                return True
            await asyncio.sleep(PAUSE)
            await self._each("VACUUM", names)
        return False

    async def _renew_indexes(self) -> None:
        there = await self._read(lambda: rows(LEAVES, [*KEYED]))
        async with self._driver.lease(self._pool()) as connection:
            # One at a time: what another is just making looks like what a crash left behind. To
            # wait inside the server would hold up the one that is at it.
            while not await connection.fetchval(  # noqa: ASYNC110 - another process has it
                f"SELECT pg_try_advisory_lock({RENEWING})"
            ):
                await asyncio.sleep(PAUSE)
            try:
                for row in await connection.fetch(UNFINISHED):
                    await connection.execute(f"DROP INDEX IF EXISTS {row[0]}")
                for row in there:
                    await connection.execute(f"REINDEX INDEX CONCURRENTLY {row[0]}")
            finally:
                await connection.execute(f"SELECT pg_advisory_unlock({RENEWING})")

    async def _each(self, command: str, names: list[str]) -> None:
        # Each takes as long as it takes, and none can be part of a transaction.
        async with self._driver.lease(self._pool()) as connection:
            for table in names:
                await connection.execute(f"{command} {table}")
