"""Pages of key-value entries: each begins where the last one ended, and is read from there."""

import sqlite3
from functools import partial
from pathlib import Path

import pytest

from orbiter.memory import AgentMemory, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.agent import Put
from orbiter.memory.backends.sql.dialect import Statement
from orbiter.memory.backends.sql.entry_table import _Steps
from orbiter.memory.model.key_value import joined_path

PLACES = [("a",), ("a", "b"), ("a", "b", "c"), ("b",)]
WAYS = pytest.mark.parametrize("reverse", [False, True], ids=["on", "back"])
DEPTHS = pytest.mark.parametrize("deep", [False, True], ids=["here", "deep"])


@WAYS
@DEPTHS
async def test_a_page_may_begin_anywhere(
    any_memory: AgentMemory, who: str, deep: bool, reverse: bool
) -> None:
    kv = any_memory.scope(who).kv
    names = [(path, f"k{number}") for path in PLACES for number in range(3)]
    await kv.write([Put(*name, b"tea") for name in names])
    for path in ((), *PLACES):
        inside = [
            name for name in names if (name[0][: len(path)] if deep else name[0]) == path
        ]  # fmt: skip
        for after in ((("0",), "k"), *names, (("z",), "k")):
            page = await kv.list(path, deep=deep, reverse=reverse, after=after, limit=4)

            behind = [name for name in inside if (name < after if reverse else name > after)]
            wanted = behind[::-1] if reverse else behind
            assert [(entry.path, entry.key) for entry in page] == wanted[:4], (path, after)


@WAYS
@DEPTHS
async def test_a_page_of_sqlite_reads_no_more_than_it_returns(
    tmp_path: Path, deep: bool, reverse: bool
) -> None:
    path, ann = ("a", "b"), MemoryMetadata(user_id="ann")
    costs = []
    async with SQLiteMemoryStore(tmp_path / "a.db") as store:
        await store.key_value.write([Put(path, f"k{n:04}", b"") for n in range(2_000)], scope=ann)
        for key in ("k0100", "k1000", "k1900"):
            steps = _Steps(store._operations.dialect, ann).entries(
                joined_path(path),
                is_deep=deep,
                reverse=reverse,
                after=(joined_path(path), key),
                limit=5,
            )
            costs.append(await store._file.read(partial(_cost, next(steps))))

    assert max(costs) < 500


def _cost(statement: Statement, connection: sqlite3.Connection) -> int:
    """Return how many instructions of SQLite a page of five entries takes."""
    ticks: list[None] = []
    connection.set_progress_handler(lambda: ticks.append(None), 1)
    assert len(connection.execute(statement.sql, statement.args).fetchall()) == 5
    connection.set_progress_handler(None, 1)
    return len(ticks)
