"""A message larger than the budget stops no agent and removes no conversation."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.context import Context
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import FORMATS, Format, validate

Open = Callable[..., AgentMemory]

REPORT = "revenue rose in the north and fell in the south " * 600
ANSWER = "It rose in the north."
HUGE = "revenue rose in the north and fell in the south " * 2_400


def call(number: int, count: int = 1) -> dict[str, Any]:
    calls = [
        {"id": f"c{number}-{n}", "type": "function", "function": {"name": "report",
         "arguments": json.dumps({"year": 2000 + number})}}
        for n in range(count)
    ]  # fmt: skip
    return {"role": "assistant", "content": None, "tool_calls": calls}


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Stand for a model that asks for a report unless it sees one after its last answer."""
    answered = max((n for n, m in enumerate(messages) if m["content"] == ANSWER), default=0)
    results = [m["content"] for m in messages[answered:] if m["role"] == "tool"]
    if results and "revenue rose" in results[-1]:
        return {"role": "assistant", "content": ANSWER}
    return call(len(messages))


async def turn(chat: Chat, question: str, *, budget: int) -> int:
    """Run the loop of `docs/conversations.md`; return how many times the tool was called."""
    await chat.add(question)
    for times in range(6):
        context = await chat.context(budget=budget)
        assert context.tokens <= budget
        assert validate(context.messages().messages, "openai") == []
        (said,) = await chat.add(model(list(context.messages())))
        if not getattr(said, "calls", None):
            return times
        for each in said.calls:  # type: ignore[attr-defined]  # an answer with calls
            await chat.add({"role": "tool", "tool_call_id": each.id, "content": REPORT})
    raise AssertionError("the model never saw a result")


async def test_the_documented_loop_ends_though_each_result_exceeds_the_budget(
    any_alice: ScopedMemory,
) -> None:
    chat = any_alice.chat("loop")

    calls = [await turn(chat, f"And in year {number}?", budget=4_000) for number in range(5)]

    assert calls == [1] * 5
    results = [item.content for item in await chat.items() if item.memory_type == "tool"]
    assert results == [REPORT] * 5  # what is stored stays as it came


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("at_once", [False, True])
async def test_four_results_are_all_shown(
    alice: ScopedMemory, format: Format, *, at_once: bool
) -> None:
    chat = alice.chat("loop")
    await chat.add("How is the revenue?")
    for number in range(1 if at_once else 4):
        (said,) = await chat.add(call(number, 4 if at_once else 1))
        for each in said.calls:  # type: ignore[attr-defined]  # an answer with calls
            await chat.add({"role": "tool", "tool_call_id": each.id, "content": HUGE})

    context = await chat.context(budget=8_000, format=format)

    sent = context.messages()
    assert validate(sent.messages, format) == []
    assert context.tokens <= 8_000
    assert str(list(sent)).count("tokens left out …]") == 4
    shortened = [each for each in context.dropped if each.reason == "shortened"]
    assert [each.source for each in shortened] == ["tool report"] * 4
    assert all(each.tokens > 15_000 for each in shortened)


async def pasted(chat: Chat) -> None:
    for number in range(6):
        await chat.add(f"Note {number}: the castle of day {number}.")
        await chat.add({"role": "assistant", "content": f"Castle {number} is noted."})
    await chat.add("Which two of these matter? " + "word " * 15_000)
    await chat.add({"role": "assistant", "content": "The second and the ninth."})


def said(context: Context) -> str:
    return str(list(context.messages()))


async def test_a_pasted_message_does_not_remove_the_history(open_memory: Open) -> None:
    chat = open_memory("memory://").scope("alice").chat("c")
    await pasted(chat)
    await chat.add("Thanks. Which of both did you mean?")

    context = await chat.context(budget=4_000)

    assert all(f"Castle {number} is noted." in said(context) for number in range(6))
    assert "Which two of these matter?" in said(context)
    assert "The second and the ninth." in said(context)
    assert 2_000 < context.tokens <= 4_000
    assert not [each for each in context.dropped if each.section == "memories"]


async def test_a_message_larger_than_the_budget_is_answered(alice: ScopedMemory) -> None:
    chat = alice.chat("c")
    await pasted(chat)
    await chat.add("What is this?\n" + "line\n" * 15_000 + "Tell me in a word.")

    context = await chat.context(budget=4_000)

    last = context.messages()[-1]["content"]
    assert "What is this?" in last
    assert last.endswith("Tell me in a word.")
    assert [each.reason for each in context.dropped if each.section == "task"] == ["shortened"]
    with pytest.raises(QueryError, match="raise `budget`"):
        await chat.context(budget=20)
    with pytest.raises(QueryError, match="raise `budget`"):
        await chat.context("word " * 5_000, budget=4_000)
