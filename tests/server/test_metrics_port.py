"""Metrics on a port of their own, and the dashboard and the alerts that read them."""

import asyncio
import json
import re
import socket
import time
from pathlib import Path

import httpx
import pytest
import yaml
from tests.server.conftest import Client, Served, new_key
from tests.timing import HANG

from orbiter.memory.auth import KeyFile
from orbiter.memory.errors import MemoryConnectionError

FOLDER = Path(__file__).parents[2] / "deploy/observability"
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
    labels = set(re.findall(r"(\w+)=\"", text)) | {"job"}
    for query in queries:
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query)) <= labels, query
        assert query.count("(") == query.count(")"), query


def test_the_alerts_have_what_prometheus_asks_for() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    dashboard = json.loads((FOLDER / "grafana.json").read_text())

    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "action"} == rule["annotations"].keys()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
