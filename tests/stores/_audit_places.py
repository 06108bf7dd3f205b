"""Audited stores for tests, and ways to change them behind their backs."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from orbiter.memory import HumanMemory, MemoryMetadata, PostgresMemoryStore, SQLiteMemoryStore
from orbiter.memory.backends.registry import open_store
from orbiter.memory.model.audit import AuditEntry

Store = SQLiteMemoryStore | PostgresMemoryStore
ANN = MemoryMetadata(user_id="ann", session_id="s")
BOB = MemoryMetadata(user_id="bob")
TABLES = ("memory_audit", "memory_audit_head", "memory_audit_salts")
TRIGGERS = (
    "memory_audit_unchanged",
    "memory_audit_kept",
    "memory_items_keep_version",
    "memory_items_unsalt",
    "memory_items_reword",
    "memory_items_remove",
)


class Place:
    """Where a store is, and a way to change it behind its back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_file = url.startswith("sqlite")
        self._connection: Any = None

    def store(self, **options: Any) -> Store:
        return open_store(self.url, **options)  # type: ignore[return-value]  # no Redis here

    async def run(self, *statements: str) -> None:
        """Carry out *statements* as somebody who knows how to get round every trigger."""
        connection = await self._connected()
        if self.is_file:
            for name in TRIGGERS:
                connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        else:
            await connection.execute("SET session_replication_role = replica")
        for statement in statements:
            done = connection.execute(statement)
            if not self.is_file:
                await done

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = await self._connected()
        if self.is_file:
            return connection.execute(sql).fetchall()  # type: ignore[no-any-return]
        return [tuple(row) for row in await connection.fetch(sql)]

    async def _connected(self) -> Any:
        if self._connection is None and self.is_file:
            path = self.url.removeprefix("sqlite:///")
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.execute("PRAGMA synchronous = OFF")
        elif self._connection is None:
            self._connection = await asyncpg.connect(self.url)
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            closing = self._connection.close()
            if not self.is_file:
                await closing


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/audit.db"
    return str(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
async def place(url: str) -> AsyncIterator[Place]:
    place = Place(url)
    yield place
    await place.close()


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    async with place.store(audit="writes") as store:
        yield store


def note(content: str, item_id: str, whose: MemoryMetadata = ANN, **more: Any) -> HumanMemory:
    return HumanMemory(id=item_id, content=content, metadata=whose, **more)


async def log(store: Store, **options: Any) -> list[AuditEntry]:
    """Return entries, oldest first, but for that of the beginning."""
    entries = await store.audit_entries(**options)
    return [entry for entry in reversed(entries) if entry.action != "began"]


async def told(store: Store, **options: Any) -> list[str]:
    return [problem.what for problem in (await store.verify_audit(**options)).problems]


async def busy(store: Store) -> None:
    """Do something of everything."""
    await store.add(note("one", "a"), by="support")
    await store.add_many([note("x", "b"), note("y", "b"), note("z", "c", BOB)])
    await store.delete("a")
    await store.add(note("two", "a"))
    await store.delete_many(["b"])
    await store.purge(metadata=ANN)
