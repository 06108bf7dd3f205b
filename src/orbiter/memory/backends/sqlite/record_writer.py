"""`RecordWriter` of SQLite: writes records exactly, and notes out-of-order arrivals."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from orbiter.memory.backends.sql.dialect import Args, RecordWriter, Statement, Steps
from orbiter.memory.backends.sql.rows import COLUMNS, Row, iso
from orbiter.memory.backends.sql.stored_records import Kept, KeptVersion, Note, spell_instant
from orbiter.memory.backends.sqlite.migrations import NOW

__all__ = ["MAX_TEXT", "SLACK", "TOGETHER", "SQLiteRecordWriter", "dated", "note"]

SLACK = timedelta(seconds=1)
"""An item that says it was created so long before it is written counts as written then."""

TOGETHER = (1000, 100, 10)
"""Rows in one statement. Python's lock is given away for each statement and waited for after it,
so that a busy thread beside this one would hold up every row that is written by itself."""

MAX_TEXT = 2**20
"""Characters in such a statement, of which SQLite makes a copy."""

_INSERT = f"INSERT INTO memory_items ({', '.join(COLUMNS)}) VALUES "
_INSERTED = f"({', '.join('?' * 10)})"
_VERSIONS = "INSERT INTO memory_versions VALUES "
_KEPT = f"({', '.join('?' * 12)})"
_CAME = "INSERT INTO memory_versions (id, version, ended_at, ended_by) VALUES "
_HAS_COME = "(?, 0, ?, ?)"
_UPDATE = f"UPDATE memory_items SET {', '.join(f'{name} = ?' for name in COLUMNS[1:])} WHERE id = ?"
# The trigger has counted on where the number stayed the same.
_RENUMBER = "UPDATE memory_items SET version = ?1 WHERE id = ?2 AND version <> ?1"
_NOTE_NEW = (
    f"INSERT INTO memory_versions (id, version, ended_at) SELECT value, 0, {NOW} FROM json_each(?1)"
)
_NOTE = (
    "INSERT INTO memory_versions (id, version, ended_at)"
    f" SELECT id, 0, {NOW} FROM memory_items WHERE id = ? AND version = 1"
    " ON CONFLICT (id, version) DO NOTHING"
)


class SQLiteRecordWriter(RecordWriter):
    """How SQLite writes records."""

    def versions_of(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks versions; the ids are bound in one piece."""
        return f"id IN (SELECT value FROM json_each({args.bind(json.dumps(item_ids))}))"

    def insert(self, kept: Sequence[Kept]) -> Steps[None]:
        """Write new rows; no trigger knows of them, as they are beyond every mark."""
        yield from _together(_INSERT, _INSERTED, [_values(each) for each in kept])

    def replace(self, kept: Sequence[Kept]) -> Steps[None]:
        """Change rows as a write would, for the triggers; then put the versions right."""
        yield Statement(_UPDATE, [(*_values(each)[1:], each.id) for each in kept], many=True)
        yield Statement(_RENUMBER, [(each.version, each.id) for each in kept], many=True)
        ids = [(each.id,) for each in kept]
        yield Statement("DELETE FROM memory_versions WHERE id = ?", ids, many=True)

    def add_past(self, versions: Sequence[KeptVersion], notes: Sequence[Note]) -> Steps[None]:
        """Write versions and notes."""
        yield from _together(_VERSIONS, _KEPT, [tuple(map(_value, each)) for each in versions])
        came = [(note.id, spell_instant(note.came), note.came_by) for note in notes]
        yield from _together(_CAME, _HAS_COME, came)


def _together(head: str, one: str, rows: Sequence[Sequence[Any]]) -> Steps[None]:
    """Insert *rows* in order, many in one statement unless they are long."""
    done = 0
    for size in TOGETHER:
        while len(rows) - done >= size:
            values = list(chain.from_iterable(rows[done : done + size]))
            if sum([len(value) for value in values if type(value) is str]) > MAX_TEXT:
                break
            yield Statement(head + ", ".join([one] * size), values)
            done += size
    if done < len(rows):
        yield Statement(head + one, rows[done:], many=True)


def _values(kept: Kept) -> tuple[Any, ...]:
    item_id, content, kind, status, metadata, extra, created, updated, deleted, version = kept
    at = spell_instant(created)
    changed = at if created == updated else spell_instant(updated)
    return item_id, content, kind, status, metadata, extra, at, changed, deleted, version


def _value(value: object) -> object:
    return iso(value) if isinstance(value, datetime) else value


def dated(rows: Sequence[Row]) -> list[str]:
    """Return the ids of rows that say they were created at another time than about now."""
    now = datetime.now(UTC)
    return [row.id for row in rows if not now - SLACK <= row.created_at <= now]


def note(item_ids: Sequence[str], *, are_new: bool = False) -> Steps[None]:
    """Write down that those of the items that are new came now, whatever they say."""
    if are_new and item_ids:
        yield Statement(_NOTE_NEW, [json.dumps(item_ids)])
    elif item_ids:
        yield Statement(_NOTE, [(item_id,) for item_id in item_ids], many=True)
