"""An agent that calls tools for six steps sees each call and each result once, in every format."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.agent._served import SERVED
from tests.agent._tool_loops import (
    ANSWER,
    QUESTION,
    SCRIPTS,
    STEPS,
    Script,
    calls_per_turn,
    expected,
    outcomes,
)
from tests.agent.conftest import _url
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.agent import Chat
from orbiter.memory.messages import validate

pytestmark = pytest.mark.slow

Open = Callable[..., AgentMemory]

every_script = pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)

# Lists are cut into messages before a store sees them: one local store and the wire tell it, and
# `test_one_message_at_a_time` walks the others.
stores_of_lists = pytest.mark.parametrize(
    "any_url",
    [
        "sqlite",
        "http",
        *(pytest.param(kind, marks=pytest.mark.full) for kind in ("postgres", "redis", "memory")),
    ],
    indirect=True,
)


async def check(chat: Chat, script: Script, number: int) -> None:
    """Check what the model is shown after a step."""
    shown = (await chat.context(format=script.format)).messages().messages
    assert validate(shown, script.format) == []
    assert outcomes(shown, script.format) == expected(number)
    assert calls_per_turn(shown, script.format) == [len(step) for step in STEPS[: number + 1]]
    assert str(shown).count(QUESTION) == 1
    assert [mark for mark in script.marks(number) if str(shown).count(mark) != 1] == []


@pytest.fixture(params=["sqlite", "postgres", "redis", "http"])
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a store that outlives its process."""
    return _url(request.param, request, tmp_path)


@every_script
async def test_one_message_at_a_time(any_memory: AgentMemory, who: str, script: Script) -> None:
    chat = any_memory.scope(user_id=who).chat("loop")
    await chat.add(QUESTION)
    for number in range(len(STEPS)):
        for message in (*script.calls(number), *script.results(number)):
            await chat.add(message)
        await check(chat, script, number)

    (said,) = await chat.add(script.answer)

    assert (said.memory_type, said.content) == ("ai", ANSWER)


@stores_of_lists
@every_script
async def test_a_step_as_a_list(any_memory: AgentMemory, who: str, script: Script) -> None:
    chat = any_memory.scope(user_id=who).chat("loop")
    await chat.add(QUESTION)

    for number in range(len(STEPS)):
        await chat.add([*script.calls(number), *script.results(number)])
        await check(chat, script, number)


@stores_of_lists
@every_script
async def test_calls_and_results_as_two_lists(
    any_memory: AgentMemory, who: str, script: Script
) -> None:
    chat = any_memory.scope(user_id=who).chat("loop")
    await chat.add(QUESTION)

    for number in range(len(STEPS)):
        await chat.add(script.calls(number), idempotency_key=f"calls {number}")
        await chat.add(script.results(number), idempotency_key=f"results {number}")
        await check(chat, script, number)


@every_script
async def test_a_restart_between_calls_and_results(
    durable_url: str, open_memory: Open, who: str, script: Script
) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Chat]:
        memory = open_memory(durable_url)
        yield memory.scope(user_id=who).chat("loop")
        await memory.close()

    async with opened() as chat:
        await chat.add(QUESTION)
    for number in range(len(STEPS)):
        for messages in (script.calls(number), script.results(number)):
            async with opened() as chat:
                for message in messages:
                    await chat.add(message)
        async with opened() as chat:
            await check(chat, script, number)


@pytest.mark.parametrize("is_list", [False, True], ids=["one by one", "list"])
@every_script
async def test_over_rest(
    tmp_path: Path, open_memory: Open, who: str, script: Script, *, is_list: bool
) -> None:
    memory: Any = open_memory(f"{SERVED}{tmp_path}/agent.db")
    await memory.init()
    address = memory._engine._link.address.url.rstrip("/")
    chat = memory.scope(user_id=who).chat("loop")
    await chat.add(QUESTION)
    async with httpx.AsyncClient(params={"user_id": who}, timeout=HANG) as http:

        async def post(what: Any, key: str) -> list[dict[str, Any]]:
            answer = await http.post(
                f"{address}/v1/chats/loop/messages",
                json={"what": what},
                headers={"Idempotency-Key": key},
            )
            assert answer.is_success, answer.text
            found: list[dict[str, Any]] = answer.json()
            return found

        for number in range(len(STEPS)):
            messages = [*script.calls(number), *script.results(number)]
            for place, what in enumerate([messages] if is_list else messages):
                first = await post(what, f"{number} {place}")
                assert await post(what, f"{number} {place}") == first  # a retry is no other request
            await check(chat, script, number)


def two_calls(name: str) -> list[dict[str, Any]]:
    """Return a question, and two calls of one tool without ids."""
    calls = [{"functionCall": {"name": name, "args": {"n": n}}} for n in range(2)]
    return [{"role": "user", "parts": [{"text": "?"}]}, {"role": "model", "parts": calls}]


def result(name: str, text: str) -> dict[str, Any]:
    answer = {"functionResponse": {"name": name, "response": {"output": text}}}
    return {"role": "user", "parts": [answer]}


async def test_results_without_ids_that_come_at_once_each_find_a_call(
    any_memory: AgentMemory, who: str
) -> None:
    chat = any_memory.scope(user_id=who).chat("loop")
    for step in range(5):
        await chat.add(two_calls("f"))
        await asyncio.gather(*(chat.add(result("f", f"{step} {n}")) for n in range(2)))

    shown = (await chat.messages(format="gemini")).messages

    assert validate(shown, "gemini") == []
    found = sorted(str(outcome) for outcome in outcomes(shown, "gemini"))
    assert [
        sum(f"{step} {n}" in each for each in found) for step in range(5) for n in range(2)
    ] == ([1] * 10)


async def test_a_result_without_an_id_that_is_sent_twice_at_once_is_one(
    any_url: str, open_memory: Open, who: str
) -> None:
    memories = (
        [open_memory(any_url)] * 2
        if any_url == "memory://"
        else [open_memory(any_url) for _ in range(2)]
    )
    chats = [memory.scope(user_id=who).chat("loop") for memory in memories]
    for step in range(5):
        await chats[0].add(two_calls("f"))
        both = {"role": "user", "parts": [p for n in "ab" for p in result("f", n)["parts"]]}

        told = await asyncio.gather(
            *(chat.add(both, idempotency_key=f"k{step}") for chat in chats * 2)
        )

        assert len({tuple(item.id for item in items) for items in told}) == 1
    assert len(await chats[0].items()) == 5 * 4
