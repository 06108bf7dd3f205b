"""Running steps on a connection: one after the other, in the thread that owns it."""

import sqlite3
from typing import TypeVar

from orbiter.memory.backends.sql.dialect import Rows, Steps

__all__ = ["end", "run", "run_as_one"]

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
