"""Slots that move, nodes that fall and masters that change: writers notice a delay at most."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot
from tests.crash._proxy import Proxy
from tests.crash._redis_load import Load, left_open, new_agent, storm
from tests.servers.databases import RedisServer
from tests.servers.redis_topologies import (
    RedisCluster,
    RedisSentinel,
    redis_cluster,
    redis_sentinel,
)
from tests.timing import HANG, scaled, until

from orbiter.memory import MemoryConnectionError
from orbiter.memory.backends.pool_counts import PoolCounts
from orbiter.memory.backends.redis.address import connect, disconnect, parse_address
from orbiter.memory.episodic.manager import ShortTermMemoryManager
from orbiter.memory.errors import AccessError

__all__ = ["redis_cluster", "redis_sentinel"]

Make = Callable[[str], ShortTermMemoryManager]


@pytest.fixture
async def make(redis_cluster: RedisCluster) -> AsyncIterator[Make]:
    """Return a function that makes managers on the cluster."""
    made: list[ShortTermMemoryManager] = []
    patience = scaled(10)

    def build(agent_id: str) -> ShortTermMemoryManager:
        made.append(ShortTermMemoryManager(redis_cluster.url(), agent_id, deadline=patience))
        return made[-1]

    yield build
    for manager in made:
        await manager.disconnect()


def slot_of(agent_id: str) -> int:
    return int(key_slot(f"{{{agent_id}}}".encode()))


async def keys_at(server: RedisServer) -> list[bytes]:
    async with Redis.from_url(server.url()) as client:
        return [key async for key in client.scan_iter(count=10_000)]


# A cluster


async def test_all_keys_of_an_agent_lie_in_one_slot(
    redis_cluster: RedisCluster, make: Make
) -> None:
    agents = [make(new_agent("slots of")) for _ in range(6)]
    for agent in agents:
        await asyncio.gather(*(agent.add_interaction("note", str(n)) for n in range(5)))

    keys = [key for node in redis_cluster.nodes for key in await keys_at(node)]

    client: Any = Redis.from_url(redis_cluster.nodes[0].url())
    async with client:
        for agent in agents:
            own = [key for key in keys if f"{{{agent.agent_id}}}".encode() in key]
            slots = {await client.execute_command("CLUSTER KEYSLOT", key) for key in own}
            assert len(own) == 5 + 3
            assert slots == {slot_of(agent.agent_id)}


async def test_slots_that_move_forth_and_back_cost_nothing(
    redis_cluster: RedisCluster, make: Make
) -> None:
    read: list[int] = []

    async with Load(make, writers=16, agents=4, pause=0.02) as load:
        slots = [slot_of(manager.agent_id) for manager in load.managers]
        reading = asyncio.create_task(_read_on(load, read))
        for _ in range(2):
            for slot in slots:
                to = (redis_cluster.owner_of(slot) + 1) % 3
                await asyncio.to_thread(redis_cluster.move_slot, slot, to=to)
                await asyncio.sleep(0.05)
        await until(lambda: len(read) > 20, "twenty readings")
        reading.cancel()
        ended = await asyncio.gather(reading, return_exceptions=True)

    assert isinstance(ended[0], asyncio.CancelledError), ended
    assert load.errors == []
    assert await load.judge() == ([], [])


async def _read_on(load: Load, read: list[int]) -> None:
    """Read all agents over and over: what was seen once is seen again."""
    seen = [0] * len(load.managers)
    while True:
        for place, manager in enumerate(load.managers):
            count = len(await manager.get_recent())
            assert count >= seen[place], "memories went missing on the way"
            assert await manager.count() >= count
            seen[place] = count
            read.append(count)


@pytest.mark.parametrize("moved", [0, 3, 20, 1000])
async def test_calls_wait_for_a_slot_that_is_halfway(
    redis_cluster: RedisCluster, make: Make, moved: int
) -> None:
    manager = make(new_agent("halfway"))
    await asyncio.gather(*(manager.add_interaction("note", str(n)) for n in range(40)))
    slot = slot_of(manager.agent_id)

    with redis_cluster.moving_slot(slot, to=(redis_cluster.owner_of(slot) + 1) % 3) as move_keys:
        await asyncio.to_thread(move_keys, moved)
        reading = asyncio.create_task(manager.get_recent())
        counting = asyncio.create_task(manager.count())
        adding = [asyncio.create_task(manager.add_interaction("note", f"+{n}")) for n in range(10)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(move_keys, 1000)

    async with asyncio.timeout(HANG):
        assert len(await reading) in range(40, 51)
        assert await counting in range(40, 51)
        await asyncio.gather(*adding)
    contents = [memory.content for memory in await manager.get_recent()]
    assert sorted(contents) == sorted([*map(str, range(40)), *(f"+{n}" for n in range(10))])


async def test_a_slot_that_is_halfway_hides_no_memory(
    redis_cluster: RedisCluster, make: Make
) -> None:
    manager = make(new_agent("hidden"))
    for n in range(8):
        await manager.add_interaction("note", str(n))
    slot = slot_of(manager.agent_id)

    source = redis_cluster.owner_of(slot)
    target = (source + 1) % 3

    with redis_cluster.moving_slot(slot, to=target):
        # The index goes first, so that for a while the bodies are not where it is.
        own = [key for key in await keys_at(redis_cluster.nodes[source]) if b"{hidden" in key]
        shared = [key for key in own if key.endswith((b":index", b":expiry", b":arrivals"))]
        client: Any = Redis.from_url(redis_cluster.nodes[source].url())
        there = ("127.0.0.1", redis_cluster.nodes[target].port, "", 0, 5_000)
        await client.execute_command(
            "MIGRATE", *there, "AUTH", redis_cluster.password, "KEYS", *shared
        )
        await client.aclose()
        reading = asyncio.create_task(manager.get_recent(limit=1))
        await asyncio.sleep(0.3)

    assert [memory.content for memory in await reading] == ["7"]


async def test_a_node_that_is_killed_and_comes_back_has_lost_nothing(
    redis_cluster: RedisCluster, make: Make
) -> None:
    async with Load(make, writers=12, agents=6, pause=0.05) as load:
        node = redis_cluster.nodes[redis_cluster.owner_of(slot_of(load.managers[0].agent_id))]
        await asyncio.to_thread(node.stop, mode="immediate")
        await asyncio.sleep(0.1)
        # It takes two seconds: so long a master that comes back waits before it serves.
        await asyncio.to_thread(redis_cluster.repair)
        await load.goes_on()

    assert load.errors == []
    assert await load.judge() == ([], [])


async def test_a_slot_that_nobody_serves_is_an_error_in_time_and_no_trouble_for_others(
    redis_cluster: RedisCluster, make: Make
) -> None:
    names = [new_agent("served") for _ in range(30)]
    dead, alive = (
        next(n for n in names if redis_cluster.owner_of(slot_of(n)) == i) for i in (1, 2)
    )
    away = ShortTermMemoryManager(redis_cluster.url(), dead, deadline=scaled(1))
    near = ShortTermMemoryManager(redis_cluster.url(), alive, deadline=scaled(1))
    await away.connect()
    await asyncio.to_thread(redis_cluster.nodes[1].stop, mode="immediate")
    try:
        async with asyncio.timeout(HANG):
            results = await asyncio.gather(
                away.add_interaction("note", "x"),
                *(near.add_interaction("note", str(n)) for n in range(20)),
                return_exceptions=True,
            )
    finally:
        await asyncio.to_thread(redis_cluster.repair)

    assert isinstance(results[0], ConnectionError)
    assert redis_cluster.password not in str(results[0])
    assert [type(each).__name__ for each in results[1:]] == ["EpisodicMemory"] * 20
    await away.add_interaction("note", "again")
    await away.disconnect()
    await near.disconnect()


async def test_the_address_of_one_node_is_refused_with_the_right_one(
    redis_cluster: RedisCluster,
) -> None:
    for node in redis_cluster.nodes:
        manager = ShortTermMemoryManager(node.url(), new_agent("plain"))
        with pytest.raises(ConnectionError, match=r"redis\+cluster://") as caught:
            async with asyncio.timeout(HANG), manager:
                await manager.add_interaction("note", "x")
        assert "did not answer within" not in str(caught.value), "it was asked again and again"
        await manager.disconnect()


async def test_a_wrong_password_of_a_cluster_is_told_at_once(redis_cluster: RedisCluster) -> None:
    url = redis_cluster.url().replace(redis_cluster.password, "wr0ng-secret")
    manager = ShortTermMemoryManager(url, "nova")

    with pytest.raises(AccessError) as caught:
        async with asyncio.timeout(HANG):
            await manager.connect()

    assert "wr0ng" not in str(caught.value)
    await manager.disconnect()


@left_open  # see the test of this name for one server
def test_a_storm_of_cancellations_mixes_up_no_answers_and_loses_nothing(
    redis_cluster: RedisCluster,
) -> None:
    asyncio.run(storm(redis_cluster.url(), cancellations=500))


async def test_a_stream_goes_on_while_its_slot_moves(
    redis_cluster: RedisCluster, make: Make
) -> None:
    manager = make(new_agent("stream"))
    before = await manager.add_interaction("note", "before")
    slot = slot_of(manager.agent_id)
    heard: list[str] = []

    async with asyncio.timeout(HANG), aclosing(manager.stream(since=before.timestamp)) as stream:
        async for memory in stream:
            heard.append(memory.content)
            if len(heard) in (1, 4):
                adding = asyncio.create_task(_add(manager, f"m{len(heard)}", 3))
                await asyncio.to_thread(
                    redis_cluster.move_slot, slot, to=(redis_cluster.owner_of(slot) + 1) % 3
                )
                await adding
            if len(heard) == 7:
                break

    assert heard == ["before", "m1-0", "m1-1", "m1-2", "m4-0", "m4-1", "m4-2"]


async def _add(manager: ShortTermMemoryManager, name: str, count: int) -> None:
    for n in range(count):
        await manager.add_interaction("note", f"{name}-{n}")
        await asyncio.sleep(0.02)


# Sentinels


async def test_a_gentle_failover_under_load_loses_nothing(redis_sentinel: RedisSentinel) -> None:
    patience = scaled(10)
    async with Load(
        lambda agent: ShortTermMemoryManager(redis_sentinel.url(), agent, deadline=patience),
        writers=20,
        pause=0.05,
    ) as load:
        old = redis_sentinel.master
        await asyncio.to_thread(redis_sentinel.fail_over, gently=True)
        await load.goes_on()
    await asyncio.to_thread(redis_sentinel.repair)

    assert redis_sentinel.master is not old
    assert load.errors == []
    assert await load.judge() == ([], [])


async def test_when_the_master_is_killed_writers_go_on_with_the_next_and_double_nothing(
    redis_sentinel: RedisSentinel,
) -> None:
    patience = scaled(10)
    async with Load(
        lambda agent: ShortTermMemoryManager(redis_sentinel.url(), agent, deadline=patience),
        writers=20,
        pause=0.05,
    ) as load:
        await _replicated(redis_sentinel)
        safe = set(load.acknowledged)
        await asyncio.to_thread(redis_sentinel.fail_over)
        await load.goes_on()
    await asyncio.to_thread(redis_sentinel.repair)

    assert load.errors == []
    lost, doubled = await load.judge()
    # What only the dead master had is gone, as everywhere with asynchronous replication.
    assert not safe & set(lost)
    assert doubled == []


async def _replicated(sentinel: RedisSentinel) -> None:
    client: Any = Redis.from_url(sentinel.master.url())
    async with client:
        assert await client.execute_command("WAIT", 1, 5_000) == 1


async def test_no_sentinel_is_forgotten_when_many_ask_at_once(
    redis_sentinel: RedisSentinel,
) -> None:
    address = parse_address(redis_sentinel.url())
    client: Any = connect(
        address,
        connections=50,
        timeout=scaled(5),
        patience=scaled(5),
        counts=PoolCounts("redis"),
    )
    manager = client.connection_pool.sentinel_manager
    redis_sentinel.sentinels[0].stop(mode="immediate")

    asked = [manager.discover_master(address.service) for _ in range(20)]
    masters = await asyncio.gather(*asked)
    await disconnect(client)
    await asyncio.to_thread(redis_sentinel.repair)

    assert len(set(masters)) == 1
    assert len(set(manager.sentinels)) == 3
    assert manager.sentinels[0].connection_pool.connection_kwargs["port"] in {
        each.port for each in redis_sentinel.sentinels[1:]
    }, "the next call asks one that answered"


async def test_a_stream_outlives_a_failover(redis_sentinel: RedisSentinel) -> None:
    manager = ShortTermMemoryManager(redis_sentinel.url(), new_agent("stream"), deadline=scaled(10))
    before = await manager.add_interaction("note", "before")
    heard: list[str] = []
    more: asyncio.Task[Any] | None = None

    async def change_places() -> None:
        await asyncio.sleep(0.2)  # the stream waits at the server by now
        await asyncio.to_thread(redis_sentinel.fail_over, gently=True)
        await manager.add_interaction("note", "after")

    async with asyncio.timeout(HANG), aclosing(manager.stream(since=before.timestamp)) as stream:
        async for memory in stream:
            heard.append(memory.content)
            if memory.content == "before":
                more = asyncio.create_task(change_places())
            else:
                break

    assert more is not None
    await more
    await manager.disconnect()
    await asyncio.to_thread(redis_sentinel.repair)
    assert heard == ["before", "after"]


async def test_nobody_there_and_nobody_of_that_name_are_connection_errors_in_time(
    redis_sentinel: RedisSentinel,
) -> None:
    hosts = "127.0.0.1:1,127.0.0.1:2"
    urls = [
        "redis://ann:hush@127.0.0.1:1/0",
        f"redis+cluster://:hush@{hosts}",
        f"redis+sentinel://:hush@{hosts}/mymaster",
        redis_sentinel.url().replace("/mymaster/", "/nobody/"),
    ]
    managers = [ShortTermMemoryManager(url, "nova") for url in urls]

    async with asyncio.timeout(HANG):
        results = await asyncio.gather(
            *(each.connect() for each in managers), return_exceptions=True
        )

    assert [type(each) for each in results] == [MemoryConnectionError] * 4
    assert all("did not answer within 3 s" in str(each) for each in results)
    assert re.search("redis://ann@127.0.0.1:1/0.*connecting to", str(results[0]))
    assert hosts in str(results[1])
    assert hosts in str(results[2])
    assert "nobody" in str(results[3])
    assert "hush" not in str(results)
    assert redis_sentinel.password not in str(results)
    for manager in managers:
        await manager.disconnect()


async def test_a_wrong_password_of_the_master_is_told_at_once(
    redis_sentinel: RedisSentinel,
) -> None:
    url = redis_sentinel.url().replace(redis_sentinel.password, "wr0ng-secret")
    manager = ShortTermMemoryManager(url, "nova")

    with pytest.raises(AccessError) as caught:
        async with asyncio.timeout(HANG):
            await manager.connect()

    assert "wr0ng" not in str(caught.value)
    await manager.disconnect()


async def test_writes_behind_one_address_follow_the_server_that_took_over() -> None:
    with RedisServer.start() as old, RedisServer.start() as new:
        admin: Any = Redis.from_url(old.url())
        async with Proxy(old.port) as proxy, admin:
            url = f"redis://127.0.0.1:{proxy.port}"
            await admin.config_set("requirepass", "")
            async with Redis.from_url(new.url()) as other:
                await other.config_set("requirepass", "")
            manager = ShortTermMemoryManager(url, "nova")
            await asyncio.gather(*(manager.add_interaction("note", str(n)) for n in range(50)))
            # Connections to the old server stay open: it is a replica now, and refuses writes.
            await admin.execute_command("REPLICAOF", "127.0.0.1", new.port)
            proxy.upstream = new.port

            await asyncio.wait_for(manager.add_interaction("note", "after"), HANG)

            assert [memory.content for memory in await manager.get_recent()] == ["after"]
            await manager.disconnect()
