"""Records that are merged into a store remove nothing there, and keep their times."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.servers.databases import PostgresServer, RedisServer, redis_server
from tests.stores.test_as_of import now
from tests.timing import scaled

from orbiter.memory import (
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    PostgresMemoryStore,
    RedisMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.backends.redis.items import RedisItems
from orbiter.memory.backends.registry import open_store
from orbiter.memory.episodic.manager import ShortTermMemoryManager
from orbiter.memory.errors import InvalidItemError, QueryError, StorageError
from orbiter.memory.model.episode import activity_name
from orbiter.memory.model.records import MAX_VERSIONS, PastVersion, Record
from orbiter.memory.transfer import export_records, import_records, migrate

__all__ = ["redis_server"]

Store = SQLiteMemoryStore | PostgresMemoryStore | RedisMemoryStore
SQLStore = SQLiteMemoryStore | PostgresMemoryStore
ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


versioned = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
"""For what needs a target that keeps versions."""


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/target.db"
    if request.param == "postgres":
        return str(request.getfixturevalue("database"))
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url(12)


@pytest.fixture
async def target(url: str) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        store: Store = open_store(url)  # type: ignore[assignment]  # one of these
        await stack.enter_async_context(store)
        stack.push_async_callback(_emptied, store)
        yield store


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(tmp_path / "source.db") as store:
        yield store


async def _emptied(store: Store) -> None:
    await store.clear()
    if not isinstance(store, RedisMemoryStore):
        await store.purge()


def said(content: str, item_id: str = "x", whose: MemoryMetadata = ANN) -> HumanMemory:
    return HumanMemory(id=item_id, content=content, metadata=whose)


async def the(store: Store, item_id: str = "x") -> Record:
    (found,) = await store.records(item_ids=[item_id])
    return found


# Nothing is lost


async def test_a_move_goes_on_where_it_was_and_leaves_what_went_on_there(
    source: SQLiteMemoryStore, target: Store, url: str
) -> None:
    for name in ("further", "newer", "other", "forgotten", "same"):
        await source.add(said("first", name))
    assert await migrate(source.db_path, url)
    await source.add(said("second", "further"))
    await target.add(said("second, there", "newer"))
    await source.add(said("second, here", "other"))
    await target.add(said("second, there", "other"))
    await target.add(said("third, there", "other"))
    if not isinstance(target, RedisMemoryStore):
        await source.add(said("second", "forgotten"))
        await target.delete("forgotten")
        await target.delete("newer")
    kept = {each: await target.records(item_ids=[each]) for each in ("newer", "other", "forgotten")}

    moved = await migrate(source.db_path, url)

    conflicts = ("newer", "other") if url[0] == "r" else ("forgotten", "newer", "other")
    assert (bool(moved), moved.verified, moved.copied) == (False, True, 1)
    assert (moved.conflicts, moved.kept) == (conflicts, len(conflicts))
    assert moved.copied + moved.already_there + moved.kept == 5
    assert (await the(target, "further")).item.content == "second"
    for item_id, record in kept.items():
        assert await target.records(item_ids=[item_id]) == record

    replaced = await migrate(source.db_path, url, overwrite=True)
    assert (bool(replaced), replaced.copied, replaced.kept) == (True, len(conflicts), 0)
    assert (await the(target, "other")).item == (await the(source, "other")).item


async def test_a_file_leaves_what_went_on_since_it_was_written(
    source: SQLiteMemoryStore, target: Store, tmp_path: Path
) -> None:
    await source.add_many([said("first", "a"), said("first", "b")])
    await export_records(source, tmp_path / "out.jsonl")
    assert (await import_records(target, tmp_path / "out.jsonl")).stored == 2
    await target.add(said("newer", "a"))
    newer = await the(target, "a")

    done = await import_records(target, tmp_path / "out.jsonl")

    assert (done.stored, done.unchanged, done.skipped, done.problem_count) == (0, 1, 1, 1)
    assert "item `a`: it has changed here since" in str(done)
    assert "`import_records(…, overwrite=True)` replaces it" in str(done)
    assert await the(target, "a") == newer
    assert (await import_records(target, tmp_path / "out.jsonl", overwrite=True)).stored == 1


async def test_what_others_write_meanwhile_is_not_lost(
    source: SQLiteMemoryStore, target: Store
) -> None:
    await source.add(said("0"))
    await target.put_records([await the(source)])
    await source.add(said("1"))
    moved = await the(source)

    async def write() -> None:
        for number in range(8):
            await target.add(said(f"mine {number}"))

    async def move() -> None:
        for _ in range(8):
            await target.put_records([moved])

    await asyncio.gather(write(), move())

    present = (await the(target)).item
    assert present.content == "mine 7"
    assert present.version in (9, 10)


async def test_redis_looks_again_at_what_was_written_in_between(
    source: SQLiteMemoryStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("there", "there", "new"):
        await source.add(said("moved", name))
    first, *_ = (await the(source, "there")).items
    async with RedisMemoryStore(redis_server.url(12)) as redis:
        await redis.clear()
        await redis.put_records([Record(first)])
        move = RedisItems.move
        met: list[set[str]] = []

        async def later(self: RedisItems, *args: Any) -> set[str]:
            if not met:
                await redis.add_many([said("mine", "there"), said("mine", "new")])
            met.append(await move(self, *args))
            return met[-1]

        monkeypatch.setattr(RedisItems, "move", later)
        written = await redis.put_records(await source.records())

        assert (met, written, {*written.conflicts}) == ([{"there", "new"}], 0, {"there", "new"})
        assert {item.content for item in await redis.search()} == {"mine"}
        await redis.clear()


@versioned
async def test_versions_of_another_stay_where_one_scope_is_moved(
    source: SQLiteMemoryStore, target: Store, url: str
) -> None:
    assert not isinstance(target, RedisMemoryStore)
    await source.add(said("bob's", whose=BOB))
    await source.add(said("ann's"))
    assert await migrate(source.db_path, url)

    again = await migrate(source.db_path, url, scope=ANN)
    assert (bool(again), again.already_there) == (True, 1)
    await source.add(said("ann's second"))
    assert (await migrate(source.db_path, url, scope=ANN)).copied == 1

    contents = [each.item.content for each in await target.history("x")]
    assert contents == ["bob's", "ann's", "ann's second"]
    assert await the(target) == await the(source)


@versioned
async def test_what_is_not_known_yet_of_the_past_is_filled_in(
    source: SQLiteMemoryStore, target: Store, url: str
) -> None:
    assert not isinstance(target, RedisMemoryStore)
    for whose in (BOB, ANN, BOB, ANN):
        await source.add(said("text", whose=whose))
    assert await migrate(source.db_path, url, scope=ANN)
    assert [each.item.version for each in await target.history("x")] == [2, 4]

    assert await migrate(source.db_path, url)

    assert await the(target) == await the(source)


# When it began


@versioned
async def test_what_another_had_before_is_no_past_of_it(
    source: SQLiteMemoryStore, target: Store
) -> None:
    assert not isinstance(target, RedisMemoryStore)
    times = []
    for whose in (BOB, ANN, BOB, ANN):
        times.append(await now())
        await source.add(said(f"{whose.user_id}'s", whose=whose))
    times.append(await now())
    await target.put_records(await source.records())
    scoped = await source.records(metadata=ANN)
    assert [past.item.version for past in scoped[0].versions] == [2]
    ends = {past.item.version: past.ended_at for past in (await the(source)).versions}
    assert scoped[0].recorded_at == ends[1]

    async def seen(store: SQLStore) -> list[list[str]]:
        return [[item.content for item in await store.as_of(each)] for each in times]

    assert await seen(target) == [[], ["bob's"], ["ann's"], ["bob's"], ["ann's"]]
    for _ in range(2):
        assert await target.erase(metadata=BOB)
        assert await seen(target) == [[], [], ["ann's"], [], ["ann's"]]
    assert await target.records() == scoped
    assert [each.at for each in await target.history("x")] == [ends[1], ends[3]]
    # In the middle it is known only when the item says it was changed.
    async with SQLiteMemoryStore(":memory:") as third:
        await third.put_records(scoped)
        assert await third.records() == scoped
        assert await seen(third) == [[], [], ["ann's"], [], ["ann's"]]


async def test_what_came_without_its_past_begins_when_it_was_changed() -> None:
    changed = LONG_AGO + timedelta(days=2)
    item = HumanMemory(id="x", content="third", created_at=LONG_AGO, updated_at=changed, version=3)
    async with SQLiteMemoryStore(":memory:") as store:
        await store.put_records([Record(item)])

        assert await store.as_of(LONG_AGO + timedelta(days=1)) == []
        assert await store.as_of(changed) == [item]


@versioned
async def test_what_was_deleted_elsewhere_is_purged_by_its_age(
    source: SQLiteMemoryStore, target: Store
) -> None:
    assert not isinstance(target, RedisMemoryStore)
    item = HumanMemory(id="x", content="old", created_at=LONG_AGO, updated_at=LONG_AGO, version=2)
    await source.add(said("kept", "y"))
    await source.delete("y")
    await target.put_records([Record(item, deleted=True), *(await source.records())])

    assert await target.purge(deleted_before=LONG_AGO) == 0
    assert await target.purge(deleted_before=LONG_AGO + timedelta(days=1)) == 1
    assert [record.id for record in await target.records()] == ["y"]


# Versions


async def test_versions_that_no_store_can_count_on_from_are_refused(target: Store) -> None:
    top = HumanMemory(id="x", content="top", metadata=ANN, version=MAX_VERSIONS)
    await target.put_records([Record(top)])
    assert (await the(target)).item == top
    assert await target.get("x") == top
    await target.add(said("one more"))
    found = await target.get("x")
    assert found is not None
    assert found.version == MAX_VERSIONS + 1

    line = Record(top).to_line()
    for version in (MAX_VERSIONS + 1, 2**32, 2**63, 10**30):
        with pytest.raises(InvalidItemError, match="versions are from 1 to 2,147,483,646"):
            Record.from_line(line.replace(str(MAX_VERSIONS), str(version)))
    with pytest.raises(InvalidItemError, match="versions are from 1"):
        await target.put_records(await target.records())
    if isinstance(target, PostgresMemoryStore):
        with pytest.raises(StorageError, match="more versions: add it under another id"):
            await target.add(said("one too many"))
    assert await target.put_records([Record(said("rebuild"))], overwrite=True) == 1
    past = PastVersion(said("past"), deleted=False, ended_at=LONG_AGO)
    assert Record(top, versions=[past]).items[-1] == top


# Beside the items


async def test_erasing_takes_along_the_activity_in_the_same_file(
    source: SQLiteMemoryStore,
) -> None:
    both = MemoryMetadata(user_id="ann", session_id="s")
    for scope in (ANN, both, BOB, MemoryMetadata(agent_id="bot")):
        place = ShortTermMemoryManager(f"sqlite:///{source.db_path}", activity_name(scope))
        async with place:
            whose = scope.user_id or "the bot"
            await place.add_interaction("message", f"door code of {whose} is 4711")

    assert (await source.erase(metadata=both)).episodes == 1
    done = await source.erase(metadata=ANN)
    assert done
    assert done.episodes == 1
    assert b"door code of ann" not in Path(source.db_path).read_bytes()
    assert b"door code of bob" in Path(source.db_path).read_bytes()
    assert (await source.erase(metadata=MemoryMetadata(agent_id="bot"))).episodes == 1


# Small things


class Ticket(MemoryItem):
    """A kind of item that calls something of its own `expires_at`."""

    memory_type: str = "ticket_of_moved"
    expires_at: str  # type: ignore[assignment]  # somebody's own


async def test_a_kind_of_item_may_have_an_end_of_its_own(
    source: SQLiteMemoryStore, target: Store, url: str
) -> None:
    ticket = Ticket(id="x", content="ride", expires_at="tonight")
    await source.add(ticket)
    await source.add(ticket)

    assert await migrate(source.db_path, url)

    assert [item.content for item in await source.as_of(await now())] == ["ride"]
    assert (await the(target)).item == await source.get("x")


async def test_what_ends_meanwhile_is_no_failure(
    source: SQLiteMemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=scaled(0.4))
    await source.add(HumanMemory(id="ends", content="ends", expires_at=soon))
    await source.add(said("stays"))
    whole = SQLiteMemoryStore.put_records

    async def put(self: SQLiteMemoryStore, records: list[Record], **more: bool) -> int:
        written = await whole(self, records, **more)  # type: ignore[arg-type]  # as given
        await asyncio.sleep(max(0.0, (soon - datetime.now(UTC)).total_seconds() + 0.01))
        return written

    monkeypatch.setattr(SQLiteMemoryStore, "put_records", put)

    moved = await migrate(source.db_path, f"{tmp_path}/b.db")

    assert moved
    assert (moved.copied, moved.checked) == (2, 1)


async def test_one_store_by_any_name_is_one_store(
    source: SQLiteMemoryStore, database: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    await source.add(said("text"))
    os.link(source.db_path, tmp_path / "linked.db")
    plain = database.partition("?")[0]
    redis = redis_server.url(0).rstrip("/0")
    for one, other in (
        (source.db_path, f"{tmp_path}/linked.db"),
        (database, f"{plain}?sslmode=disable&application_name=x"),
        (f"{redis}/0", f"{redis}?db=0"),
        (f"{redis}/7", f"{redis}?db=7"),
        (f"{redis}/7?socket_timeout=3", f"{redis}/7"),
    ):
        with pytest.raises(QueryError, match="both addresses are of one store"):
            await migrate(one, other)
