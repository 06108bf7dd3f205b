"""`conversations()`: which there are, how long they are, and which was the last."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.servers.databases import redis_server

from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.redis.store import RedisMemoryStore
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    ToolMemory,
    new_id,
)
from orbiter.memory.model.reports import ConversationInfo
from orbiter.memory.testing.contracts.base_contract import HOSTILE_IDS, START

__all__ = ["redis_server"]


@pytest.fixture(params=["sqlite", "postgres", "partitioned", "redis"])
def made(request: pytest.FixtureRequest) -> Any:
    """Return a store that is not opened yet, and how it is opened."""
    if request.param == "sqlite":
        return SQLiteMemoryStore(), {}
    if request.param == "redis":
        url = request.getfixturevalue("redis_server").url()
        return RedisMemoryStore(url, name=new_id()), {}
    parts = {"partitions": 2} if request.param == "partitioned" else {}
    return PostgresMemoryStore(request.getfixturevalue("postgres_dsn")), parts


@pytest.fixture
async def store(made: Any) -> AsyncIterator[Any]:
    opened, how = made
    await opened.init(**how)
    yield opened
    await opened.close()


def said(seconds: float, kind: type[MemoryItem] = HumanMemory, **who: Any) -> MemoryItem:
    return kind(
        content="hi",
        metadata=MemoryMetadata(**who, extra={"n": seconds}),
        created_at=START + timedelta(seconds=seconds),
    )


def at(seconds: float) -> Any:
    return START + timedelta(seconds=seconds)


async def test_conversations_are_told_the_most_recent_first(store: Any) -> None:
    ann: dict[str, Any] = {"user_id": "ann", "session_id": "s"}
    items = [
        said(1, **ann),
        said(5, AIMemory, **ann),
        said(3, ToolMemory, **ann),
        said(2, user_id="ann", task_id="t"),
        said(4, **ann, task_id="t"),
        said(9, **ann, agent_id="a"),
        said(6, user_id="bob", session_id="s"),
        said(7, user_id="ann"),
        said(8, MemoryItem, user_id="ann", session_id="notes"),
    ]
    await store.add_many(items)

    found = await store.conversations()

    assert found == [
        ConversationInfo(MemoryMetadata(**ann, agent_id="a"), 1, at(9), at(9)),
        ConversationInfo(MemoryMetadata(user_id="bob", session_id="s"), 1, at(6), at(6)),
        ConversationInfo(MemoryMetadata(**ann), 3, at(1), at(5)),
        ConversationInfo(MemoryMetadata(**ann, task_id="t"), 1, at(4), at(4)),
        ConversationInfo(MemoryMetadata(user_id="ann", task_id="t"), 1, at(2), at(2)),
    ]
    assert await store.conversations(limit=2) == found[:2]
    assert await store.conversations(limit=0) == []
    of_ann = MemoryMetadata(user_id="ann")
    assert await store.conversations(metadata=of_ann) == [found[0], *found[2:]]
    assert await store.conversations(metadata=of_ann, limit=1) == found[:1]
    with pytest.raises(QueryError, match="limit"):
        await store.conversations(limit=-1)


async def test_what_is_deleted_is_no_conversation(store: Any) -> None:
    first, second = said(1, session_id="s"), said(2, session_id="s")
    await store.add_many([first, second, said(3, session_id="gone")])

    await store.delete(second.id)
    await store.clear(metadata=MemoryMetadata(session_id="gone"))

    whose = MemoryMetadata(session_id="s")
    assert await store.conversations() == [ConversationInfo(whose, 1, at(1), at(1))]


async def test_no_two_ids_are_one_conversation(store: Any) -> None:
    items = [said(n, session_id=name) for n, name in enumerate(HOSTILE_IDS)]
    more = [said(n + 100, task_id=name) for n, name in enumerate(HOSTILE_IDS)]
    await store.add_many([*items, *more])

    found = await store.conversations(limit=1000)

    expected = [MemoryMetadata(task_id=name) for name in reversed(HOSTILE_IDS)]
    expected += [MemoryMetadata(session_id=name) for name in reversed(HOSTILE_IDS)]
    assert [each.metadata for each in found] == expected
    assert {each.items for each in found} == {1}


async def test_a_long_conversation_is_counted_to_its_beginning(store: Any) -> None:
    await store.add_many([said(n, session_id="s", user_id=f"u{n % 2}") for n in range(1300)])

    found = await store.conversations()

    assert [(each.items, each.first_at, each.last_at) for each in found] == [
        (650, at(1), at(1299)),
        (650, at(0), at(1298)),
    ]
