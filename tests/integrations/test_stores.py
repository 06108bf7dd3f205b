"""Adapters do the same on every store, and through a server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.agent._served import served
from tests.servers.databases import PostgresServer

pytest.importorskip("agents")
pytest.importorskip("anthropic")
pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from orbiter.memory import AgentMemory, ScopedMemory
from orbiter.memory.integrations.anthropic_memory import AsyncOrbiterMemoryTool
from orbiter.memory.integrations.openai_agents import OrbiterSession
from orbiter.memory.integrations.pydantic_ai import OrbiterConversationStore
from orbiter.memory.integrations.tools import memory_tools


@pytest.fixture(params=["sqlite", "postgres", "served"])
async def alice(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ScopedMemory]:
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path}/memory.db"
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = server.create_database()
            stack.callback(server.drop_database, url)
        memory = await stack.enter_async_context(AgentMemory(url, embeddings=None))
        if request.param == "served":
            serve = await stack.enter_async_context(served())
            memory = await stack.enter_async_context(serve(memory))
        yield memory.scope(user_id="alice")


async def test_a_session_is_exact_and_shared(alice: ScopedMemory) -> None:
    items: list[Any] = [
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "\0 \ud800"},
        {"type": "of_tomorrow", "number": 2**70},
    ]
    sessions = [OrbiterSession(alice, "s") for _ in range(3)]
    await sessions[0].add_items(items)
    await asyncio.gather(*(session.add_items([items[0]] * 2) for session in sessions))
    popped = await asyncio.gather(*(session.pop_item() for session in sessions))

    assert await sessions[0].get_items() == [*items, *[items[0]] * 3]
    assert popped == [items[0]] * 3
    assert len(await alice.chat("s").items()) == 4 + 2
    await sessions[0].clear_session()
    assert await sessions[1].get_items() == []


async def test_edits_of_a_file_at_once_are_all_kept(alice: ScopedMemory) -> None:
    tool = AsyncOrbiterMemoryTool(alice)
    path = "/memories/log.txt"
    await tool.call({"command": "create", "path": path, "file_text": "begin\n"})
    insert = {"command": "insert", "path": path, "insert_line": 1}
    await asyncio.gather(
        *(tool.call({**insert, "insert_text": f"entry {number}"}) for number in range(8))
    )

    text = str(await tool.call({"command": "view", "path": path}))

    assert all(f"\tentry {number}\n" in text for number in range(8))


async def test_a_conversation_is_saved_once_and_conflicts_are_noticed(alice: ScopedMemory) -> None:
    store = OrbiterConversationStore(alice)
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(content="hello")]),
        ModelResponse(parts=[TextPart(content="hi")]),
    ]
    saved = await asyncio.gather(
        *(store.save(Conversation(conversation_id="c", messages=messages)) for _ in range(4)),
        return_exceptions=True,
    )
    loaded = await store.load("c")

    assert sum(isinstance(each, ConversationConflict) for each in saved) == 3
    assert loaded is not None
    assert loaded.messages == messages
    await store.delete("c")
    assert await alice.kv.list() == []


async def test_tools_recall_what_they_remember(alice: ScopedMemory) -> None:
    tools = memory_tools(alice)
    await tools.call("remember", {"text": "Alice likes tea."})
    await tools.call("know", {"key": "city", "value": "Oslo"})

    assert "Alice likes tea." in await tools.call("recall", {"query": "tea"})
    assert "city: Oslo" in await tools.call("recall", {"query": "city"})
    assert "use `recall`" in await tools.call("forget", {"id": "none"})
