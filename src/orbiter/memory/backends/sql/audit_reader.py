"""Reads of the audit log: the head of its chain, and items, versions and salts as bytes."""

from collections.abc import Sequence
from typing import NamedTuple

from orbiter.memory.backends.sql.audit_dialect import AuditDialect, Fields, as_bytes
from orbiter.memory.backends.sql.dialect import Args, Dialect, Statement, Steps
from orbiter.memory.backends.sql.rows import COLUMNS

__all__ = ["CHUNK", "AuditTables", "Head", "whole"]

CHUNK = 500
"""Items or entries that are read at a time."""

_TYPE, _VERSION = (COLUMNS.index(name) for name in ("memory_type", "version"))


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
        found: dict[str, list[Fields]] = {}
        for row in map(as_bytes, rows):
            found.setdefault((row[0] or b"").decode(), []).append(row)
        return found


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
    found: list[Fields] = []
    for row in past:
        if row[_TYPE] is not None:
            found.append((*versions[len(found)], *begins))
            begins = []
        begins += (row[_VERSION], *row[len(item) :])
    return [*found, (*item, *begins)]
