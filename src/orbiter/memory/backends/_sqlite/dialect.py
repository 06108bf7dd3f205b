"""How SQLite spells what `_sql.py` means."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from orbiter.memory.backends._rows import COLUMNS, READ, Row, iso
from orbiter.memory.backends._sql import Args, Dialect, Filter, Rows, Statement, Steps
from orbiter.memory.backends._sqlite import schema
from orbiter.memory.backends._sqlite.words import candidates, weigh

# Twice as fast as an upsert, which must be ready to fire triggers.
_INSERT_NEW = (
    f"INSERT INTO memory_items ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 1)"
)
_INSERT = f"{_INSERT_NEW} ON CONFLICT (id) DO NOTHING RETURNING 1"
_UPSERT = f"""
INSERT INTO memory_items ({", ".join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 1)
ON CONFLICT (id) DO UPDATE SET
    content = excluded.content, memory_type = excluded.memory_type, status = excluded.status,
    metadata = excluded.metadata, extra_json = excluded.extra_json,
    updated_at = excluded.updated_at, deleted = 0, version = version + 1,
    rowid = CASE WHEN deleted THEN (SELECT max(rowid) + 1 FROM memory_items) ELSE rowid END
"""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

LONGEST_PATTERN = 40_000
"""Characters above which LIKE may refuse a pattern, which it measures in bytes."""


class SQLiteDialect(Dialect):
    """How SQLite spells it."""

    place = "rowid"
    now = schema.NOW
    lock = ""  # a writing transaction has the file to itself

    def parameter(self, number: int) -> str:
        """Return the name of a bound value."""
        return f"?{number}"

    def instant(self, value: datetime) -> object:
        """Return a time as text of one width."""
        return iso(value)

    def upsert(self, row: Row) -> Steps[int | None]:
        """Write a row."""
        values = _values(row)
        if not (yield Statement(_INSERT, values)):
            yield Statement(_UPSERT, values)
        return None

    def scope(self, wanted: dict[Any, str], args: Args) -> list[str]:
        """Return equalities that the expression indexes serve."""
        return [f"{schema.field(name)} = {args.bind(value)}" for name, value in wanted.items()]

    def unset(self, name: str) -> str:
        """Return the condition that a scope field has no value."""
        return f"{schema.field(name)} IS NULL"

    def has_extra(self, where: Mapping[str, str | int | float | bool], args: Args) -> str:
        """Return a condition that asks Python, which knows what is equal, where SQLite may not."""
        conditions = ["instr(metadata, '\"extra\"')"]
        odd = {}
        for key, value in where.items():
            condition = _is_equal(key, value, args)
            if condition is None:
                odd[key] = value
            else:
                conditions.append(condition)
        if odd:
            conditions.append(_ask_python(odd, args))
        return f"({' AND '.join(conditions)})"

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

    def find(self, needle: str, asked: Filter, tail: str, newest: Rows) -> Steps[Rows]:
        """Ask the trigrams where that is cheaper than reading the filtered rows."""
        is_seen, is_small = yield from weigh(asked)
        if is_seen:
            return newest
        args = Args(self, asked.args)
        conditions = [*asked.scope, *asked.rest, self.contains(needle, args)]
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
        sql = _INSERT_NEW if is_new else _UPSERT
        yield Statement(sql, [_values(row) for row in rows], many=True)

    def by_id(self, args: Args, item_id: str) -> str:
        """Return the condition that picks the row of an id."""
        return f"id = {args.bind(item_id)}"

    def changes(self, sql: str, args: Sequence[Any]) -> Steps[int]:
        """Run a change and return how many rows it changed."""
        yield Statement(sql, args)
        rows = yield Statement("SELECT changes()")
        return int(rows[0][0])

    def purge(self, condition: str, args: Sequence[Any]) -> Steps[int]:
        """Remove rows; triggers take their versions along, and note what indexes must forget."""
        return (yield from self.changes(f"DELETE FROM memory_items WHERE {condition}", args))


def _values(row: Row) -> Sequence[Any]:
    return (*row[:6], iso(row.created_at), iso(row.updated_at))


def _is_equal(key: str, value: str | float, args: Args) -> str | None:
    """Return a condition in which SQLite agrees with Python, ten times as fast, if there is one."""
    is_whole = isinstance(value, int) and abs(value) < 2**53
    is_text = isinstance(value, str) and value.isascii() and value.isprintable()
    if not _PLAIN_KEY.fullmatch(key) or not (is_whole or is_text):
        return None
    path = args.bind(f"$.extra.{key}")
    if isinstance(value, bool):
        return f"json_type(metadata, {path}) = '{'true' if value else 'false'}'"
    equals = f"json_extract(metadata, {path}) = {args.bind(value)}"
    asked = _ask_python({key: value}, args)
    if is_text:  # which may end for SQLite where there is a NUL
        return (
            f"(json_type(metadata, {path}) = 'text' AND {equals}"
            f" AND (instr(metadata, '\\u0000') = 0 OR {asked}))"
        )
    # A fraction SQLite may round differently.
    return (
        f"CASE json_type(metadata, {path}) WHEN 'integer' THEN {equals}"
        f" WHEN 'real' THEN {asked} ELSE 0 END"
    )


def _ask_python(where: Mapping[str, str | float], args: Args) -> str:
    return f"orbiter_extra(metadata, {args.bind(json.dumps(where))})"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def has_extra(metadata: str, where: str) -> bool:
    """Tell whether `extra` in *metadata* holds every value of *where*; both are JSON."""
    try:
        extra = json.loads(metadata).get("extra")
    except (ValueError, TypeError, AttributeError):  # a row made by hand
        return False
    return isinstance(extra, dict) and all(
        key in extra
        and extra[key] == value
        and isinstance(extra[key], bool) == isinstance(value, bool)
        for key, value in _wanted(where).items()
    )


@lru_cache(maxsize=16)
def _wanted(where: str) -> dict[str, Any]:
    wanted: dict[str, Any] = json.loads(where)
    return wanted
