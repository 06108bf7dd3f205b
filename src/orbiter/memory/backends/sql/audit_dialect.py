"""`AuditDialect`: the SQL by which each database returns the exact bytes of a column."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from orbiter.memory.backends.sql.dialect import Args
from orbiter.memory.backends.sql.rows import COLUMNS

__all__ = [
    "NUMBERS",
    "TIMES",
    "AuditDialect",
    "Fields",
    "PostgresAuditDialect",
    "SQLiteAuditDialect",
    "as_bytes",
]

Fields = tuple[bytes | None, ...]
"""Columns of a row, as bytes."""

NUMBERS = ("number", "version", "total", "deleted", "begun")
TIMES = ("created_at", "updated_at", "ended_at")


class AuditDialect(ABC):
    """What the audit log says differently to SQLite and to Postgres."""

    lock: ClassVar[str]
    """Ends the SELECT of where the chain ends: nobody else adds to it until we are done."""
    cursor: ClassVar[str]
    """The first bound value, as text to go on from."""
    is_untouched: ClassVar[str]
    """Asks whether there never was an item."""

    @abstractmethod
    def exact(self, column: str) -> str:
        """Return an expression for all there is in *column*."""

    @abstractmethod
    def is_text(self, column: str) -> str:
        """Return the condition that *column* holds text, by which one can go on."""

    @abstractmethod
    def among(self, column: str, args: Args, values: Sequence[str]) -> str:
        """Return the condition that *column* is one of *values*."""

    @abstractmethod
    def bound(self, value: bytes) -> object:
        """Return what is bound for `cursor`."""

    def columns(self, names: Sequence[str]) -> str:
        """Return what is selected for `names`."""
        return ", ".join(f"{self.exact(name)} AS {name}" for name in names)

    @property
    def item(self) -> str:
        """What is selected of an item."""
        return self.columns(COLUMNS)

    @property
    def version(self) -> str:
        """What is selected of an earlier version: the same, and when and by whom it was ended."""
        return self.columns((*COLUMNS, "ended_at", "ended_by"))


class SQLiteAuditDialect(AuditDialect):
    """SQLite keeps any kind of value in any column, and any bytes as text."""

    lock = ""
    cursor = "CAST(?1 AS TEXT)"
    is_untouched = "SELECT NOT EXISTS (SELECT 1 FROM memory_items)"

    def exact(self, column: str) -> str:
        """Return bytes; another kind of value than there should be gives other ones."""
        kind = "integer" if column in NUMBERS else "text"
        return (
            f"CASE typeof({column}) WHEN '{kind}' THEN CAST(CAST({column} AS TEXT) AS BLOB)"
            f" WHEN 'null' THEN NULL ELSE CAST(typeof({column}) || '!' || {column} AS BLOB) END"
        )

    def is_text(self, column: str) -> str:
        """Ask for the kind of the value."""
        return f"typeof({column}) = 'text'"

    def among(self, column: str, args: Args, values: Sequence[str]) -> str:
        """Bind the values in one piece."""
        return f"{column} IN (SELECT value FROM json_each({args.bind(json.dumps(values))}))"

    def bound(self, value: bytes) -> object:
        """Return the bytes: they may be no text."""
        return value


class PostgresAuditDialect(AuditDialect):
    """Postgres keeps what a column is declared to be."""

    lock = " FOR UPDATE"
    cursor = "$1"
    is_untouched = "SELECT NOT is_called FROM memory_items_seq"

    def exact(self, column: str) -> str:
        """Return text that depends on no setting."""
        if column in TIMES:
            return f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US AD')"
        return f"{column}::text"

    def is_text(self, column: str) -> str:
        """Return a condition that always holds, but for NULL."""
        return f"{column} IS NOT NULL"

    def among(self, column: str, args: Args, values: Sequence[str]) -> str:
        """Bind the values as an array."""
        return f"{column} = ANY ({args.bind(list(values))}::text[])"

    def bound(self, value: bytes) -> object:
        """Return the text."""
        return value.decode()


def as_bytes(row: Sequence[str | bytes | None]) -> Fields:
    """Return the columns of a row that was asked for by `exact`."""
    return tuple(value.encode() if isinstance(value, str) else value for value in row)
