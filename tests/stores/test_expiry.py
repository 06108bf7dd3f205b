"""Items that are over: no structure beside the rows shows them, and a sweep leaves nothing.

What every store does is in the kit, `contracts/expiry_contract.py`. Here rows are made to be over
by hand, behind the store's back, so that it has not swept yet.
"""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.servers.databases import RedisServer, redis_server
from tests.stores.postgres_recall import role_dsn
from tests.timing import until

from orbiter.memory import (
    HumanMemory,
    MemoryMetadata,
    PostgresMemoryStore,
    RedisMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.backends.postgres import recall as postgres_recall
from orbiter.memory.backends.postgres import schema as postgres_schema
from orbiter.memory.backends.sql.rows import decode, encode
from orbiter.memory.backends.sqlite import idle_tasks
from orbiter.memory.backends.sqlite import migrations as sqlite_migrations
from orbiter.memory.backends.sqlite import schema as sqlite_schema
from orbiter.memory.model import dump_item, load_item
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import new_id
from orbiter.memory.model.query import Query
from orbiter.memory.recall import InMemoryIndex
from orbiter.memory.testing import HashEmbeddings

__all__ = ["redis_server", "role_dsn"]

LATER = datetime(2999, 1, 1, tzinfo=UTC)
OVER = datetime(2025, 1, 1, tzinfo=UTC)
ANN = MemoryMetadata(user_id="ann", session_id="s")


class Detailed(HashEmbeddings):
    """Vectors with details, two bytes for each text."""

    detail_dimension = 2

    async def aembed_details(self, texts: Sequence[str]) -> list[tuple[list[float], bytes]]:
        return [(self.embed(text), b"ab") for text in texts]


EMBEDDINGS = Detailed(32)
TO_BE_OVER = (
    "UPDATE memory_items SET extra_json = replace(extra_json, '2999-', '2025-')"
    " WHERE id IN ('over', 'gone')"
)


def _item(name: str, text: str, **more: Any) -> HumanMemory:
    return HumanMemory(id=name, content=text, metadata=ANN, **more)


async def _until(end: datetime) -> None:
    await asyncio.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds() + 0.005))


class Kept:
    """A SQL store, and a way around it."""

    def __init__(self, store: Any, address: str | Path) -> None:
        self.store, self.address = store, address

    async def by_hand(self, sql: str) -> list[Any]:
        if isinstance(self.address, Path):
            with closing(sqlite3.connect(self.address)) as file, file:
                return file.execute(sql).fetchall()
        connection = await asyncpg.connect(self.address)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()


async def _fill(kept: Kept) -> None:
    """Store five items, with terms and vectors, of which two are over behind the store's back."""
    store = kept.store
    await store.add_many(
        [
            _item("first", "green apple"),
            _item("over", "red apple from Äpfelland", expires_at=LATER),
            _item("last", "yellow apple", expires_at=LATER),
            _item("gone", "blue apple", expires_at=LATER),
            _item("away", "black apple"),
        ]
    )
    await store.add(_item("over", "red apple of Äpfelland", expires_at=LATER))
    await store.delete("gone")
    await store.delete("away")
    assert await store.catch_up() == 0
    await kept.by_hand(TO_BE_OVER)


async def test_sqlite_shows_nothing_that_is_over_and_sweeps_every_trace_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_tasks, "sweep_some", lambda _: 0)  # only when it is asked to
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        kept = Kept(store, path)
        await _no_read_shows_what_is_over(kept)

        found = await store.match_words(["appl", "red"], Query(metadata=ANN))

        assert [item.id for item in found.items] == ["last", "first"]
        assert found.frequency == {"red": 0, "appl": 2}
        assert (found.passages, await store.sweep()) == (2, 0)
        await _nothing_is_left(kept, "memory_items", "memory_versions")
        for table in ("memory_unindexed", "memory_unlisted"):
            assert await kept.by_hand(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize("partitions", [None, 3], ids=["whole", "partitioned"])
async def test_postgres_shows_nothing_that_is_over_and_sweeps_every_trace_of_it(
    postgres_dsn: str, partitions: int | None
) -> None:
    store = PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS, max_size=3)
    await store.init(partitions=partitions)
    kept = Kept(store, postgres_dsn)
    await _no_read_shows_what_is_over(kept)

    found = await store.match_words(["appl", "red"], Query(metadata=ANN))

    assert [item.id for item in found.items] == ["last", "first"]
    assert found.frequency == {"red": 0, "appl": 2}
    assert (found.passages, await store.sweep()) == (2, 0)
    await _nothing_is_left(kept, *POSTGRES, *(["memory_ids"] if partitions else []))
    await store.close()


async def test_behind_policies_nobody_sees_what_is_over_and_each_sweeps_their_own(
    postgres_dsn: str, role_dsn: str
) -> None:
    store = PostgresMemoryStore(role_dsn, embeddings=EMBEDDINGS, max_size=3)
    await store.init(partitions=2, row_security=True)
    ann, kept = store.acting_for("ann"), Kept(store.acting_for("ann"), postgres_dsn)
    await _no_read_shows_what_is_over(kept)

    found = await ann.match_words(["appl", "red"], Query(metadata=ANN))

    assert [item.id for item in found.items] == ["last", "first"]
    everyone = (store, store.acting_for("bob"), ann)
    later = datetime.now(UTC) + timedelta(hours=1)
    counts = [await each.count_removable(deleted_before=later) for each in everyone]
    assert counts == [(0, 0), (0, 0), (2, 1)]
    assert await ann.count_removable() == (2, 0)
    assert [await each.sweep() for each in everyone] == [0, 0, 2]
    assert await ann.count_removable() == (0, 0)
    await _nothing_is_left(kept, *POSTGRES, "memory_ids")
    await store.close()


POSTGRES = (
    "memory_items", "memory_versions", "memory_folded", "memory_passages", "memory_vectors",
    "memory_unembedded",
)  # fmt: skip


async def _no_read_shows_what_is_over(kept: Kept) -> None:
    store, asked = kept.store, Query(metadata=ANN)
    await _fill(kept)

    near = EMBEDDINGS.embed("red apple of Äpfelland")
    assert [item.id for item in await store.search(metadata=ANN)] == ["last", "first"]
    assert await store.search(query="äpfel") == []
    assert [item.id for item in await store.search(deleted=True)] == ["away"]
    assert [await store.count(), await store.count(include_deleted=True)] == [2, 3]
    assert [told.items for told in await store.conversations(metadata=ANN)] == [2]
    assert (await store.get("over"), await store.history("over")) == (None, [])
    assert await store.around(["over"], span=1) == []
    assert [[item.id for item in part] for part in await store.around(["first"], span=1)] == [
        ["first", "last"]
    ]
    assert {item.id for item, _ in await store.nearest(near, asked)} == {"first", "last"}
    assert set(await store.similarities(near, ["over", "last"])) == {"last"}
    assert set(await store.details(["over", "last"])) == {"last"}
    stats = await store.stats()
    assert (stats.items, stats.deleted) == (2, 1)
    ((there,),) = await kept.by_hand("SELECT count(*) FROM memory_items")
    assert there == 5, "not swept yet, so that all this says something"
    assert not await store.restore("gone")


async def _nothing_is_left(kept: Kept, *tables: str) -> None:
    for table in tables:
        rows = await kept.by_hand(f"SELECT count(*) FROM {table} WHERE id IN ('over', 'gone')")
        assert rows == [(0,)], table
    assert (await kept.store.verify()).problems == ()


async def test_a_file_that_cannot_be_written_shows_nothing_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_tasks, "sweep_some", lambda _: 0)  # before it cannot be written
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS, busy_timeout=0.05) as store:
        kept = Kept(store, path)
        await _fill(kept)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")

            found = await store.match_words(["appl"], Query(metadata=ANN))
            assert [item.id for item in found.items] == ["last", "first"]
            assert [item.id for item in await store.search()] == ["last", "first"]
            other.execute("ROLLBACK")

        assert await store.sweep() == 2


async def test_an_open_file_is_rid_of_what_is_over_though_nobody_asks(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path) as store:
        end = datetime.now(UTC) + timedelta(seconds=0.1)
        await store.add_many([_item("over", "a secret", expires_at=end), _item("last", "apple")])
        kept = Kept(store, path)

        async def is_gone() -> bool:
            return not await kept.by_hand("SELECT 1 FROM memory_items WHERE id = 'over'")

        await until(is_gone, "the end of the item")

        assert await store.count() == 1
        assert await store.sweep() == 0


async def test_who_writes_to_postgres_sweeps_now_and_then(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresMemoryStore(postgres_dsn) as store:
        await store.add(_item("over", "a secret", expires_at=OVER))
        left = Kept(store, postgres_dsn).by_hand
        await store.add(_item("first", "apple"))
        assert await left("SELECT id FROM memory_items ORDER BY id") == [("first",), ("over",)]

        monkeypatch.setattr(postgres_recall, "SWEEP_EVERY", 0.0)
        await store.add(_item("last", "apple"))

        assert await left("SELECT id FROM memory_items ORDER BY id") == [("first",), ("last",)]


async def test_a_users_facts_are_read_from_an_index_of_their_own(postgres_dsn: str) -> None:
    async with PostgresMemoryStore(postgres_dsn) as store:
        asked = Query(metadata=ANN, memory_type="fact", where={"fact": "home"})
        statement = next(store._operations.search(asked, None, None))
        connection = await asyncpg.connect(postgres_dsn)
        await connection.execute(
            "INSERT INTO memory_items (id, content, memory_type, status, metadata, extra_json,"
            " created_at, updated_at) SELECT 'n' || n, 'hi',"
            " CASE WHEN n % 100 = 0 THEN 'fact' ELSE 'human' END, 'accepted',"
            ' \'{"user_id": "ann", "session_id": "s"}\', \'{}\', now(), now()'
            " FROM generate_series(1, 3000) AS n"
        )
        await connection.execute("ANALYZE memory_items")
        plan = await connection.fetch(f"EXPLAIN {statement.sql}", *statement.args)
        due = await connection.fetch(f"EXPLAIN {next(store._dialect.sweep(10)).sql}")
        await connection.close()

    assert "memory_items_facts" in str(plan)
    assert "memory_items_expiry" in str(due)


# Files and databases of every past version


async def test_files_of_every_past_version_learn_to_expire(tmp_path: Path) -> None:
    for version in range(1, len(sqlite_migrations.MIGRATIONS)):
        path = tmp_path / f"{version}.db"
        with closing(sqlite3.connect(path)) as file, file:
            for script in sqlite_migrations.MIGRATIONS[:version]:
                file.executescript(script)
            file.execute(f"PRAGMA user_version = {version}")
            file.execute(f"PRAGMA application_id = {sqlite_schema.APPLICATION}")
            file.execute(
                "INSERT INTO memory_items (id, content, memory_type, status, metadata, extra_json,"
                " created_at, updated_at) VALUES ('old', 'an old apple', 'human', 'accepted', '{}',"
                " '{}', '2024-01-01T00:00:00.000000+00:00', '2024-01-01T00:00:00.000000+00:00')"
            )

        async with SQLiteMemoryStore(path) as store:
            await store.add(_item("over", "another apple", expires_at=OVER))

            assert [item.id for item in await store.search(query="apple")] == ["old"]
            assert (await store.match_words(["appl"], Query())).frequency == {"appl": 1}
            (plan,) = await Kept(store, path).by_hand(
                "SELECT count(*) FROM sqlite_master WHERE name LIKE 'memory_items_expiry'"
            )
            assert plan == (1,)


@pytest.mark.parametrize("partitions", [0, 3], ids=["whole", "partitioned"])
async def test_databases_of_every_past_version_learn_to_expire(
    postgres_dsn: str, partitions: int
) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(postgres_schema.first(partitions, row_security=False))
    more = (", user_key", ", 'ann'") if partitions else ("", "")
    await connection.execute(
        "INSERT INTO memory_items (id, content, memory_type, status, metadata, extra_json,"
        f" created_at, updated_at{more[0]}) VALUES ('old', 'an old apple', 'human', 'accepted',"
        f" '{{\"user_id\": \"ann\"}}', '{{}}', now(), now(){more[1]})"
    )
    if partitions:
        await connection.execute("INSERT INTO memory_ids VALUES ('old', 'ann')")
    await connection.close()

    async with PostgresMemoryStore(postgres_dsn) as store:
        await store.add(_item("over", "another apple", expires_at=OVER))

        assert [item.id for item in await store.search(query="apple")] == ["old"]
        assert (await store.match_words(["appl"], Query())).frequency == {"appl": 1}
        assert await store.sweep() == 0


# Crashes

SWEEPS = """
import asyncio, sys
from orbiter.memory import SQLiteMemoryStore
from orbiter.memory.backends.sqlite import idle_tasks
idle_tasks.EXPIRED_CHUNK = 8
async def main():
    async with SQLiteMemoryStore(sys.argv[1]) as store:
        print("sweeping", flush=True)
        await store.sweep()
asyncio.run(main())
"""


async def test_kill_9_during_a_sweep_leaves_a_sound_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path) as store:
        await store.add_many(
            [_item(f"n{n}", f"apple {n}", expires_at=None if n % 4 else LATER) for n in range(800)]
        )
        await store.optimize()
    sql = "UPDATE memory_items SET extra_json = replace(extra_json, '2999-', '2025-')"
    await Kept(None, path).by_hand(f"{sql} WHERE rowid > 0")

    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SWEEPS, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    await child.stdout.readline()
    await asyncio.sleep(0.03)
    child.kill()
    await child.wait()

    async with SQLiteMemoryStore(path) as store:
        assert await store.count() == 600
        assert len(await store.search(query="apple", limit=800)) == 600
        await store.sweep()
        assert (await store.verify()).problems == ()
        for table in ("memory_unindexed", "memory_unlisted"):
            assert await Kept(store, path).by_hand(f"SELECT * FROM {table}") == []
        (left,) = await Kept(store, path).by_hand("SELECT count(*) FROM memory_items")
        assert left == (600,)


# Redis


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisMemoryStore]:
    async with RedisMemoryStore(redis_server.url(), name=new_id(), ttl_hours=1) as store:
        yield store


async def test_in_redis_the_earlier_end_wins_and_no_key_is_left(redis: RedisMemoryStore) -> None:
    root = f"orbiter:{{{redis.name}}}:"
    soon = datetime.now(UTC) + timedelta(seconds=0.15)
    await redis.add_many(
        [
            _item("soon", "apple", expires_at=soon),
            _item("later", "apple", expires_at=LATER),
            _item("plain", "apple"),
        ]
    )

    left = [int(await redis._items._call(("PTTL", f"{root}item:{n}"))) for n in ("later", "plain")]
    await _until(soon)

    assert all(3_500_000 < each <= 3_600_000 for each in left)
    assert await redis.count(metadata=ANN) == 2
    for key in ("all", "user_id:ann", "session_id:s", "expiry"):
        assert int(await redis._items._call(("ZCARD", root + key))) == 2, key
    assert await redis._items._call(("EXISTS", f"{root}item:soon")) == 0


async def test_an_index_in_redis_outlives_whoever_has_no_end(redis_server: RedisServer) -> None:
    async with RedisMemoryStore(redis_server.url(), name=new_id()) as store:
        root = f"orbiter:{{{store.name}}}:"
        await store.add(_item("later", "apple", expires_at=LATER))
        assert int(await store._items._call(("PTTL", f"{root}all"))) > 0

        await store.add_many([_item("plain", "pear"), _item("more", "plum", expires_at=LATER)])

        for key in ("all", "user_id:ann", "expiry"):
            assert await store._items._call(("PTTL", root + key)) == -1, key
        assert await store.delete_many(["later", "more"]) == 2
        assert await store.count() == 1


async def test_a_mirror_forgets_what_is_over(redis: RedisMemoryStore) -> None:
    mirror = InMemoryIndex(redis)
    soon = datetime.now(UTC) + timedelta(seconds=0.15)
    await redis.add_many([_item("soon", "red apple", expires_at=soon), _item("last", "an apple")])
    await mirror.recall("apple", scope=ANN, mode="words")
    await _until(soon)

    found = await mirror.recall("apple", scope=ANN, mode="words")

    assert [hit.item.id for hit in found] == ["last"]
    await mirror.close()


# Rows


def test_an_item_without_an_end_is_written_as_ever() -> None:
    assert encode(_item("one", "hi")).extra_json == "{}"
    ends = encode(_item("one", "hi", expires_at=OVER, native={"a": {"b": 1}}))
    assert ends.extra_json == (
        '{"expires_at":"2025-01-01T00:00:00.000000+00:00","native":{"a":{"b":1}}}'
    )


def test_an_item_says_when_it_is_over_and_else_nothing() -> None:
    item, endless = _item("one", "hi", expires_at=OVER), _item("two", "hi")

    assert "expires_at" not in f"{endless!r} {dump_item(endless)}"
    assert "expires_at=datetime.datetime(2025, 1, 1" in repr(item)
    assert dump_item(item)["expires_at"] == "2025-01-01T00:00:00.000000+00:00"
    assert load_item(dump_item(item)) == item
    assert copy_item(item) == item
    assert decode([*encode(item), 1]) == item


def test_a_class_that_is_not_imported_keeps_its_end_and_whatever_it_calls_so() -> None:
    record = {**dump_item(_item("one", "hi")), "memory_type": "unheard.of", "mood": "calm"}

    for end in ("2025-01-01T00:00:00.000000+00:00", "tomorrow", 7, None):
        found = load_item({**record, "expires_at": end} if end else record)

        assert found.expires_at == (OVER if isinstance(end, str) and end[0] == "2" else end)
        assert dump_item(found) == ({**record, "expires_at": end} if end else record)
        assert decode([*encode(found), 1]) == found


def test_a_question_that_names_an_instant_leaves_out_what_is_over_by_then() -> None:
    item = _item("one", "hi", expires_at=OVER)

    assert Query().matches(item)
    assert Query().matches(item, now=OVER - timedelta(microseconds=1))
    assert not Query().matches(item, now=OVER)
    assert Query().matches(_item("two", "hi"), now=OVER)
