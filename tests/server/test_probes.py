"""Probes, request ids, the log and the metrics: what those who operate a server look at."""

import json
import logging
import shutil
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.errors import MemoryConnectionError
from orbiter.memory.server import Settings, create_app
from orbiter.memory.server.api.jobs import Jobs
from orbiter.memory.server.http.access_log import formatter, tenant_digest

BARE = {"with_mcp": False, "with_dashboard": False}
PROBES = {"/healthz": {"status": "ok"}, "/readyz": {"status": "ready"}}


@pytest.mark.parametrize("path", PROBES)
async def test_a_probe_needs_no_key_and_tells_its_status_alone(
    path: str, served: Served, client: Client, keys: KeyFile
) -> None:
    new_key(keys, user="ann")
    http = client(await served(keys=keys, **BARE))

    for headers in ({}, {"Host": "10.1.2.3:8765"}, {"X-Forwarded-For": "10.0.0.9"}):
        answer = await http.get(path, headers=headers)
        assert (answer.status_code, answer.json()) == (200, PROBES[path]), headers
        assert answer.headers["cache-control"] == "no-store"
    assert (await http.head(path)).status_code == 200
    assert (await http.post(path)).status_code == 401
    assert (await http.get(f"{path}/x")).status_code == 401
    wrong = await http.get(path, headers={"Authorization": "Bearer x"})
    assert wrong.status_code == (200 if path == "/healthz" else 401)


@pytest.mark.parametrize("with_mcp", [False, True])
async def test_a_server_that_does_not_start_says_why(
    with_mcp: bool, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(_: Jobs) -> None:
        raise MemoryConnectionError("the database is away")

    monkeypatch.setattr(Jobs, "start", start)

    with pytest.raises(MemoryConnectionError, match="the database is away"):
        await served(with_mcp=with_mcp)


async def test_a_server_whose_keys_cannot_be_read_lives_and_lets_nobody_in(
    served: Served, client: Client, keys: KeyFile
) -> None:
    http = client(await served(keys=keys, **BARE), new_key(keys, user="ann"))
    keys.path.write_text("{", encoding="utf-8")

    assert (await http.get("/healthz")).status_code == 200
    assert (await http.get("/readyz")).status_code == 503
    assert (await http.get("/v1/memories")).status_code == 503


async def test_readiness_names_the_store_where_the_keys_are_gone_with_it(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory
) -> None:
    http = client(await served(keys=keys, **BARE), new_key(keys, "admin"))
    keys.path.write_text("{", encoding="utf-8")

    keys_alone = (await http.get("/readyz")).json()["detail"]
    await memory.store.close()
    answer = await http.get("/readyz")
    without = await client(str(http.base_url)).get("/readyz")
    await memory.store.init()

    assert keys_alone == "keys: they cannot be read; the log of the server has the details"
    assert answer.status_code == without.status_code == 503
    assert answer.json()["detail"].startswith("keys: they cannot be read; store: the store does")
    assert "agent.db" not in answer.text  # nobody knows whose key it is
    assert without.json() == {"status": "not ready"}


async def test_an_administrator_is_told_why_the_store_does_not_respond(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory
) -> None:
    url = await served(keys=keys, **BARE)
    ann, admin = new_key(keys, user="ann"), new_key(keys, "admin")
    await memory.store.close()

    hidden, whole = [
        (await client(url, key).get("/readyz")).json()["detail"] for key in (ann, admin)
    ]
    await memory.store.init()

    assert hidden == "store: the store does not respond"
    assert whole.startswith("store: the store does not respond: SQLiteMemoryStore(")
    assert "agent.db') is not initialized" in whole


async def test_with_a_key_it_is_told_what_is_ready(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory
) -> None:
    http = client(await served(keys=keys, **BARE), new_key(keys, user="ann"))

    answer = await http.get("/readyz", headers={"Host": "10.1.2.3:8765"})  # as probes call it

    assert answer.status_code == 200, answer.text
    checks = answer.json()["checks"]
    assert {"store", "disk"} == checks.keys()  # what can also be wrong
    assert all(check["ok"] for check in checks.values())
    assert answer.json()["model"].endswith("HashEmbeddings")
    assert answer.json()["schema"] > 0
    elsewhere = {"Host": "10.1.2.3:8765"}
    assert (await http.get("/v1/memories", headers=elsewhere)).status_code == 421
    assert (await http.post("/readyz", headers=elsewhere)).status_code == 421
    assert memory.url.removeprefix("sqlite:///") not in answer.text


async def test_without_keys_a_strange_name_learns_the_status_alone(
    served: Served, client: Client
) -> None:
    http = client(await served(**BARE))
    headers = {"Host": "evil.example.com", "Authorization": "Bearer x"}

    assert (await http.get("/readyz", headers=headers)).status_code == 421
    del headers["Authorization"]
    assert (await http.get("/readyz", headers=headers)).json() == {"status": "ready"}


async def test_a_full_disk_is_not_ready_and_only_those_with_a_key_learn_why(
    served: Served, client: Client, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await served(keys=keys, **BARE)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**30, 2**30, 0))

    without, known = [
        await each.get("/readyz") for each in (client(url), client(url, new_key(keys, user="ann")))
    ]

    assert (without.status_code, without.json()) == (503, {"status": "not ready"})
    assert known.status_code == 503
    assert known.json()["detail"] == "disk: 0 MiB free"
    assert (await client(url).get("/healthz")).status_code == 200


async def test_a_request_keeps_the_name_that_its_client_gave_it(
    served: Served, client: Client
) -> None:
    http = client(await served(**BARE))

    async def named(*given: str) -> str:
        headers = [("X-Request-ID", each) for each in given]
        return str(
            (await http.get("/v1/memories?user_id=a", headers=headers)).headers["x-request-id"]
        )

    assert await named("trace-1:a/b") == "trace-1:a/b"
    others = [await named(), await named(), await named("a b"), await named("x" * 129)]
    others.append(await named("a", "b"))
    assert len(set(others)) == 5
    assert all(len(each) == 16 and each.isalnum() for each in others)
    assert (await http.get("/nowhere")).headers["x-request-id"]


async def test_each_request_has_a_line_with_ids_and_nothing_else(
    served: Served, client: Client, keys: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="orbiter.memory.server")
    token = new_key(keys, "admin")
    http = client(await served(keys=keys, with_log=True, **BARE), token)

    await http.get("/v1/memories?user_id=ann", headers={"X-Request-ID": "r-1"})

    [record] = [each for each in caplog.records if "r-1" in each.getMessage()]
    line = json.loads(formatter("json").format(record))
    assert line.items() >= {
        "level": "info", "method": "GET", "route": "/v1/memories", "status": 200, "request": "r-1",
        "tenant": tenant_digest("ann"), "key": keys.list()[0].id,
    }.items()  # fmt: skip
    assert line["ms"] > 0
    assert line["time"].endswith("Z")
    text = formatter("text").format(record)
    assert f"INFO GET /v1/memories 200 {line['ms']} ms key={line['key']} tenant=" in text
    assert token not in text + json.dumps(line)
    assert "ann" not in text.replace("/v1", "") + json.dumps(line)


async def test_a_refused_key_has_its_id_in_the_log_if_it_was_once_valid(
    served: Served, client: Client, keys: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="orbiter.memory.server")
    token = new_key(keys, "admin")
    key_id = keys.list()[0].id
    url = await served(keys=keys, with_log=True, **BARE)
    keys.revoke(key_id)
    guess = f"om_{key_id}_{'a' * 43}"  # knows the id and not the key

    for name, each in (("r-1", token), ("r-2", guess), ("r-3", "what")):
        await client(url, each).get("/v1/memories", headers={"X-Request-ID": name})

    records = [each for each in caplog.records if each.name.endswith(".access")]
    lines = [json.loads(formatter("json").format(each)) for each in records]
    logged = {line["request"]: (line["status"], line["key"], line["tenant"]) for line in lines}
    assert logged == {
        "r-1": (401, key_id, None), "r-2": (401, None, None), "r-3": (401, None, None),
    }  # fmt: skip
    assert token not in str(lines)


def _logged(caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, Any]]:
    records = [each for each in caplog.records if each.name.endswith(".access")]
    lines = [json.loads(formatter("json").format(each)) for each in records]
    return {line["request"]: line for line in lines}


async def test_a_busy_client_is_in_the_log_and_not_among_those_without_a_key(
    served: Served, client: Client, keys: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="orbiter.memory.server")
    token, admin = new_key(keys, user="ann"), new_key(keys, "admin")
    ids = {key.role: key.id for key in keys.list()}
    app = {"with_mcp": True, "with_dashboard": True}
    url = await served(keys=keys, with_log=True, rate=0.001, burst=2, **app)
    http = client(url, token)
    paths = ["/v1/memories", "/v1/memories/x", "/v1/events", "/users", "/mcp", "/nowhere"]
    for _ in range(2):
        await http.get("/v1/openapi.json")

    for path in paths:
        method = "POST" if path == "/mcp" else "GET"
        answer = await http.request(method, path, headers={"X-Request-ID": path})
        assert answer.status_code == 429, path

    lines = _logged(caplog)
    routes = [lines[path]["route"] for path in paths]
    assert routes == ["/v1/memories", "/v1/memories/{item_id}", *paths[2:5], "none"]
    for path in paths:
        assert (lines[path]["key"], lines[path]["tenant"]) == (ids["write"], tenant_digest("ann"))
    metrics = (await client(url, admin).get("/metrics")).text
    assert 'route="refused"' not in metrics
    assert 'route="/v1/memories",method="GET",status="4xx"} 1' in metrics


async def test_only_those_without_a_right_key_are_counted_as_refused(
    served: Served, client: Client, keys: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="orbiter.memory.server")
    admin = new_key(keys, "admin")
    url = await served(keys=keys, with_log=True, **BARE)
    right, path = client(url, admin), "/v1/memories?user_id=ann"

    async def ask(name: str, key: str | None = None, **headers: str) -> int:
        sent = {"X-Request-ID": name, **headers}
        return (await client(url, key).get(path, headers=sent)).status_code

    statuses = [
        await ask("without"),
        await ask("wrong", "om_12345678_x"),
        await ask("host", admin, Host="elsewhere.example"),
    ]
    while statuses[-1] != 429:  # an address that tries many keys
        statuses.append(await ask(f"wrong-{len(statuses)}", "wrong"))
    metrics = (await right.get("/metrics")).text
    kept = keys.path.read_text()
    keys.path.write_text("{")
    statuses.append(await ask("keys", admin))
    keys.path.write_text(kept)
    after = (await right.get("/metrics")).text

    assert (statuses[:3], statuses[-2:]) == ([401, 401, 421], [429, 503])
    assert {line["route"] for line in _logged(caplog).values()} == {"/v1/memories", "/metrics"}
    assert 'route="refused",method="GET",status="4xx"} %s' % (len(statuses) - 2) in metrics
    assert 'route="/v1/memories",method="GET",status="4xx"} 1' in metrics
    assert 'route="/v1/memories",method="GET",status="5xx"} 1' in after


async def test_a_fault_is_a_line_of_json_too(caplog: pytest.LogCaptureFixture) -> None:
    try:
        json.loads("x\ny")
    except ValueError:
        logging.getLogger("orbiter.memory.server").exception("it failed")

    line = json.loads(formatter("json").format(caplog.records[-1]))

    assert (line["level"], line["message"]) == ("error", "it failed")
    assert "JSONDecodeError" in line["traceback"]


async def test_every_metric_says_what_it_is(served: Served, client: Client, keys: KeyFile) -> None:
    http = client(await served(keys=keys, **BARE), new_key(keys, "admin"))
    await http.post("/v1/memories?user_id=ann", json={"what": "x"})

    lines = (await http.get("/metrics")).text.splitlines()

    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    told = {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert names == told
    for line in lines:
        if not line.startswith("#"):
            assert any(line.startswith(name) for name in names), line
    assert len(names) >= 6


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Set a provider for one test; return the spans that it gets."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


async def test_a_request_is_a_span_of_its_client_with_the_calls_within(
    served: Served, client: Client, keys: KeyFile, spans: InMemorySpanExporter
) -> None:
    http = client(await served(keys=keys, **BARE), new_key(keys, user="ann"))
    trace_id, parent_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = {"traceparent": f"00-{trace_id}-{parent_id}-01", "X-Request-ID": "r-1"}
    spans.clear()

    await http.get("/v1/memories/canary-7f3a", headers=headers)
    await client(str(http.base_url)).get("/v1/memories")

    inner, outer, refused = spans.get_finished_spans()
    assert (inner.name, outer.name) == ("orbiter.memory.get", "GET /v1/memories/{item_id}")
    assert outer.kind is trace.SpanKind.SERVER
    assert outer.attributes == {
        "http.request.method": "GET",
        "http.route": "/v1/memories/{item_id}",
        "http.response.status_code": 404,
        "orbiter.memory.request_id": "r-1",
    }
    assert inner.parent is not None
    assert outer.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert f"{outer.parent.span_id:016x}" == parent_id
    assert {f"{each.context.trace_id:032x}" for each in (inner, outer)} == {trace_id}
    assert refused.parent is None
    assert refused.attributes is not None
    assert refused.attributes["http.response.status_code"] == 401
    assert "canary" not in "".join(each.to_json() for each in (inner, outer, refused))


async def test_a_request_that_fails_is_a_span_with_an_error(
    served: Served, client: Client, memory: AgentMemory, spans: InMemorySpanExporter
) -> None:
    http = client(await served(**BARE))
    await memory.store.close()
    spans.clear()

    await http.get("/v1/memories?user_id=ann", headers={"traceparent": "no such thing"})
    await memory.store.init()

    outer = next(each for each in spans.get_finished_spans() if each.name.startswith("GET "))
    assert not outer.status.is_ok
    assert outer.status.status_code is trace.StatusCode.ERROR
    assert outer.attributes is not None
    assert outer.attributes["error.type"] == "503"


async def test_a_request_within_a_span_of_another_instrumentation_gets_no_second_one(
    memory: AgentMemory, spans: InMemorySpanExporter
) -> None:
    app = create_app(memory, settings=Settings(**BARE))  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as http,
    ):
        with trace.get_tracer_provider().get_tracer("x").start_as_current_span("outer"):
            await http.get("/healthz")

    assert [each.name for each in spans.get_finished_spans()] == ["outer"]
