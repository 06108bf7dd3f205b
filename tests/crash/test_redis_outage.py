"""A Redis that goes away, freezes, fills up or loses its answers: a delay or an error, no loss."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, Literal

import pytest
from redis.asyncio import Redis
from tests.crash._proxy import Proxy
from tests.crash._redis_load import Load, Verdict, new_agent
from tests.servers.databases import RedisServer, redis_server, require_or_skip
from tests.timing import HANG, scaled, until

from orbiter.memory import MemoryConnectionError
from orbiter.memory.episodic.manager import ShortTermMemoryManager
from orbiter.memory.errors import AccessError, StorageError

__all__ = ["redis_server"]

SECOND = 1 / 3600

MANY = 200
"""Calls that are at once for a deadline each; one after another they would take far too long."""


@pytest.fixture(scope="module")
def mortal() -> Iterator[RedisServer]:
    """Start a server that may be stopped, frozen and filled."""
    try:
        server = RedisServer.start()
    except ModuleNotFoundError as exc:
        require_or_skip(str(exc))
    with server:
        yield server


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with Redis.from_url(redis_server.url()) as client:
        yield client


@pytest.fixture
async def memory(redis_server: RedisServer) -> AsyncIterator[ShortTermMemoryManager]:
    async with ShortTermMemoryManager(redis_server.url(), new_agent()) as memory:
        yield memory


def key(memory: ShortTermMemoryManager, name: str) -> str:
    return f"agent:{memory.agent_id}:episodic:{name}"


# The server goes


async def restart(
    server: RedisServer, *, mode: Literal["fast", "immediate"], seconds: float = 0.0
) -> None:
    """Stop a server for *seconds* while others write to it."""
    patience = scaled(seconds + 10)
    async with Load(
        lambda agent: ShortTermMemoryManager(server.url(), agent, deadline=patience)
    ) as load:
        await asyncio.to_thread(server.stop, mode=mode)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(server.start_again)
        await load.goes_on()

    assert load.errors == []
    assert await load.judge() == ([], [])


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_under_load_loses_nothing_and_doubles_nothing(
    mortal: RedisServer, mode: Literal["fast", "immediate"]
) -> None:
    await restart(mortal, mode=mode)


async def test_an_outage_that_outlasts_the_deadline_is_a_connection_error(
    mortal: RedisServer,
) -> None:
    memory = ShortTermMemoryManager(mortal.url(), new_agent(), deadline=scaled(1))
    await memory.add_interaction("note", "before")
    await asyncio.to_thread(mortal.stop, mode="immediate")
    try:
        async with asyncio.timeout(HANG):
            results = await asyncio.gather(
                *(memory.add_interaction("note", f"{n}") for n in range(MANY)),
                memory.get_recent(),
                memory.count(),
                memory.search("x"),
                memory.forget(everything=True),
                return_exceptions=True,
            )
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(HANG), aclosing(memory.stream()) as stream:
                await anext(stream)
    finally:
        await asyncio.to_thread(mortal.start_again)

    assert [type(each) for each in results] == [MemoryConnectionError] * (MANY + 4)
    for each in results:
        assert f"127.0.0.1:{mortal.port}" in str(each)
        assert "connecting to" in str(each)
    assert [each.content for each in await memory.get_recent()][-1] == "before"
    await memory.disconnect()


async def test_a_frozen_server_is_an_error_within_the_deadline(mortal: RedisServer) -> None:
    memory = ShortTermMemoryManager(mortal.url(), new_agent(), deadline=scaled(1))
    await memory.add_interaction("note", "before")
    fresh = ShortTermMemoryManager(mortal.url(), new_agent(), deadline=scaled(1))
    pid = mortal.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(HANG):
            results = await asyncio.gather(
                memory.add_interaction("note", "first"),
                *(memory.add_interaction("note", f"{n}") for n in range(MANY)),
                memory.get_recent(),
                fresh.count(),
                return_exceptions=True,
            )
    finally:
        os.kill(pid, signal.SIGCONT)

    assert {type(each) for each in results} == {MemoryConnectionError}
    await memory.add_interaction("note", "after")
    contents = [each.content for each in await memory.get_recent()]
    assert contents[0] == "after"
    # They were sent, so they may have come true; but none of them more than once.
    assert len(contents) == len(set(contents))
    await memory.disconnect()
    await fresh.disconnect()


# The answer goes


async def test_a_write_whose_answer_is_lost_exists_once_and_arrives_once(
    redis_server: RedisServer, proxy: Proxy, memory: ShortTermMemoryManager, client: Any
) -> None:
    await memory.add_interaction("note", "zero")  # the server knows the script from here on
    far = ShortTermMemoryManager(proxy.dsn(redis_server.url()), memory.agent_id)
    await far.connect()

    for number in range(1, 4):
        proxy.drop_reply(f"mark {number}".encode())
        adding = asyncio.create_task(far.add_interaction("note", f"mark {number}"))
        while proxy.lost < number:  # noqa: ASYNC110 - a test may look
            await asyncio.sleep(0)
        assert await memory.count() == number + 1, "the lost answer was not that of the write"
        await adding

    contents = [each.content for each in await memory.get_recent()]
    assert contents == ["mark 3", "mark 2", "mark 1", "zero"]
    assert await client.xlen(key(memory, "arrivals")) == 4
    await far.disconnect()


async def test_writes_that_share_a_round_trip_whose_answer_is_lost_exist_once(
    redis_server: RedisServer, proxy: Proxy, memory: ShortTermMemoryManager, client: Any
) -> None:
    far = ShortTermMemoryManager(proxy.dsn(redis_server.url()), memory.agent_id)
    await far.connect()

    proxy.drop_reply(b"mark 7")
    await asyncio.gather(*(far.add_interaction("note", f"mark {n}") for n in range(20)))

    assert proxy.lost == 1
    assert [each.content for each in await memory.get_recent()] == [
        f"mark {n}" for n in reversed(range(20))
    ]
    assert await client.xlen(key(memory, "arrivals")) == 20
    await far.disconnect()


@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_forgetting_is_carried_out_though_its_answer_is_lost(
    redis_server: RedisServer, proxy: Proxy, memory: ShortTermMemoryManager, lost: str
) -> None:
    far = ShortTermMemoryManager(proxy.dsn(redis_server.url()), memory.agent_id)
    added = await far.add_interaction("note", "x")
    kept = await far.add_interaction("note", "y")
    lose = proxy.drop_reply if lost == "reply" else proxy.lose_request

    lose(added.id.encode())
    assert await far.forget(added) == 1

    assert proxy.lost == 1
    assert await memory.get_recent() == [kept]
    await far.disconnect()


# The network goes


async def test_five_seconds_without_a_server_or_a_network_under_load_are_a_delay(
    redis_server: RedisServer, mortal: RedisServer
) -> None:
    patience = scaled(15)

    async def cut(fault: str) -> tuple[str, list[Exception], Verdict]:
        async with Proxy(redis_server.port) as proxy:
            url = proxy.dsn(redis_server.url())
            load = Load(
                lambda agent: ShortTermMemoryManager(url, agent, deadline=patience),
                writers=100,
                agents=3,
                pause=0.4,
            )
            async with load:
                getattr(proxy, fault)()
                end = asyncio.create_task(asyncio.sleep(5))
                latecomer = ShortTermMemoryManager(url, new_agent())
                with pytest.raises(MemoryConnectionError, match="within 3 s"):
                    await latecomer.connect()
                await latecomer.disconnect()
                await end
                proxy.heal()
                before = len(load.acknowledged)
            assert len(load.acknowledged) >= before + 100, "each writer had a call under way"
            return fault, load.errors, await load.judge()

    # All at once, for most of it is waiting.
    faults = ["refuse", "black_hole", "half_open", "crawl"]

    _, *verdicts = await asyncio.gather(
        restart(mortal, mode="immediate", seconds=5), *map(cut, faults)
    )

    assert verdicts == [(fault, [], ([], [])) for fault in faults]


@pytest.mark.parametrize("fault", ["refuse", "black_hole", "half_open", "crawl"])
async def test_a_network_cut_that_outlasts_the_deadline_is_an_error_and_then_forgotten(
    redis_server: RedisServer, proxy: Proxy, fault: str
) -> None:
    memory = ShortTermMemoryManager(
        proxy.dsn(redis_server.url()), new_agent(), deadline=scaled(0.6)
    )
    await memory.add_interaction("note", "before")
    getattr(proxy, fault)()

    async with asyncio.timeout(HANG):
        results = await asyncio.gather(
            *(memory.add_interaction("note", f"{n}") for n in range(MANY)),
            memory.get_recent(),
            return_exceptions=True,
        )
    proxy.heal()
    added = await memory.add_interaction("note", "after")

    assert {type(each) for each in results} == {MemoryConnectionError}
    contents = [each.content for each in await memory.get_recent()]
    assert added.content == "after"
    assert {"before", "after"} <= set(contents)
    assert len(contents) == len(set(contents))
    await memory.disconnect()


async def test_disconnecting_from_a_server_that_is_away_ends(
    redis_server: RedisServer, proxy: Proxy
) -> None:
    memory = ShortTermMemoryManager(proxy.dsn(redis_server.url()), new_agent(), deadline=scaled(1))
    await memory.connect()
    proxy.black_hole()
    adding = [asyncio.create_task(memory.add_interaction("note", "x")) for _ in range(5)]
    await until(lambda: proxy.held, "a request on its way")

    await asyncio.wait_for(memory.disconnect(), HANG)

    proxy.heal()
    assert all(
        isinstance(each, MemoryConnectionError)
        for each in await asyncio.gather(*adding, return_exceptions=True)
    )


async def test_large_memories_get_through_a_network_of_few_megabytes_a_second(
    redis_server: RedisServer, proxy: Proxy
) -> None:
    memory = ShortTermMemoryManager(proxy.dsn(redis_server.url()), new_agent(), deadline=scaled(2))
    await memory.connect()
    proxy.narrow()

    # Together they take longer than an attempt may.
    await asyncio.gather(*(memory.add_interaction("note", "x" * 2**20) for _ in range(10)))

    assert len(await memory.get_recent()) == await memory.count() == 10
    await memory.forget(everything=True)
    await memory.disconnect()


# The server's memory


async def test_a_full_server_says_so_and_nothing_is_half_written(mortal: RedisServer) -> None:
    memory = ShortTermMemoryManager(mortal.url(), new_agent())
    kept = await memory.add_interaction("note", "kept")
    async with Redis.from_url(mortal.url()) as client:
        before = {each async for each in client.scan_iter()}
        await client.config_set("maxmemory", 1_000_000)
        try:
            results = await asyncio.gather(
                *(memory.add_interaction("note", "x" * 1000) for _ in range(20)),
                return_exceptions=True,
            )
            readable = await memory.get_recent()
            forgotten = await memory.forget(kept)
        finally:
            await client.config_set("maxmemory", 0)
        after = {each async for each in client.scan_iter()}

    assert {type(each) for each in results} == {StorageError}
    assert "full" in str(results[0])
    assert readable == [kept]
    assert forgotten == 1
    assert after <= before
    await memory.add_interaction("note", "again")
    assert await memory.count() == 1
    await memory.disconnect()


async def test_something_else_under_the_name_of_the_index_is_a_clear_error(
    redis_server: RedisServer, client: Any
) -> None:
    async with ShortTermMemoryManager(redis_server.url(), new_agent(), deadline=600) as memory:
        for name in ("index", "expiry", "arrivals"):
            await client.set(key(memory, name), "mine")
            with pytest.raises(StorageError, match="wrong kind of value"):
                await asyncio.wait_for(memory.add_interaction("note", "x"), HANG)
            await client.delete(key(memory, name))


async def test_a_server_that_forgot_the_scripts_is_told_again(
    memory: ShortTermMemoryManager, client: Any
) -> None:
    for number in range(5):
        await client.script_flush()
        await asyncio.gather(
            *(memory.add_interaction("note", f"{number} {n}") for n in range(20)),
            memory.get_recent(),
            memory.count(),
        )
    await client.script_flush()

    assert await memory.count() == 100


# The index


async def lives(client: Any, memory: ShortTermMemoryManager, name: str) -> int:
    """Return until when a key lives, in milliseconds."""
    return int(await client.execute_command("PEXPIRETIME", key(memory, name)))


async def test_the_index_lives_exactly_as_long_as_its_last_member(
    memory: ShortTermMemoryManager, client: Any
) -> None:
    long = await memory.add_interaction("note", "long", ttl_hours=5)
    short = await memory.add_interaction("note", "short", ttl_hours=1)
    ends = [await lives(client, memory, each.id) for each in (long, short)]

    for name in ("index", "expiry", "arrivals"):
        assert 0 <= await lives(client, memory, name) - ends[0] <= 1

    await memory.forget(long)

    for name in ("index", "expiry", "arrivals"):
        assert 0 <= await lives(client, memory, name) - ends[1] <= 1

    shorter = memory_with(short, ttl_hours=0.5)
    await memory.add(shorter)

    for name in ("index", "expiry", "arrivals"):
        assert 0 <= await lives(client, memory, name) - await lives(client, memory, short.id) <= 1


def memory_with(memory: Any, **changes: Any) -> Any:
    return type(memory).model_validate({**memory.model_dump(), **changes})


async def test_when_the_last_is_dead_nothing_is_left(
    memory: ShortTermMemoryManager, client: Any
) -> None:
    await asyncio.gather(
        *(memory.add_interaction("note", "x", ttl_hours=0.2 * SECOND) for _ in range(50))
    )

    async def is_empty() -> bool:
        return not [each async for each in client.scan_iter(match=key(memory, "*"), count=10_000)]

    await until(is_empty, "the end of every key")


async def test_dead_members_leave_the_index_on_the_way(
    memory: ShortTermMemoryManager, client: Any
) -> None:
    await memory.add_interaction("note", "kept")
    for _ in range(2):
        dying = await asyncio.gather(
            *(memory.add_interaction("note", "x", ttl_hours=0.2 * SECOND) for _ in range(50))
        )

        keys = [key(memory, each.id) for each in dying]

        async def all_died(keys: list[str] = keys) -> bool:
            return not await client.exists(*keys)

        await until(all_died, "the end of the short ones")
        await memory.add_interaction("note", "kept")

        sizes = [await client.zcard(key(memory, name)) for name in ("index", "expiry")]

        assert sizes == [await memory.count()] * 2


async def test_a_user_without_a_right_is_told_which(mortal: RedisServer) -> None:
    client: Any = Redis.from_url(mortal.url())
    async with client:
        await client.execute_command(
            "ACL", "SETUSER", "half", "on", ">s3cret/@:#", "~agent:*", "+@all", "-evalsha", "-eval"
        )
    url = f"redis://half:s3cret%2F%40%3A%23@127.0.0.1:{mortal.port}/0"
    memory = ShortTermMemoryManager(url, new_agent(), deadline=600)
    await memory.connect()

    with pytest.raises(AccessError, match="evalsha") as caught:
        await asyncio.wait_for(memory.add_interaction("note", "x"), HANG)

    assert isinstance(caught.value, PermissionError)
    assert "s3cret" not in str(caught.value) + repr(memory)
    await memory.disconnect()
