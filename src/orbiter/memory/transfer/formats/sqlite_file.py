"""SQLite files of other programs: opened to be read only, and only if they are what they seem.

A file is a program, too: a view may have no end, a table may compute what it seems to hold. So only
what is stored counts, and there is an end to how long anything may take.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.importer import SourceFile

__all__ = ["SQLITE", "columns", "has_table", "opened", "select"]

SQLITE = b"SQLite format 3\0"
"""How every SQLite file begins."""

_STORED = """
SELECT count(*) FROM sqlite_master
WHERE type = 'table' AND name = ? AND rootpage > 0 AND sql LIKE 'CREATE TABLE%'
"""
"""A view and a virtual table have no pages of their own."""

_STEPS = 1_000_000
_STEPS_PER_BYTE = 20
"""A row takes some bytes, and some 25 steps to be read and sorted."""
_BETWEEN = 20_000
"""Steps until it is asked whether to go on: some milliseconds."""
_LONGEST = 2**31 - 1
_TRIES = 3


@contextmanager
def opened(source: SourceFile) -> Iterator[sqlite3.Connection]:
    """Open a file so that nothing in it, or beside it, can be changed.

    Whatever is wrong with it is a `TransferError`; so is the end of the steps that it may take.
    """
    path = source.path.resolve()
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(_connected(path, stack)))
            steps = _Steps(source, path.stat().st_size)
            connection.set_progress_handler(steps, _BETWEEN)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(source.limits.value, _LONGEST))
            connection.text_factory = _text
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            yield connection
        except sqlite3.Error as exc:
            raise TransferError(f"`{source.name}` cannot be read: {_why(exc, source)}") from exc
        except OSError as exc:
            raise TransferError(f"`{source.name}` cannot be read: {exc.strerror}") from exc


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns; none if there is no such table.

    What only looks like a table, or is computed when it is read, does not count.
    """
    if not connection.execute(_STORED, [table]).fetchone()[0]:
        return set()
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", [table]).fetchall()
    return {name for (name,) in rows}


def has_table(source: SourceFile, head: bytes, table: str, needed: Sequence[str]) -> bool:
    """Tell whether a file that begins with *head* is a database with this table."""
    if not head.startswith(SQLITE):
        return False
    with opened(source) as connection:
        return columns(connection, table) >= set(needed)


def select(
    connection: sqlite3.Connection,
    source: SourceFile,
    table: str,
    needed: Sequence[str],
    optional: Sequence[str],
    *,
    order: str,
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a table; `None` for the columns of *optional* that it has not."""
    have = columns(connection, table)
    if not have >= set(needed):
        raise TransferError(f"`{source.name}` has no table `{table}({', '.join(needed)})`")
    wanted = [*needed, *(name if name in have else "NULL" for name in optional)]
    yield from connection.execute(
        f"SELECT {', '.join(wanted)} FROM {table} ORDER BY {order}"  # noqa: S608 - names of our own
    )


class _Steps:
    """Tells SQLite when to stop: nobody waits any more, or it takes longer than the file can."""

    def __init__(self, source: SourceFile, size: int) -> None:
        self._source = source
        self._left = (_STEPS + size * _STEPS_PER_BYTE) // _BETWEEN

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0 or self._source.tally.is_stopped


def _connected(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """Open *path* as it lies there, or a copy if a journal beside it belongs to it.

    SQLite itself would write beside it: to share it with the program whose it is.
    """
    journals = [path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-journal")]
    journals = [each for each in journals if each.is_file() and each.stat().st_size]
    if not journals:
        return sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orbiter-memory-")))
    for _ in range(_TRIES):
        before = [_stamp(each) for each in (path, *journals)]
        for each in (path, *journals):
            shutil.copyfile(each, folder / each.name)
        if [_stamp(each) for each in (path, *journals)] == before:
            return sqlite3.connect(folder / path.name)
    raise TransferError(f"`{path.name}` is being written to; close what writes it, and try again")


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _why(error: sqlite3.Error, source: SourceFile) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_INTERRUPT":
        if source.tally.is_stopped:
            return "the import was cancelled"
        return "reading it does not end; it is damaged or malicious"
    if name == "SQLITE_TOOBIG":
        most = f"{source.limits.value:,} bytes"
        return f"a cell is longer than {most}; if you trust it, raise it with `Limits(value=…)`"
    return f"{error}"
