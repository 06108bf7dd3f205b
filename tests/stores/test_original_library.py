"""Files and tables of the original library are adopted: all that is in them, and a copy is kept."""

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.crash._children import Child
from tests.stores.postgres_recall import role_dsn

from orbiter.memory import (
    AgentMemory,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    PostgresMemoryStore,
    SQLiteMemoryStore,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.backends.sql import original_rows
from orbiter.memory.backends.sqlite import setup
from orbiter.memory.errors import StorageError, TransferError
from orbiter.memory.transfer import import_file, migrate

__all__ = ["role_dsn"]

TABLE = """
CREATE TABLE IF NOT EXISTS memory_items (
    id TEXT PRIMARY KEY,
    content TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    status TEXT NOT NULL,
    metadata {json} NOT NULL,
    extra_json {json} NOT NULL,
    created_at {time} NOT NULL,
    updated_at {time} NOT NULL,
    deleted {flag} NOT NULL,
    version INTEGER NOT NULL
)
"""
SQLITE = TABLE.format(json="TEXT", time="TEXT", flag="INTEGER")
INDEXES = (
    "CREATE INDEX idx_memory_user ON memory_items (json_extract(metadata, '$.user_id'))",
    # A name that we use ourselves.
    "CREATE INDEX IF NOT EXISTS memory_items_created ON memory_items (created_at)",
)
NOBODY: dict[str, Any] = {
    "user_id": None,
    "session_id": None,
    "task_id": None,
    "agent_id": None,
    "extra": {},
}
CALL = {"id": "c1", "name": "weather", "arguments": {"city": "Zürich"}}

ROWS: list[tuple[Any, ...]] = [
    ("h1", "Grüße 🙂 %_\\", "human", "accepted", {**NOBODY, "user_id": "ann", "session_id": "s"},
     {}, "2025-01-01T10:00:00", "2025-01-01T10:00:00", 0, 1),
    ("a1", "", "ai", "accepted", {**NOBODY, "user_id": "ann", "session_id": "s"},
     {"tool_calls": [CALL]}, "2025-01-01T10:00:01.5+00:00", "2025-01-01T10:00:01.5+00:00", 0, 1),
    ("t1", "sunny", "tool", "accepted", {**NOBODY, "user_id": "ann", "session_id": "s"},
     {"tool_call_id": "c1", "tool_name": "weather", "is_error": False},
     "2025-01-01T10:00:02Z", "2025-01-01T10:00:02Z", 0, 1),
    ("s1", "be kind", "system", "draft", NOBODY, {}, "2025-01-01T11:00:03.000001+01:00",
     "2025-01-02 00:00:00", 0, 7),
    ("gone", "forgotten", "human", "discard", {**NOBODY, "user_id": "ann", "extra": {"k": [1.5]}},
     {}, "2025-01-01T10:00:04+00:00", "2025-01-03T00:00:00+00:00", 1, 3),
    ("own", "a note", "note", "accepted", {**NOBODY, "agent_id": "bot"},
     {"mood": "calm", "stars": [1, None]}, "2025-01-01T10:00:05+00:00",
     "2025-01-01T10:00:05+00:00", 0, 1),
    ("old", "x" * 100, "human", "accepted", {"user_id": "bob", "extra": None, "team": "red"},
     {}, "2024-01-01T00:00:00+00:00", "2024-01-01T00:00:00+00:00", 0, 1),
]  # fmt: skip


def values(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:4], json.dumps(row[4]), json.dumps(row[5]), *row[6:])


def original_file(path: Path, rows: list[tuple[Any, ...]] = ROWS, *, mode: str = "delete") -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute(f"PRAGMA journal_mode = {mode}")
        made.execute(SQLITE)
        for index in INDEXES:
            made.execute(index)
        insert = f"INSERT INTO memory_items VALUES ({', '.join('?' * 10)})"
        made.execute("BEGIN")
        made.executemany(insert, map(values, rows))
        made.execute("COMMIT")


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def copies(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.original-*"))


async def check_adopted(store: SQLiteMemoryStore | PostgresMemoryStore) -> None:
    """Check that everything is there, and works as if we had written it."""
    assert await store.count(include_deleted=True) == len(ROWS)
    human = await store.get("h1")
    assert human == HumanMemory(
        id="h1",
        content="Grüße 🙂 %_\\",
        metadata=MemoryMetadata(user_id="ann", session_id="s"),
        created_at=datetime(2025, 1, 1, 10, tzinfo=UTC),
    )
    call = await store.get("a1")
    assert isinstance(call, AIMemory)
    assert call.tool_calls == [CALL]
    assert call.created_at == datetime(2025, 1, 1, 10, 0, 1, 500_000, tzinfo=UTC)
    result = await store.get("t1")
    assert isinstance(result, ToolMemory)
    assert (result.tool_call_id, result.tool_name, result.is_error) == ("c1", "weather", False)
    rule = await store.get("s1")
    assert isinstance(rule, SystemMemory)
    assert (rule.status, rule.version) == (MemoryStatus.DRAFT, 7)
    assert rule.created_at == datetime(2025, 1, 1, 10, 0, 3, 1, tzinfo=UTC)
    assert rule.updated_at == datetime(2025, 1, 2, tzinfo=UTC)
    own = await store.get("own")
    assert own is not None
    assert (own.memory_type, own.model_extra) == ("note", {"mood": "calm", "stars": [1, None]})
    old = await store.get("old")
    assert old is not None
    assert old.metadata == MemoryMetadata(user_id="bob", extra={"team": "red"})
    assert await store.get("gone") is None
    (gone,) = await store.search(deleted=True)
    assert (gone.content, gone.version, gone.metadata.extra) == ("forgotten", 3, {"k": [1.5]})

    ann = MemoryMetadata(user_id="ann")
    assert [item.id for item in await store.search(metadata=ann)] == ["t1", "a1", "h1"]
    assert [item.id for item in await store.search(query="grÜSSE")] == ["h1"]
    assert await store.restore("gone")
    assert len(await store.history("gone")) >= 1
    await store.add(MemoryItem(id="s1", content="be kinder", memory_type="system"))
    changed = await store.get("s1")
    assert changed is not None
    assert changed.version == 8
    assert await store.verify()


# SQLite


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_a_file_of_the_original_is_adopted_and_a_copy_is_kept(
    tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "m.db"
    original_file(path, mode=mode)
    before = dump(path)

    async with SQLiteMemoryStore(path) as store:
        await check_adopted(store)
    async with SQLiteMemoryStore(path) as store:
        assert await store.count() == len(ROWS)

    (copy,) = copies(path)
    assert dump(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600


async def test_a_file_whose_writer_was_killed_is_adopted_with_its_log(tmp_path: Path) -> None:
    path, open_file = tmp_path / "m.db", tmp_path / "open.db"
    original_file(open_file, mode="wal")
    with closing(sqlite3.connect(open_file, isolation_level=None)) as writer:
        writer.execute("UPDATE memory_items SET content = 'changed' WHERE id = 'h1'")
        for ending in ("", "-wal"):
            shutil.copy(f"{open_file}{ending}", f"{path}{ending}")

    async with SQLiteMemoryStore(path) as store:
        found = await store.get("h1")

    assert found is not None
    assert found.content == "changed"


async def test_many_rows_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    moment = "2025-01-01T00:00:00"
    rows: list[tuple[Any, ...]] = [
        (
            f"{number * 7919 % 2500}",
            f"{number}",
            "human",
            "accepted",
            NOBODY,
            {},
            moment,
            moment,
            0,
            1,
        )
        for number in range(2500)
    ]
    original_file(path, rows)

    async with SQLiteMemoryStore(path) as store:
        found = await store.search(limit=5000)

    assert [item.content for item in found] == [f"{number}" for number in reversed(range(2500))]


async def test_an_agents_memory_opens_a_file_of_the_original(tmp_path: Path) -> None:
    original_file(tmp_path / "m.db")

    async with AgentMemory(tmp_path / "m.db", embeddings=None, summaries=None) as memory:
        ann = memory.scope(user_id="ann")
        assert {item.id for item in await ann.list()} == {"h1", "a1", "t1"}
        assert [item.id for item in await ann.chat("s").items()] == ["h1", "a1", "t1"]


async def test_a_file_of_the_original_moves_to_another_store(tmp_path: Path) -> None:
    original_file(tmp_path / "m.db")
    target = f"sqlite:///{tmp_path}/target.db"

    async with AgentMemory("memory://", embeddings=None, summaries=None) as memory:
        with pytest.raises(TransferError, match="orbiter-memory migrate"):
            await import_file(memory.unscoped(), tmp_path / "m.db")
    done = await migrate(str(tmp_path / "m.db"), target)

    assert (done.copied, done.verified) == (len(ROWS), True)
    async with SQLiteMemoryStore(tmp_path / "target.db") as store:
        await check_adopted(store)


def adopt_and_die(pipe: Connection, path: str, rows: int) -> None:
    """Open a file of the original, and be killed after so many rows."""
    import asyncio  # noqa: PLC0415 - this runs in a process of its own

    left, adopted = rows, original_rows.adopted

    def mortal(row: Any) -> Any:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return adopted(row)

    setup.adopted = mortal  # type: ignore[attr-defined]  # where it is used
    asyncio.run(SQLiteMemoryStore(path).init())
    pipe.send("adopted")


async def test_a_process_that_is_killed_while_it_adopts_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    original_file(path)
    before = dump(path)

    for rows in (0, 3, len(ROWS) - 1):
        child = Child(adopt_and_die, str(path), rows)
        assert child.receive() is None
        child.process.join()
        assert dump(copies(path)[-1]) == before

    async with SQLiteMemoryStore(path) as store:
        await check_adopted(store)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("status", "sleeping"),
        ("metadata", "[]"),
        ("extra_json", "no JSON"),
        ("extra_json", "7"),
        ("created_at", "yesterday"),
        ("version", "many"),
    ],
)
async def test_a_row_that_means_nothing_is_named_and_nothing_is_changed(
    tmp_path: Path, column: str, value: str
) -> None:
    path = tmp_path / "m.db"
    original_file(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE memory_items SET {column} = ? WHERE id = 't1'", [value])
    before = dump(path)

    with pytest.raises(StorageError, match="row `t1`"):
        await SQLiteMemoryStore(path).init()

    assert dump(path) == before


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE others (x)",
        "CREATE VIEW seen AS SELECT * FROM memory_items",
        "CREATE TRIGGER t AFTER INSERT ON memory_items BEGIN SELECT 1; END",
        "ALTER TABLE memory_items ADD COLUMN more TEXT",
        "PRAGMA application_id = 7",
    ],
)
async def test_what_somebody_else_has_made_of_it_is_refused(tmp_path: Path, script: str) -> None:
    path = tmp_path / "m.db"
    original_file(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(script)
    before = path.read_bytes()

    with pytest.raises(StorageError, match="belongs to another program"):
        await SQLiteMemoryStore(path).init()

    assert path.read_bytes() == before
    assert copies(path) == []


# Postgres

TYPES = {
    "JSONB and times": {"json": "JSONB", "time": "TIMESTAMPTZ", "flag": "INTEGER"},
    "JSONB and text": {"json": "JSONB", "time": "TEXT", "flag": "INTEGER"},
    "naive times and a boolean": {"json": "JSONB", "time": "TIMESTAMP", "flag": "BOOLEAN"},
    "text": {"json": "TEXT", "time": "TEXT", "flag": "SMALLINT"},
}


async def original_table(dsn: str, *, json: str, time: str, flag: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET TimeZone = 'UTC'")
        await connection.execute(TABLE.format(json=json, time=time, flag=flag))
        user = "metadata->>'user_id'" if json == "JSONB" else "content"
        await connection.execute(f"CREATE INDEX idx_memory_user ON memory_items (({user}))")
        await connection.execute("CREATE INDEX memory_items_created ON memory_items (created_at)")
        given = ", ".join(
            f"${number}::text::{kind}"
            for number, kind in enumerate(
                ("text", "text", "text", "text", json, json, time, time), 1
            )
        )
        for row in map(values, ROWS):
            deleted = bool(row[8]) if flag == "BOOLEAN" else row[8]
            times = [str(each) for each in row[6:8]]
            if time == "TIMESTAMP":  # as a program that cuts the zone off would write it
                times = [_utc(each) for each in times]
            await connection.execute(
                f"INSERT INTO memory_items VALUES ({given}, $9, $10)",
                *row[:6],
                *times,
                deleted,
                row[9],
            )
    finally:
        await connection.close()


def _utc(text: str) -> str:
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() if moment.tzinfo else text


@pytest.mark.parametrize("kind", TYPES)
async def test_a_table_of_the_original_is_adopted_and_kept(postgres_dsn: str, kind: str) -> None:
    await original_table(postgres_dsn, **TYPES[kind])

    async with PostgresMemoryStore(postgres_dsn) as store:
        await check_adopted(store)
    async with PostgresMemoryStore(postgres_dsn) as store:
        assert await store.count() == len(ROWS)

    connection = await asyncpg.connect(postgres_dsn)
    kept = await connection.fetchval("SELECT count(*) FROM memory_items_original")
    await connection.close()
    assert kept == len(ROWS)


@pytest.mark.parametrize("layout", [{"partitions": 3}, {"row_security": True}], ids=str)
async def test_a_table_is_adopted_into_any_layout(
    postgres_dsn: str, layout: dict[str, Any]
) -> None:
    await original_table(postgres_dsn, **TYPES["JSONB and times"])
    store = PostgresMemoryStore(postgres_dsn)
    await store.init(**layout)

    try:
        assert await store.count(include_deleted=True) == len(ROWS)
        assert await store.verify()
    finally:
        await store.close()


@pytest.mark.parametrize("partitions", [None, 2])
async def test_a_role_that_policies_hold_adopts_its_table(
    role_dsn: str, partitions: int | None
) -> None:
    await original_table(role_dsn, **TYPES["JSONB and times"])
    store = PostgresMemoryStore(role_dsn)
    await store.init(partitions=partitions, row_security=True)

    try:
        found = await store.acting_for("ann").search()
        assert [item.id for item in found] == ["t1", "a1", "h1"]
        assert await store.acting_for("eve").search() == []
        assert await store.search() == []
        assert [item.id for item in await store.acting_for("ann").search(query="GRÜSSE")] == ["h1"]
    finally:
        await store.close()


async def test_a_row_that_means_nothing_leaves_a_table_as_it_is(postgres_dsn: str) -> None:
    await original_table(postgres_dsn, **TYPES["text"])
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("UPDATE memory_items SET status = 'sleeping' WHERE id = 't1'")

    with pytest.raises(StorageError, match="row `t1`"):
        await PostgresMemoryStore(postgres_dsn).init()
    names = await connection.fetch("SELECT relname FROM pg_class WHERE relname LIKE 'memory%'")
    await connection.execute("UPDATE memory_items SET status = 'accepted' WHERE id = 't1'")
    await connection.close()

    assert {row["relname"] for row in names} == {
        *("memory_items", "memory_items_pkey", "memory_items_created")
    }
    async with PostgresMemoryStore(postgres_dsn) as store:
        await check_adopted(store)


async def test_another_programs_table_is_still_refused(postgres_dsn: str) -> None:
    await original_table(postgres_dsn, **TYPES["text"])
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("ALTER TABLE memory_items ADD COLUMN more TEXT")
    await connection.close()

    with pytest.raises(StorageError, match="another program;"):
        await PostgresMemoryStore(postgres_dsn).init()


async def test_an_erasure_does_not_overlook_the_table_that_is_kept(postgres_dsn: str) -> None:
    await original_table(postgres_dsn, **TYPES["JSONB and times"])
    async with AgentMemory(postgres_dsn, embeddings=None, summaries=None) as memory:
        left = await memory.erase(user_id="ann")
        assert not left
        assert "memory_items_original" in str(left)
        connection = await asyncpg.connect(postgres_dsn)
        await connection.execute("DROP TABLE memory_items_original")
        await connection.close()

        assert await memory.erase(user_id="ann")
