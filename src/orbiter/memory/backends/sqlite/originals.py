"""A file that the original library has written becomes one of ours, in one transaction.

Before anything is changed, a copy is made beside it. A process that is killed leaves the file as it
was, or adopted.
"""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from orbiter.memory.backends.sql.original_rows import CHUNK, KEPT, adopted, has_original_columns
from orbiter.memory.backends.sql.rows import COLUMNS
from orbiter.memory.backends.sqlite.uris import uri

__all__ = ["is_original", "move_rows", "set_aside"]

_OTHERS = (
    "SELECT count(*) FROM sqlite_master WHERE tbl_name <> 'memory_items'"
    " OR type NOT IN ('table', 'index')"
)
_INDEXES = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"


def is_original(connection: sqlite3.Connection) -> bool:
    """Tell whether the original library has made this file, and nobody else anything in it."""
    names = connection.execute("SELECT name FROM pragma_table_info('memory_items')").fetchall()
    if not has_original_columns(name for (name,) in names):
        return False
    return not connection.execute(_OTHERS).fetchone()[0]


def set_aside(connection: sqlite3.Connection, path: str) -> None:
    """Copy the file, and make room for our tables; in a transaction in which nothing is written."""
    if path != ":memory:":
        _copy(Path(path))
    for (name,) in connection.execute(_INDEXES).fetchall():
        quoted = str(name).replace('"', '""')
        connection.execute(f'DROP INDEX "{quoted}"')
    connection.execute(f"ALTER TABLE memory_items RENAME TO {KEPT}")


def move_rows(connection: sqlite3.Connection) -> None:
    """Write all rows that were set aside into our table, in the order in which they came."""
    from orbiter.memory.backends.sqlite.record_writer import SQLiteKeeping  # noqa: PLC0415 - it needs us
    from orbiter.memory.backends.sqlite.run import run  # noqa: PLC0415

    columns = ", ".join(COLUMNS)
    last, keeping = -(2**63), SQLiteKeeping()
    while rows := connection.execute(
        f"SELECT rowid, {columns} FROM {KEPT} WHERE rowid > ? ORDER BY rowid LIMIT {CHUNK}", [last]
    ).fetchall():
        run(connection, keeping.insert([adopted(row[1:]) for row in rows]))
        last = rows[-1][0]
    connection.execute(f"DROP TABLE {KEPT}")


def _copy(path: Path) -> None:
    from orbiter.memory.backends.sqlite.maintenance import backup  # noqa: PLC0415 - it needs the schema

    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    copy, number = path.with_name(f"{path.name}.original-{moment}"), 1
    while copy.exists():
        number += 1
        copy = path.with_name(f"{path.name}.original-{moment}-{number}")
    with closing(sqlite3.connect(uri(os.fspath(path), "ro"), uri=True)) as reader:
        reader.isolation_level = None
        backup(reader, copy, None)
