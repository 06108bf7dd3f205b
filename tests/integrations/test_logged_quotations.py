"""What is erased is in no log of a framework, or the report of the erasure says so."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai import Agent, Conversation
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from tests.agent.test_own_output import SECRET

from orbiter.memory import AgentMemory, ScopedMemory
from orbiter.memory.integrations.openai_agents import OrbiterSession
from orbiter.memory.integrations.pydantic_ai import OrbiterConversationStore, memory_toolset
from orbiter.memory.integrations.tools import memory_tools

QUESTION = "Who is Dr. Frost?"


@pytest.fixture
async def alice(tmp_path: Path) -> AsyncIterator[ScopedMemory]:
    async with AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
        yield memory.scope(user_id="alice")


async def _agents_sdk(alice: ScopedMemory) -> Callable[[], Awaitable[Any]]:
    session = OrbiterSession(alice, "one")
    called: Any = {"type": "function_call", "call_id": "c", "name": "know", "arguments": "{}"}
    answer: Any = {"type": "function_call_output", "call_id": "c", "output": f"Known: {SECRET}."}
    await session.add_items([{"role": "user", "content": "How am I?"}, called, answer])
    return session.get_items


async def _pydantic_ai(alice: ScopedMemory) -> Callable[[], Awaitable[Any]]:
    def answer(messages: list[Any], _: object) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("I see.")])
        return ModelResponse(parts=[ToolCallPart("recall", {"query": QUESTION})])

    store = OrbiterConversationStore(alice)
    agent = Agent(FunctionModel(answer), toolsets=[memory_toolset(alice)])
    await store.save(await agent.run("How am I?", conversation=Conversation(conversation_id="one")))
    record = await store.read_record("one")
    assert record is not None
    return lambda: store.read_history(record.head_id)


async def _note_in_a_log(alice: ScopedMemory) -> Callable[[], Awaitable[Any]]:
    fence = await memory_tools(alice)["recall"](query=QUESTION)
    await alice.kv.put(("log",), "1", b"an own shape: " + fence.encode())
    return lambda: alice.kv.get(("log",), "1")


LOGS = [_agents_sdk, _pydantic_ai, _note_in_a_log]


@pytest.mark.parametrize("write", LOGS, ids=[each.__name__.strip("_") for each in LOGS])
async def test_what_is_erased_goes_from_the_logs_of_frameworks_or_the_report_says_so(
    alice: ScopedMemory, tmp_path: Path, write: Callable[..., Awaitable[Callable[[], Any]]]
) -> None:
    item = await alice.remember(SECRET)
    read = await write(alice)
    assert "diabetes" in str(await read())

    done = await alice.forget(item, permanently=True)

    assert done.erasure is not None
    is_left = write is _note_in_a_log  # which only its program can read
    assert ("diabetes" in str(await read())) is is_left
    assert ("(forgotten)" in str(await read())) is not is_left
    assert done.erasure.proven is not is_left
    assert ("entries at `log`" in str(done.erasure.problems)) is is_left
    assert any(b"diabetes" in each.read_bytes() for each in tmp_path.iterdir()) is is_left
