"""`add(within=…)`: no user's item is replaced by another's, also in a race."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.servers.databases import PostgresServer, RedisServer, redis_server

from orbiter.memory import (
    HumanMemory,
    MemoryMetadata,
    PostgresMemoryStore,
    RedisMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.errors import AccessError

__all__ = ["redis_server"]

Store = SQLiteMemoryStore | PostgresMemoryStore | RedisMemoryStore
ANN = MemoryMetadata(user_id="ann", session_id="s")
ANNS = MemoryMetadata(user_id="ann")
BOB = MemoryMetadata(user_id="bob")


@pytest.fixture(params=["sqlite", "whole", "partitioned", "redis"])
async def stores(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    postgres_dsn: str,
    postgres_server: PostgresServer,
    redis_server: RedisServer,
) -> AsyncIterator[list[Store]]:
    """Two stores on the same data."""
    name = secrets.token_hex(4)
    made: list[Store] = []
    for _ in range(2):
        if request.param == "sqlite":
            made.append(SQLiteMemoryStore(tmp_path / "m.db"))
        elif request.param == "redis":
            made.append(RedisMemoryStore(redis_server.url(), name=name))
        else:
            made.append(PostgresMemoryStore(postgres_dsn))
    for store in made:
        if request.param == "partitioned" and isinstance(store, PostgresMemoryStore):
            await store.init(partitions=4)
        else:
            await store.init()
    yield made
    for store in made:
        await store.close()


def note(whose: MemoryMetadata, item_id: str = "i", content: str = "hi") -> HumanMemory:
    return HumanMemory(id=item_id, content=content, metadata=whose)


async def test_an_item_is_replaced_by_its_owner_only(stores: list[Store]) -> None:
    store = stores[0]
    await store.add(note(ANN, content="ann's"), within=ANNS)

    await store.add(note(ANN, content="ann's again"), within=ANNS)
    for call in (
        store.add(note(BOB), within=BOB),
        store.add(note(BOB), within=BOB, expected_version=2),
        store.add_many([note(BOB, "j"), note(BOB)], within=BOB),
    ):
        with pytest.raises(AccessError, match="`i` is taken"):
            await call

    kept = await store.get("i")
    assert kept is not None
    assert (kept.content, kept.version, kept.metadata.user_id) == ("ann's again", 2, "ann")
    assert await store.get("j") is None, "all or none"


async def test_what_was_deleted_is_still_its_owners(stores: list[Store]) -> None:
    store = stores[0]
    await store.add(note(ANN))
    await store.delete("i")

    if isinstance(store, RedisMemoryStore):  # it keeps nothing of what was deleted: the id is free
        await store.add(note(BOB), within=BOB)
        owner = "bob"
    else:
        with pytest.raises(AccessError):
            await store.add(note(BOB), within=BOB)
        await store.add(note(ANN, content="back"), within=ANN)
        owner = "ann"

    kept = await store.get("i")
    assert kept is not None
    assert kept.metadata.user_id == owner


async def test_of_two_who_come_at_once_one_is_refused(stores: list[Store]) -> None:
    for number in range(15):
        item_id = f"n{number}"
        done = await asyncio.gather(
            stores[0].add(note(ANN, item_id), within=ANN),
            stores[1].add_many([note(BOB, item_id), note(BOB, f"{item_id}b")], within=BOB),
            return_exceptions=True,
        )

        assert [type(each) for each in done].count(AccessError) == 1, done
        kept = await stores[0].get(item_id)
        assert kept is not None
        assert kept.metadata.user_id == ("bob" if done[1] is None else "ann")
        assert (await stores[0].get(f"{item_id}b") is None) == (done[1] is not None)
