"""An empty scope field is refused at every way in: it never means that nobody was named."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.mcp.conftest import over_http
from tests.server.conftest import Client, Served, new_key
from tests.server.test_security import doors

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.auth.principals import ALL_USERS
from orbiter.memory.mcp import PROFILES
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.api.openapi import document
from orbiter.memory.wire import OPERATIONS, REST_ONLY

SECRET = "canary-of-eve-51c9"
EMPTY = ("{0}=", "{0}", "{0}=&everyone=true", "user_id=ann&{0}=", "%{1:02x}{2}=")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
MCP = {"Accept": "application/json, text/event-stream"}


def queries(field: str) -> Iterator[str]:
    """Yield the ways to write that *field* is empty."""
    for each in EMPTY:
        yield each.format(field, ord(field[0]), field[1:])


@pytest.fixture
async def stranger(memory: AgentMemory) -> None:
    """Store what is neither ann's nor of the session `s`."""
    eve = memory.scope(user_id="eve", session_id="other", agent_id="a", task_id="t")
    await eve.remember(SECRET)


async def test_no_door_takes_an_empty_field_for_none(
    served: Served, client: Client, keys: KeyFile, stranger: None
) -> None:
    key = keys.create(scope=MemoryMetadata(user_id=ALL_USERS, session_id="s"), role="admin")[1]
    http = client(await served(keys=keys, rate=100_000, burst=100_000), key)
    token = {"X-Orbiter-Token": await _page_token(http)}
    tried = [
        (method, path)
        for method, path in doors(served.app)  # type: ignore[attr-defined]
        # That a server lives is told to everybody, whatever else is asked.
        if method not in ("TRACE", "OPTIONS") and path != "/healthz"
    ]

    for number, (method, path) in enumerate(sorted(set(tried))):
        for field in SCOPE_FIELDS:
            ways = list(queries(field))
            for query in ways if path == "/v1/memories" else [ways[number % len(ways)]]:
                answer = await http.request(method, f"{path}?{query}", headers=token)
                assert answer.status_code == 422, (method, path, query, answer.text)
                assert field in answer.text or method == "HEAD"
                assert SECRET not in answer.text
    assert len(tried) > 60


def documented() -> Iterator[tuple[str, str, str]]:
    """Yield the method, path and name of each parameter of the document that names a scope."""
    for path, calls in document()["paths"].items():
        for method, call in calls.items():
            for each in call.get("parameters", ()):
                if each.get("name") in SCOPE_FIELDS and each["in"] != "query":
                    yield method, path, each["name"]


def test_a_scope_stands_in_queries_alone() -> None:
    assert list(documented()) == []  # a header or a path that names one needs a test here


BODIES = [
    (each.verb, each.path, param.wire_name)
    for each in (*OPERATIONS, *REST_ONLY)
    for param in each.params
    if param.place == "body" and param.wire_name in SCOPE_FIELDS
]


@pytest.mark.parametrize("bound_to", SCOPE_FIELDS)
async def test_no_body_takes_an_empty_field_for_none(
    served: Served,
    client: Client,
    keys: KeyFile,
    memory: AgentMemory,
    stranger: None,
    bound_to: str,
) -> None:
    await memory.scope(**{bound_to: "mine"}).remember("stays")
    key = keys.create(
        scope=MemoryMetadata(**{"user_id": ALL_USERS, bound_to: "mine"}), role="admin"
    )[1]
    http = client(await served(keys=keys, with_mcp=False, with_dashboard=False), key)

    for verb, path, field in BODIES:
        answer = await http.request(verb, f"/v1/{path}", json={field: ""})
        assert answer.status_code == 422, (path, field, answer.text)
        assert f"`{field}`" in answer.json()["detail"]
    for field in SCOPE_FIELDS:
        item = {"memory_type": "human", "content": "x", "metadata": {field: ""}}
        for path, body in (
            ("memories", {"what": item}),
            ("memories/batch", {"things": [item, item]}),
            ("chats/c/messages", {"what": item}),
        ):
            if path.startswith("chats") and bound_to == "task_id":
                continue  # no chat is narrower
            answer = await http.post(f"/v1/{path}", json=body)
            assert answer.status_code in (403, 422), (path, field, answer.text)

    assert len(BODIES) == len(SCOPE_FIELDS)
    assert (await memory.unscoped().stats()).items == 2


async def test_no_agent_is_let_in_by_an_address_with_an_empty_field(
    served: Served, client: Client, keys: KeyFile, stranger: None
) -> None:
    bound = keys.create(scope=MemoryMetadata(user_id=ALL_USERS, session_id="s"), role="write")[1]
    url = await served(keys=keys)
    https = [client(url, bound), client(url, new_key(keys, "admin"))]

    for profile in PROFILES:
        path = "/mcp" if profile == "memory" else f"/mcp/{profile}"
        for field in SCOPE_FIELDS:
            for number, query in enumerate(queries(field)):
                http = https[number % 2]
                answer = await http.post(f"{path}?{query}", json=PING, headers=MCP)
                assert answer.status_code == 422, (path, query, answer.text)
    async with over_http(f"{url}/mcp?user_id=ann", bound) as agent:
        found = await agent.call_tool("memory_list", {})

    assert not found.is_error
    assert SECRET not in json.dumps(found.structured_content)


async def test_a_server_without_keys_takes_no_empty_name_from_its_environment(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await served()
    monkeypatch.setenv("ORBITER_MEMORY_USER", "")
    async with over_http(f"{url}/mcp") as agent:
        refused = await agent.call_tool("memory_list", {})
    monkeypatch.setenv("ORBITER_MEMORY_USER", "ann")
    async with over_http(f"{url}/mcp") as agent:
        taken = await agent.call_tool("memory_list", {})

    assert refused.is_error
    assert "ORBITER_MEMORY_USER" in str(refused.content)
    assert not taken.is_error


async def test_no_form_of_a_page_takes_an_empty_field_for_none(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory, stranger: None
) -> None:
    key = new_key(keys, "admin")
    http = client(await served(keys=keys, rate=100_000, burst=100_000), key)
    token = await _page_token(http)
    forms = [
        path
        for method, path in doors(served.app)  # type: ignore[attr-defined]
        if method == "POST" and path.startswith("/ui/")
    ]

    for path in forms:
        for field in SCOPE_FIELDS:
            for blank in ("", " "):
                form = {"content": "x", "max_items": "0", "typed": "", field: blank}
                answer = await http.post(
                    path, data=form, headers={"X-Orbiter-Token": token, "HX-Request": "true"}
                )
                assert answer.status_code == 422, (path, field, answer.text)
    answer = await http.post(
        "/ui/memories",
        data={"content": "x", "user_id": "ann", "agent_id": ""},
        headers={"X-Orbiter-Token": token},
    )

    assert answer.status_code == 422
    assert "`agent_id`" in answer.json()["detail"]
    assert len(forms) > 10
    assert (await memory.unscoped().stats()).items == 1


async def _page_token(http: httpx.AsyncClient) -> str:
    page = (await http.get("/data", headers={"Accept": "text/html"})).text
    return page.split('name="orbiter-token" content="')[1].partition('"')[0]


@pytest.mark.parametrize("field", [*SCOPE_FIELDS, "by"])
async def test_an_import_takes_no_empty_name(
    served: Served, client: Client, memory: AgentMemory, field: str
) -> None:
    http = client(await served())
    line = {"messages": [{"role": "user", "content": "hello"}]}
    asked: dict[str, Any] = {"session_id": "s"}

    refused = await http.post("/v1/import", params={**asked, field: ""}, json=line)
    owner = await http.post("/v1/import", params={**asked, "owner": ""}, json=line)

    assert refused.status_code == owner.status_code == 422
    assert "`owner`" in owner.json()["detail"]
    assert (await memory.unscoped().stats()).items == 0
