"""A server that does not answer, callers who give up, connections that run out: nobody hangs."""

import asyncio
import logging
import os
import random
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.crash._postgres_ask import OTHERS, ask, has_sessions, set_and_reload
from tests.crash._proxy import Proxy
from tests.servers.databases import PostgresServer
from tests.timing import HANG, scaled, until

from orbiter.memory import (
    HumanMemory,
    MemoryConnectionError,
    MemoryItem,
    PostgresMemoryStore,
    VersionConflict,
)
from orbiter.memory.errors import MemoryTimeoutError, StorageError


@pytest.fixture
async def dsn(mortal_server: PostgresServer) -> AsyncIterator[str]:
    dsn = await asyncio.to_thread(mortal_server.create_database)
    yield dsn
    await asyncio.to_thread(mortal_server.drop_database, dsn)


@pytest.fixture
async def proxy(mortal_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy(mortal_server.port) as proxy:
        yield proxy


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """Stop the clock of a server and of all its processes."""
    assert server.pid is not None
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii")
    family = [server.pid, *map(int, children.split())]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)


def note(name: str, text: str = "one") -> MemoryItem:
    return HumanMemory(id=name, content=text)


async def connections(dsn: str) -> int:
    """Return how many connections the server has, once those that were dropped are gone."""
    count = 0

    async def are_gone() -> bool:
        nonlocal count
        [(count,)] = await ask(dsn, f"SELECT count(*){OTHERS}")
        return not count

    await until(are_gone, "the end of every connection")
    return count


def tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {task for task in [asyncio.current_task()] if task}


# A server that does not answer


async def test_every_call_on_a_stalled_server_ends_with_a_timeout(
    mortal_server: PostgresServer, dsn: str
) -> None:
    patience = scaled(1)
    store = PostgresMemoryStore(dsn, statement_timeout=patience, min_size=8)
    await store.init()
    await store.add(note("before"))

    with frozen(mortal_server):
        async with asyncio.timeout(HANG):
            ends = await asyncio.gather(
                store.add(note("add")),
                store.add(note("signed"), by="ann"),
                store.add(note("expected"), expected_version=0),
                store.add_many([note("many")]),
                store.delete("before"),
                store.search(query="one"),
                return_exceptions=True,
            )

    assert [type(end) for end in ends] == [MemoryTimeoutError] * 6
    assert all(f"did not answer within {patience:g} s" in str(end) for end in ends)
    await store.add(note("after"))
    assert await store.get("after") is not None
    await store.close()


async def test_a_transaction_that_stalls_in_the_middle_ends_with_one_timeout(
    dsn: str, proxy: Proxy
) -> None:
    async with PostgresMemoryStore(
        proxy.dsn(dsn), statement_timeout=scaled(0.4), statement_cache_size=0
    ) as store:
        for number, marker in enumerate([b"BEGIN", b"INSERT INTO memory_items", b"COMMIT"]):
            proxy.hold(marker)
            with pytest.raises(MemoryTimeoutError):
                await asyncio.wait_for(store.add_many([note(f"{number}")]), HANG)
            # One timeout and the end of the connection, not one for each step that is left.
            assert not re.search(b"INSERT|COMMIT|ROLLBACK", proxy.held_back()), marker
            proxy.heal()

        await store.add(note("after"))


async def test_a_conflict_is_told_though_the_roll_back_is_not_answered(
    dsn: str, proxy: Proxy
) -> None:
    async with PostgresMemoryStore(proxy.dsn(dsn), statement_timeout=scaled(1)) as store:
        await store.add(note("note"))
        proxy.hold(b"ROLLBACK")

        with pytest.raises(VersionConflict):
            await asyncio.wait_for(store.add(note("note"), expected_version=7), HANG)

        proxy.heal()
        await store.add(note("note"), expected_version=1)


async def test_a_commit_that_never_ends_is_a_timeout_and_no_endless_question(
    mortal_server: PostgresServer, dsn: str, proxy: Proxy
) -> None:
    async with PostgresMemoryStore(proxy.dsn(dsn), statement_timeout=scaled(1)) as store:
        await store.add(note("before"))
        await set_and_reload(dsn, "synchronous_standby_names", "'nobody'")
        try:
            adding = asyncio.create_task(store.add_many([note("note")]))
            await has_sessions(dsn, 1, "wait_event = 'SyncRep'")
            proxy.reset()
            with pytest.raises(MemoryTimeoutError):
                await asyncio.wait_for(adding, HANG)
        finally:
            await ask(dsn, "ALTER SYSTEM RESET synchronous_standby_names")
            await ask(dsn, "SELECT pg_reload_conf()")


async def test_an_unreachable_server_is_not_mistaken_for_too_few_connections(
    dsn: str, proxy: Proxy
) -> None:
    patience = scaled(0.5)
    async with PostgresMemoryStore(
        proxy.dsn(dsn),
        min_size=0,
        acquire_timeout=patience,
        connect_timeout=10 * patience,
        retry_for=0.2,
    ) as store:
        proxy.reset()
        assert await connections(dsn) == 0
        proxy.black_hole()

        with pytest.raises(MemoryConnectionError, match=f"no new connection within {patience:g} s"):
            await store.add(note("note"))

        proxy.heal()
        await store.add(note("note"))


async def test_opening_a_store_on_a_silent_server_ends_after_the_connect_timeout(
    dsn: str, proxy: Proxy
) -> None:
    proxy.black_hole()
    store = PostgresMemoryStore(proxy.dsn(dsn), connect_timeout=0.5, retry_for=0.5)

    with pytest.raises(MemoryConnectionError, match="no connection within 0.5 s"):
        await asyncio.wait_for(store.init(), HANG)


@pytest.mark.parametrize("call", ["add", "add_many", "search"])
async def test_a_cancelled_call_on_a_stalled_server_ends_at_once(
    mortal_server: PostgresServer, dsn: str, call: str
) -> None:
    store = PostgresMemoryStore(dsn, statement_timeout=2 * HANG)
    await store.init()
    before = tasks()
    calls = {"add": note("a"), "add_many": [note("a")]}

    with frozen(mortal_server):
        work = store.search() if call == "search" else getattr(store, call)(calls[call])
        stalled = asyncio.create_task(work)
        await asyncio.sleep(0.2)
        stalled.cancel()
        await asyncio.wait([stalled], timeout=HANG)
        assert stalled.cancelled()

    await store.add(note("after"))
    await store.close()
    await until(lambda: tasks() <= before, "the end of every task")
    assert await connections(dsn) == 0


async def test_closing_a_store_on_a_stalled_server_ends(
    mortal_server: PostgresServer, dsn: str
) -> None:
    store = PostgresMemoryStore(dsn, statement_timeout=scaled(0.5))
    await store.init()

    with frozen(mortal_server):
        await asyncio.wait_for(store.close(), HANG)

    assert await connections(dsn) == 0


# Callers who give up


@pytest.mark.parametrize("partitions", [None, 4])
async def test_a_storm_of_cancellations_leaves_nothing_behind(
    dsn: str, partitions: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(7)
    store = PostgresMemoryStore(dsn, max_size=5)
    await store.init(partitions=partitions)
    acknowledged: list[str] = []
    cancelled = 0

    async def work(name: str) -> None:
        item = note(name, "ä" * dice.randrange(3))
        match dice.randrange(4):
            case 0:
                await store.add(item)
            case 1:
                await store.add(item, by="ann")
            case 2:
                await store.add(item, expected_version=0)
            case _:
                await store.add_many([item, note("shared", name)])
        acknowledged.append(name)

    with caplog.at_level(logging.WARNING):
        for turn in range(60):
            group = [asyncio.create_task(work(f"{turn}-{n}")) for n in range(6)]
            victims = dice.sample(group, 4)
            for victim in victims:
                if dice.random() < 0.5:
                    for _ in range(dice.randrange(12)):
                        await asyncio.sleep(0)
                else:
                    await asyncio.sleep(dice.random() * 0.006)
                victim.cancel()
            done, hung = await asyncio.wait(group, timeout=HANG)
            assert not hung
            cancelled += sum(task.cancelled() for task in done)
            assert [task for task in done if not task.cancelled() and task.exception()] == []

    assert cancelled > 75
    assert await ask(dsn, f"SELECT pid, query{OTHERS} AND state LIKE 'idle in%'") == []
    locks = "SELECT relation::regclass FROM pg_locks WHERE pid <> pg_backend_pid()"
    assert await ask(dsn, f"{locks} AND mode = 'RowExclusiveLock'") == []
    assert store._pool is not None
    assert store._pool.get_idle_size() == store._pool.get_size() <= 5
    # All five can still be had, each by a call of its own.
    await asyncio.wait_for(asyncio.gather(*(store.add(note(f"x{n}")) for n in range(50))), HANG)
    stored = {row[0] for row in await ask(dsn, "SELECT id FROM memory_items")}
    assert set(acknowledged) <= stored
    await store.close()
    assert await connections(dsn) == 0
    assert caplog.records == []


async def test_cancelled_and_failed_openings_leave_no_connection_and_no_file(dsn: str) -> None:
    dice = random.Random(7)
    async with PostgresMemoryStore(dsn):
        pass
    before = tasks()
    files = len(list(Path("/proc/self/fd").iterdir()))

    async def use() -> None:
        async with PostgresMemoryStore(dsn, min_size=3) as store:
            await store.count()

    for _ in range(30):
        opening = asyncio.create_task(use())
        await asyncio.sleep(dice.random() * 0.04)
        opening.cancel()
        await asyncio.wait([opening], timeout=HANG)
        assert opening.done()
    for _ in range(10):
        with pytest.raises(StorageError):
            await PostgresMemoryStore(dsn.replace("/test_", "/missing_")).init()
    for _ in range(20):
        await use()

    assert await connections(dsn) == 0
    assert tasks() - before == set()
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


async def test_a_caller_who_gives_up_opening_does_not_spoil_it_for_another(dsn: str) -> None:
    store = PostgresMemoryStore(dsn)
    first = asyncio.create_task(store.init())
    second = asyncio.create_task(store.init())
    await asyncio.sleep(0.005)

    first.cancel()
    await second

    assert first.cancelled()
    await store.add(note("note"))
    await store.close()


# Connections that run out


async def test_five_connections_serve_five_hundred_callers(dsn: str) -> None:
    async with PostgresMemoryStore(dsn, max_size=5) as store:
        await asyncio.gather(*(store.add(note(f"{n}")) for n in range(500)))

        assert await store.count() == 500
        assert len(await ask(dsn, f"SELECT 1{OTHERS}")) <= 5


async def test_busy_connections_are_waited_for_so_long_and_no_longer(dsn: str) -> None:
    patience = scaled(0.3)
    async with PostgresMemoryStore(dsn, max_size=2, acquire_timeout=patience) as store:
        await store.add(note("locked"))
        holder = await asyncpg.connect(dsn)
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("SELECT 1 FROM memory_items FOR UPDATE")
        # Signed, for plain adds would share a connection.
        waiting = [asyncio.create_task(store.add(note("locked"), by="ann")) for _ in range(2)]
        await has_sessions(dsn, 2, "wait_event_type = 'Lock'")
        started = time.monotonic()

        with pytest.raises(TimeoutError, match="`max_size`"):
            await store.count()

        assert time.monotonic() - started >= 0.9 * patience  # but for the clock's grain
        await transaction.rollback()
        await holder.close()
        await asyncio.gather(*waiting)
        assert await store.count() == 1


async def test_calls_made_while_the_only_connection_is_wanted_by_many_all_end(dsn: str) -> None:
    async with PostgresMemoryStore(dsn, max_size=1) as store:

        async def nested(n: int) -> None:
            for item in await store.search(limit=2):
                await store.add(note(item.id, f"{n}"), by="ann")
                await store.history(item.id)
            await store.verify()

        await store.add_many([note("a"), note("b")])
        await asyncio.wait_for(asyncio.gather(*(nested(n) for n in range(20))), HANG)
