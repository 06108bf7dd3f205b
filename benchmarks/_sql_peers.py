"""Other ways of keeping messages in SQLite, each with what it is best at: WAL, one connection.

They need `pip install aiosqlite langgraph-checkpoint-sqlite mem0ai openai-agents`.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
from agents import SQLiteSession
from benchmarks._async_timing import Work, nothing
from benchmarks._sql_data import INSERT, raw_table, row
from langgraph.store.base import PutOp
from langgraph.store.sqlite.aio import AsyncSqliteStore

from orbiter.memory import AgentMemory, Chat
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.model.items import MemoryItem, MemoryMetadata

OURS, RAW, LIMIT = "SQLiteMemoryStore", "raw aiosqlite, commit each", "raw sqlite3, no event loop"
REMEMBER, CHAT = "alice.remember(text)", "chat.add(text)"
SETTLE = partial(asyncio.sleep, 0.06)
"""A store indexes a chunk when it is idle, in some 15 ms."""
LAST = (
    "SELECT id, content, memory_type, status, metadata, extra_json, created_at, updated_at, version"
    " FROM memory_items WHERE deleted = 0 AND json_extract(metadata, '$.user_id') = ?"
    " AND json_extract(metadata, '$.session_id') = ? ORDER BY created_at DESC, rowid DESC LIMIT 20"
)


def _text(item: MemoryItem) -> str:
    return item.content


def _as_is(item: MemoryItem) -> object:
    return item


@dataclass(kw_only=True)
class Contender:
    """One way to keep messages: what it takes, how it adds one, how it reads the last 20."""

    name: str
    add: Callable[[Any], Awaitable[object]]
    take: Callable[[MemoryItem], Any] = _as_is
    """Makes an item into what `add` takes; not timed."""
    settle: Work = nothing
    """Ends what goes on after `add` has returned, lest it slow the next one down."""
    fill: Callable[[Sequence[MemoryItem]], Awaitable[object]] | None = None
    last: Callable[[MemoryMetadata], Awaitable[Sequence[object]]] | None = None


@asynccontextmanager
async def ours(folder: Path) -> AsyncIterator[Contender]:
    async with SQLiteMemoryStore(folder / "ours.db") as store:
        yield Contender(
            name=OURS,
            add=store.add,
            settle=SETTLE,
            fill=store.add_many,
            last=lambda who: store.search(metadata=who, limit=20),
        )


@asynccontextmanager
async def remembering(folder: Path) -> AsyncIterator[Contender]:
    """What a program calls to keep a text, as the README does."""
    async with AgentMemory(f"sqlite:///{folder / 'remember.db'}", embeddings=None) as memory:
        yield remember_with(memory, REMEMBER)


@asynccontextmanager
async def chatting(folder: Path) -> AsyncIterator[Contender]:
    """What a program calls when its user has said something; long chats are summed up, too."""
    async with AgentMemory(f"sqlite:///{folder / 'chat.db'}", embeddings=None) as memory:
        yield chat_with(memory, CHAT)


def remember_with(memory: AgentMemory, name: str) -> Contender:
    alice = memory.scope(user_id="alice")
    return Contender(name=name, take=_text, add=alice.remember, settle=SETTLE)


def chat_with(memory: AgentMemory, name: str) -> Contender:
    alice = memory.scope(user_id="alice")

    def take(item: MemoryItem) -> tuple[Chat, str]:
        return alice.chat(str(item.metadata.session_id)), item.content

    return Contender(
        name=name, take=take, add=lambda said: said[0].add(said[1]), settle=memory.flush
    )


@asynccontextmanager
async def raw(folder: Path) -> AsyncIterator[Contender]:
    path = folder / "raw.db"
    raw_table(path, indexed=False)
    async with aiosqlite.connect(path) as connection:
        await connection.execute("PRAGMA synchronous = FULL")
        alone = asyncio.Lock()  # a commit must not take another task's half along

        async def add(values: Sequence[Any]) -> None:
            async with alone:
                await connection.execute(INSERT, values)
                await connection.commit()

        yield Contender(name=RAW, take=row, add=add)


@asynccontextmanager
async def openai_agents(folder: Path) -> AsyncIterator[Contender]:
    path = folder / "agents.db"
    one = SQLiteSession("one", path)
    sessions: dict[str, SQLiteSession] = {}

    async def fill(items: Sequence[MemoryItem]) -> None:
        parts: dict[str, list[Any]] = {}
        for item in items:
            parts.setdefault(str(item.metadata.session_id), []).append(as_message(item))
        for name, part in parts.items():
            sessions[name] = SQLiteSession(name, path)
            await sessions[name].add_items(part)

    async def last(who: MemoryMetadata) -> Sequence[object]:
        return list(await sessions[str(who.session_id)].get_items(limit=20))

    try:
        yield Contender(
            name="openai-agents SQLiteSession",
            take=lambda item: [as_message(item)],
            add=one.add_items,
            fill=fill,
            last=last,
        )
    finally:
        for session in (one, *sessions.values()):
            session.close()


@asynccontextmanager
async def langgraph(folder: Path) -> AsyncIterator[Contender]:
    async with AsyncSqliteStore.from_conn_string(str(folder / "langgraph.db")) as store:
        # It leaves the journal as SQLite has it by default, which costs another sync.
        await store.conn.execute("PRAGMA journal_mode = WAL")
        await store.conn.execute("PRAGMA synchronous = FULL")
        await store.setup()

        async def fill(items: Sequence[MemoryItem]) -> None:
            await store.abatch([PutOp(*as_put(item)) for item in items])

        yield Contender(
            name="LangGraph AsyncSqliteStore, given WAL",
            take=as_put,
            add=lambda put: store.aput(*put),
            fill=fill,
            last=lambda who: store.asearch((str(who.user_id), str(who.session_id)), limit=20),
        )


@asynccontextmanager
async def mem0_history(folder: Path) -> AsyncIterator[Contender]:
    """Only the history that `Memory.add` writes last: before it come a model and a vector store."""
    os.environ.setdefault("MEM0_TELEMETRY", "False")
    os.environ.setdefault("MEM0_DIR", str(folder))
    from mem0.memory.storage import SQLiteManager  # noqa: PLC0415 - after its settings

    history = SQLiteManager(str(folder / "mem0.db"))

    async def add(item: MemoryItem) -> None:
        history.add_history(item.id, None, item.content, "ADD", role="user")

    try:
        yield Contender(name="mem0 SQLiteManager.add_history", add=add)
    finally:
        history.close()


@asynccontextmanager
async def all_of(*openers: Any) -> AsyncIterator[list[Contender]]:
    """Open each and close them all."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opener) for opener in openers]


@asynccontextmanager
async def raw_readers(path: Path) -> AsyncIterator[list[Contender]]:
    """Readers of a table with our indexes that make no items of the rows."""
    plain = sqlite3.connect(path, isolation_level=None)
    async with aiosqlite.connect(path) as connection:

        async def over_aiosqlite(who: MemoryMetadata) -> Sequence[object]:
            return list(await connection.execute_fetchall(LAST, (who.user_id, who.session_id)))

        async def direct(who: MemoryMetadata) -> Sequence[object]:
            return plain.execute(LAST, (who.user_id, who.session_id)).fetchall()

        try:
            yield [
                Contender(
                    name="raw aiosqlite, rows as tuples", add=_as_is_later, last=over_aiosqlite
                ),
                Contender(name=LIMIT, add=_as_is_later, last=direct),
            ]
        finally:
            plain.close()


async def _as_is_later(value: object) -> object:
    return value


def as_message(item: MemoryItem) -> Any:
    """Return an item as the OpenAI Responses API takes it."""
    return {"role": "user", "content": item.content}


def as_put(item: MemoryItem) -> tuple[tuple[str, str], str, dict[str, Any]]:
    """Return namespace, key and value for a LangGraph store."""
    who = item.metadata
    value = {"content": item.content, "type": item.memory_type, "at": item.created_at.isoformat()}
    return (str(who.user_id), str(who.session_id)), item.id, value
