"""`erase` leaves nothing: no row, version, index, vector, page or key; and says so if it does."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis.asyncio import Redis
from tests.servers.databases import RedisServer, redis_server
from tests.stores.test_postgres_security import plain_role, run

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryMetadata,
    PostgresMemoryStore,
    RedisMemoryStore,
    SQLiteMemoryStore,
    ToolMemory,
)
from orbiter.memory.backends.postgres import erase
from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.backends.sqlite import erase as erasing
from orbiter.memory.backends.sqlite import file_checks, maintenance
from orbiter.memory.backends.sqlite.term_index import owner
from orbiter.memory.embeddings import CachedEmbeddings
from orbiter.memory.errors import AccessError, EmptyFilterError
from orbiter.memory.model.query import Query
from orbiter.memory.model.reports import Erasure
from orbiter.memory.recall._features import terms_of
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.text.text_caches import clear_all

__all__ = ["redis_server"]

ALICE = MemoryMetadata(user_id="alice-quillfeather", session_id="session-one")
BOB = MemoryMetadata(user_id="bob-ironmonger", session_id="session-two")
SHARED = "the sparrowhawkish rendezvous is at noon"

CANARIES = (
    "marzipanbroetchen",
    "Überraschungsfrühstück",
    "тайнопись",
    "秘密保持契約書",
    "overflowinglighthouse",
    "formerlyvelveteen",
    "forgottenobelisk",
    "metadataperiwinkle",
    "toolcallxylograph",
    "waskeptbyalice",
    "alice-quillfeather",
    "session-one",
)
STEMS = ("marzipanbroet", "berraschungsfr", "overflowinglighthous", "formerlyvelveteen")


def said(content: str, name: str, who: MemoryMetadata = ALICE, **extra: Any) -> HumanMemory:
    whose = MemoryMetadata(user_id=who.user_id, session_id=who.session_id, extra=extra)
    return HumanMemory(id=name, content=content, metadata=whose)


async def fill(store: SQLiteMemoryStore | PostgresMemoryStore) -> None:
    """Have two users remember all kinds of things, indexed and not yet indexed."""
    await store.add(said("eat marzipanbroetchen and Überraschungsfrühstück", "a1"))
    await store.add(said("тайнопись и 秘密保持契約書", "a2"))
    await store.add(said("overflowinglighthouse " * 900, "a3"))
    await store.add(said("formerlyvelveteen it was", "a4"))
    await store.add(said("forgottenobelisk", "a5"))
    await store.add(said(SHARED, "a6", note="metadataperiwinkle"))
    calls = [{"id": "c1", "name": "look", "arguments": {"for": "toolcallxylograph"}}]
    await store.add(AIMemory(id="a7", content="", tool_calls=calls, metadata=ALICE))
    await store.add(ToolMemory(id="a8", content="found", tool_call_id="c1", metadata=ALICE))
    await store.add_many([said(f"bob hums tune {n}", f"b{n}", BOB) for n in range(40)])
    await store.add(said(SHARED, "b-same", BOB))
    await store.add(said("this waskeptbyalice", "moved"), by="alice-quillfeather")
    await store.add(said("now it is of bob", "moved", BOB), by="alice-quillfeather")
    await store.optimize()
    await store.catch_up()
    await store.add(said("something else by now", "a4"))
    await store.delete("a5", by="alice-quillfeather")
    await store.add(said("not indexed marzipanbroetchen", "a9"))


async def check_bob(store: SQLMemoryStore) -> None:
    """See that the other user has lost nothing, and finds it in every way."""
    assert await store.count(metadata=BOB) == 42
    assert await store.count(include_deleted=True) == 42
    found = await store.match_words(["rendezv", "sparrowhawkish"], Query(metadata=BOB))
    assert [item.id for item in found.items] == ["b-same"]
    vector = (await HashEmbeddings().aembed_many([SHARED]))[0]
    near = await store.nearest(vector, Query(metadata=BOB, limit=1))
    assert [item.id for item, _ in near] == ["b-same"]
    assert [item.id for item in await store.search(query="rendezvous")] == ["b-same"]
    past = await store.history("moved")
    assert [(each.item.content, each.item.metadata.user_id) for each in past] == [
        ("now it is of bob", BOB.user_id)
    ]
    assert await store.verify()


def bytes_of(folder: Path) -> bytes:
    """Return every byte there, read by another process: a look of ours would cost locks."""
    files = [str(each) for each in sorted(folder.iterdir()) if each.is_file()]
    return subprocess.run(["cat", *files], capture_output=True, check=True).stdout


def left_in(data: bytes) -> list[str]:
    found = [word for word in (*CANARIES, *STEMS) if word.encode() in data]
    return found + [word for word in CANARIES if word.casefold().encode() in data.lower()]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    made = SQLiteMemoryStore(tmp_path / "db" / "a.db", embeddings=HashEmbeddings())
    (tmp_path / "db").mkdir()
    async with made as store:
        await fill(store)
        yield store


# SQLite


async def test_no_byte_of_what_was_erased_is_in_any_file(
    store: SQLiteMemoryStore, tmp_path: Path
) -> None:
    assert set(CANARIES) <= set(left_in(bytes_of(tmp_path / "db")))

    done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

    assert done, done
    assert (done.items, done.forgotten, done.versions) == (8, 1, 3)
    assert done.vectors > 0
    assert done.tables > 15
    assert done.bytes_read > 10_000
    assert not left_in(bytes_of(tmp_path / "db"))
    await check_bob(store)
    assert not re.search("|".join(CANARIES), repr(done))


async def test_what_is_found_again_in_an_index_is_told(
    store: SQLiteMemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as skipping:
        skipping.setattr(erasing, "merge_some", lambda *_, **__: False)
        skipping.setattr(erasing, "unmerged", lambda *_, **__: [])  # the bytes tell it, too
        done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

    assert not done
    assert any("memory_terms_data" in problem for problem in done.problems)
    assert any("a.db" in problem for problem in done.problems)
    assert await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))
    assert not left_in(bytes_of(tmp_path / "db"))


async def test_what_is_found_again_in_free_pages_is_told(
    store: SQLiteMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep_free_pages(connection: Any) -> None:
        connection.execute("PRAGMA secure_delete = OFF")

    await store._file.read(keep_free_pages, writing=True)
    monkeypatch.setattr(maintenance, "vacuum_only", lambda _: None)

    done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

    assert not done
    assert any("a.db` holds" in problem for problem in done.problems)
    assert "left to do" in str(done)


VISITOR = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM memory_items").fetchall()
connection.close()
"""


async def test_reading_the_bytes_costs_no_lock(store: SQLiteMemoryStore, tmp_path: Path) -> None:
    await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))
    await store.add(said("written since", "new", BOB))

    visitor = await asyncio.create_subprocess_exec(sys.executable, *("-c", VISITOR, store.db_path))
    await visitor.wait()

    # Who thinks it is the last one takes the journal away, and with it what is written since.
    assert (tmp_path / "db" / "a.db-wal").exists()
    await store.close()
    assert file_checks._read == {}
    await store.init()
    assert await store.get("new") is not None


READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT * FROM memory_items").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""


async def test_a_reader_who_began_before_is_told_and_waited_for(
    store: SQLiteMemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "PATIENCE", 0.1)
    reader = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", READER, store.db_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdout is not None
    await reader.stdout.readline()

    done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

    assert not done
    assert any("is read by someone" in problem for problem in done.problems)
    assert left_in(bytes_of(tmp_path / "db"))
    await reader.communicate(b"")
    again = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))
    assert again, again
    assert again.total == 0
    assert not left_in(bytes_of(tmp_path / "db"))


KILLED = """
import asyncio, os, signal, sys
from orbiter.memory import MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.backends.sqlite import erase as scrubbing

async def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    scrubbing._clean_indexes = die
    async with SQLiteMemoryStore(sys.argv[1]) as store:
        await store.erase(metadata=MemoryMetadata(user_id="alice-quillfeather"))

asyncio.run(main())
"""


async def test_who_was_killed_in_between_calls_again(
    store: SQLiteMemoryStore, tmp_path: Path
) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, *("-c", KILLED, store.db_path))
    assert await child.wait() == -signal.SIGKILL
    assert await store.count(include_deleted=True) == 42  # the rows are gone

    done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

    assert done, done
    assert not left_in(bytes_of(tmp_path / "db"))
    await check_bob(store)


async def test_writers_go_on_meanwhile(store: SQLiteMemoryStore) -> None:
    erasing = asyncio.create_task(store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id)))
    written = 0
    while not erasing.done():
        await store.add(said(f"new marzipanbroetchen {written}", f"n{written}"))
        written += 1

    done = await erasing

    assert done, done
    assert done.items + await store.count(metadata=ALICE) == 8 + written
    assert await store.get("a1") is None
    assert await store.verify()


async def test_one_session_goes_and_the_other_stays(store: SQLiteMemoryStore) -> None:
    other = MemoryMetadata(user_id=ALICE.user_id, session_id="session-three")
    await store.add(said("alice keeps this gingerbreadhouse", "kept", other))

    done = await store.erase(metadata=ALICE)

    assert done, done
    assert [item.id for item in await store.search(metadata=other)] == ["kept"]
    found = await store.match_words(["gingerbreadhous"], Query(metadata=other))
    assert [item.id for item in found.items] == ["kept"]
    assert await store.verify()


async def test_a_version_keeps_what_it_left_out_when_the_next_one_goes(
    store: SQLiteMemoryStore,
) -> None:
    for who in (BOB, ALICE, BOB):
        await store.add(said("one text", "swap", who))
    await store.add(said("another text", "swap", BOB))

    await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

    past = await store.history("swap")
    assert [each.item.content for each in past] == ["one text", "one text", "another text"]
    assert {each.item.metadata.user_id for each in past} == {BOB.user_id}


async def test_a_store_in_memory_is_asked_table_by_table() -> None:
    async with SQLiteMemoryStore(":memory:", embeddings=HashEmbeddings()) as store:
        await fill(store)

        done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

        assert done, done
        assert done.files == ()
        await check_bob(store)


async def test_cached_vectors_go_with_their_texts(tmp_path: Path) -> None:
    cache = CachedEmbeddings(HashEmbeddings(), tmp_path / "cache.db")
    async with SQLiteMemoryStore(tmp_path / "a.db", embeddings=cache) as store:
        await store.add(said("eat marzipanbroetchen", "a1"))
        await store.catch_up()
        await store.add(said("drink tea", "a1"))
        await store.add(said("bob hums", "b1", BOB))
        await store.catch_up()

        done = await store.erase(metadata=ALICE)

        assert done
        assert done.cached == 2
        hits = cache.hits
        await cache.aembed_many(["bob hums"])
        assert cache.hits == hits + 1
        await cache.aembed_many(["drink tea"])
        assert cache.hits == hits + 1
    cache.close()


async def test_nobody_is_not_erased(store: SQLiteMemoryStore) -> None:
    with pytest.raises(EmptyFilterError):
        await store.erase(metadata=MemoryMetadata())


# Postgres


async def every_row(dsn: str) -> str:
    """Return all rows of all tables as text, and what the planner knows, as the superuser."""
    connection = await asyncpg.connect(dsn)
    try:
        names = await connection.fetch(
            "SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n"
            " ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind = 'r'"
        )
        found = [
            str(row[0])
            for (name,) in names
            for row in await connection.fetch(f"SELECT t::text FROM {name} AS t")
        ]
        found += [
            str(tuple(row))
            for row in await connection.fetch(
                "SELECT most_common_vals::text, histogram_bounds::text, most_common_elems::text"
                " FROM pg_stats WHERE schemaname = 'public' UNION ALL"
                " SELECT most_common_vals::text, histogram_bounds::text, most_common_elems::text"
                " FROM pg_stats_ext_exprs WHERE schemaname = 'public'"
            )
        ]
        return "\n".join(found)
    finally:
        await connection.close()


async def words_of_indexes(dsn: str) -> bytes:
    """Return the bytes of the indexes whose keys are words, as they are on disk."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CHECKPOINT")
        rows = await connection.fetch(
            "SELECT pg_read_binary_file(pg_relation_filepath(oid)) FROM pg_class"
            " WHERE relkind = 'i' AND (relname LIKE 'memory_passages%terms%'"
            " OR relname LIKE 'memory_terms%pkey')"
        )
        return b"".join(row[0] for row in rows)
    finally:
        await connection.close()


@pytest.mark.parametrize("partitions", [None, 2], ids=["whole", "partitioned"])
async def test_no_row_of_what_was_erased_is_in_any_table(
    postgres_dsn: str, partitions: int | None
) -> None:
    store = PostgresMemoryStore(postgres_dsn, embeddings=HashEmbeddings())
    await store.init(partitions=partitions)
    async with store:
        await fill(store)
        assert set(CANARIES) <= set(left_in((await every_row(postgres_dsn)).encode()))

        done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

        assert done, done
        assert (done.items, done.forgotten, done.versions) == (8, 1, 3)
        assert done.tables > 10
        assert not left_in((await every_row(postgres_dsn)).encode())
        assert not left_in(await words_of_indexes(postgres_dsn))
        await check_bob(store)


async def test_a_transaction_that_may_still_see_it_is_told(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "PATIENCE", 0.1)
    async with PostgresMemoryStore(postgres_dsn) as store:
        await store.add(said("eat marzipanbroetchen", "a1"))
        reader = await asyncpg.connect(postgres_dsn)
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM memory_items")

        done = await store.erase(metadata=ALICE)

        assert not done
        assert any("may still see" in problem for problem in done.problems)
        await reader.close()
        again = await store.erase(metadata=ALICE)
        assert again, again


async def test_row_security_lets_a_user_be_erased_and_nobody_else(postgres_dsn: str) -> None:
    role = "eraser_" + urlsplit(postgres_dsn).path.removeprefix("/test_")
    dsn = await plain_role(postgres_dsn, role)
    try:
        store = PostgresMemoryStore(dsn, max_size=2)
        await store.init(row_security=True)
        async with store:
            for who in (ALICE, BOB):
                bound = store.acting_for(str(who.user_id))
                await bound.add(said(f"eat marzipan of {who.user_id}", f"{who.user_id} 1", who))
                await bound.delete(f"{who.user_id} 1", by=who.user_id)

            done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

            assert done, done
            assert done.forgotten == 1
            left = await every_row(postgres_dsn)
            assert str(ALICE.user_id) not in left
            assert str(BOB.user_id) in left
            app = f"{role}_app"
            guest = PostgresMemoryStore(await plain_role(postgres_dsn, app), max_size=2)
            every = "ALL TABLES IN SCHEMA public"
            await run(postgres_dsn, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {every} TO {app}")
            async with guest:
                told = await guest.erase(metadata=MemoryMetadata(user_id="nobody-at-all"))
            await run(postgres_dsn, f"DROP OWNED BY {app} CASCADE", f"DROP ROLE {app}")
            assert not told
            assert any("only the owner" in problem for problem in told.problems)
            with pytest.raises(AccessError, match="acts for no user"):
                await store.erase(metadata=MemoryMetadata(session_id="session-two"))
    finally:
        await run(postgres_dsn, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


async def check_confusables(store: SQLiteMemoryStore | PostgresMemoryStore) -> None:
    """Erase one who wrote, in other letters, what another's words are indexed as."""
    same = MemoryMetadata(user_id="memory_items", session_id="s")
    for number, text in enumerate(("uberraschung", "rendezvous", "memory_items", "strasse 12")):
        await store.add(said(text, f"same-{number}", same))
    for number, text in enumerate(("Überraschung", "RENDEZVOUS", "Straße 12")):
        await store.add(said(text, f"others-{number}", BOB))
    await store.optimize()

    done = await store.erase(metadata=MemoryMetadata(user_id="memory_items"))

    assert done, done
    assert done.items == 4
    assert await store.count(metadata=BOB) == 3


async def test_another_who_wrote_alike_is_no_trace(tmp_path: Path, postgres_dsn: str) -> None:
    async with SQLiteMemoryStore(tmp_path / "a.db") as store:
        await check_confusables(store)
    async with PostgresMemoryStore(postgres_dsn) as server:
        await check_confusables(server)


# Redis


async def test_no_key_of_what_was_erased_is_left(redis_server: RedisServer) -> None:
    name = "erasing"
    async with (
        Redis.from_url(redis_server.url()) as client,
        RedisMemoryStore(redis_server.url(), name=name, ttl_hours=1) as store,
    ):

        async def everything() -> bytes:
            parts = []
            async for key in client.scan_iter(match=f"orbiter:{{{name}}}:*"):
                parts.append(key)
                kind = await client.type(key)
                if kind == b"zset":
                    parts += await client.zrange(key, 0, -1)
                else:
                    parts.append(await client.get(key) or b"")
            return b"\n".join(parts)

        await store.add_many(
            [said(f"eat marzipanbroetchen {number}", f"gone-{number}") for number in range(500)]
        )
        await store.add(said(SHARED, "b-same", BOB))
        # What the server evicts leaves its notes behind.
        await client.delete(f"orbiter:{{{name}}}:item:gone-7")
        assert left_in(await everything())

        done = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))

        assert done, done
        assert done.items == 499
        left = await everything()
        assert not left_in(left)
        assert b"gone-" not in left
        assert [item.id for item in await store.search(query="rendezvous")] == ["b-same"]


def test_a_report_is_short_and_can_be_added_up() -> None:
    one = Erasure(items=1_200, versions=3, tables=20, files=("a.db",), bytes_read=4_096, probes=9)
    two = Erasure(episodes=2, problems=("the server is gone; repeat the erasure",))

    assert str(one).splitlines() == [
        "erased 1,200 memories",
        "  and with that 3 earlier versions",
        "looked for 9 traces in 20 tables and 1 files (4,096 bytes)",
        "nothing is left",
    ]
    assert (one + two).total == 1_205
    assert one
    assert not one + two
    assert hash(one) == hash(one + Erasure())
    dry = Erasure(items=1, forgotten=2, entries=1, dry_run=True)
    assert str(dry) == "would erase 1 memory, 2 forgotten and 1 key-value entry"
    assert str(Erasure()) == "there was nothing to erase\nnothing was there before"


def test_functions_forget_what_they_were_asked() -> None:
    owner("alice")
    terms_of(HumanMemory(content="eat marzipanbroetchen"))
    assert owner.cache_info().currsize

    clear_all()

    kept = [
        (name, value.cache_info().currsize)
        for name, module in sys.modules.items()
        if name.startswith("orbiter.memory")
        for value in vars(module).values()
        if hasattr(value, "cache_info") and not isinstance(value, type)
    ]
    assert len(kept) > 4
    assert not any(size for _, size in kept)


@pytest.mark.parametrize(("alices", "bobs"), [(600, 30), (30, 600)])
async def test_others_are_found_whether_most_of_an_index_goes_or_little(
    tmp_path: Path, alices: int, bobs: int
) -> None:
    """An index of which little would be left is built again from the rows that stay."""
    store = SQLiteMemoryStore(tmp_path / "memories.db")
    await store.init()
    await store.add_many([said(f"alice hums marzipantune {n}", f"a{n}") for n in range(alices)])
    await store.add_many([said(f"bob hums sparrowtune {n}", f"b{n}", BOB) for n in range(bobs)])
    await store.optimize()
    report = await store.erase(metadata=MemoryMetadata(user_id=ALICE.user_id))
    assert report
    assert report.items == alices
    for _ in range(2):
        last = bobs - 1
        assert [i.id for i in await store.search(query=f"sparrowtune {last}")] == [f"b{last}"]
        found = await store.match_words(["sparrowtun", str(last)], Query(metadata=BOB, limit=1))
        assert [item.id for item in found.items] == [f"b{last}"]
        assert not await store.search(query="marzipantune")
        assert await store.verify()
        await store.optimize()
    await store.close()
    assert b"marzipantune" not in bytes_of(tmp_path)
