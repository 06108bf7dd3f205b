"""SQLite files of other programs: opened to be read only, and only if they are what they seem."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from orbiter.memory.errors import TransferError

__all__ = ["SQLITE", "columns", "opened"]

SQLITE = b"SQLite format 3\0"
"""How every SQLite file begins."""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file so that nothing in it, or beside it, can be changed."""
    try:
        address = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
    except sqlite3.Error as exc:
        raise TransferError(f"`{path.name}` cannot be read as a SQLite file: {exc}") from exc


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns; none if there is no such table."""
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", [table]).fetchall()
    return {name for (name,) in rows}
