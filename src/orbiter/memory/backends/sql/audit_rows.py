"""Entries of the audit log as rows of `memory_audit`, and back, byte for byte."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orbiter.memory.backends.sql.audit_dialect import Fields
from orbiter.memory.backends.sql.rows import iso
from orbiter.memory.model.audit import ACTIONS, AuditEntry

__all__ = ["COLUMNS", "from_bytes", "from_row", "to_row"]

COLUMNS = (
    "number", "at", "action", "actor", "whose", "call", "item_id", "version", "items", "total",
    "digest", "ends_at", "hash",
)  # fmt: skip

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_row(entry: AuditEntry) -> tuple[Any, ...]:
    """Return the row of an entry."""
    is_write = entry.call is None
    return (
        entry.number,
        iso(entry.at),
        entry.action,
        entry.by,
        entry.whose,
        entry.call,
        entry.item_ids[0] if is_write and entry.item_ids else None,
        entry.version,
        None if is_write else _dumps(list(entry.item_ids)),
        entry.count,
        entry.digest,
        None if entry.ends_at is None else iso(entry.ends_at),
        entry.hash,
    )


def from_row(row: Sequence[Any]) -> AuditEntry:
    """Return the entry of a row; raises `ValueError`, `TypeError` or `KeyError` if it is none."""
    number, at, action, by, whose, call, item_id, version, items, count, digest, ends, made = row
    if action not in ACTIONS:
        raise ValueError(f"`{action}` is not a valid action")
    ids = [] if item_id is None else [item_id]
    if items is not None:
        ids = json.loads(items)
    return AuditEntry(
        number,
        datetime.fromisoformat(at),
        action,
        by,
        whose,
        tuple(ids),
        count,
        version,
        digest,
        None if ends is None else datetime.fromisoformat(ends),
        call,
        made,
    )


def from_bytes(fields: Fields) -> AuditEntry | None:
    """Return the entry of a row that was read as bytes; `None` if no entry is written like that."""
    texts: list[Any] = [None if field is None else field.decode("utf-8") for field in fields]
    for place in (0, 7, 9):
        texts[place] = None if texts[place] is None else int(texts[place])
    entry = from_row(texts)
    written = (None if value is None else f"{value}".encode() for value in to_row(entry))
    return entry if tuple(written) == fields else None
