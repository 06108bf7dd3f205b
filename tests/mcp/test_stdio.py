"""`orbiter-memory mcp` as a process of its own: stdout is the protocol's alone."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage
from pydantic import TypeAdapter
from tests.cli.terminal import COMMAND, environment, in_pipe
from tests.mcp.conftest import call, refusal
from tests.mcp.sdk_client import ERAS, Client, StdioServerParameters, stdio_client
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.mcp import _sdk, build

ENTITY = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}


def server(path: Path, *args: str, env: dict[str, str] | None = None) -> Any:
    """Return how a client starts a server on the store at *path*, as alice."""
    return stdio_client(
        StdioServerParameters(
            command=COMMAND[0],
            args=[*COMMAND[1:], "mcp", *args],
            env=environment(str(path), env),
        )
    )


async def test_what_one_process_adds_another_recalls(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async with Client(server(path), mode="legacy") as client:
        added = await call(client, "memory_add", texts="the tea is in the left drawer")
    async with Client(server(path, "--read-only"), mode=ERAS[-1]) as client:
        found = await call(client, "memory_search", query="where is the tea?")
        told = await refusal(client, "memory_add", texts="x")
    recalled = in_pipe(["recall", "where is the tea?"], environment(str(path)))

    assert [each["id"] for each in found["results"]] == added["ids"]
    assert "this server is read-only" in told
    assert "the tea is in the left drawer" in recalled.stdout


async def test_several_processes_write_one_graph_at_once_and_lose_nothing(tmp_path: Path) -> None:
    path, file = tmp_path / "memory.db", tmp_path / "memory.jsonl"
    file.write_text(json.dumps({"type": "entity", **ENTITY}))

    async def write(number: int) -> None:
        parameters = server(path, "--tools", "kg", env={"MEMORY_FILE_PATH": str(file)})
        async with Client(parameters, mode=ERAS[number % len(ERAS)]) as client:
            more = [{"entityName": "Ann", "contents": [f"saw {number}.{n}"]} for n in range(7)]
            await asyncio.gather(
                *(call(client, "add_observations", observations=[one]) for one in more)
            )

    await asyncio.gather(*map(write, range(3)))
    async with AgentMemory(path, embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        async with Client(build(lambda _: alice, tools="kg")) as client:
            graph = await call(client, "read_graph")

    [ann] = graph["entities"]
    seen = {f"saw {number}.{n}" for number in range(3) for n in range(7)}
    assert set(ann["observations"]) == {"likes tea", *seen}
    assert len(ann["observations"]) == 22


_MESSAGES: TypeAdapter[Any] = TypeAdapter(JSONRPCMessage)
START = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def test_calls_under_way_at_the_end_of_stdin_are_answered(tmp_path: Path) -> None:
    """As of a script that pipes in all it asks for."""
    asked = [START, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    for number in range(8, 28):
        params = {"name": "memory_add", "arguments": {"texts": f"note {number}"}}
        asked.append({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    # What was called off gets no answer, and keeps nobody waiting.
    asked.append(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 27}}
    )

    ended = in_pipe(
        ["mcp"],
        environment(str(tmp_path / "memory.db")),
        stdin="".join(f"{json.dumps(each)}\n" for each in asked),
    )

    assert ended.code == 0
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {each["id"] for each in answers} >= set(range(7, 27))
    assert not [each for each in answers if "error" in each and each["id"] != 27]
    listed = in_pipe(["list", "--json"], environment(str(tmp_path / "memory.db")))
    assert len(json.loads(listed.stdout)["items"]) in (19, 20)


async def test_a_call_without_an_end_is_given_up_some_time_after_the_end_of_stdin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(ScopedMemory, "remember", never)
    monkeypatch.setattr(_sdk, "PATIENCE", 0.1)
    params = {"name": "memory_add", "arguments": {"texts": "tea"}}
    call_it = {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": params}
    begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    say, received = anyio.create_memory_object_stream[Any](3)
    sent, heard = anyio.create_memory_object_stream[Any](3)
    async with AgentMemory("memory://", embeddings=None) as memory:
        server: Any = build(lambda _: memory.scope(user_id="alice"))
        low = getattr(server, "_lowlevel_server", None) or server._mcp_server
        serving = asyncio.create_task(_sdk._serve(low, received, sent))
        for each in (START, begun, call_it):
            await say.send(SessionMessage(_MESSAGES.validate_python(each)))
        async with asyncio.timeout(HANG):
            await began.wait()
            await say.aclose()
            await serving
    heard.close()


def test_stdout_is_the_protocol_alone_and_the_end_of_stdin_is_the_end(tmp_path: Path) -> None:
    ended = in_pipe(
        ["mcp"],
        environment(str(tmp_path / "memory.db"), {"PYTHONWARNINGS": "always"}),
        stdin=f"{json.dumps(START)}\n",
    )

    assert ended.code == 0
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [each["id"] for each in answers] == [7]
    assert "Error" not in ended.stderr
