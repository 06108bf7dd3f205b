"""What is removed from Postgres while others write, or written over, is gone as a whole."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.stores.test_postgres_security import plain_role

from orbiter.memory import HumanMemory, MemoryMetadata, PostgresMemoryStore, SQLiteMemoryStore
from orbiter.memory.backends.postgres import erase, term_index
from orbiter.memory.backends.postgres.erase import Scrubbing
from orbiter.memory.errors import AccessError
from orbiter.memory.model.query import Query
from orbiter.memory.model.records import Record
from orbiter.memory.text import words

ALICE = MemoryMetadata(user_id="alice", session_id="her-session")
BOB = MemoryMetadata(user_id="bob")
BESIDE = ("passages", "terms", "vectors", "details", "pending", "unembedded")
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


@pytest.fixture(params=[None, 2], ids=["whole", "partitioned"])
async def store(
    request: pytest.FixtureRequest, postgres_dsn: str
) -> AsyncIterator[PostgresMemoryStore]:
    made = PostgresMemoryStore(postgres_dsn)
    await made.init(partitions=request.param)
    yield made
    await made.close()


@pytest.fixture
async def other(postgres_dsn: str) -> AsyncIterator[Any]:
    """Return a connection of somebody else's."""
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("SET deadlock_timeout = '10ms'")  # who sees it first is stopped by it
    yield connection
    await connection.close()


def note(item_id: str, content: str = "", whose: MemoryMetadata = ALICE) -> HumanMemory:
    return HumanMemory(id=item_id, content=content or f"words of {item_id}", metadata=whose)


async def until_waiting(other: Any, kind: str, going: "asyncio.Task[Any]") -> None:
    """Return when somebody waits for a lock of that kind, or has not waited for any."""
    asked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = ANY ($1::text[])"
    kinds = [kind] if kind == "advisory" else ["transactionid", "tuple"]
    while not going.done() and not await other.fetchval(asked, kinds):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def left(other: Any) -> dict[str, int]:
    counts = {name: f"SELECT count(*) FROM memory_{name}" for name in BESIDE}
    found = {name: await other.fetchval(sql) for name, sql in counts.items()}
    return {name: count for name, count in found.items() if count}


async def make_terms(store: PostgresMemoryStore, other: Any) -> None:
    """Make the terms of what waits, on another's connection, which is left to commit."""
    rows = await store._read(lambda: term_index.pending(store._dialect, None))
    await store._driver.run(other, term_index.settle(store._dialect, term_index.derive(rows)))


# Removing while others make terms


@pytest.mark.parametrize("scope", [ALICE, MemoryMetadata(session_id="her-session")])
async def test_words_that_are_just_being_made_go_with_their_items(
    store: PostgresMemoryStore, other: Any, scope: MemoryMetadata
) -> None:
    await store.add_many([note("1"), note("2")])
    async with other.transaction():
        await make_terms(store, other)
        going = asyncio.create_task(store.erase(metadata=scope))
        await until_waiting(other, "advisory", going)

    report = await going
    assert report, report
    assert not await left(other)


async def test_words_that_nobody_has_are_removed_and_told(
    store: PostgresMemoryStore, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add_many([note("1"), note("2", whose=BOB), note("3", whose=BOB)])
    await store._index_words()
    await other.execute("ALTER TABLE memory_items DISABLE TRIGGER memory_items_forget")
    await store.erase(metadata=ALICE)
    await other.execute("DELETE FROM memory_items WHERE id = '2'")
    await other.execute("INSERT INTO memory_passages VALUES ('', 'x', 0, ARRAY[' ', 'word'])")
    await other.execute("INSERT INTO memory_terms VALUES (' carl', 'carl', 1)")

    with monkeypatch.context() as patch:
        patch.setattr("orbiter.memory.backends.postgres.orphan_rows.sweep", _nothing)
        kept = await store.erase(metadata=MemoryMetadata(session_id="her-session"))
    again = await store.erase(metadata=MemoryMetadata(session_id="her-session"))

    assert not kept
    assert "2 rows of `memory_passages` belong to nothing" in f"{kept}"
    assert "1 rows of `memory_terms`" in f"{kept}"
    assert again, again
    assert await store.verify()
    assert {row[0] for row in await other.fetch("SELECT user_key FROM memory_terms")} == {"bob"}


def _nothing(*_: object) -> Any:
    yield from ()


# Locks


async def test_erasing_locks_rows_in_the_order_in_which_they_are_written(
    store: PostgresMemoryStore, other: Any
) -> None:
    for name in ("2", "1"):  # as they lie in the table
        await store.add(note(name))
    locks = "SELECT 1 FROM {} WHERE id = '{}' FOR UPDATE"
    table = "memory_ids" if store._layout.partitions else "memory_items"

    async with other.transaction():
        await other.execute(locks.format(table, "1"))
        going = asyncio.create_task(store.erase(metadata=ALICE))
        await until_waiting(other, "row", going)
        await other.execute(locks.format(table, "2"))

    assert await going


async def test_records_are_written_in_the_order_of_ids(
    store: PostgresMemoryStore, other: Any
) -> None:
    await store.add(note("2"))
    again = PostgresMemoryStore(store._dsn)
    await again.init()
    add = again._dialect.add_many

    async with other.transaction():
        rows = await again._encode([note("1", "theirs")])
        await again._driver.run(other, add(rows))
        records = [Record(note("2", "ours")), Record(note("1", "ours"))]
        going = asyncio.create_task(store.put_records(records, overwrite=True))
        await until_waiting(other, "row", going)
        await again._driver.run(other, add(await again._encode([note("2", "theirs")])))
    await again.close()

    assert await going == 2, "whoever waits for the same new id goes on"
    assert {item.content for item in await store.search()} == {"ours"}


async def test_many_new_records_keep_their_order_and_wait_for_nobody(
    store: PostgresMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.backends.postgres.record_writer.BATCH", 2)
    await store.add(note("4"))
    given = [Record(note(name, "straße")) for name in ("5", "3", "4", "1", "2")]

    assert await store.put_records(given, overwrite=True) == 5
    assert [record.id for record in await store.records()] == ["4", "5", "3", "1", "2"]
    assert await store.put_records(await store.records()) == 0
    assert len(await store.search(query="STRASSE")) == 5


# Whose versions


async def test_a_version_between_two_of_anothers_goes_alone(
    tmp_path: Any, store: PostgresMemoryStore
) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db") as small:
        for each in (small, store):
            for text, whose in (("a", BOB), ("a", BOB), ("a", ALICE), ("b", BOB), ("b", ALICE)):
                await each.add(note("x", text, whose))
            await each.add(note("x", "b", BOB))
            copy = await each.records()
            await each.erase(metadata=BOB)
            await each.put_records(copy)

            assert await each.erase(metadata=ALICE)

            found = [(past.item.content, past.item.version) for past in await each.history("x")]
            assert found == [("a", 1), ("a", 2), ("b", 4), ("b", 6)]


async def test_whoever_acts_for_one_user_erases_no_other(
    postgres_dsn: str,
) -> None:
    role = await plain_role(postgres_dsn, "z_erasing")
    store, root = PostgresMemoryStore(role), PostgresMemoryStore(postgres_dsn)
    await store.init(row_security=True)
    await root.init()
    bob = store.acting_for("bob")
    try:
        for way in ("written", "moved"):
            for text, whose in (("größe", BOB), ("größe", ALICE), ("b", BOB)):
                await root.add(note("x", text, whose))
            if way == "moved":
                copy = await root.records()
                await root.erase(metadata=BOB)
                await root.put_records(copy)
            with pytest.raises(AccessError, match=r"acting_for\('alice'\)"):
                await bob.erase(metadata=ALICE)
            gone = await store.erase(metadata=MemoryMetadata(user_id="alice"))
            assert gone.versions == 1

            told = [past.item.content for past in await bob.history("x")]
            assert told == ["größe", "b"], way
            await bob.erase(metadata=BOB)
        assert await bob.put_records([Record(note("y", "größe", BOB))]) == 1
        with pytest.raises(AccessError):
            await store.acting_for("alice").put_records([Record(note("y", "mine"))])
    finally:
        await root.close()
        await store.close()


async def test_dead_rows_that_are_counted_late_are_no_reason_to_doubt(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = await plain_role(postgres_dsn, "z_counting")

    def then_count(work: Any) -> Any:
        async def counted(self: Scrubbing, *args: Any) -> None:
            await work(self, *args)
            async with self._driver.lease(self._pool()) as connection:
                await connection.execute("SELECT pg_stat_force_next_flush()")

        return counted

    # As on a busy machine: Postgres counts what a connection did up to a minute after it.
    for name in ("_each", "_forget_samples"):
        monkeypatch.setattr(Scrubbing, name, then_count(getattr(Scrubbing, name)))
    async with PostgresMemoryStore(role, max_size=1) as store:
        for who in (ALICE, BOB):
            await store.add(note(str(who.user_id), "tea", who))

        done = await store.erase(metadata=MemoryMetadata(user_id="alice"))

    assert done, done


async def test_a_role_that_does_not_see_others_knows_them_by_the_rows_they_keep(
    postgres_dsn: str, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "PATIENCE", 0.1)
    async with PostgresMemoryStore(await plain_role(postgres_dsn, "z_blind")) as store:
        await store.add(note("x", "tea"))
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM memory_items")

        done = await store.erase(metadata=MemoryMetadata(user_id="alice"))
        await other.execute("COMMIT")
        again = await store.erase(metadata=MemoryMetadata(user_id="alice"))

    assert not done
    assert any("may still see" in problem for problem in done.problems)
    assert again, again


async def test_rows_that_a_writer_keeps_are_told(
    postgres_dsn: str, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "PATIENCE", 0.1)
    async with PostgresMemoryStore(postgres_dsn) as store:
        await store.add_many([note("x", "tea"), note("y", "tea", BOB)])
        await other.execute("CREATE TABLE elsewhere (number integer)")
        await other.execute("BEGIN; INSERT INTO elsewhere VALUES (1)")

        done = await store.erase(metadata=MemoryMetadata(user_id="alice"))
        await other.execute("COMMIT")
        again = await store.erase(metadata=MemoryMetadata(user_id="alice"))

    assert any("may still see" in problem for problem in done.problems)
    assert again, again


async def test_bytes_of_removed_rows_are_gone_or_told_as_not_searched(
    postgres_dsn: str, other: Any
) -> None:
    folder = await other.fetchval("SHOW data_directory")
    async with PostgresMemoryStore(postgres_dsn) as store:
        for number in range(200):  # in the same pages
            await store.add_many(
                [note(f"a{number}", "xylophones of hers"), note(f"b{number}", "tea", BOB)]
            )
        file = Path(folder, await other.fetchval("SELECT pg_relation_filepath('memory_items')"))

        done = await store.erase(metadata=MemoryMetadata(user_id="alice"))
        await other.execute("CHECKPOINT")
        left = file.read_bytes().count(b"xylophones of hers")
        await store.vacuum()
        await other.execute("CHECKPOINT")
        now = Path(folder, await other.fetchval("SELECT pg_relation_filepath('memory_items')"))

    assert done, done
    assert left, "Postgres wipes pages itself by now: leave this out of the report"
    assert any(
        "pages of Postgres" in place and "`vacuum()`" in place for place in done.not_searched
    )
    assert b"xylophones of hers" not in now.read_bytes()


# Instants, salts


async def test_the_first_and_the_last_instant_have_a_zone(
    store: PostgresMemoryStore, tmp_path: Any
) -> None:
    middle = datetime(2020, 1, 1, tzinfo=UTC)
    for name, moment in (("first", FIRST), ("last", LAST), ("middle", middle)):
        item = HumanMemory(
            id=name, content="words", metadata=ALICE, created_at=moment, updated_at=moment
        )
        await store.add(item)

    found = await store.search()
    assert [item.created_at for item in found] == [LAST, middle, FIRST]
    assert [item.id for item in await store.search(before=found[0])] == ["middle", "first"]
    assert [each.id for each in await store.as_of(LAST)] == ["last", "middle", "first"]
    matches = await store.match_words(words.terms("words"), Query(metadata=ALICE))
    assert sorted(item.created_at for item in matches.items) == [FIRST, middle, LAST]
    (conversation,) = await store.conversations()
    assert (conversation.first_at, conversation.last_at) == (FIRST, LAST)
    records = await store.records()
    async with SQLiteMemoryStore(tmp_path / "m.db") as small:
        await small.put_records(records)
        copied = await small.records()
    assert [record.to_line() for record in copied] == [record.to_line() for record in records]
    assert await store.put_records(copied) == 0


async def test_a_record_whose_past_alone_differs_stays_the_same_to_the_log(
    postgres_dsn: str,
) -> None:
    async with PostgresMemoryStore(postgres_dsn, audit="writes") as store:
        await store.add(note("1"), by="ann")
        (record,) = await store.records()
        changed = Record(record.item, recorded_at=record.recorded_at, recorded_by="carl")

        assert await store.put_records([changed], overwrite=True) == 1
        assert await store.verify_audit()
        assert await store.put_records([Record(note("1", "else"))], overwrite=True) == 1
        assert await store.verify_audit()
