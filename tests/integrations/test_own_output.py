"""What is forgotten comes back through no door by which the answers of our tools come in."""

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_own_output import SECRET, asking, everything_said
from tests.mcp.sdk_client import Client

from orbiter.memory import AgentMemory, ScopedMemory
from orbiter.memory.integrations.tools import memory_tools
from orbiter.memory.mcp import build
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.transfer import import_file

QUESTION = "Who is Dr. Frost?"


@pytest.fixture
async def alice(tmp_path: Path) -> AsyncIterator[ScopedMemory]:
    config = SummaryConfig(message_threshold=1, keep_recent=0)
    async with AgentMemory(
        tmp_path / "m.db", embeddings=HashEmbeddings(), summaries=config
    ) as memory:
        yield memory.scope(user_id="alice")


async def answers_of_mcp(alice: ScopedMemory, tool: str, **arguments: object) -> list[str]:
    """Return what a client may show a model: the text, or the structure."""
    async with Client(build(lambda _: alice)) as client:
        result: Any = await client.call_tool(tool, arguments)
    return [result.content[0].text, json.dumps(result.structured_content)]


async def by_function(alice: ScopedMemory, _folder: Path) -> None:
    recall = memory_tools(alice)["recall"]
    answers = [await recall(query=QUESTION), await recall(query="Who won?")]
    for number, answer in enumerate(answers):
        await alice.chat(f"chat {number}").add(asking("recall", answer))


async def by_mcp(alice: ScopedMemory, _folder: Path) -> None:
    for answer in await answers_of_mcp(alice, "memory_search", query=QUESTION):
        await alice.chat(answer[:9]).add(asking("orbiter-memory_memory_search", answer))


async def by_transcript(alice: ScopedMemory, folder: Path) -> None:
    for number, answer in enumerate(await answers_of_mcp(alice, "memory_context", task=QUESTION)):
        path = transcript(folder / f"{number}.jsonl", answer)
        assert (await import_file(alice, path, format="claude-code")).stored == 4


async def by_training_file(alice: ScopedMemory, folder: Path) -> None:
    answers = await answers_of_mcp(alice, "memory_list")
    path = folder / "file.jsonl"
    talks = [{"messages": asking("memory_list", answer)} for answer in answers]
    path.write_text("".join(f"{json.dumps(talk)}\n" for talk in talks))
    assert (await import_file(alice, path)).stored == 8


async def by_letta(alice: ScopedMemory, folder: Path) -> None:
    answers = await answers_of_mcp(alice, "memory_list")
    agents = [
        {"name": f"agent {number}", "core_memory": [], "messages": asking("memory_list", answer)}
        for number, answer in enumerate(answers)
    ]
    (folder / "file.af").write_text(json.dumps({"agents": agents, "blocks": []}))
    assert (await import_file(alice, folder / "file.af")).stored == 8


async def by_agents_sdk(alice: ScopedMemory, folder: Path) -> None:
    """What a person says meanwhile stands between a call and its result."""
    answers = await answers_of_mcp(alice, "memory_list")
    with closing(sqlite3.connect(folder / "file.db")) as file, file:
        file.execute("CREATE TABLE agent_messages (id INTEGER, session_id TEXT, message_data TEXT)")
        for number, answer in enumerate(answers):
            items = [
                {"type": "function_call", "call_id": "c", "name": "memory_list", "arguments": "{}"},
                {"role": "user", "content": "Well?"},
                {"type": "function_call_output", "call_id": "c", "output": answer},
            ]
            rows = [(place, str(number), json.dumps(item)) for place, item in enumerate(items)]
            file.executemany("INSERT INTO agent_messages VALUES (?, ?, ?)", rows)
    assert (await import_file(alice, folder / "file.db")).stored == 6


def transcript(path: Path, answer: str) -> Path:
    """Write a session in which Claude Code asks our server."""
    name = "mcp__orbiter-memory__memory_context"
    about = {"sessionId": path.stem, "cwd": "/src", "isSidechain": False}
    messages: list[tuple[str, object]] = [
        ("user", "How am I?"),
        ("assistant", [{"type": "tool_use", "id": "t", "name": name, "input": {}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "t", "content": answer}]),
        ("assistant", [{"type": "text", "text": "I see."}]),
    ]
    lines = [
        {**about, "type": role, "uuid": f"{path.stem}-{place}", "timestamp": "2026-11-16T10:00:00Z"}
        | {"message": {"role": role, "content": content}}
        for place, (role, content) in enumerate(messages)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


DOORS = [by_function, by_mcp, by_transcript, by_training_file, by_letta, by_agents_sdk]


@pytest.mark.parametrize("door", DOORS, ids=[each.__name__ for each in DOORS])
async def test_what_is_forgotten_comes_back_through_no_answer(
    alice: ScopedMemory,
    tmp_path: Path,
    door: Callable[[ScopedMemory, Path], Awaitable[None]],
) -> None:
    item = await alice.remember(SECRET)
    await door(alice, tmp_path)
    kept = [item for chat in await alice.chats() for item in await _items(alice, chat)]
    assert "diabetes" in str(kept)

    await alice.forget(item)

    said = await everything_said(alice)
    assert "diabetes" not in said
    assert "Nothing is remembered" not in said


async def _items(alice: ScopedMemory, chat: Any) -> list[str]:
    session = chat.metadata.session_id
    return [item.content for item in await alice.list(where={"session_id": session})]
