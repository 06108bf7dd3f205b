"""Streamable HTTP at `/mcp`: whose key it is decides everything, in both eras, at the same time."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.mcp.conftest import call, over_http, refusal
from tests.mcp.sdk_client import ERAS, Client
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, Role
from orbiter.memory.mcp import build
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server import Settings, create_app, serving

Serve = Callable[..., Awaitable[str]]

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
BOTH = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    """Return a file of keys that has none yet."""
    return KeyFile(tmp_path / "keys.json")


@pytest.fixture
async def serve(memory: AgentMemory) -> AsyncIterator[Serve]:
    """Return what starts a server and returns its address."""
    async with AsyncExitStack() as stack:

        async def start(keys: KeyFile | None = None, **settings: Any) -> str:
            wanted = replace(Settings(port=0, with_dashboard=False, burst=10_000), **settings)
            app = create_app(memory, settings=wanted, keys=keys)
            return await stack.enter_async_context(serving(app, settings=wanted))

        yield start


def new_key(keys: KeyFile, role: Role = "write", user: str | None = None) -> str:
    """Make a key; return what opens the door."""
    return keys.create(scope=MemoryMetadata(user_id=user), role=role)[1]


async def test_a_key_decides_whose_memories_a_call_is_about(
    serve: Serve, keys: KeyFile, memory: AgentMemory, era: str
) -> None:
    ann, bob = new_key(keys, user="ann"), new_key(keys, user="bob")
    url = await serve(keys)

    async with over_http(f"{url}/mcp?user_id=ann&everyone=true", ann, mode=era) as client:
        [item_id] = (await call(client, "memory_add", texts="ann's tea"))["ids"]
    async with over_http(f"{url}/mcp", bob, mode=era) as client:
        theirs = await call(client, "memory_list")
        told = await refusal(client, "memory_get", id=item_id)

    assert theirs == {"memories": []}
    assert "there is no memory" in told
    item = await memory.scope(user_id="ann").get(item_id)
    assert item is not None
    assert item.content == "ann's tea"


async def test_an_address_that_names_another_than_the_key_is_refused(
    serve: Serve, keys: KeyFile
) -> None:
    headers = {**BOTH, "Authorization": f"Bearer {new_key(keys, user='ann')}"}
    url = f"{await serve(keys)}/mcp"

    async with httpx.AsyncClient(headers=headers, timeout=HANG) as http:
        other = await http.post(url, params={"user_id": "bob"}, json=PING)
        own = await http.post(url, params={"user_id": "ann"}, json=PING)

    assert other.status_code == 403
    assert "this key is for user_id `ann`, not `bob`; leave `user_id` out" in other.text
    assert own.status_code != 403


async def test_two_keys_in_parallel_never_mix(serve: Serve, keys: KeyFile) -> None:
    users = ["ann", "bob"]
    shown = {user: new_key(keys, user=user) for user in users}
    url = f"{await serve(keys)}/mcp"

    async def talk(user: str, mode: str) -> None:
        async with over_http(url, shown[user], mode=mode) as client:
            writes = (
                call(client, "memory_add", texts=f"{user} {mode} {n}: tea") for n in range(10)
            )
            await asyncio.gather(*writes)
            found = await call(client, "memory_search", query="tea", k=50)
            assert {each["text"].split()[0] for each in found["results"]} == {user}

    await asyncio.gather(*(talk(user, mode) for user in users for mode in ERAS))

    for user in users:
        async with over_http(url, shown[user]) as client:
            mine = await call(client, "memory_list", limit=100)
        assert {each["text"] for each in mine["memories"]} == {
            f"{user} {mode} {n}: tea" for mode in ERAS for n in range(10)
        }


@pytest.mark.parametrize("tools", ["", "/kg", "/openai"])
async def test_a_key_that_reads_is_given_nothing_else(
    serve: Serve, keys: KeyFile, era: str, tools: str
) -> None:
    url = await serve(keys)
    key = new_key(keys, "read", user="ann")

    async with over_http(f"{url}/mcp{tools}", key, mode=era) as client:
        listed = (await client.list_tools()).tools
        writer = {"": "memory_add", "/kg": "create_entities", "/openai": "add"}[tools]
        told = await refusal(client, writer, texts=["x"])

    assert listed
    assert all(each.annotations and each.annotations.read_only_hint for each in listed)
    assert "this server is read-only" in told or "unknown tool" in told


async def test_a_server_that_may_not_write_has_no_tool_that_does(serve: Serve) -> None:
    url = await serve(read_only=True)

    async with over_http(f"{url}/mcp?user_id=ann") as client:
        listed = (await client.list_tools()).tools
        told = await refusal(client, "memory_add", texts=["x"])

    assert all(each.annotations and each.annotations.read_only_hint for each in listed)
    assert "this server is read-only" in told


async def test_a_revoked_key_opens_nothing_from_then_on(serve: Serve, keys: KeyFile) -> None:
    made, key = keys.create(scope=MemoryMetadata(user_id="ann"), role="write")
    new_key(keys, user="bob")
    url = await serve(keys)
    async with httpx.AsyncClient(
        headers={"Authorization": f"Bearer {key}", **BOTH}, timeout=HANG
    ) as http:
        before = await http.post(f"{url}/mcp", json=PING)
        keys.revoke(made.id)
        after = await http.post(f"{url}/mcp", json=PING)

    assert before.status_code == 200
    assert after.status_code == 401


async def test_twenty_parallel_writes_of_one_client_and_of_twenty_keep_all(
    serve: Serve, memory: AgentMemory
) -> None:
    url = f"{await serve()}/mcp?user_id=ann"

    async def session(number: int) -> None:
        async with over_http(url, mode=ERAS[number % len(ERAS)]) as client:
            await call(client, "memory_add", texts=f"session {number}")

    async with over_http(url) as client:
        writes = (call(client, "memory_add", texts=f"one {n}") for n in range(20))
        await asyncio.gather(*writes)
    await asyncio.gather(*map(session, range(20)))

    texts = {item.content for item in await memory.scope(user_id="ann").list(limit=100)}
    assert texts == {f"{kind} {n}" for kind in ("one", "session") for n in range(20)}


async def test_a_graph_written_by_twenty_sessions_is_whole(serve: Serve) -> None:
    url = f"{await serve()}/mcp/kg?user_id=ann"

    async def session(number: int) -> None:
        async with over_http(url, mode=ERAS[number % len(ERAS)]) as client:
            entity = {"name": f"e{number}", "entityType": "t", "observations": ["o"]}
            await call(client, "create_entities", entities=[entity])

    await asyncio.gather(*map(session, range(20)))

    async with over_http(url) as client:
        graph = await call(client, "read_graph")
    assert {each["name"] for each in graph["entities"]} == {f"e{n}" for n in range(20)}


async def test_without_a_key_or_a_name_it_is_the_computers_user(
    serve: Serve, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORBITER_MEMORY_USER", "carol")
    url = await serve()

    async with over_http(f"{url}/mcp") as client:
        await call(client, "memory_add", texts="a note")

    assert [item.content for item in await memory.scope(user_id="carol").list()] == ["a note"]


async def test_an_administrators_key_must_name_somebody(serve: Serve, keys: KeyFile) -> None:
    key = new_key(keys, "admin")
    url = await serve(keys)

    async with over_http(f"{url}/mcp?everyone=true", key) as client:
        told = await refusal(client, "memory_list")
    async with over_http(f"{url}/mcp?user_id=ann", key) as client:
        mine = await call(client, "memory_list")

    assert "?user_id=NAME" in told
    assert mine == {"memories": []}


async def test_the_path_is_exact_and_takes_posts_of_our_own_name_only(
    serve: Serve, keys: KeyFile
) -> None:
    open_url = await serve()
    new_key(keys, user="ann")
    locked = await serve(keys)
    async with httpx.AsyncClient(headers=BOTH, timeout=HANG) as http:
        answers = {
            "ping": await http.post(f"{open_url}/mcp", json=PING),
            "name": await http.post(f"{open_url.replace('127.0.0.1', 'localhost')}/mcp", json=PING),
            "slash": await http.post(f"{open_url}/mcp/", json=PING),
            "get": await http.get(f"{open_url}/mcp"),
            "delete": await http.delete(f"{open_url}/mcp"),
            "host": await http.post(f"{open_url}/mcp", json=PING, headers={"Host": "evil.example"}),
            "origin": await http.post(
                f"{open_url}/mcp", json=PING, headers={"Origin": "https://evil.example"}
            ),
            "form": await http.post(f"{open_url}/mcp", content="{}"),
            "no key": await http.post(f"{locked}/mcp/kg", json=PING),
            "large": await http.post(f"{open_url}/mcp", json={**PING, "x": "y" * 2**20}),
        }

    codes = {name: answer.status_code for name, answer in answers.items()}
    assert codes == {
        "ping": 200,
        "name": 200,
        "slash": 404,
        "get": 405,
        "delete": 405,
        "host": 421,
        "origin": 403,
        "form": 400,
        "no key": 401,
        "large": 413,
    }
    assert answers["ping"].json()["result"] == {}


async def test_white_space_behind_a_header_is_not_part_of_it(serve: Serve) -> None:
    url = await serve()
    host, _, port = url.removeprefix("http://").partition(":")
    body = json.dumps(PING)
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: {host}:{port} \t ",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]

    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join([*lines, "", body]).encode())
    answer = await asyncio.wait_for(reader.read(), HANG)
    writer.close()

    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_there_is_no_session_that_another_could_use(serve: Serve) -> None:
    url = await serve()
    start = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    async with httpx.AsyncClient(headers=BOTH, timeout=HANG) as http:
        begun = await http.post(f"{url}/mcp", json=start)
        guessed = await http.post(f"{url}/mcp", json=PING, headers={"Mcp-Session-Id": "1" * 32})

    assert begun.status_code == 200
    assert "mcp-session-id" not in begun.headers
    assert guessed.json()["result"] == {}


async def test_a_bridge_to_a_server_gives_the_same_tools(serve: Serve, keys: KeyFile) -> None:
    key = new_key(keys, user="ann")
    url = await serve(keys)
    async with AgentMemory(url, token=key) as remote:
        handle = remote.scope(user_id="ann")
        async with Client(build(lambda _: handle)) as client:
            first = await call(client, "memory_add", texts=["green tea"], tags=["drink"])
            again = await call(client, "memory_add", texts=["green tea"], tags=["drink"])
            found = await call(client, "memory_search", query="tea", tags=["drink"])
            context = await call(client, "memory_context", task="make tea")
            [item_id] = first["ids"]
            await call(client, "memory_update", id=item_id, text="black tea", expected_version=1)
            told = await refusal(client, "memory_update", id=item_id, text="x", expected_version=1)
            later = await call(client, "memory_add", texts=["green tea"], tags=["drink"])
            await call(client, "memory_delete", id=item_id)
            missing = await refusal(client, "memory_get", id=item_id)
            await client.read_resource("memory://profile")
        async with Client(build(lambda _: handle, tools="kg")) as client:
            entity = {"name": "Ann", "entityType": "person", "observations": ["runs"]}
            await call(client, "create_entities", entities=[entity])
            graph = await call(client, "read_graph")

    assert first == again
    assert [each["id"] for each in found["results"]] == first["ids"] == context["ids"]
    assert "has version 2 by now" in told
    assert later != first
    assert "there is no memory" in missing
    assert graph["entities"] == [entity]
