"""Seed 001, line by line: the SQL stores of `orbiter.memory.backends`."""

import inspect
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.rows import each_row
from tests.seeds._examples import printed_by
from tests.stores.conftest import postgres_dsn, postgres_server

import orbiter.memory
from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    MemoryStore,
)
from orbiter.memory.backends.postgres import PostgresMemoryStore
from orbiter.memory.backends.sqlite import SQLiteMemoryStore

__all__ = ["postgres_dsn", "postgres_server"]

STORES = [SQLiteMemoryStore, PostgresMemoryStore]

LIFECYCLE = """\
import asyncio
from orbiter.memory import HumanMemory
from {module} import {store} as Store

item = HumanMemory(content="kept")

async def main():
    # Context manager (recommended)
    async with Store({where!r}) as store:
        await store.add(item)

    # Manual lifecycle
    store = Store({where!r})
    await store.init()
    print((await store.get(item.id)).content)
    print(await store.count())
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, postgres_dsn: str) -> AsyncIterator[Any]:
    is_embedded = request.param == "sqlite"
    async with SQLiteMemoryStore() if is_embedded else PostgresMemoryStore(postgres_dsn) as made:
        yield made


def test_the_sqlite_lifecycle_example_runs(tmp_path: Path) -> None:
    where = str(tmp_path / "db.sqlite")
    module = "orbiter.memory.backends.sqlite"
    example = LIFECYCLE.format(module=module, store="SQLiteMemoryStore", where=where)

    assert printed_by(example) == ["kept", "1"]


def test_the_postgres_lifecycle_example_runs(postgres_dsn: str) -> None:
    module = "orbiter.memory.backends.postgres"
    example = LIFECYCLE.format(module=module, store="PostgresMemoryStore", where=postgres_dsn)

    assert printed_by(example) == ["kept", "1"]


def test_the_package_exports_the_same_classes() -> None:
    assert orbiter.memory.SQLiteMemoryStore is SQLiteMemoryStore
    assert orbiter.memory.PostgresMemoryStore is PostgresMemoryStore


@pytest.mark.parametrize(
    ("store_class", "name", "default"),
    [
        (SQLiteMemoryStore, "db_path", ":memory:"),
        (PostgresMemoryStore, "dsn", "postgresql://localhost/orbiter"),
    ],
)
def test_the_constructors_take_what_the_seed_says(
    store_class: type[Any], name: str, default: str
) -> None:
    first, *more = inspect.signature(store_class).parameters.values()

    assert (first.name, first.default) == (name, default)
    assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {each.kind for each in more} == {inspect.Parameter.KEYWORD_ONLY}
    assert all(each.default is not inspect.Parameter.empty for each in more)
    store_class()  # opens nothing


@each_row("store_class", STORES)
@each_row(
    ("method", "defaults", "returns"),
    [
        ("add", {"item": inspect.Parameter.empty}, None),
        ("get", {"item_id": inspect.Parameter.empty}, MemoryItem | None),
        (
            "search",
            {"query": "", "metadata": None, "memory_type": None, "status": None, "limit": 10},
            list[MemoryItem],
        ),
        ("clear", {"metadata": None}, int),
        ("count", {"include_deleted": False}, int),
    ],
)
def test_the_methods_take_what_the_seed_says(
    store_class: type[Any], method: str, defaults: dict[str, object], returns: object
) -> None:
    signature = inspect.signature(getattr(store_class, method))
    parameters = dict(list(signature.parameters.items())[1:])

    assert inspect.iscoroutinefunction(getattr(store_class, method))
    assert {name: parameters[name].default for name in defaults} == defaults
    assert list(parameters)[: len(defaults)] == list(defaults)
    assert signature.return_annotation == returns
    added = [each for name, each in parameters.items() if name not in defaults]
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in added)
    assert all(each.default is not inspect.Parameter.empty for each in added)
    if method in {"search", "clear", "count"}:
        assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


async def test_both_are_memory_stores(store: Any) -> None:
    assert isinstance(store, MemoryStore)


async def test_adding_again_bumps_the_version(store: Any) -> None:
    item = HumanMemory(content="hi")
    await store.add(item)
    await store.add(item)

    assert (await store.get(item.id)).version == 2


async def test_a_deleted_item_is_not_retrieved(store: Any) -> None:
    item = HumanMemory(content="hi")
    await store.add(item)
    assert await store.clear() == 1

    assert await store.get(item.id) is None
    assert await store.count() == 0
    assert await store.count(include_deleted=True) == 1


async def test_a_search_filters_by_text_and_metadata_newest_first(store: Any) -> None:
    ann = MemoryMetadata(user_id="ann", session_id="s")
    for text in ("Old Apples", "pears", "new apples"):
        await store.add(HumanMemory(content=text, metadata=ann))
    await store.add(AIMemory(content="apples too", metadata=MemoryMetadata(user_id="bob")))
    await store.add(HumanMemory(content="apples?", metadata=ann, status=MemoryStatus.DRAFT))

    found = await store.search(
        query="APPLES", metadata=ann, memory_type="human", status=MemoryStatus.ACCEPTED
    )

    assert [item.content for item in found] == ["new apples", "Old Apples"]


async def test_the_sqlite_table_has_the_seeds_columns(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(str(path)) as store:
        await store.add(AIMemory(content="hi", tool_calls=[{"id": "c"}]))
        connection = sqlite3.connect(path)
        columns = connection.execute("PRAGMA table_info(memory_items)").fetchall()
        row = connection.execute("SELECT * FROM memory_items").fetchone()
        connection.close()

    assert [(name, kind, bool(needed), bool(key)) for _, name, kind, needed, _, key in columns] == [
        ("id", "TEXT", False, True),
        ("content", "TEXT", True, False),
        ("memory_type", "TEXT", True, False),
        ("status", "TEXT", True, False),
        ("metadata", "TEXT", True, False),
        ("extra_json", "TEXT", True, False),
        ("created_at", "TEXT", True, False),
        ("updated_at", "TEXT", True, False),
        ("deleted", "INTEGER", True, False),
        ("version", "INTEGER", True, False),
    ]
    assert row[1:6] == ("hi", "ai", "accepted", "{}", '{"tool_calls":[{"id":"c"}]}')
    assert row[8:] == (0, 1)


async def test_the_postgres_table_has_the_seeds_columns_and_a_counter(postgres_dsn: str) -> None:
    async with PostgresMemoryStore(postgres_dsn):
        connection = await asyncpg.connect(postgres_dsn)
        rows = await connection.fetch(
            "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
            " WHERE table_name = 'memory_items' ORDER BY ordinal_position"
        )
        indexes = await connection.fetch(
            "SELECT indexdef FROM pg_indexes WHERE tablename = 'memory_items'"
        )
        await connection.close()

    assert [tuple(row) for row in rows] == [
        ("id", "text", "NO"),
        ("content", "text", "NO"),
        ("memory_type", "text", "NO"),
        ("status", "text", "NO"),
        ("metadata", "jsonb", "NO"),
        ("extra_json", "text", "NO"),
        ("created_at", "timestamp with time zone", "NO"),
        ("updated_at", "timestamp with time zone", "NO"),
        ("deleted", "integer", "NO"),
        ("version", "integer", "NO"),
        ("seq", "bigint", "NO"),
    ]
    told = " ".join(row[0] for row in indexes)
    for field in ("user_id", "session_id", "task_id", "agent_id"):
        assert f"(metadata ->> '{field}'::text)" in told
