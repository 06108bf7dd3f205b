"""Reads of the audit log: entries as rows, the head of its chain, items and versions as bytes."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from orbiter.memory.backends.sql.audit_dialect import AuditDialect, Fields, as_bytes
from orbiter.memory.backends.sql.dialect import Args, Dialect, Statement, Steps
from orbiter.memory.backends.sql.rows import COLUMNS as ITEM
from orbiter.memory.backends.sql.rows import iso
from orbiter.memory.model.audit import ACTIONS, AuditEntry

__all__ = [
    "CHUNK",
    "COLUMNS",
    "AuditTables",
    "Head",
    "from_bytes",
    "from_row",
    "to_row",
    "whole",
]

CHUNK = 500
"""Items or entries that are read at a time."""

_TYPE, _VERSION = (ITEM.index(name) for name in ("memory_type", "version"))


COLUMNS = (
    "number", "at", "action", "actor", "whose", "call", "item_id", "version", "items", "total",
    "digest", "ends_at", "hash",
)  # fmt: skip
"""Those of `memory_audit`."""


class Head(NamedTuple):
    """Where the chain ends."""

    number: int
    hash: str
    key: str | None
    is_begun: bool


class AuditTables:
    """The tables of the log, and those it is about, as steps."""

    def __init__(self, dialect: AuditDialect) -> None:
        self.audit_dialect = dialect

    def head(self, *, lock: bool = True) -> Steps[Head]:
        """Return where the chain ends; with *lock*, nobody else adds to it meanwhile."""
        tail = self.audit_dialect.lock if lock else ""
        rows = yield Statement(f"SELECT number, hash, key, begun FROM memory_audit_head{tail}")
        if not rows:
            return Head(0, "", None, is_begun=False)
        number, digest, key, begun = rows[0]
        return Head(number, digest, key, bool(begun))

    def unlogged(self, dialect: Dialect, last: bytes) -> Steps[list[bytes]]:
        """Return the next ids of items that no entry names."""
        rows = yield Statement(
            f"SELECT {self.audit_dialect.exact('memory_items.id')} FROM {dialect.everything}"
            f" WHERE memory_items.id > {self.audit_dialect.cursor}"
            f" AND {self.audit_dialect.is_text('memory_items.id')} AND NOT EXISTS"
            " (SELECT 1 FROM memory_audit AS a WHERE a.item_id = memory_items.id)"
            f" ORDER BY memory_items.id LIMIT {CHUNK}",
            [self.audit_dialect.bound(last)],
        )
        return [value for row in rows for value in as_bytes(row) if value is not None]

    def salts(self, dialect: Dialect, ids: Sequence[str]) -> Steps[dict[str, bytes]]:
        """Return the salts of items."""
        args = Args(dialect)
        where = self.audit_dialect.among("id", args, ids)
        columns = self.audit_dialect.columns(("id", "salt"))
        rows = yield Statement(f"SELECT {columns} FROM memory_audit_salts WHERE {where}", args)
        return {(key or b"").decode(): salt or b"" for key, salt in map(as_bytes, rows)}

    def items(self, dialect: Dialect, ids: Sequence[str]) -> Steps[dict[str, Fields]]:
        """Return items by their ids, deleted ones included."""
        args = Args(dialect)
        where = dialect.by_ids(args, ids)
        rows = yield Statement(
            f"SELECT {self.audit_dialect.item} FROM memory_items WHERE {where}", args
        )
        return {(row[0] or b"").decode(): row for row in map(as_bytes, rows)}

    def versions(
        self, dialect: Dialect, ids: Sequence[str], *, since: int = 0
    ) -> Steps[dict[str, list[Fields]]]:
        """Return the earlier versions of items, oldest first, from a number on; see `whole`."""
        args = Args(dialect)
        where = self.audit_dialect.among("id", args, ids)
        if since:
            where += f" AND memory_versions.version >= {args.bind(since)}"
        rows = yield Statement(
            f"SELECT {self.audit_dialect.version} FROM memory_versions WHERE {where}"
            " ORDER BY memory_versions.version",
            args,
        )
        by_item: dict[str, list[Fields]] = {}
        for row in map(as_bytes, rows):
            by_item.setdefault((row[0] or b"").decode(), []).append(row)
        return by_item


def whole(past: Sequence[Fields], item: Fields) -> list[Fields]:
    """Return all versions of an item, oldest first, the present one last, as digests are made.

    Earlier ones with what they leave out because the next one has it, too. Behind its columns each
    has what tells how it began: the number of every row before it, back to the last version there
    was, with when and by whom that was ended. So no row is in none of them.
    """
    versions: list[Fields] = []
    for row in reversed(past):
        if row[_TYPE] is not None:  # else it only tells how the next one began
            newer = versions[-1] if versions else item
            columns = zip(row[: len(item)], newer, strict=True)
            versions.append(tuple(new if old is None else old for old, new in columns))
    versions = [*versions[::-1], item]
    begins: list[bytes | None] = []
    complete: list[Fields] = []
    for row in past:
        if row[_TYPE] is not None:
            complete.append((*versions[len(complete)], *begins))
            begins = []
        begins += (row[_VERSION], *row[len(item) :])
    return [*complete, (*item, *begins)]


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
