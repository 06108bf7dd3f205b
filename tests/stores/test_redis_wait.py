"""`?wait_replicas=1`: a write that returns is at a replica, or the error says that it is not."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot
from tests.crash._proxy import Proxy
from tests.rows import each_row
from tests.servers.databases import RedisServer, require_or_skip
from tests.servers.redis_topologies import RedisCluster
from tests.stores.test_redis import ANN, said
from tests.timing import scaled, until, until_blocking

from orbiter.memory import AgentMemory, MemoryMetadata, RedisMemoryStore, ShortTermMemoryManager
from orbiter.memory.backends.redis.address import parse_address
from orbiter.memory.errors import AccessError, MemoryTimeoutError
from orbiter.memory.model.items import new_id

# Long enough for a replica on busy cores, and for a frozen one not to cost too much.
PATIENT, SHORT = 5000, 300


class Pair:
    """A primary and its replica, which can be frozen."""

    def __init__(self, primary: RedisServer, replica: RedisServer) -> None:
        self.primary, self.replica = primary, replica

    def url(self, wait_ms: int = PATIENT, *, replicas: int = 1, user: str = "") -> str:
        options = f"wait_replicas={replicas}&wait_ms={wait_ms}"
        return f"{self.primary.url(user=user)}?{options}"

    @contextlib.contextmanager
    def frozen_replica(self) -> Iterator[None]:
        pid = self.replica.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        until_blocking(lambda: _is_stopped(pid), "the end of all work at the replica")
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    return state.startswith("T")


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    data = {"repl-diskless-sync-delay": "0"}
    users = {"ann": ["on", ">secret", "~*", "+@all", "-wait"]}
    with contextlib.ExitStack() as stack:
        try:
            primary = stack.enter_context(RedisServer.start(settings=data, users=users))
        except ModuleNotFoundError as exc:
            require_or_skip(str(exc))
        password = urlsplit(primary.url()).password or ""
        data |= {"replicaof": f"127.0.0.1 {primary.port}", "masterauth": password}
        replica = stack.enter_context(RedisServer.start(settings=data))
        yield Pair(primary, replica)


@pytest.fixture
async def pair(servers: Pair) -> Pair:
    client: Any = Redis.from_url(servers.replica.url())
    async with client:

        async def follows() -> bool:
            return bool((await client.execute_command("ROLE"))[3] == b"connected")

        await until(follows, "a replica that follows")
    return servers


@pytest.fixture
async def replica(pair: Pair) -> AsyncIterator[Any]:
    async with Redis.from_url(pair.replica.url()) as client:
        yield client


def store_at(url: str, name: str | None = None) -> RedisMemoryStore:
    return RedisMemoryStore(url, name=name or new_id(), deadline=scaled(20))


async def test_a_write_that_returns_is_at_the_replica(pair: Pair, replica: Any) -> None:
    async with store_at(pair.url()) as store:
        for number in range(50):
            await store.add(said(f"n{number}", f"id{number}"))
            assert await replica.exists(f"orbiter:{{{store.name}}}:item:id{number}")
        await asyncio.gather(*(store.add(said(f"m{n}", f"m{n}")) for n in range(200)))
        assert await store.count() == 250
        assert await store.delete("m7")
        assert not await replica.exists(f"orbiter:{{{store.name}}}:item:m7")


async def test_a_replica_that_does_not_answer_is_told_and_the_primary_has_the_write(
    pair: Pair,
) -> None:
    async with store_at(pair.url(SHORT)) as store:
        with pair.frozen_replica():
            with pytest.raises(MemoryTimeoutError, match="0 of 1 replicas confirmed it") as caught:
                await store.add(said("only on the primary", "one"))
            found = await store.get("one")

    assert found is not None
    assert found.content == "only on the primary"
    assert "the primary of `redis://" in str(caught.value)
    assert f"within {SHORT} ms" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_writes_are_confirmed_again_when_the_replica_is_back(pair: Pair) -> None:
    async with store_at(pair.url()) as store:
        await store.add(said("before", "one"))
        with pair.frozen_replica():
            writing = asyncio.create_task(store.add(said("meanwhile", "two")))
            async with store_at(pair.primary.url(), store.name) as other:
                await until(lambda: _has(other, "two"), "the write at the primary")
            assert not writing.done()
        await writing


async def _has(store: RedisMemoryStore, item_id: str) -> bool:
    return await store.get(item_id) is not None


async def test_reads_do_not_wait_for_replicas(pair: Pair) -> None:
    async with store_at(pair.url()) as store:
        await store.add(said("here", "one"))
        with pair.frozen_replica():
            writing = [asyncio.create_task(store.add(said("x"))) for _ in range(20)]
            await asyncio.sleep(0)
            assert await store.get("one") is not None
            assert not any(task.done() for task in writing)
        await asyncio.gather(*writing)


async def test_more_replicas_than_there_are_is_an_error(pair: Pair) -> None:
    async with store_at(pair.url(SHORT, replicas=2)) as store:
        with pytest.raises(MemoryTimeoutError, match="of 2 replicas"):
            await store.add(said("x"))


async def test_every_kind_of_write_waits(pair: Pair) -> None:
    async with store_at(pair.primary.url()) as plain:
        await plain.add(said("x", "one"))
    store = store_at(pair.url(SHORT), plain.name)
    async with store, AgentMemory(store=store) as memory:
        handle = memory.scope("ann")
        with pair.frozen_replica():
            for writing in (
                store.add_many([said("y"), said("z")]),
                store.insert([said("new")]),
                store.delete("one"),
                store.clear(metadata=ANN),
                store.erase(metadata=ANN),
                store.erase(metadata=ANN, item_ids=["one"]),
                handle.kv.put(("a",), "key", b"2"),
                handle.kv.delete(("a",), "key"),
            ):
                with pytest.raises(MemoryTimeoutError, match="0 of 1"):
                    await writing


async def test_episodes_wait_too(pair: Pair) -> None:
    agent = new_id()
    async with ShortTermMemoryManager(pair.url(), agent, deadline=scaled(20)) as episodes:
        await episodes.add_interaction("note", "confirmed")
    async with ShortTermMemoryManager(pair.url(SHORT), agent, deadline=scaled(20)) as episodes:
        with pair.frozen_replica(), pytest.raises(MemoryTimeoutError, match="0 of 1"):
            await episodes.add_interaction("note", "not confirmed")
        found = [each.content for each in await episodes.get_recent()]

    assert found == ["not confirmed", "confirmed"]


async def test_a_repeated_write_is_not_taken_for_confirmed(pair: Pair) -> None:
    # Its answer is lost; the second time it changes nothing, so its connection has written
    # nothing that a replica could lack.
    async with store_at(pair.primary.url()) as plain:
        await plain.add(said("a server that knows the script answers with more than a question"))
    async with Proxy(pair.primary.port) as proxy, store_at(proxy.dsn(pair.url(SHORT))) as store:
        proxy.lose_reply(b"mark-1")
        with pair.frozen_replica(), pytest.raises(MemoryTimeoutError, match="0 of 1"):
            await store.add(said("mark-1", "one"))
        found = await store.get("one")

    assert found is not None
    assert (found.content, found.version) == ("mark-1", 1)


async def test_a_user_who_may_not_wait_is_told(pair: Pair) -> None:
    async with store_at(pair.url(user="ann")) as store:
        with pytest.raises(AccessError, match="wait"):
            await store.add(said("x"))


# A cluster


@pytest.fixture(scope="module")
def whole_cluster() -> Iterator[RedisCluster]:
    try:
        cluster = RedisCluster.start(replicas=1)
    except ModuleNotFoundError as exc:
        require_or_skip(str(exc))
    with cluster:
        yield cluster


async def test_writes_to_all_nodes_of_a_cluster_are_confirmed(whole_cluster: RedisCluster) -> None:
    url = f"{whole_cluster.url()}?wait_replicas=1&wait_ms={PATIENT}"
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(store_at(url)) for _ in range(9)]
        await asyncio.gather(*(each.add(said(str(n))) for each in stores for n in range(30)))
        assert [await each.count() for each in stores] == [30] * 9

        strict = f"{whole_cluster.url()}?wait_replicas=2&wait_ms={SHORT}"
        too_many = await stack.enter_async_context(store_at(strict))
        with pytest.raises(MemoryTimeoutError, match="of 2 replicas"):
            await too_many.add(said("x"))


async def test_writes_follow_a_slot_that_moves_and_are_confirmed_there(
    whole_cluster: RedisCluster,
) -> None:
    url = f"{whole_cluster.url()}?wait_replicas=1&wait_ms={PATIENT}"
    async with store_at(url) as store:
        await store.add(said("x", "one"))
        slot = key_slot(f"{{{store.name}}}".encode())
        to = (whole_cluster.owner_of(slot) + 1) % 3
        with whole_cluster.moving_slot(slot, to=to) as move_keys:
            while move_keys(100):
                pass
            # All keys are there, the slot is not yet.
            writing = asyncio.create_task(store.add(said("y", "two")))
        await writing
        await store.add(said("z", "three"))

        assert await store.count() == 3
        target = whole_cluster.nodes[to + 3]
        client: Any = Redis.from_url(target.url())
        async with client:
            keys = await client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
        assert f"orbiter:{{{store.name}}}:item:three".encode() in keys


@pytest.mark.parametrize("options", ["", f"?wait_replicas=1&wait_ms={PATIENT}"])
async def test_a_store_whose_slot_is_halfway_neither_forgets_nor_doubles(
    whole_cluster: RedisCluster, options: str
) -> None:
    async with store_at(whole_cluster.url() + options) as store:
        users = [MemoryMetadata(user_id=f"user-{n}", session_id="s") for n in range(5)]
        for n in range(25):
            await store.add(said(str(n), f"id-{n}", users[n % 5]))
        slot = key_slot(f"{{{store.name}}}".encode())
        to = (whole_cluster.owner_of(slot) + 1) % 3
        calls: list[asyncio.Task[Any]] = []
        with whole_cluster.moving_slot(slot, to=to) as move_keys:
            while await asyncio.to_thread(move_keys, 3):
                new = said("new", f"new-{len(calls)}", users[len(calls) % 5])
                calls += [
                    asyncio.create_task(each)
                    for each in (store.add(new), store.search(metadata=users[0]), store.count())
                ]
                await asyncio.sleep(0.01)
        await asyncio.gather(*calls)

        added = len(calls) // 3
        assert await store.count() == 25 + added
        assert len(await store.search(limit=1000)) == 25 + added
        found = [len(await store.search(metadata=who, limit=1000)) for who in users]
        assert sum(found) == 25 + added


# Addresses


def test_the_options_are_ours_and_not_of_the_driver() -> None:
    address = parse_address("redis://:secret@host/2?wait_replicas=2&socket_timeout=3")
    cluster = parse_address("redis+cluster://:secret@a,b?wait_ms=50&wait_replicas=1")

    assert (address.wait_replicas, address.wait_ms) == (2, 1000)
    assert (cluster.wait_replicas, cluster.wait_ms) == (1, 50)
    assert address.url == "redis://:secret@host/2?socket_timeout=3"
    assert "wait" not in cluster.url
    assert str(address) == "redis://host/2?wait_replicas=2"


@each_row(
    ("options", "error"),
    [
        ("wait_replicas=0", "`wait_replicas` must be a whole number from 1 to 100, not `0`"),
        ("wait_replicas=all", "not `all`"),
        ("wait_replicas=", "not ``"),
        ("wait_replicas=1&wait_ms=-5", "`wait_ms` must be a whole number from 1 to 600,000"),
        ("wait_ms=5", "`wait_ms` needs `wait_replicas`"),
        ("wait_replicas=1&wait_ms=10000", "shorter than the deadline of a call, 10 s"),
    ],
)
def test_options_that_mean_nothing_are_named(options: str, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        RedisMemoryStore(f"redis://:secret@localhost/0?{options}")
