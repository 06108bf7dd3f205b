"""A server that goes away and comes back costs time, and neither an item nor a line of code."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Literal

import asyncpg
import pytest
from tests.crash._postgres_ask import ask, set_and_reload
from tests.crash._postgres_load import Load, Verdict
from tests.crash._proxy import Proxy
from tests.servers.databases import PostgresServer
from tests.timing import HANG, scaled, until

from orbiter.memory import (
    HumanMemory,
    MemoryConnectionError,
    MemoryItem,
    MemoryMetadata,
    PostgresMemoryStore,
)
from orbiter.memory.errors import MemoryTimeoutError


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_server.port) as proxy:
        yield proxy


def note(text: str, **fields: str) -> MemoryItem:
    return HumanMemory(id="note", content=text, metadata=MemoryMetadata(user_id="ann"), **fields)


# The server goes


@pytest.mark.parametrize(
    ("mode", "seconds"), [("fast", 0.0), ("immediate", 0.0), ("immediate", 2.0)]
)
async def test_a_restart_under_load_loses_nothing_and_doubles_nothing(
    mortal_server: PostgresServer, mode: Literal["fast", "immediate"], seconds: float
) -> None:
    dsn = await asyncio.to_thread(mortal_server.create_database)
    store = PostgresMemoryStore(dsn, retry_for=scaled(10))
    await store.init(partitions=4 if seconds else None)

    async with Load(store) as load:
        await asyncio.to_thread(mortal_server.stop, mode=mode)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(mortal_server.start_again)
        await load.goes_on()

    await store.close()
    assert load.errors == []
    assert await load.judge(dsn) == ([], [])


async def test_an_outage_that_outlasts_the_patience_is_a_connection_error(
    mortal_server: PostgresServer,
) -> None:
    dsn = await asyncio.to_thread(mortal_server.create_database)
    patience = scaled(0.6)
    async with PostgresMemoryStore(dsn, retry_for=patience) as store:
        await asyncio.to_thread(mortal_server.stop)
        started = time.monotonic()
        try:
            with pytest.raises(
                ConnectionError, match=f"could not be reached for {patience:g} s"
            ) as caught:
                await store.add(note("one"))
            seconds = time.monotonic() - started
            with pytest.raises(MemoryConnectionError):
                await PostgresMemoryStore(dsn, retry_for=0.1).init()
        finally:
            await asyncio.to_thread(mortal_server.start_again)

        await store.add(note("two"))

    assert isinstance(caught.value, MemoryConnectionError)
    assert seconds >= patience, "it gave up before its patience was over"


async def test_where_nobody_was_reached_the_error_says_that_nothing_was_written(
    mortal_server: PostgresServer, postgres_dsn: str, proxy: Proxy
) -> None:
    dsn = await asyncio.to_thread(mortal_server.create_database)
    await asyncio.to_thread(mortal_server.stop)
    try:
        with pytest.raises(MemoryConnectionError) as refused:
            await PostgresMemoryStore(dsn, retry_for=0.1).init()
    finally:
        await asyncio.to_thread(mortal_server.start_again)
    async with PostgresMemoryStore(proxy.dsn(postgres_dsn), retry_for=0.01) as store:
        for _ in range(100):
            proxy.lose_reply(b"a first one")
        with pytest.raises(MemoryConnectionError) as cut:
            await store.add(note("a first one"))

    assert "Nothing of this was written: try again" in str(refused.value)
    assert "A write may or may not have been carried out" in str(cut.value)


async def test_a_store_can_be_opened_while_the_server_is_still_starting(
    mortal_server: PostgresServer,
) -> None:
    dsn = await asyncio.to_thread(mortal_server.create_database)
    await asyncio.to_thread(mortal_server.stop)
    store = PostgresMemoryStore(dsn, retry_for=scaled(10))
    opening = asyncio.create_task(store.init())
    await asyncio.sleep(0.3)

    await asyncio.to_thread(mortal_server.start_again)
    await opening

    await store.add(note("one"))
    await store.close()


_CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def test_killed_idle_connections_are_replaced(postgres_dsn: str) -> None:
    async with PostgresMemoryStore(postgres_dsn, min_size=4) as store:
        [(cut,)] = await ask(postgres_dsn, _CUT)

        async with asyncio.timeout(HANG):
            await asyncio.gather(
                *(store.add(HumanMemory(id=f"{n}", content="one")) for n in range(20))
            )

        assert cut == 4
        assert await store.count() == 20


async def test_killing_every_connection_again_and_again_under_load_loses_nothing(
    postgres_dsn: str,
) -> None:
    async with PostgresMemoryStore(postgres_dsn) as store:
        async with Load(store) as load:
            cuts = 0
            for _ in range(6):
                [(cut,)] = await ask(postgres_dsn, _CUT)
                cuts += int(str(cut))
                await asyncio.sleep(0.15)

        assert cuts >= 12
        assert load.errors == []
        assert await load.judge(postgres_dsn) == ([], [])


# The answer goes


@pytest.mark.parametrize("partitions", [None, 4])
async def test_an_add_whose_answer_was_lost_counts_once(
    postgres_dsn: str, proxy: Proxy, partitions: int | None
) -> None:
    store = PostgresMemoryStore(proxy.dsn(postgres_dsn))
    await store.init(partitions=partitions)

    for version, text in enumerate(["a first one", "a second one"], 1):
        proxy.lose_reply(text.encode())
        await store.add(note(text))
        assert proxy.lost == version
        assert await ask(postgres_dsn, "SELECT content, version FROM memory_items") == [
            (text, version)
        ]

    assert [version.change for version in await store.history("note")] == ["added", "updated"]
    await store.close()


async def test_an_add_whose_request_was_lost_is_carried_out(
    postgres_dsn: str, proxy: Proxy
) -> None:
    async with PostgresMemoryStore(proxy.dsn(postgres_dsn)) as store:
        proxy.lose_request(b"a first one")

        await store.add(note("a first one"))

        assert proxy.lost == 1
        assert await ask(postgres_dsn, "SELECT content, version FROM memory_items") == [
            ("a first one", 1)
        ]


@pytest.mark.parametrize("partitions", [None, 4])
async def test_a_signed_add_whose_commit_was_not_answered_counts_once(
    postgres_dsn: str, proxy: Proxy, partitions: int | None
) -> None:
    store = PostgresMemoryStore(proxy.dsn(postgres_dsn))
    await store.init(partitions=partitions)
    await store.add(note("one"))
    proxy.lose_reply(b"COMMIT")

    await store.add(note("two"), by="bob")

    assert proxy.lost == 1
    assert [(each.item.version, each.by) for each in await store.history("note")] == [
        (1, "ann"),
        (2, "bob"),
    ]
    await store.close()


@pytest.mark.parametrize("partitions", [None, 4])
async def test_a_batch_whose_commit_was_not_answered_counts_once(
    postgres_dsn: str, proxy: Proxy, partitions: int | None
) -> None:
    store = PostgresMemoryStore(proxy.dsn(postgres_dsn))
    await store.init(partitions=partitions)
    await store.add(HumanMemory(id="0", content="before"))
    proxy.lose_reply(b"COMMIT")

    await store.add_many([HumanMemory(id=f"{n}", content="one") for n in range(50)])

    assert proxy.lost == 1
    versions = await ask(postgres_dsn, "SELECT version, count(*) FROM memory_items GROUP BY 1")
    assert sorted(versions) == [(1, 49), (2, 1)]
    await store.close()


async def test_a_batch_with_one_id_twice_counts_each_once_though_the_commit_was_not_answered(
    postgres_dsn: str, proxy: Proxy
) -> None:
    async with PostgresMemoryStore(proxy.dsn(postgres_dsn)) as store:
        proxy.lose_reply(b"COMMIT")

        await store.add_many([note("one"), note("two")])

        assert proxy.lost == 1
        assert [each.item.content for each in await store.history("note")] == ["one", "two"]


@pytest.mark.parametrize("partitions", [None, 4])
async def test_a_write_over_an_expected_version_is_not_refused_for_its_own_first_attempt(
    postgres_dsn: str, proxy: Proxy, partitions: int | None
) -> None:
    store = PostgresMemoryStore(proxy.dsn(postgres_dsn))
    await store.init(partitions=partitions)

    for version in (0, 1):
        proxy.lose_reply(b"COMMIT")
        await store.add(note(f"text {version}"), expected_version=version)

    assert proxy.lost == 2
    assert await ask(postgres_dsn, "SELECT content, version FROM memory_items") == [("text 1", 2)]
    await store.close()


@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_a_change_whose_answer_was_lost_tells_what_it_changed(
    postgres_dsn: str, proxy: Proxy, lost: str
) -> None:
    ann = MemoryMetadata(user_id="ann")
    told: list[bool | int] = []

    def lose() -> None:
        proxy.lose_request(b"UPDATE") if lost == "request" else proxy.lose_reply(b"COMMIT")

    # Without a cache every statement is sent with its text, by which it can be caught.
    async with PostgresMemoryStore(proxy.dsn(postgres_dsn), statement_cache_size=0) as store:
        await store.add(note("one"))

        lose()
        told.append(await store.delete("note"))
        lose()
        told.append(await store.restore("note", by="bob"))
        lose()
        told.append(await store.clear(metadata=ann))
        proxy.lose_reply(b"COMMIT")
        told.append(await store.purge(metadata=ann))

        assert told == [True, True, 1, 1]
        assert proxy.lost == 4
        assert await store.history("note") == []


# The network goes


async def test_a_network_cut_under_load_loses_nothing_and_hangs_nobody(
    postgres_server: PostgresServer,
) -> None:
    patience = scaled(1)

    async def cut(fault: str) -> tuple[str, Verdict]:
        dsn = await asyncio.to_thread(postgres_server.create_database)
        async with (
            Proxy(postgres_server.port) as proxy,
            PostgresMemoryStore(
                proxy.dsn(dsn),
                statement_timeout=patience,
                acquire_timeout=patience,
                retry_for=10 * patience,
            ) as store,
            Load(store) as load,
        ):
            getattr(proxy, fault)()
            await asyncio.sleep(2 * patience)
            proxy.heal()
            await load.goes_on()
            await load.end()
        kinds = {type(error) for error in load.errors}
        assert kinds <= {MemoryTimeoutError, MemoryConnectionError}, fault
        assert fault != "refuse" or not kinds
        verdict = await load.judge(dsn)
        await asyncio.to_thread(postgres_server.drop_database, dsn)
        return fault, verdict

    # All at once, for most of it is waiting.
    faults = ["refuse", "black_hole", "forget", "slow_down"]

    verdicts = await asyncio.gather(*map(cut, faults))

    assert verdicts == [(fault, ([], [])) for fault in faults]


# The server changes its mind


async def test_a_server_that_is_read_only_for_a_moment_is_waited_for(
    mortal_server: PostgresServer,
) -> None:
    dsn = await asyncio.to_thread(mortal_server.create_database)
    async with PostgresMemoryStore(dsn, retry_for=scaled(10)) as store:
        await set_and_reload(dsn, "default_transaction_read_only", "on")
        adding = asyncio.create_task(store.add(note("one")))
        await asyncio.sleep(0.5)
        assert not adding.done()

        await _write_again(dsn)
        await asyncio.wait_for(adding, HANG)

        assert await store.count() == 1


async def _write_again(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("SET default_transaction_read_only = off")
    await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()

    async def is_over() -> bool:
        return await ask(dsn, "SHOW default_transaction_read_only") == [("off",)]

    await until(is_over, "a server that takes writes")


async def test_a_server_that_stays_read_only_is_reported(mortal_server: PostgresServer) -> None:
    dsn = await asyncio.to_thread(mortal_server.create_database)
    async with PostgresMemoryStore(dsn, retry_for=0.5) as store:
        await set_and_reload(dsn, "default_transaction_read_only", "on")
        try:
            with pytest.raises(MemoryConnectionError, match="read-only transaction"):
                await store.add(note("one"))
            assert await store.search() == []
        finally:
            await _write_again(dsn)


async def test_writes_follow_the_server_that_took_over(mortal_server: PostgresServer) -> None:
    old_dsn = await asyncio.to_thread(mortal_server.create_database, "taken_over")
    with await asyncio.to_thread(PostgresServer.start) as successor:
        new_dsn = await asyncio.to_thread(successor.create_database, "taken_over")
        async with PostgresMemoryStore(new_dsn):
            pass
        async with (
            Proxy(mortal_server.port) as proxy,
            PostgresMemoryStore(proxy.dsn(old_dsn), min_size=3, retry_for=scaled(10)) as store,
        ):
            await asyncio.gather(*(store.add(HumanMemory(content="old")) for _ in range(20)))
            await ask(old_dsn, "ALTER DATABASE taken_over SET default_transaction_read_only = on")
            await set_and_reload(mortal_server.dsn(), "default_transaction_read_only", "on")
            # Connections to the old server stay open, as they do when it becomes a standby.
            proxy.upstream = successor.port

            try:
                await asyncio.wait_for(store.add(note("one")), HANG)
            finally:
                await _write_again(mortal_server.dsn())

        assert await ask(new_dsn, "SELECT content FROM memory_items") == [("one",)]


async def test_a_wait_for_a_server_that_takes_writes_ends(mortal_server: PostgresServer) -> None:
    dsn = await asyncio.to_thread(mortal_server.create_database)
    await set_and_reload(dsn, "default_transaction_read_only", "on")
    store = PostgresMemoryStore(f"{dsn}&target_session_attrs=read-write", retry_for=0.3)
    try:
        with pytest.raises(MemoryConnectionError):
            await store.init()
    finally:
        await _write_again(dsn)

    await store.init()
    await store.close()
