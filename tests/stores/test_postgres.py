"""What is Postgres's own: callers' pools, changes by hand, migrations, crossing batches."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.backends.postgres import pool, schema
from orbiter.memory.backends.postgres.pool import OnceToken
from orbiter.memory.backends.postgres.upsert import MAX_TEXT
from orbiter.memory.errors import NotInitializedError

ANN = MemoryMetadata(user_id="ann", extra={"k": 1e16})


@pytest.fixture(params=[None, 3], ids=["whole", "partitioned"])
async def store(
    request: pytest.FixtureRequest, postgres_dsn: str
) -> AsyncIterator[PostgresMemoryStore]:
    made = PostgresMemoryStore(postgres_dsn)
    await made.init(partitions=request.param)
    yield made
    await made.close()


async def _by_hand(dsn: str, *statements: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return [await connection.fetch(statement) for statement in statements][-1]
    finally:
        await connection.close()


async def test_a_pool_that_reads_json_itself_changes_nothing(postgres_dsn: str) -> None:
    async def read_json(connection: Any) -> None:
        await connection.set_type_codec(
            "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
        )

    item = HumanMemory(content="hi", metadata=ANN)
    async with (
        asyncpg.create_pool(postgres_dsn, init=read_json, min_size=1) as pool,
        PostgresMemoryStore(pool=pool) as store,
    ):
        await store.add(item)
        await store.add_many([HumanMemory(content="ho", metadata=ANN)])

        assert await store.get(item.id) == item
        assert len(await store.search(metadata=ANN)) == 2
        assert await store.clear(metadata=ANN) == 2
    (row,) = await _by_hand(postgres_dsn, "SELECT jsonb_typeof(metadata) FROM memory_items LIMIT 1")
    assert row[0] == "object"


async def test_a_row_removed_by_hand_leaves_nothing_behind(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    for text in ("ÄPFEL", "BIRNEN"):
        await store.add(HumanMemory(id="one", content=text, metadata=ANN))

    await _by_hand(postgres_dsn, "DELETE FROM memory_items WHERE id = 'one'")

    assert await store.history("one") == []
    assert await store.search(query="birnen") == []
    await store.add(HumanMemory(id="one", content="new", metadata=MemoryMetadata(user_id="bob")))
    assert [each.item.content for each in await store.history("one")] == ["new"]
    assert await _by_hand(postgres_dsn, "SELECT 1 FROM memory_folded") == []
    assert await store.verify()


async def test_a_change_made_by_hand_is_seen_searched_and_kept_as_a_version(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    await store.add(HumanMemory(id="one", content="ÄPFEL", metadata=ANN))

    await _by_hand(postgres_dsn, "UPDATE memory_items SET content = 'Pears'")

    found = await store.get("one")
    assert found is not None
    assert (found.content, found.version, found.metadata) == ("Pears", 2, ANN)
    assert await store.search(query="äpfel") == []
    assert [item.content for item in await store.search(query="PEARS")] == ["Pears"]
    assert [each.item.content for each in await store.history("one")] == ["ÄPFEL", "Pears"]
    # Letters beyond ASCII that are not folded by us are found again after a repair.
    await _by_hand(postgres_dsn, "UPDATE memory_items SET content = 'ÖL'")
    assert not await store.verify()
    assert await store.verify(repair=True)
    assert [item.content for item in await store.search(query="öl")] == ["ÖL"]


async def test_an_item_that_moves_to_another_user_keeps_its_history(
    store: PostgresMemoryStore,
) -> None:
    for number, user in enumerate(("ann", "bob", "cid", "ann")):
        who = MemoryMetadata(user_id=user)
        await store.add(HumanMemory(id="one", content=f"n{number}", metadata=who))

    assert len(await store.history("one")) == 4
    assert await store.count(include_deleted=True) == 1


async def test_a_migration_is_applied_once(
    store: PostgresMemoryStore, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add(HumanMemory(id="one", content="kept"))
    script = "CREATE TABLE memory_more (n INTEGER); INSERT INTO memory_more VALUES (1);"
    latest = 1 + len(schema.MIGRATIONS)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, lambda *_, **__: script))

    for _ in range(2):
        async with PostgresMemoryStore(postgres_dsn) as new:
            assert (await new.stats()).schema == latest + 1
            assert await new.count() == 1

    (row,) = await _by_hand(postgres_dsn, "SELECT n FROM memory_more")
    assert row[0] == 1
    monkeypatch.undo()
    with pytest.raises(OSError, match=f"schema {latest + 1}"):
        await PostgresMemoryStore(postgres_dsn).init()


async def test_tokens_of_old_transactions_are_forgotten(
    store: PostgresMemoryStore, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = "SELECT count(*) FROM memory_commits"
    monkeypatch.setattr(OnceToken, "is_to_clean", False)  # the dice are left out of it
    await store.add_many([HumanMemory(content="one")])
    await _by_hand(postgres_dsn, "UPDATE memory_commits SET at = at - interval '2 hours'")
    await store.add_many([HumanMemory(content="two")])
    assert (await _by_hand(postgres_dsn, left))[0][0] == 2

    monkeypatch.setattr(OnceToken, "is_to_clean", True)
    await store.add_many([HumanMemory(content="three")])

    assert (await _by_hand(postgres_dsn, left))[0][0] == 2


async def test_stats_count_what_is_there(store: PostgresMemoryStore) -> None:
    await store.add_many([HumanMemory(id=f"i{n}", content="hi") for n in range(5)])
    await store.add(HumanMemory(id="i0", content="ho"), by="someone")
    await store.delete("i1")

    found = await store.stats()

    assert (found.items, found.deleted, found.versions) == (4, 1, 2)
    assert found.schema == 1 + len(schema.MIGRATIONS)
    assert found.bytes > 4096


async def test_batches_of_the_same_items_in_any_order_never_lock_each_other_out(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    items: list[MemoryItem] = [HumanMemory(id=f"i{n:02}", content=f"n{n}") for n in range(40)]
    async with PostgresMemoryStore(postgres_dsn, retry_for=0) as other:
        store._driver._retry_for = 0
        await asyncio.gather(
            *((store, other)[n % 2].add_many(items if n % 3 else items[::-1]) for n in range(20))
        )

    assert {item.version for item in await store.search(limit=100)} == {20}


async def test_a_batch_keeps_its_order_whatever_the_ids(store: PostgresMemoryStore) -> None:
    when = datetime(2025, 1, 1, tzinfo=UTC)
    ids = [f"{n * 7919 % 101:03}" for n in range(50)]
    await store.add_many([HumanMemory(id=i, content=i, created_at=when) for i in ids])

    assert [item.id for item in await store.search(limit=100)] == ids[::-1]


async def test_concurrent_adds_keep_the_order_they_were_made_in(store: PostgresMemoryStore) -> None:
    when = datetime(2025, 1, 1, tzinfo=UTC)
    items = [HumanMemory(id=f"{9 - n}", content=f"n{n}", created_at=when) for n in range(10)]

    await asyncio.gather(*(store.add(item) for item in items))

    assert [item.content for item in await store.search()] == [f"n{9 - n}" for n in range(10)]


async def test_a_batch_of_large_items_is_cut_into_statements(store: PostgresMemoryStore) -> None:
    text = "Ä" * (MAX_TEXT // 9)
    await store.add_many([HumanMemory(id=f"i{n}", content=f"{text}{n}") for n in range(10)])
    await asyncio.gather(
        *(store.add(HumanMemory(id=f"j{n}", content=f"{text}{n}")) for n in range(10))
    )

    assert await store.count() == 20
    assert [item.id for item in await store.search(query=f"{text[:9]}9".casefold(), limit=3)] == [
        "j9", "i9",
    ]  # fmt: skip


async def test_an_init_that_is_closed_meanwhile_says_so(postgres_dsn: str) -> None:
    store = PostgresMemoryStore(postgres_dsn)
    opening = asyncio.create_task(store.init())
    await asyncio.sleep(0)

    await store.close()

    with pytest.raises(NotInitializedError):
        await opening


async def test_a_cancelled_call_is_cancelled_although_its_connection_died(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    leased = asyncio.Event()

    async def work() -> None:
        async def attempt() -> None:
            async with store._driver.lease(store._opened()):
                leased.set()
                await asyncio.sleep(30)

        await store._driver.retry(attempt)

    task = asyncio.create_task(work())
    await leased.wait()
    await _by_hand(
        postgres_dsn,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    await asyncio.sleep(0.2)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_built_in_type_is_one_connection_asks_for_all(
    store: PostgresMemoryStore, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    ask: Any = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]  # not public

    async def listen(connection: object, types: object, *more: object) -> object:
        calls.append(types)
        return await ask(connection, types, *more)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", listen)
    monkeypatch.setattr(pool, "_fixed_types", {})
    times = []
    for number in range(2):
        async with PostgresMemoryStore(postgres_dsn) as other:
            await other.add_many([HumanMemory(id=f"{number} {n}", content="x") for n in range(3)])
        times.append(len(calls))

    assert times[0] > 0
    assert times == [times[0]] * 2
    assert await store.count() == 6
