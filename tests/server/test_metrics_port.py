"""Metrics on a port of their own, and the dashboard and the alerts that read them."""

import asyncio
import json
import re
import shutil
import socket
import time
from collections import namedtuple
from pathlib import Path

import asyncpg
import httpx
import pytest
import yaml
from redis.asyncio import Redis
from tests.server.conftest import Client, Served, new_key, new_user
from tests.servers.databases import RedisServer, postgres_server, redis_server
from tests.stores.conftest import postgres_dsn
from tests.timing import HANG, until

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, KeyTable
from orbiter.memory.backends.postgres import PostgresMemoryStore
from orbiter.memory.backends.redis.address import parse_address
from orbiter.memory.backends.redis.connection import RedisConnection
from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError
from orbiter.memory.model.items import MemoryMetadata

FOLDER = Path(__file__).parents[2] / "deploy/observability"
__all__ = ["postgres_dsn", "postgres_server", "redis_server"]

OURS = re.compile(r"\b(?:orbiter|process)_[a-z_]+")


async def _metrics(served: Served, client: Client, keys: KeyFile) -> tuple[str, str]:
    """Return the address of a server's metrics, and what it says after some requests."""
    token = new_key(keys, user="ann")
    http = client(await served(keys=keys, metrics_port=0), token)
    await http.post("/v1/memories", json={"what": "Ann likes tea"})
    await client(str(http.base_url)).get("/v1/memories")
    address = f"http://127.0.0.1:{served.app.state.metrics_port}"  # type: ignore[attr-defined]
    return address, (await client(address).get("/metrics")).text


async def test_metrics_need_no_key_on_their_own_port_and_nothing_else_is_there(
    served: Served, client: Client, keys: KeyFile
) -> None:
    address, text = await _metrics(served, client, keys)
    http = client(address)

    assert 'orbiter_requests_total{route="/v1/memories",method="POST",status="2xx"} 1' in text
    assert "orbiter_memories 1" in text
    assert "tea" not in text
    assert "ann" not in text
    for path in ("/", "/v1/memories", "/metrics/", "/readyz", "//metrics"):
        assert (await http.get(path)).status_code == 404, path
    assert (await http.post("/metrics")).status_code == 404
    head = await http.head("/metrics")
    assert (head.status_code, head.text) == (200, "")
    assert head.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux has these files")
async def test_metrics_say_what_the_process_costs(
    served: Served, client: Client, keys: KeyFile
) -> None:
    _, text = await _metrics(served, client, keys)
    numbers = dict(re.findall(r"^(process_\w+|orbiter_store_bytes) (\S+)$", text, re.MULTILINE))

    # Of what is told, the last digit is rounded.
    assert 0 < float(numbers["process_cpu_seconds_total"]) < time.process_time() + 0.1
    assert 2**24 < int(numbers["process_resident_memory_bytes"]) < 2**34
    assert 3 < int(numbers["process_open_fds"]) < 10_000
    assert numbers["orbiter_store_bytes"].isdecimal(), "all of its digits"


async def test_metrics_say_how_much_room_the_disk_of_a_file_has(
    served: Served, client: Client, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 1, 2**40 - 1))
    _, text = await _metrics(served, client, keys)
    async with AgentMemory("memory://", embeddings=None) as memory:
        elsewhere = await served(memory=memory)
        without = (await client(elsewhere).get("/metrics")).text

    assert f"\norbiter_store_free_bytes {2**40 - 1}\n" in text
    assert "orbiter_memories " in without
    assert "orbiter_store_free_bytes" not in without


async def test_the_usual_address_of_metrics_still_needs_a_key(
    served: Served, client: Client, keys: KeyFile
) -> None:
    admin = new_key(keys, "admin")
    url = await served(keys=keys, metrics_port=0)

    assert (await client(url).get("/metrics")).status_code == 401
    assert (await client(url, admin).get("/metrics")).status_code == 200


async def test_without_the_setting_there_is_no_such_port(served: Served) -> None:
    await served()

    assert not hasattr(served.app.state, "metrics_port")  # type: ignore[attr-defined]


async def test_a_client_that_sends_no_request_stops_nobody(
    served: Served, client: Client, keys: KeyFile
) -> None:
    address, _ = await _metrics(served, client, keys)
    port = httpx.URL(address).port
    _, silent = await asyncio.open_connection("127.0.0.1", port)
    reader, long = await asyncio.open_connection("127.0.0.1", port)
    long.write(b"GET /" + b"x" * 20_000)

    async with asyncio.timeout(HANG):
        cut = await reader.read()
        answer = await client(address).get("/metrics")

    assert cut == b""
    assert answer.status_code == 200
    for each in (silent, long):
        each.close()


async def test_a_port_that_is_taken_is_told_with_the_way_out(served: Served) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MemoryConnectionError, match="--metrics-port"):
            await served(metrics_port=taken.getsockname()[1])


async def test_the_dashboard_and_the_alerts_use_metrics_that_exist(
    served: Served, client: Client, keys: KeyFile
) -> None:
    text = (await _metrics(served, client, keys))[1]
    declared = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    histograms = [name for name, kind in declared.items() if kind == "histogram"]
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    known = {*declared, *parts}
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in dashboard["templating"]["list"]]
    queries += [rule["expr"] for rule in rules]

    used = {name for query in queries for name in OURS.findall(query)}

    assert used - known == set()
    assert set(declared) - {re.sub("_(bucket|sum|count)$", "", name) for name in used} == set()
    labels = set(re.findall(r"(\w+)=\"", text)) | {"job", "pool", "state"}
    for query in queries:
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query)) <= labels, query
        assert query.count("(") == query.count(")"), query


def _pool(text: str, pool: str) -> dict[str, float]:
    """Return the numbers of a pool, by their names and states."""
    found = re.findall(
        r'^orbiter_pool_(\w+)\{pool="([^"]+)"(?:,state="(\w+)")?\} (\S+)$', text, re.MULTILINE
    )
    return {state or name: float(number) for name, which, state, number in found if which == pool}


async def test_a_pool_of_postgres_says_who_waits_for_a_connection(
    served: Served, client: Client, postgres_dsn: str
) -> None:
    keys = KeyTable(postgres_dsn)
    _, token = await keys.create(scope=MemoryMetadata(), role="admin")
    url = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}max_size=2"
    blocker = await asyncpg.connect(postgres_dsn)
    try:
        async with AgentMemory(url, embeddings=None, summaries=None) as memory:
            address = await served(memory=memory, keys=keys, metrics_port=0)
            http = client(address, token)
            assert (
                await http.post("/v1/memories?user_id=ann", json={"what": "tea"})
            ).status_code == 201

            async def read(pool: str = "postgres") -> dict[str, float]:
                port = served.app.state.metrics_port  # type: ignore[attr-defined]
                return _pool((await client(f"http://127.0.0.1:{port}").get("/metrics")).text, pool)

            calm = await read()
            lock = blocker.transaction()
            await lock.start()
            await blocker.execute("LOCK TABLE memory_items IN ACCESS EXCLUSIVE MODE")
            reads = [
                asyncio.create_task(http.get(f"/v1/memories/{n}?user_id=ann")) for n in range(5)
            ]
            busy: dict[str, float] = {}

            async def is_full() -> bool:
                busy.update(await read())
                return busy["waiting"] == 3

            await until(is_full, "three of five calls waiting")
            await lock.rollback()
            await asyncio.gather(*reads)
            after, of_keys = await read(), await read("keys")
    finally:
        await blocker.close()
        await keys.close()

    assert (calm["waiting"], calm["max_connections"]) == (0, 2)
    assert calm["used"] + calm["idle"] <= 2
    assert (busy["used"], busy["idle"]) == (2, 0)
    assert (after["waiting"], after["used"]) == (0, 0)
    assert after["wait_seconds_total"] > calm["wait_seconds_total"]
    assert after["acquired_total"] >= calm["acquired_total"] + 5
    assert of_keys["acquired_total"] >= 6
    assert (of_keys["max_connections"], of_keys["timeouts_total"]) == (4, 0)


async def test_a_call_that_gets_no_connection_in_time_is_counted(postgres_dsn: str) -> None:
    async with PostgresMemoryStore(postgres_dsn, max_size=1, acquire_timeout=0.2) as store:
        async with store._driver.lease(store._opened()):
            with pytest.raises(MemoryTimeoutError, match="max_size=20"):
                await store.get("tea")

        assert store._driver._counts.timeouts == 1


async def test_a_pool_of_redis_says_how_many_connections_it_has(
    served: Served, client: Client, redis_server: RedisServer
) -> None:
    url = f"{redis_server.url()}?max_connections=5"
    async with AgentMemory(url, embeddings=None, summaries=None) as memory:
        http = client(await served(memory=memory))
        for word in ("tea", "coffee"):
            assert (
                await http.post("/v1/memories?user_id=ann", json={"what": word})
            ).status_code == 201

        numbers = _pool((await http.get("/metrics")).text, "redis")

    assert numbers["max_connections"] == 5
    assert 1 <= numbers["used"] + numbers["idle"] <= 5
    assert numbers["waiting"] == 0
    assert numbers["acquired_total"] >= 1
    assert numbers["timeouts_total"] == 0


async def test_a_pool_of_redis_counts_who_waits_for_a_connection(redis_server: RedisServer) -> None:
    url, user = f"{redis_server.url()}?max_connections=1", asyncio.Event()
    connection = RedisConnection(parse_address(url), deadline=HANG)
    key, counts = f"pool-{new_user()}", connection._counts
    first = asyncio.create_task(connection.call_alone(user, ("BLPOP", key, 0)))
    await until(lambda: counts.sizes().used == 1)
    second = asyncio.create_task(connection.call_alone(user, ("BLPOP", key, 0)))

    await until(lambda: counts.waiting == 1)
    async with Redis.from_url(redis_server.url()) as other:
        await other.rpush(key, "one", "two")
    await asyncio.gather(first, second)

    assert (counts.waiting, counts.acquired, counts.timeouts) == (0, 2, 0)
    assert counts.sizes() == (0, 1, 1)
    assert counts.wait_seconds > 0
    await connection.leave(user)
    assert counts.sizes() == (0, 0, 0)


def test_the_alerts_have_what_prometheus_asks_for() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    dashboard = json.loads((FOLDER / "grafana.json").read_text())

    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "action"} == rule["annotations"].keys()
        names = re.findall(r"\b(?:orbiter_\w+|up)\b", rule["expr"])
        assert names, rule["alert"]
        assert rule["expr"].count('{job="orbiter-memory"') == len(names), rule["alert"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
