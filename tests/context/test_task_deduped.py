"""A task that was saved before the context was assembled is shown once."""

from pathlib import Path
from typing import Any, get_args

import pytest
from tests.context.test_budget import cost

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    validate,
)
from orbiter.memory.context import ContextManager
from orbiter.memory.messages import Format

TASK = "Is it cold in Oslo?"
BEFORE = [HumanMemory(content="Hello"), AIMemory(content="Hi")]


def step(*ids: str, answered: int | None = None, name: str = "weather") -> list[MemoryItem]:
    """Return a call of as many tools, and the first so many answers."""
    calls = [{"id": id, "name": name, "arguments": {}} for id in ids]
    results = [ToolMemory(content="-4 °C", tool_call_id=id) for id in ids]
    return [AIMemory(content="", tool_calls=calls), *results[:answered]]


@pytest.mark.parametrize("summary", [None, "They met."])
@pytest.mark.parametrize("memories", [[], ["x"]])
@pytest.mark.parametrize(
    "since",
    [
        [],
        step("a", answered=0),
        step("a", "b", answered=1),
        step("a", "b"),
        [*step("a"), *step("b", "c", answered=1)],
        [*step("a"), *step("b", answered=0)],
        [SystemMemory(content="Be brief.")],
        [MemoryItem(content="a note", memory_type="note")],
        [AIMemory(content="hm", status=MemoryStatus.DRAFT)],
    ],
)
async def test_a_saved_task_is_not_doubled(
    soul: Path, since: list[MemoryItem], memories: list[str], summary: str | None
) -> None:
    asked = HumanMemory(content=TASK)

    context = await ContextManager(soul).assemble(
        TASK, conversation=[*BEFORE, asked, *since], memories=[*memories, asked], summary=summary
    )

    for format in get_args(Format):
        sent = context.messages(format)
        assert str(sent.messages).count(TASK) == 1
        assert validate(sent.messages, format) == []
    assert "duplicate" in [left.reason for left in context.dropped]
    assert asked.id not in [left.id for left in context.dropped if left.section == "conversation"]


async def test_a_task_that_no_tool_has_answered_yet_is_asked_last(soul: Path) -> None:
    history = [*BEFORE, HumanMemory(content=TASK), *step("a", "b", answered=1)]

    context = await ContextManager(soul).assemble(TASK, conversation=history, memories=["x"])

    assert context.text.count(TASK) == 1
    assert context.messages().messages[-1]["content"].endswith(f"## Task\n{TASK}")


async def test_a_saved_task_with_a_picture_is_sent_with_it_and_once(soul: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/sky.png"}}
    content = [{"type": "text", "text": TASK}, picture]
    asked = HumanMemory(content=TASK, native={"openai": {"content": content}})

    context = await ContextManager(soul).assemble(TASK, conversation=[*BEFORE, asked])

    messages = context.messages().messages
    assert str(messages).count(TASK) == 1
    assert "sky.png" in str(messages[-1])


@pytest.mark.parametrize("since", [[AIMemory(content="Yes.")], [*step("a"), AIMemory(content="4")]])
async def test_what_was_answered_is_asked_anew(soul: Path, since: list[MemoryItem]) -> None:
    history = [*BEFORE, HumanMemory(content=TASK), *since]

    context = await ContextManager(soul).assemble(TASK, conversation=history)

    assert str(context.messages().messages).count(TASK) == 2
    assert context.messages().messages[-1] == {"role": "user", "content": TASK}


@pytest.mark.parametrize("format", get_args(Format))
async def test_a_context_is_sent_in_the_format_it_was_assembled_for(
    soul: Path, format: Format
) -> None:
    context = await ContextManager(soul).assemble(TASK, conversation=BEFORE, format=format)

    assert context.format == format
    assert context.messages() == context.messages(format)
    assert context.messages("openai").format == "openai"


async def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"format": "telegram"}

    with pytest.raises(ValueError, match="unknown format `telegram`"):
        await ContextManager(tmp_path / "none.md").assemble(TASK, **arguments)


@pytest.mark.parametrize("format", get_args(Format))
async def test_names_that_only_the_provider_needs_are_paid_for(soul: Path, format: Format) -> None:
    history: list[MemoryItem] = [HumanMemory(content="Look it up")]
    for number in range(30):
        # An id that is used again gets a longer one, and a tool without a name gets one.
        history += step("call_0123456789abcdef01234567", name="" if number % 2 else "weather")
    manager = ContextManager(soul, budget=900)

    context = await manager.assemble("Go", conversation=history, format=format)

    assert cost(context) <= context.tokens <= 900
    assert context.tokens > 600
