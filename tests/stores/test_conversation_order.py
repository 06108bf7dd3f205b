"""A window costs what it holds, however long the conversation is; and old data has its order."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
import redis.asyncio as redis
from tests.servers.databases import (
    PostgresServer,
    RedisServer,
    postgres_server,
    redis_server,
)

from orbiter.memory.agent.chat_history import nothing_else
from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.redis.store import RedisMemoryStore
from orbiter.memory.backends.sql.dialect import Statement
from orbiter.memory.backends.sql.neighbours import newest
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.model.items import HumanMemory, MemoryMetadata, MemoryStatus, new_id
from orbiter.memory.model.query import Cursor, Query
from orbiter.memory.testing.contracts.base_contract import START

__all__ = ["postgres_server", "redis_server"]

CHATS = [
    MemoryMetadata(user_id="ann", session_id="s"),
    MemoryMetadata(session_id="s"),
    MemoryMetadata(user_id="ann", session_id="s", task_id="t"),
    MemoryMetadata(session_id="s", task_id="t"),
    MemoryMetadata(user_id="ann", session_id="s", agent_id="a"),
]
LONG = 10_000


def asked(chat: MemoryMetadata, **more: Any) -> Query:
    """Return what a chat asks for its window."""
    where = nothing_else(chat) or None
    return Query(metadata=chat, status=MemoryStatus.ACCEPTED, where=where, limit=32, **more)


def named(chat: MemoryMetadata) -> str:
    return "+".join(Query(metadata=chat).wanted)


every_chat = pytest.mark.parametrize("chat", CHATS, ids=named)


@every_chat
@pytest.mark.parametrize("before", [None, Cursor("i5")], ids=["first page", "next page"])
async def test_sqlite_reads_a_window_from_the_end_of_an_index(
    chat: MemoryMetadata, before: Cursor | None
) -> None:
    async with SQLiteMemoryStore() as store:
        items = [HumanMemory(id=f"i{n}", content="hi", metadata=chat) for n in range(9)]
        await store.add_many(items)
        for memory_type in (None, "system"):
            steps = store._operations.search(
                asked(chat, memory_type=memory_type), before, None, order_by="insertion"
            )
            statement = next(steps)
            if before is not None:
                statement = steps.send([("2024", 5, "i5")])
            explained = Statement(f"EXPLAIN QUERY PLAN {statement.sql}", statement.args)
            plan = str(await store._read(lambda explained=explained: _one(explained)))  # type: ignore[misc]

            what = "talk" if memory_type is None else "system"
            index = f"memory_items_task_{what}" if chat.task_id else f"memory_items_{what}"
            assert f"USING INDEX {index} (" in plan
            assert "B-TREE" not in plan, "everything is read, and sorted"


def _one(statement: Statement) -> Any:
    return [tuple(row) for row in (yield statement)]


@every_chat
async def test_sqlite_reads_the_end_of_a_conversation_from_indexes(chat: MemoryMetadata) -> None:
    async with SQLiteMemoryStore() as store:
        await store.add_many([HumanMemory(content="hi", metadata=chat) for _ in range(9)])
        steps = newest(store._operations.dialect, chat, 4, None)
        messages = next(steps)
        systems = steps.send([("i", "hi", "human", *[""] * 6, place) for place in (9, 8, 7, 6)])
        kind = "task_{} (" if chat.task_id else "{} ("
        for statement, name in ((messages, "talk"), (systems, "system")):
            explained = Statement(f"EXPLAIN QUERY PLAN {statement.sql}", statement.args)
            plan = str(await store._read(lambda explained=explained: _one(explained)))  # type: ignore[misc]

            assert f"USING INDEX memory_items_{kind.format(name)}" in plan
            assert "B-TREE" not in plan, "everything is read, and sorted"


@pytest.fixture(scope="module", params=[None, 3], ids=["whole", "partitioned"])
def filled(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[str]:
    """Return a database with a long conversation of each kind, and others beside it."""
    dsn = postgres_server.create_database()
    asyncio.run(_fill(dsn, request.param))
    yield dsn
    postgres_server.drop_database(dsn)


async def _fill(dsn: str, partitions: int | None) -> None:
    store = PostgresMemoryStore(dsn)
    await store.init(partitions=partitions)
    for chat in CHATS:
        other = chat.model_copy(update={"session_id": "x", "task_id": chat.task_id and "y"})
        for metadata, count in ((chat, 2000), (other, 200)):
            items = [HumanMemory(content="hi", metadata=metadata) for _ in range(count)]
            await store.add_many(items)
    await store.close()
    connection = await asyncpg.connect(dsn)
    await connection.execute("ANALYZE memory_items")
    await connection.close()


@every_chat
async def test_postgres_reads_a_window_from_the_end_of_an_index(
    chat: MemoryMetadata, filled: str
) -> None:
    async with PostgresMemoryStore(filled) as store:
        steps = store._operations.search(asked(chat), None, None, order_by="insertion")
        statement = next(steps)
    connection = await asyncpg.connect(filled)
    plan = await connection.fetch(f"EXPLAIN (ANALYZE) {statement.sql}", *statement.args)
    await connection.close()

    told = "\n".join(row[0] for row in plan)
    # Partitions are merged in order; within each, nothing is sorted.
    assert "Sort Method" not in told, told
    assert "rows removed" not in told.lower() or chat.task_id is None, told


@every_chat
async def test_postgres_reads_the_end_of_just_one_conversation(
    chat: MemoryMetadata, filled: str
) -> None:
    async with PostgresMemoryStore(filled) as store:
        asked_before = await store.search(
            metadata=chat, where=nothing_else(chat) or None, limit=5, order="insertion"
        )
        newest, systems, is_all = await store.newest_messages(chat, limit=5, rounds=3)
        everything, _, ends = await store.newest_messages(chat, limit=5_000)

    assert [item.id for item in newest] == [item.id for item in asked_before[:3]]
    assert (systems, is_all) == ([], False)
    assert (len(everything), ends) == (2000, True)


async def test_redis_reads_a_window_and_not_the_conversation(redis_server: RedisServer) -> None:
    chat = CHATS[0]
    async with RedisMemoryStore(redis_server.url(), name=new_id()) as store:
        items = [HumanMemory(content=str(n), metadata=chat) for n in range(LONG)]
        for start in range(0, LONG, 1000):
            await store.add_many(items[start : start + 1000])
        client = redis.from_url(redis_server.url())
        await client.config_resetstat()

        found = await store.search(
            metadata=chat, where=nothing_else(chat), limit=32, order="insertion"
        )

        read = (await client.info("commandstats"))["cmdstat_get"]["calls"]
        await client.aclose()
    assert [item.content for item in found] == [str(LONG - 1 - n) for n in range(32)]
    assert read <= 200


async def test_what_redis_kept_before_there_was_an_order_is_read_as_it_was_added(
    redis_server: RedisServer,
) -> None:
    chat = CHATS[0]
    async with RedisMemoryStore(redis_server.url(), name=new_id(), ttl_hours=1) as store:
        for n, seconds in enumerate((3, 1, 2, 0)):
            at = START.replace(second=seconds)
            await store.add(HumanMemory(content=str(n), metadata=chat, created_at=at))
        client = redis.from_url(redis_server.url())
        start = f"orbiter:{{{store.name}}}:"
        await client.delete(f"{start}added:all", f"{start}added:session_id:s")
        await store.add(HumanMemory(content="4", metadata=chat, created_at=START))

        found = await store.search(metadata=chat, order="insertion")
        records = await store.records()

        assert [item.content for item in reversed(found)] == ["0", "1", "2", "3", "4"]
        assert [record.item.content for record in records] == ["0", "1", "2", "3", "4"]
        for key in ("added:all", "added:session_id:s"):
            assert 0 < await client.pttl(f"{start}{key}") <= 3_700_000
        await client.aclose()
