"""How SQLite writes records exactly, and notes when an item came that is dated otherwise."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from orbiter.memory.backends._rows import COLUMNS, Row, iso
from orbiter.memory.backends._sql import Args, Statement, Steps
from orbiter.memory.backends._sql_records import Keeping
from orbiter.memory.backends._sqlite.schema import NOW
from orbiter.memory.backends._stored_records import Kept, KeptVersion, Note, moment

SLACK = timedelta(seconds=1)
"""An item that says it was created so long before it is written counts as written then."""

_WIDTH = len(iso(datetime.now(UTC)))

_INSERT = f"INSERT INTO memory_items ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * 10)})"
_VERSIONS = f"INSERT INTO memory_versions VALUES ({', '.join('?' * 12)})"
_CAME = "INSERT INTO memory_versions (id, version, ended_at, ended_by) VALUES (?, 0, ?, ?)"
_UPDATE = f"UPDATE memory_items SET {', '.join(f'{name} = ?' for name in COLUMNS[1:])} WHERE id = ?"
# The trigger has counted on where the number stayed the same.
_RENUMBER = "UPDATE memory_items SET version = ?1 WHERE id = ?2 AND version <> ?1"
_NOTE_NEW = f"INSERT INTO memory_versions (id, version, ended_at) VALUES (?, 0, {NOW})"
_NOTE = (
    "INSERT INTO memory_versions (id, version, ended_at)"
    f" SELECT id, 0, {NOW} FROM memory_items WHERE id = ? AND version = 1"
    " ON CONFLICT (id, version) DO NOTHING"
)


class SQLiteKeeping(Keeping):
    """How SQLite writes records."""

    def versions_of(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks versions; the ids are bound in one piece."""
        return f"id IN (SELECT value FROM json_each({args.bind(json.dumps(item_ids))}))"

    def insert(self, kept: Sequence[Kept]) -> Steps[None]:
        """Write new rows; no trigger knows of them, as they are beyond every mark."""
        yield Statement(_INSERT, [_values(each) for each in kept], many=True)

    def replace(self, kept: Sequence[Kept]) -> Steps[None]:
        """Change rows as a write would, for the triggers; then put the versions right."""
        yield Statement(_UPDATE, [(*_values(each)[1:], each.id) for each in kept], many=True)
        yield Statement(_RENUMBER, [(each.version, each.id) for each in kept], many=True)
        ids = [(each.id,) for each in kept]
        yield Statement("DELETE FROM memory_versions WHERE id = ?", ids, many=True)

    def add_past(self, versions: Sequence[KeptVersion], notes: Sequence[Note]) -> Steps[None]:
        """Write versions and notes."""
        yield Statement(_VERSIONS, [tuple(map(_value, each)) for each in versions], many=True)
        came = [(note.id, iso(note.came), note.came_by) for note in notes]
        yield Statement(_CAME, came, many=True)


def _values(kept: Kept) -> tuple[Any, ...]:
    created, updated = kept.created_at, kept.updated_at
    if type(created) is str and len(created) == _WIDTH and type(updated) is str:
        return kept
    same = created == updated
    created = iso(moment(created))
    updated = created if same else iso(moment(updated))
    return (*kept[:6], created, updated, kept.deleted, kept.version)


def _value(value: object) -> object:
    return iso(value) if isinstance(value, datetime) else value


def dated(rows: Sequence[Row]) -> list[str]:
    """Return the ids of rows that say they were created at another time than about now."""
    now = datetime.now(UTC)
    return [row.id for row in rows if not now - SLACK <= row.created_at <= now]


def note(item_ids: Sequence[str], *, are_new: bool = False) -> Steps[None]:
    """Write down that those of the items that are new came now, whatever they say."""
    if item_ids:
        sql = _NOTE_NEW if are_new else _NOTE
        yield Statement(sql, [(item_id,) for item_id in item_ids], many=True)
