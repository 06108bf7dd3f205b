from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, ToolMemory
from orbiter.memory.context import Context, ContextManager
from orbiter.memory.episodic import EpisodicMemory

START = datetime(2026, 11, 15, 9, tzinfo=UTC)


def common(one: str, two: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(one, two, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(two)))


async def ten_turns(manager: ContextManager, turns: int = 10, length: int = 10) -> list[Context]:
    """Talk: each turn asks, recalls something else, calls a tool and remembers what was said."""
    history: list[MemoryItem] = []
    contexts = []
    for turn in range(turns):
        task = f"question {turn} " + "word " * length
        contexts.append(
            await manager.assemble(
                task,
                conversation=history,
                recent=[
                    EpisodicMemory(interaction_type="did", content=f"thing {turn} {number}")
                    for number in range(turn % 4)
                ],
                memories=[f"fact {turn}" * (turn % 3)] if turn % 5 else [],
            )
        )
        call = {"id": f"c{turn}", "name": "look", "arguments": {"turn": turn}}
        history += [
            HumanMemory(content=task, created_at=START + timedelta(minutes=turn)),
            AIMemory(content="", tool_calls=[call]),
            ToolMemory(content=f"found {turn}", tool_call_id=f"c{turn}", tool_name="look"),
            AIMemory(content=f"answer {turn} " + "word " * length),
        ]
    return contexts


@pytest.mark.parametrize("budget", [None, 10_000])
async def test_ten_turns_reuse_the_prefix(soul: Path, budget: int | None) -> None:
    contexts = await ten_turns(ContextManager(soul, budget=budget))

    for one, two in pairwise(contexts):
        assert one.text.startswith(one.prefix)
        assert two.prefix.startswith(one.prefix)
        assert common(one.text, two.text) >= len(one.prefix)
        assert two.prefix_tokens > one.prefix_tokens
    assert contexts[-1].prefix_tokens > 0.6 * contexts[-1].tokens


async def test_ten_turns_reuse_all_messages_but_the_last(soul: Path) -> None:
    contexts = await ten_turns(ContextManager(soul))

    for one, two in pairwise(contexts):
        before, after = one.messages().messages, two.messages().messages
        assert after[: len(before) - 1] == before[:-1]


async def test_the_prefix_holds_nothing_of_this_call(soul: Path) -> None:
    contexts = await ten_turns(ContextManager(soul))

    for context in contexts:
        assert context.marks[1] not in context.prefix
        assert "fact" not in context.prefix
        assert "thing" not in context.prefix


@pytest.mark.slow
async def test_a_full_window_keeps_its_beginning_for_many_turns(soul: Path) -> None:
    manager = ContextManager(soul, budget=2_500)

    contexts = await ten_turns(manager, turns=60)

    pairs = list(pairwise(contexts))
    reused = [two.prefix.startswith(one.prefix) for one, two in pairs]
    full = [index for index, context in enumerate(contexts) if context.dropped]
    assert full[0] < 40
    assert reused[full[0] :].count(False) <= len(full) / 5
    assert all(context.tokens <= 2_500 for context in contexts)


async def test_a_changed_persona_changes_the_prefix(soul: Path) -> None:
    manager = ContextManager(soul)
    one = await manager.assemble("Go")
    soul.write_text("You are someone else.")

    two = await manager.assemble("Go")

    assert one.prefix != two.prefix
    assert two.prefix.startswith("You are someone else.\n\n")


async def test_while_a_model_calls_tools_each_step_repeats_all_messages_before(soul: Path) -> None:
    manager, sent = ContextManager(soul), []
    history: list[MemoryItem] = [HumanMemory(content="Is it cold?", created_at=START)]

    for step in range(3):
        context = await manager.assemble("Is it cold?", conversation=history, memories=["fact"])
        sent.append(context.messages().messages)
        call = {"id": f"c{step}", "name": "look", "arguments": {}}
        history += [
            AIMemory(content="", tool_calls=[call]),
            ToolMemory(content="no", tool_call_id=f"c{step}"),
        ]

    for one, two in pairwise(sent):
        assert two[: len(one)] == one
    assert "fact" in str(sent[0])
