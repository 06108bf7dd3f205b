"""Other ways of keeping messages in Postgres.

They need `pip install asyncpg langgraph-checkpoint-postgres openai-agents sqlalchemy[asyncio]`.
mem0 is not among them: it keeps memories in pgvector, after a model and an embedder have run.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from agents.extensions.memory import SQLAlchemySession
from benchmarks._sql_peers import Contender, as_message, as_put
from langgraph.store.base import PutOp
from langgraph.store.postgres.aio import AsyncPostgresStore
from sqlalchemy.ext.asyncio import create_async_engine

from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.sql.rows import COLUMNS, encode
from orbiter.memory.model.items import MemoryItem, MemoryMetadata

OURS, RAW = "PostgresMemoryStore", "raw asyncpg, commit each"
BARE = """CREATE TABLE memory_items (
    id TEXT COLLATE "C" PRIMARY KEY, content TEXT NOT NULL, memory_type TEXT NOT NULL,
    status TEXT NOT NULL, metadata JSONB NOT NULL, extra_json TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 1)"""
INSERT = f"INSERT INTO memory_items VALUES ({', '.join(f'${n + 1}' for n in range(len(COLUMNS)))})"
LAST = (
    "SELECT id, content, memory_type, status, metadata, extra_json, created_at, updated_at, version"
    " FROM memory_items WHERE deleted = 0 AND metadata->>'user_id' = $1"
    " AND metadata->>'session_id' = $2 ORDER BY created_at DESC, seq DESC LIMIT 20"
)


def row(item: MemoryItem) -> tuple[Any, ...]:
    """Return the ten columns of an item as a store writes them to Postgres."""
    return (*encode(item), 0, 1)


@asynccontextmanager
async def ours(dsn: str) -> AsyncIterator[Contender]:
    async with PostgresMemoryStore(dsn) as store:
        yield Contender(
            name=OURS,
            add=store.add,
            fill=store.add_many,
            last=lambda who: store.search(metadata=who, limit=20),
        )


@asynccontextmanager
async def connections(dsn: str) -> AsyncIterator["asyncio.LifoQueue[asyncpg.Connection]"]:
    """Open ten; unlike a pool's, they are not reset after each use, which asks the server."""
    free: asyncio.LifoQueue[asyncpg.Connection] = asyncio.LifoQueue()
    every = [await asyncpg.connect(dsn) for _ in range(10)]
    for each in every:
        free.put_nowait(each)
    try:
        yield free
    finally:
        for each in every:
            await each.close()


@asynccontextmanager
async def raw(dsn: str) -> AsyncIterator[Contender]:
    async with connections(dsn) as free:

        async def add(values: Sequence[Any]) -> None:
            connection = await free.get()
            try:
                await connection.execute(INSERT, *values)
            finally:
                free.put_nowait(connection)

        connection = await free.get()
        await connection.execute(BARE)
        free.put_nowait(connection)
        yield Contender(name=RAW, take=row, add=add)


@asynccontextmanager
async def raw_reader(dsn: str) -> AsyncIterator[Contender]:
    """Read a store's own table and make no items of the rows."""
    connection = await asyncpg.connect(dsn)

    async def last(who: MemoryMetadata) -> Sequence[object]:
        return list(await connection.fetch(LAST, who.user_id, who.session_id))

    try:
        yield Contender(name="raw asyncpg, rows as records", add=connection.execute, last=last)
    finally:
        await connection.close()


@asynccontextmanager
async def openai_agents(dsn: str) -> AsyncIterator[Contender]:
    address = dsn.partition("?")[0].replace("postgresql://", "postgresql+asyncpg://")
    engine = create_async_engine(address, pool_size=10)
    one = SQLAlchemySession("one", engine=engine, create_tables=True)
    sessions: dict[str, SQLAlchemySession] = {}

    async def fill(items: Sequence[MemoryItem]) -> None:
        parts: dict[str, list[Any]] = {}
        for item in items:
            parts.setdefault(str(item.metadata.session_id), []).append(as_message(item))
        for name, part in parts.items():
            sessions[name] = SQLAlchemySession(name, engine=engine, create_tables=True)
            await sessions[name].add_items(part)

    async def last(who: MemoryMetadata) -> Sequence[object]:
        return list(await sessions[str(who.session_id)].get_items(limit=20))

    try:
        yield Contender(
            name="openai-agents SQLAlchemySession",
            take=lambda item: [as_message(item)],
            add=one.add_items,
            fill=fill,
            last=last,
        )
    finally:
        await engine.dispose()


@asynccontextmanager
async def langgraph(dsn: str) -> AsyncIterator[Contender]:
    async with AsyncPostgresStore.from_conn_string(dsn) as store:
        await store.setup()

        async def fill(items: Sequence[MemoryItem]) -> None:
            await store.abatch([PutOp(*as_put(item)) for item in items])

        yield Contender(
            name="LangGraph AsyncPostgresStore",
            take=as_put,
            add=lambda put: store.aput(*put),
            fill=fill,
            last=lambda who: store.asearch((who.user_id, who.session_id), limit=20),
        )
