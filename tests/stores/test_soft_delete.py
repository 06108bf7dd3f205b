"""`search(deleted=True)`: what was removed softly is listed, and is found by nothing else."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.stores.postgres_recall import role_dsn

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.testing.contracts.base_contract import START

__all__ = ["role_dsn"]

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")


@pytest.fixture(params=["sqlite", "whole", "partitioned"])
async def store(request: pytest.FixtureRequest, postgres_dsn: str) -> AsyncIterator[Any]:
    made: Any = SQLiteMemoryStore() if request.param == "sqlite" else None
    if made is not None:
        await made.init()
    else:
        made = PostgresMemoryStore(postgres_dsn)
        await made.init(partitions=2 if request.param == "partitioned" else None)
    yield made
    await made.close()


def _note(number: int, text: str = "note", user: str = "ann") -> MemoryItem:
    return HumanMemory(
        id=f"{user}{number}",
        content=f"{text} {number}",
        metadata=MemoryMetadata(user_id=user, extra={"tags": [number % 2, "all"]}),
        created_at=START + timedelta(seconds=number),
    )


def _ids(items: list[MemoryItem]) -> list[str]:
    return [item.id for item in items]


async def test_what_was_deleted_is_listed_newest_first_and_nothing_else(store: Any) -> None:
    await store.add_many([_note(n) for n in range(6)])
    await store.delete_many(["ann1", "ann4", "ann2"])
    await store.restore("ann2")

    found = await store.search(deleted=True)

    assert _ids(found) == ["ann4", "ann1"]
    assert [(item.content, item.version) for item in found] == [("note 4", 2), ("note 1", 2)]
    assert _ids(await store.search()) == ["ann5", "ann3", "ann2", "ann0"]
    await store.purge()
    assert await store.search(deleted=True) == []


async def test_what_was_deleted_is_narrowed_down_by_every_filter(store: Any) -> None:
    await store.add_many([_note(n, "Straße" if n % 3 == 0 else "note") for n in range(8)])
    await store.add_many([_note(n, user="bob") for n in range(8)])
    await store.clear(metadata=ANN)
    await store.delete("bob5")

    async def found(**filters: Any) -> list[str]:
        return _ids(await store.search(deleted=True, **filters))

    assert await found(metadata=BOB) == ["bob5"]
    assert await found(query="STRASSE") == ["ann6", "ann3", "ann0"]
    assert await found(query="NOTE", limit=2) == ["ann7", "bob5"]
    assert await found(query="s", where={"tags": 1}) == ["ann3"]
    assert await found(where={"tags": {"$nin": [1]}}, metadata=ANN, limit=1) == ["ann6"]
    assert await found(since=START + timedelta(seconds=6)) == ["ann7", "ann6"]
    assert await found(memory_type="ai") == await found(status="draft") == await found(limit=0)


async def test_what_was_deleted_is_read_page_by_page(store: Any) -> None:
    await store.add_many([_note(n) for n in range(9)])
    await store.delete_many([f"ann{n}" for n in range(0, 9, 2)])

    first = await store.search(deleted=True, limit=2)
    second = await store.search(deleted=True, limit=2, before=first[-1])
    third = await store.search(deleted=True, limit=2, before=second[-1].id, query="note")
    back = await store.search(deleted=True, limit=2, after=third[0])

    assert [_ids(page) for page in (first, second, third)] == [
        ["ann8", "ann6"],
        ["ann4", "ann2"],
        ["ann0"],
    ]
    assert back == second


async def test_nobody_is_shown_what_another_user_deleted(role_dsn: str) -> None:
    store = PostgresMemoryStore(role_dsn)
    await store.init(partitions=2, row_security=True)
    ann, bob = store.acting_for("ann"), store.acting_for("bob")
    await ann.add_many([_note(n) for n in range(2)])
    await bob.add(_note(1, user="bob"))
    await ann.clear()

    assert _ids(await ann.search(deleted=True, query="note")) == ["ann1", "ann0"]
    assert await bob.search(deleted=True) == []
    assert await bob.search(deleted=True, metadata=ANN) == []
    await store.close()
