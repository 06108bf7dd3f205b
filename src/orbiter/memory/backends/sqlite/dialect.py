"""SQL of SQLite for `sql/operations.py`."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orbiter.memory.backends.sql.dialect import Args, Dialect, Filter, Rows, Statement, Steps
from orbiter.memory.backends.sql.rows import COLUMNS, ENDS, READ, Row, iso
from orbiter.memory.backends.sqlite import term_index
from orbiter.memory.backends.sqlite.migrations import FACT_FIELDS, NOW, field
from orbiter.memory.backends.sqlite.record_writer import SQLiteRecordWriter, dated, note
from orbiter.memory.backends.sqlite.schema import EXPIRED, not_expired
from orbiter.memory.backends.sqlite.trigram_index import candidates, weigh
from orbiter.memory.backends.sqlite.where import PLAIN_KEY, SQLiteWhereCompiler
from orbiter.memory.model.filters import Condition

__all__ = ["INSERT", "LONGEST_PATTERN", "SQLiteDialect", "row_values"]

# Twice as fast as an upsert, which must be ready to fire triggers.
_INSERT_NEW = (
    f"INSERT INTO memory_items ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 1)"
)
INSERT = f"{_INSERT_NEW} ON CONFLICT (id) DO NOTHING"
"""Writes a row if its id is new; binds what `row_values` returns."""
_CHANGES = "SELECT changes()"  # RETURNING would keep what it returns in a table first
_UPSERT = f"""
INSERT INTO memory_items ({", ".join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 1)
ON CONFLICT (id) DO UPDATE SET
    content = excluded.content, memory_type = excluded.memory_type, status = excluded.status,
    metadata = excluded.metadata, extra_json = excluded.extra_json,
    updated_at = excluded.updated_at, deleted = 0, version = version + 1,
    rowid = CASE WHEN deleted THEN (SELECT max(rowid) + 1 FROM memory_items) ELSE rowid END
"""

# An expired item is gone: whoever writes its id writes a new one.
_UPDATE = f"{_UPSERT} WHERE {not_expired()}"
_REMOVE_EXPIRED = (
    f"DELETE FROM memory_items WHERE rowid IN ({EXPIRED})"
    " AND id IN (SELECT value FROM json_each(?1))"
)

LONGEST_PATTERN = 40_000
"""Characters above which LIKE may refuse a pattern, which it measures in bytes."""


class SQLiteDialect(Dialect):
    """How SQLite spells it."""

    place = "rowid"
    now = NOW
    from_micros = (
        "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch')"
        " || printf('.%06d+00:00', {0} % 1000000)"
    )
    record_writer = SQLiteRecordWriter()
    for_update = ""  # a writing transaction has the file to itself
    fact_fields = FACT_FIELDS

    def parameter(self, number: int) -> str:
        """Return the name of a bound value."""
        return f"?{number}"

    def instant(self, value: datetime) -> object:
        """Return a time as text of one width."""
        return iso(value)

    def pairs(self, args: Args, pairs: Sequence[tuple[str, str]]) -> str:
        """Return a query that takes the pairs out of JSON."""
        listed = args.bind(json.dumps(pairs, ensure_ascii=False))
        part = "json_extract(value, '$[{}]')"
        return f"SELECT {part.format(0)}, {part.format(1)} FROM json_each({listed})"

    def upsert(self, row: Row) -> Steps[int | None]:
        """Write a row."""
        values = row_values(row)
        if not (yield from self.changes(INSERT, values)) and not (
            yield from self.changes(_UPDATE, values)
        ):
            yield Statement(_REMOVE_EXPIRED, [json.dumps([row.id])])
            yield Statement(_UPSERT, values)
        yield from note(dated([row]))
        return None

    def scope(self, wanted: dict[Any, str], args: Args) -> list[str]:
        """Return equalities that the expression indexes serve."""
        return [f"{field(name)} = {args.bind(value)}" for name, value in wanted.items()]

    def value(self, name: str) -> str:
        """Return the expression that the indexes are made of."""
        return field(name)

    def extra_value(self, key: str, args: Args) -> str:
        """Ask for two places: SQLite then answers with a list, in which nothing is rounded."""
        if not PLAIN_KEY.fullmatch(key):  # whose path older versions read differently
            return "metadata"
        return f"json_extract(metadata, {args.bind(f'$.extra.{key}')}, '$.none')"

    def unset(self, name: str) -> str:
        """Return the condition that a scope field has no value."""
        return f"{field(name)} IS NULL"

    def not_expired(self, item: str = "memory_items") -> str:
        """Return a condition that looks at the first bytes of what a row has beside its text."""
        return not_expired(item)

    def message_columns(self, args: Args, usual: str) -> str:
        """Leave out what most rows say: to make texts of columns takes longest."""
        changed = f"NULL, nullif(metadata, {args.bind(usual)}), nullif(extra_json, '{{}}')"
        times = "created_at, nullif(updated_at, created_at)"
        return f"id, content, memory_type, {changed}, {times}, version"

    def none_expired(self) -> str:
        """Name what is over, which is seldom anything: it is looked up once, and no row is read."""
        return f"(NOT EXISTS ({EXPIRED}) OR memory_items.rowid NOT IN ({EXPIRED}))"

    def counting_owner(self, wanted: Mapping[Any, str], args: Args) -> str | None:
        """Read the count that is kept of a user, or of all."""
        if wanted.keys() - {"user_id"}:
            return None
        user = wanted.get("user_id")
        sql = term_index.counting(user, args.bind(term_index.ALL if user is None else user))
        return f"SELECT {sql}"

    def counting(self, where: str) -> str:
        """Count all and take off what is over: the others are not looked at one by one."""
        # Crossed, so that nothing else is read where nothing is over.
        over = (
            f"({EXPIRED}) AS o CROSS JOIN memory_items NOT INDEXED ON memory_items.rowid = o.rowid"
        )
        return (
            f"SELECT (SELECT count(*) FROM memory_items WHERE {where})"
            f" - (SELECT count(*) FROM {over} WHERE {where})"
        )

    def sweep(self, count: int) -> Steps[int]:
        """Remove rows; triggers take along what belongs to them, as with `purge`."""
        return (yield from self.purge(f"rowid IN ({EXPIRED} LIMIT {count})", []))

    def fits(self, condition: Condition, args: Args) -> str:
        """Return what a filter states; Python is asked where SQLite may see it differently."""
        return SQLiteWhereCompiler(args).top(condition)

    def contains(self, needle: str, args: Args) -> str:
        """Return a condition that asks Python only about texts beyond ASCII."""
        if len(needle) > LONGEST_PATTERN or not needle.isascii():
            plain = f"instr(lower(content), {args.bind(needle)})"
        else:
            plain = f"content LIKE {args.bind(f'%{_escape(needle)}%')} ESCAPE '\\'"
        return (
            f"({plain} OR (length(content) <> length(CAST(content AS BLOB))"
            f" AND orbiter_has(content, {args.bind(needle)})))"
        )

    def find(self, needle: str, compiled: Filter, tail: str, newest: Rows) -> Steps[Rows]:
        """Ask the trigrams where that is cheaper than reading the filtered rows."""
        is_seen, is_small = yield from weigh(compiled)
        if is_seen:
            return newest
        args = Args(self, compiled.args)
        conditions = [*compiled.scope, *compiled.rest, self.contains(needle, args)]
        source = "memory_items"
        places = None if is_small else (yield from candidates(needle))
        if places is not None:
            source = "memory_items NOT INDEXED"  # by place; no other index may be preferred
            conditions.insert(
                0,
                f"rowid IN (SELECT value FROM json_each({args.bind(json.dumps(places))})"
                " UNION ALL SELECT place FROM memory_unindexed"
                " UNION ALL SELECT rowid FROM memory_items WHERE rowid >"
                " (SELECT value FROM memory_meta WHERE key = 'indexed_to'))",
            )
        where = " AND ".join(conditions)
        return (
            yield Statement(f"SELECT {', '.join(READ)} FROM {source} WHERE {where} {tail}", args)
        )

    def add_many(self, rows: Sequence[Row]) -> Steps[None]:
        """Upsert *rows* in order."""
        ids = {row.id for row in rows}
        known = yield Statement(
            "SELECT 1 FROM memory_items WHERE id IN (SELECT value FROM json_each(?1)) LIMIT 1",
            [json.dumps(list(ids))],
        )
        is_new = not known and len(ids) == len(rows)
        late = dated(rows)
        ends = not is_new and any(row.extra_json.startswith(ENDS) for row in rows)
        if ends or (late and len(ids) < len(rows)):
            for row in rows:  # one may be over, or must be noted, before the next of its id comes
                yield from self.upsert(row)
            return
        if known:
            yield Statement(_REMOVE_EXPIRED, [json.dumps(list(ids))])
        sql = _INSERT_NEW if is_new else _UPSERT
        yield Statement(sql, [row_values(row) for row in rows], many=True)
        yield from note(late, are_new=is_new)

    def by_id(self, args: Args, item_id: str) -> str:
        """Return the condition that picks the row of an id."""
        return f"id = {args.bind(item_id)}"

    def by_ids(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks the rows of ids, which are bound in one piece."""
        return f"id IN (SELECT value FROM json_each({args.bind(json.dumps(item_ids))}))"

    def changes(self, sql: str, args: Sequence[Any]) -> Steps[int]:
        """Run a change and return how many rows it changed."""
        yield Statement(sql, args)
        rows = yield Statement(_CHANGES)
        return int(rows[0][0])

    def purge(self, condition: str, args: Sequence[Any]) -> Steps[int]:
        """Remove rows; triggers take their versions along, and note what indexes must forget."""
        return (yield from self.changes(f"DELETE FROM memory_items WHERE {condition}", args))


def row_values(row: Row) -> Sequence[Any]:
    """Return what statements that write a row bind."""
    created = iso(row.created_at)
    changed = created if row.updated_at == row.created_at else iso(row.updated_at)
    return (*row[:6], created, changed)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
