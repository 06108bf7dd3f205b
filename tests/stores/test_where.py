"""`where=` in the SQL stores, whichever way rows are found: by words, by meaning, by text."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.stores.postgres_recall import role_dsn

from orbiter.memory.backends.postgres import dialect
from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.postgres.where import PostgresWhereCompiler
from orbiter.memory.backends.sql import operations
from orbiter.memory.backends.sql.dialect import Args
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.backends.sqlite.where import fits
from orbiter.memory.model.filters import parse_where
from orbiter.memory.model.items import HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.testing.contracts.base_contract import START
from orbiter.memory.testing.contracts.filter_contract import confusable_items, random_where

__all__ = ["role_dsn"]

ANN = MemoryMetadata(user_id="ann")
EMBEDDINGS = HashEmbeddings(16)
FIELDS: tuple[dict[str, Any], ...] = (
    {"id": "i7"},
    {"id": {"$in": ["i7", "i8"]}},
    {"content": {"$contains": "code 7"}},
    {"id": {"$prefix": "i1"}, "tags": {"$prefix": "ev"}},
    {"version": {"$gte": 1}, "n": {"$lt": 9}},
    {"memory_type": "human", "n": {"$ne": 7}},
    {"status": {"$ne": "draft"}, "user_id": "ann"},
    {"session_id": None, "task_id": {"$exists": False}},
    {"created_at": {"$gte": START + timedelta(seconds=30)}},
    {"updated_at": {"$lt": START + timedelta(seconds=9)}},
    {"$or": [{"n": 1}, {"extra.n": {"$in": [2, "3"]}}, {"agent_id": "x"}]},
    {"$not": {"tags": {"$contains": "even"}}},
    {"tags": "even", "n": {"$gt": 5}},
    {"tags": {"$ne": "even"}},
    {"metadata.extra.tags": {"$in": ["even", 2]}},
    {"n": 12},
)

Open = Callable[[], Any]


@pytest.fixture(params=["sqlite", "whole", "partitioned", "row security"])
def opened(request: pytest.FixtureRequest) -> Open:
    """Return a function that opens a store for ann."""

    @asynccontextmanager
    async def open_sqlite() -> AsyncIterator[Any]:
        async with SQLiteMemoryStore(embeddings=EMBEDDINGS) as store:
            yield store

    @asynccontextmanager
    async def open_postgres() -> AsyncIterator[Any]:
        is_held = request.param == "row security"
        dsn = request.getfixturevalue("role_dsn" if is_held else "postgres_dsn")
        store = PostgresMemoryStore(dsn, embeddings=EMBEDDINGS)
        parts = {"partitions": 2} if request.param != "whole" else {}
        await store.init(**parts, row_security=is_held)
        yield store.acting_for("ann") if is_held else store
        await store.close()

    if request.param == "sqlite":
        return open_sqlite
    request.getfixturevalue("role_dsn" if request.param == "row security" else "postgres_dsn")
    return open_postgres


def _notes(count: int = 60) -> list[MemoryItem]:
    return [
        HumanMemory(
            id=f"i{n}",
            content=f"door code {n}",
            metadata=MemoryMetadata(
                user_id="ann",
                extra={"n": n, "name": f"n{n}", "tags": ["even"] if n % 2 == 0 else []},
            ),
            created_at=START + timedelta(seconds=n),
        )
        for n in range(count)
    ]


async def test_where_holds_however_rows_are_found(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as store:
        await store.add_many(_notes())
        await store.catch_up()
        items = await store.search(limit=100)
        towards = EMBEDDINGS.embed("door code 7")

        for where in FIELDS:
            asked = Query(metadata=ANN, limit=5, where=where)
            expected = [item.id for item in items if asked.matches(item)]
            assert 0 < len(expected) < 61, where
            plain = await store.search(metadata=ANN, where=where, limit=100)
            assert [item.id for item in plain] == expected, where
            for probe in (512, 1):  # from the newest rows, and through the index
                monkeypatch.setattr(operations, "PROBE", probe)
                monkeypatch.setattr(dialect, "FEW", probe)
                texts = await store.search(query="CODE", metadata=ANN, where=where, limit=100)
                assert [item.id for item in texts] == expected, where
            matched = await store.match_words(["door", "code"], asked)
            near = await store.nearest(towards, asked)
            for found in (matched.items, [item for item, _ in near]):
                assert {item.id for item in found} <= set(expected), where
                assert len(found) == min(5, len(expected)), where


async def test_a_whole_filter_costs_one_call_of_python() -> None:
    calls = 0

    async with SQLiteMemoryStore() as store:
        await store.add_many(_notes(10))

        def count(connection: Any) -> None:
            def counted(metadata: str, condition: str) -> bool:
                nonlocal calls
                calls += 1
                return fits(metadata, condition)

            connection.create_function("orbiter_where", 2, counted)

        await store._file.read(count, writing=True)
        where = {"n": {"$gte": 0, "$lt": 99}, "tags": {"$exists": True}, "x": {"$ne": 1}}
        assert len(await store.search(where=where, limit=100)) == 10
        assert calls == 10
        assert len(await store.search(where={"n": 7})) == 1
        assert len(await store.search(where={"name": "n7"})) == 1
        assert calls == 10
        assert len(await store.search(where={"tags": "even"})) == 5  # a list each
        assert calls == 20


async def test_a_text_does_not_end_at_a_nul_that_was_written_by_hand() -> None:
    async with SQLiteMemoryStore() as store:
        await store.add_many(_notes(2))

        def write(connection: Any) -> None:
            connection.execute(
                "UPDATE memory_items SET metadata = replace(metadata, '\"n0\"', '\"n1\\u0000\"')"
            )

        await store._file.read(write, writing=True)

        assert [item.id for item in await store.search(where={"name": "n1"})] == ["i1"]


@pytest.mark.parametrize("seed", range(2, 5))
async def test_stores_agree_on_filters_over_text(seed: int) -> None:
    dice = random.Random(seed)
    async with SQLiteMemoryStore() as store:
        await store.add_many(confusable_items(seed))
        items = await store.search(limit=100)

        for _ in range(60):
            asked = Query("a", limit=100, where=random_where(dice))
            found = await store.search(query="a", where=asked.where, limit=100)

            assert {i.id for i in found} == {i.id for i in items if asked.matches(i)}, asked.where


def test_postgres_orders_text_by_its_bytes_whatever_the_locale() -> None:
    args = Args(dialect.PostgresDialect())
    condition = parse_where({"content": {"$gt": "a"}, "$not": {"k": {"$lte": "b"}}})
    assert condition is not None

    said = PostgresWhereCompiler(args).compile(condition)

    assert said.count('COLLATE "C" >') == 1
    assert said.count('COLLATE "C" <=') == 1
    assert args == ["a", "k", "b"]
