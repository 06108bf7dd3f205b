"""Items with all they were go out of any store and into any other, exactly and once."""

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.servers.databases import PostgresServer, RedisServer, redis_server
from tests.stores.test_as_of import now
from tests.stores.test_postgres_security import plain_role
from tests.transfer._moving import SQLStore, everything, fill, lines

from orbiter.memory import (
    HumanMemory,
    MemoryMetadata,
    PostgresMemoryStore,
    RedisMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.errors import AccessError, InvalidItemError, QueryError
from orbiter.memory.model.records import Record
from orbiter.memory.transfer import migrate

__all__ = ["redis_server"]

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
KINDS = ("sqlite", "postgres", "partitioned")


@pytest.fixture(scope="module")
def databases(postgres_server: PostgresServer) -> Iterator[list[str]]:
    """Return the addresses of empty databases, for all tests here."""
    made = [postgres_server.create_database() for _ in range(3)]
    yield made
    for dsn in made:
        postgres_server.drop_database(dsn)


class Stores:
    """Opens an empty store of each kind that a test asks for, once."""

    def __init__(self, stack: AsyncExitStack, databases: list[str], folder: Path) -> None:
        self._stack = stack
        self._databases = databases
        self._folder = folder

    async def __call__(self, kind: str) -> SQLStore:
        if kind == "sqlite":
            return await self._stack.enter_async_context(
                SQLiteMemoryStore(self._folder / "store.db")
            )
        store = PostgresMemoryStore(self._databases[kind == "partitioned"])
        await store.init(partitions=3 if kind == "partitioned" else None)
        for leave in (store.close, store.purge, store.clear):  # the last one first
            self._stack.push_async_callback(leave)
        return store


@pytest.fixture
async def stores(databases: list[str], tmp_path: Path) -> AsyncIterator[Stores]:
    async with AsyncExitStack() as stack:
        yield Stores(stack, databases, tmp_path)


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisMemoryStore]:
    async with RedisMemoryStore(redis_server.url(), name="records") as store:
        await store.clear()
        yield store
        await store.clear()


async def test_records_go_round_all_stores_and_come_back_the_same(
    stores: Stores, tmp_path: Path
) -> None:
    first, whole, cut = [await stores(kind) for kind in KINDS]
    last = SQLiteMemoryStore(tmp_path / "b.db")
    await fill(first, 200)
    told = await lines(first)
    histories = [await first.history(record.id) for record in await everything(first)]
    assert sum(map(len, histories)) > 260

    async with last:
        for source, target in zip(
            (first, whole, cut),
            (whole, cut, last),
            strict=True,
        ):
            moved = await everything(source)
            assert await target.put_records(moved) == len(moved)
            assert await target.put_records(moved) == 0
            assert await lines(target) == told

        assert [await last.history(record.id) for record in await everything(last)] == histories
        for store in (whole, cut, last):
            assert await store.verify()
            assert (await store.stats()).versions == (await first.stats()).versions
            found = await store.search(query="STRASSE", limit=1000)
            assert found == await first.search(query="STRASSE", limit=1000) != []
            await store.catch_up()
            assert await store.verify()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_differs_is_replaced_and_what_is_the_same_is_left_alone(
    stores: Stores, kind: str, tmp_path: Path
) -> None:
    target = await stores(kind)
    async with SQLiteMemoryStore(tmp_path / "source.db") as source:
        await fill(source, 60)
        records = await everything(source)
        await target.put_records(records)
        await target.catch_up()
        dice = random.Random(1)
        spoiled = dice.sample([record.id for record in records if not record.deleted], 9)
        for item_id in spoiled:
            await target.add(HumanMemory(id=item_id, content="spoiled", metadata=BOB))

        kept = await target.put_records(records)
        assert (kept, {*kept.conflicts}) == (0, {*spoiled})
        assert await target.put_records(records, overwrite=True) == len(spoiled)

        assert await lines(target) == [record.to_line() for record in records]
        assert await target.search(query="spoiled") == []
        assert await target.verify()
        await target.catch_up()
        assert await target.verify()


@pytest.mark.parametrize("kind", KINDS)
async def test_records_of_a_scope_tell_nothing_of_others(stores: Stores, kind: str) -> None:
    store = await stores(kind)
    await store.add(HumanMemory(id="a", content="bob's secret", metadata=BOB))
    await store.add(HumanMemory(id="a", content="ann's now", metadata=ANN))
    await store.add(HumanMemory(id="b", content="bob's", metadata=BOB))

    found = await store.records(metadata=ANN)

    assert [record.id for record in found] == ["a"]
    assert "secret" not in found[0].to_line()
    assert [record.id for record in await store.records(item_ids=["b", "zz"])] == ["b"]
    assert await store.records(item_ids=["b"], metadata=ANN) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_of_others_is_written_within_a_scope(stores: Stores, kind: str) -> None:
    store = await stores(kind)
    await store.add(HumanMemory(id="b", content="bob's", metadata=BOB))
    own = Record(HumanMemory(id="own", content="x", metadata=ANN))
    for bad in (
        Record(HumanMemory(id="b", content="mine now", metadata=ANN)),
        Record(HumanMemory(id="c", content="x", metadata=BOB)),
    ):
        with pytest.raises(AccessError):
            await store.put_records([own, bad], within=ANN)

    assert [item.content for item in await store.search()] == ["bob's"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_batch_is_written_as_a_whole_or_not_at_all(stores: Stores, kind: str) -> None:
    good = Record(HumanMemory(id="good", content="x"))
    bad = HumanMemory(id="bad", content="x")
    bad.__dict__["content"] = "nul \0"

    store = await stores(kind)
    with pytest.raises(InvalidItemError):
        await store.put_records([good, Record(bad)])
    with pytest.raises(InvalidItemError):
        await store.put_records([good, "record"])  # type: ignore[list-item]

    assert await store.count() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_plain_row_is_spelled_as_its_item_is(stores: Stores, kind: str) -> None:
    store = await stores(kind)
    await fill(store, 100, seed=5)

    for record in await everything(store):
        plain = Record(
            record.item,
            deleted=record.deleted,
            versions=record.versions,
            recorded_at=record.recorded_at,
            recorded_by=record.recorded_by,
        )
        assert record.to_line() == plain.to_line()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_first_and_the_last_instant_are_moved(stores: Stores, kind: str) -> None:
    times = [
        datetime.min.replace(tzinfo=UTC),
        datetime(999, 2, 3, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ]
    records = [
        Record(HumanMemory(id=f"{n}", content="", created_at=time, updated_at=time))
        for n, time in enumerate(times)
    ]
    store = await stores(kind)
    await store.put_records(records)

    found = await store.records()

    assert [*map(Record.to_line, found)] == [*map(Record.to_line, records)]
    assert [record.item.created_at for record in found] == times


@pytest.mark.parametrize("kind", KINDS)
async def test_many_and_long_records_are_written_in_order(stores: Stores, kind: str) -> None:
    # As many as go in statements of each size, and some too long to go together.
    lengths = [*[1] * 1115, *[300_000] * 12, *[1] * 3]
    came = datetime(2026, 1, 1, tzinfo=UTC)
    records = [
        Record(HumanMemory(id=f"{n:05}", content="x" * length), recorded_at=came)
        for n, length in enumerate(lengths)
    ]
    store = await stores(kind)
    await store.put_records(records)

    found = await store.records(limit=2000)

    assert [record.digest for record in found] == [record.digest for record in records]


@pytest.mark.parametrize("kind", KINDS)
async def test_pages_go_on_from_an_id(stores: Stores, kind: str) -> None:
    store = await stores(kind)
    await store.add_many([HumanMemory(id=f"{n}", content="x") for n in (3, 1, 2, 5, 4)])

    pages, last = [], None
    while page := await store.records(after=last, limit=2):
        pages.append([record.id for record in page])
        last = page[-1].id

    assert pages == [["3", "1"], ["2", "5"], ["4"]]
    with pytest.raises(QueryError, match="`nobody`"):
        await store.records(after="nobody")


async def test_row_level_security_holds_records(databases: list[str], tmp_path: Path) -> None:
    dsn = await plain_role(databases[2], "mover")
    store = PostgresMemoryStore(dsn)
    await store.init(row_security=True)
    try:
        ann, bob = store.acting_for("ann"), store.acting_for("bob")
        await bob.add(HumanMemory(id="b", content="bob's", metadata=BOB))
        await ann.add(HumanMemory(id="a", content="one", metadata=ANN))
        await ann.add(HumanMemory(id="a", content="two", metadata=ANN), by="me")
        then = await now()
        await ann.delete("a")
        records = await ann.records()

        assert [item.content for item in await ann.as_of(then)] == ["two"]
        assert [item.content for item in await bob.as_of(then)] == ["bob's"]

        assert [record.id for record in records] == ["a"]
        assert len(records[0].versions) == 2
        await ann.purge()
        assert await ann.put_records(records) == 1
        assert await ann.records() == records
        with pytest.raises(AccessError):
            await ann.put_records([Record(HumanMemory(id="b", content="x", metadata=ANN))])
        with pytest.raises(AccessError):
            await ann.put_records([Record(HumanMemory(id="c", content="x", metadata=BOB))])
        assert [item.content for item in await bob.search()] == ["bob's"]

        with pytest.raises(AccessError, match="name one in `scope`"):
            await migrate(dsn, f"{tmp_path}/all.db")
        moved = await migrate(dsn, f"{tmp_path}/ann.db", scope=ANN)
        assert (bool(moved), moved.copied) == (True, 1)
    finally:
        await store.close()


async def test_redis_keeps_the_present_item_and_its_number(
    redis: RedisMemoryStore, tmp_path: Path
) -> None:
    async with SQLiteMemoryStore(tmp_path / "source.db") as source:
        await fill(source, 200)
        records = await everything(source)
        present = [record.present for record in records if not record.deleted]
        deleted = next(record for record in records if record.deleted)
        await redis.add(HumanMemory(id=deleted.id, content="is deleted elsewhere"))
        await redis.add(HumanMemory(id=present[0].id, content="differs"))

        assert await redis.put_records(records, overwrite=True) == len(present) + 1
        assert await redis.put_records(records) == 0

        found = await everything(redis)
        assert sorted(found, key=lambda record: record.id) == sorted(
            present, key=lambda record: record.id
        )
        assert max(record.item.version for record in found) > 3
        assert await redis.search(limit=1000) == await source.search(limit=1000)
        some = [record.id for record in present[:5]]
        assert {record.id for record in await redis.records(item_ids=[*some, "zz"])} == {*some}


async def test_redis_refuses_what_is_anothers(redis: RedisMemoryStore) -> None:
    await redis.add(HumanMemory(id="b", content="bob's", metadata=BOB))

    for bad in (HumanMemory(id="b", content="x", metadata=ANN), HumanMemory(id="c", content="x")):
        with pytest.raises(AccessError):
            await redis.put_records([Record(bad)], within=ANN)

    assert [item.content for item in await redis.search()] == ["bob's"]
    assert await redis.records(metadata=ANN) == []
