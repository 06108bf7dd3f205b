"""Bringing a SQLite file up to date; one that the original library has written is adopted.

All of it is one transaction, and before an original file is changed a copy is made beside it. A
process that is killed leaves the file as it was, or adopted.
"""

import os
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from unicodedata import unidata_version

from orbiter.memory.backends.sql.original_rows import CHUNK, KEPT, adopted
from orbiter.memory.backends.sql.rows import COLUMNS
from orbiter.memory.backends.sqlite import migrations
from orbiter.memory.backends.sqlite.file_checks import uri
from orbiter.memory.backends.sqlite.record_writer import SQLiteRecordWriter
from orbiter.memory.backends.sqlite.run import run
from orbiter.memory.backends.sqlite.schema import (
    APPLICATION,
    check_owner,
    is_original,
    make_terms,
    make_words,
)
from orbiter.memory.errors import StorageError

__all__ = ["set_up", "split"]

_INDEXES = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"


def set_up(connection: sqlite3.Connection, path: str, *, patience: float) -> None:
    """Bring the tables up to date, under a lock; refuse what is not ours, and what is too new."""
    check_owner(connection, path)
    if path != ":memory:":
        _use_wal(connection, patience)
    connection.execute("BEGIN IMMEDIATE")
    try:
        have = check_owner(connection, path)
        adopts = not have and is_original(connection)
        if adopts:
            _set_aside(connection, path)
        if have < len(migrations.MIGRATIONS):
            for number, script in enumerate(migrations.MIGRATIONS[have:], start=have + 1):
                for statement in split(script):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        if adopts:
            _move_rows(connection)
        # The index holds texts as this Unicode version folds them; of what another one folds
        # differently, a search must look itself. See `SQLiteDialect.find`.
        connection.execute(
            "UPDATE memory_meta SET value = 'several' WHERE key = 'unicode' AND value <> ?",
            [unidata_version],
        )
        make_words(connection)
        if migrations.RECALL in migrations.MIGRATIONS:
            make_terms(connection)
        connection.execute("COMMIT")
    except BaseException:  # whatever it was, no transaction stays open
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def split(script: str) -> list[str]:
    """Return the statements of a script; a trigger is one of them."""
    statements, rest = [], ""
    for part in script.split(";"):
        rest += part + ";"
        if sqlite3.complete_statement(rest):
            statements.append(rest.strip())
            rest = ""
    return [statement for statement in statements if statement != ";"]


def _use_wal(connection: sqlite3.Connection, patience: float) -> None:
    # Changing the journal needs the file alone and does not wait for it, so we do.
    deadline = time.monotonic() + patience
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as exc:
            is_busy = exc.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise StorageError(
                f"the file system keeps the journal in mode `{mode}`; several processes and "
                "safe commits need WAL: use a local disk"
            )
        return


def _set_aside(connection: sqlite3.Connection, path: str) -> None:
    """Copy the file, and make room for our tables; in a transaction in which nothing is written."""
    if path != ":memory:":
        _copy(Path(path))
    for (name,) in connection.execute(_INDEXES).fetchall():
        quoted = str(name).replace('"', '""')
        connection.execute(f'DROP INDEX "{quoted}"')
    connection.execute(f"ALTER TABLE memory_items RENAME TO {KEPT}")


def _move_rows(connection: sqlite3.Connection) -> None:
    """Write all rows that were set aside into our table, in the order in which they came."""
    columns = ", ".join(COLUMNS)
    last, writer = -(2**63), SQLiteRecordWriter()
    while rows := connection.execute(
        f"SELECT rowid, {columns} FROM {KEPT} WHERE rowid > ? ORDER BY rowid LIMIT {CHUNK}", [last]
    ).fetchall():
        run(connection, writer.insert([adopted(row[1:]) for row in rows]))
        last = rows[-1][0]
    connection.execute(f"DROP TABLE {KEPT}")


def _copy(path: Path) -> None:
    from orbiter.memory.backends.sqlite.backup import backup  # noqa: PLC0415 - few are adopted

    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    copy, number = path.with_name(f"{path.name}.original-{moment}"), 1
    while copy.exists():
        number += 1
        copy = path.with_name(f"{path.name}.original-{moment}-{number}")
    with closing(sqlite3.connect(uri(os.fspath(path), "ro"), uri=True)) as reader:
        reader.isolation_level = None
        backup(reader, copy, None)
