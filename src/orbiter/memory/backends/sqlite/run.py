"""Runs the steps of an operation on a connection, in the thread that owns it.

Numbered parameters are bound by name where Python 3.12 would warn of them.
"""

import re
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from orbiter.memory.backends.sql.dialect import Rows, Steps
from orbiter.memory.backends.sqlite.file_checks import Connection

__all__ = [
    "FACTORY",
    "NumberedConnection",
    "end",
    "number_all",
    "run",
    "run_as_one",
]

_T = TypeVar("_T")


def run(connection: sqlite3.Connection, steps: Steps[_T]) -> _T:
    """Run *steps* and return their answer."""
    try:
        statement = next(steps)
        while True:
            rows: Rows = ()
            if statement.many:
                connection.executemany(statement.sql, statement.args)
            else:
                rows = connection.execute(statement.sql, statement.args).fetchall()
            statement = steps.send(rows)
    except StopIteration as done:
        value: _T = done.value
        return value


def run_as_one(connection: sqlite3.Connection, steps: Steps[_T]) -> _T:
    """Run steps that all see the same moment."""
    connection.execute("BEGIN")
    try:
        return run(connection, steps)
    finally:
        # An error of the disk ends the transaction, and must be the one that is told.
        end(connection)


def end(connection: sqlite3.Connection) -> None:
    """End a transaction in which nothing was changed."""
    if connection.in_transaction:
        connection.execute("COMMIT")


_PARAMETER = re.compile(r"""'[^']*'|"[^"]*"|\?(\d*)""")


@lru_cache(maxsize=512)
def number_all(sql: str) -> str | None:
    """Return *sql* with a number for every parameter, as SQLite counts; `None` if none has one."""
    if not any(match[1] for match in _PARAMETER.finditer(sql)):
        return None
    highest = 0

    def number(match: re.Match[str]) -> str:
        nonlocal highest
        if match[1] is None:  # a literal
            return match[0]
        this = int(match[1] or highest + 1)
        highest = max(highest, this)
        return f"?{this}"

    return _PARAMETER.sub(number, sql)


class NumberedConnection(Connection):
    """A connection that binds numbered parameters by name."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute one statement."""
        numbered = None if isinstance(parameters, Mapping) else number_all(sql)
        if numbered is None:
            return super().execute(sql, parameters)
        return super().execute(numbered, _by_name(parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute one statement with many sequences of values."""
        numbered = number_all(sql)
        if numbered is None:
            return super().executemany(sql, parameters)
        return super().executemany(numbered, map(_by_name, parameters))


def _by_name(values: Iterable[Any]) -> dict[str, Any]:
    return {str(number): value for number, value in enumerate(values, 1)}


FACTORY: type[Connection] = (
    NumberedConnection if (3, 12) <= sys.version_info < (3, 12, 4) else Connection
)
"""What connections are made of."""
