"""Numbered parameters are bound by name where Python warns of them otherwise."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from orbiter.memory.backends.sqlite.run import NumberedConnection, number_all


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", factory=NumberedConnection)) as made:
        yield made


@pytest.mark.parametrize(
    ("sql", "values", "row"),
    [
        ("SELECT ?, ?", ["a", "b"], ("a", "b")),
        ("SELECT ?1, ?2, ?1", ["a", "b"], ("a", "b", "a")),
        ("SELECT ?2, ?1", ("a", "b"), ("b", "a")),
        ("SELECT ?1, ?, ?1, ?", ["a", "b", "c"], ("a", "b", "a", "c")),
        ("SELECT ?, ?1, ?", ["a", "b"], ("a", "a", "b")),
        ("SELECT '?2', \"?3\", ?1 FROM (SELECT 'c' AS \"?3\")", ["a"], ("?2", "c", "a")),
        ("SELECT :name", {"name": "a"}, ("a",)),
        ("SELECT 'none'", [], ("none",)),
    ],
)
def test_a_value_goes_where_it_went(
    connection: sqlite3.Connection, sql: str, values: object, row: tuple[str, ...]
) -> None:
    assert connection.execute(sql, values).fetchone() == row  # type: ignore[arg-type]


def test_many_rows_are_bound_by_number(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE t (a, b)")

    connection.executemany("INSERT INTO t VALUES (?2, ?1)", [(1, 2), (3, 4)])
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(5, 6)])

    assert connection.execute("SELECT a, b FROM t").fetchall() == [(2, 1), (4, 3), (5, 6)]


def test_a_statement_without_numbers_stays_as_it_is() -> None:
    assert number_all("SELECT ?, '?1'") is None
