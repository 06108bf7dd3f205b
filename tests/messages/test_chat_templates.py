"""What is sent goes through the chat templates of open models, which refuse more than OpenAI."""

import random
from collections.abc import Sequence

import pytest
from benchmarks._chat_templates import refusals

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    SystemMemory,
    ToolMemory,
    from_messages,
    validate,
)
from orbiter.memory.context import ContextManager
from orbiter.memory.messages import FORMATS, Format, to_messages
from orbiter.memory.testing.histories import random_history

CALL = {"id": "c1", "name": "look", "arguments": {}}
STEP = [AIMemory(content="", tool_calls=[CALL]), ToolMemory(content="rain", tool_call_id="c1")]
URL = "https://example.org/map.png"
PICTURE = {"type": "image_url", "image_url": {"url": URL}}


def said(*items: MemoryItem) -> list[tuple[str, object]]:
    return [(m["role"], m["content"]) for m in to_messages(items, "openai")]


@pytest.mark.slow
def test_no_template_refuses_a_random_history() -> None:
    refused = []
    for seed in range(4_000):
        history = random_history(random.Random(seed))
        messages = to_messages([*history, HumanMemory(content="Go on.")], "openai")
        refused += [(seed, reason) for reason in refusals(messages)]

    assert refused == []


@pytest.mark.slow
async def test_no_template_refuses_a_context() -> None:
    refused = []
    for seed in range(600):
        rng = random.Random(seed)
        history = random_history(rng)
        humans = [item.content for item in history if isinstance(item, HumanMemory)]
        task = rng.choice([text for text in humans if text.strip()] or ["Go on."])
        context = await ContextManager(None).assemble(
            task,
            conversation=history,
            memories=rng.choice(([], ["Mia is five."])),
            summary=rng.choice((None, "They met.")),
            budget=rng.choice((None, 400)),
        )
        messages = context.messages("openai")
        refused += [(seed, reason) for reason in refusals(messages)]
        assert context.budget is None or context.tokens <= context.budget

    assert refused == []


def test_system_messages_are_one_and_the_first() -> None:
    brief = SystemMemory(content="Be brief.", native={"openai": {"content": [PICTURE]}})
    items = [HumanMemory(content="Hi"), brief, SystemMemory(content="Be kind.")]

    assert said(*items) == [("system", "Be brief.\n\nBe kind."), ("user", "Hi")]


def test_neighbours_of_one_role_are_joined_and_keep_their_pictures() -> None:
    text = {"type": "text", "text": "Look"}
    shown = HumanMemory(content="Look", native={"openai": {"content": [text, PICTURE]}})
    items = [
        HumanMemory(content="Hi"), shown, HumanMemory(content="Well?"),
        AIMemory(content="A map."), AIMemory(content="Wait."), *STEP, AIMemory(content="Rain."),
    ]  # fmt: skip

    messages = to_messages(items, "openai")

    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[0]["content"] == [
        {"type": "text", "text": "Hi\n\nLook"}, PICTURE, {"type": "text", "text": "Well?"}
    ]  # fmt: skip
    assert messages[1]["content"] == "A map.\n\nWait."
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "c1"


def test_of_several_people_each_is_named_in_a_joined_message() -> None:
    people = ["ann", "ann", "bob", None]
    items = [
        HumanMemory(content=str(place), native={"openai": {"name": name}} if name else {})
        for place, name in enumerate(people)
    ]

    assert to_messages(items[:2], "openai")[0] == {
        "role": "user", "name": "ann", "content": "0\n\n1"
    }  # fmt: skip
    assert said(*items) == [("user", "ann: 0\n\n1\n\nbob: 2\n\n3")]


def test_what_a_model_said_aloud_is_text_where_it_is_joined() -> None:
    spoken = AIMemory(content="Hello", native={"openai": {"audio": {"id": "audio_1"}}})

    assert said(HumanMemory(content="Hi"), spoken, AIMemory(content="Well?"))[1:] == [
        ("assistant", "Hello\n\nWell?")
    ]


def test_the_user_speaks_first_and_not_directly_after_a_tool() -> None:
    assert [
        role for role, _ in said(AIMemory(content="Hi"), *STEP, HumanMemory(content="Stop"))
    ] == [*("user", "assistant", "tool", "assistant", "user")]


JOINED: dict[Format, Sequence[object]] = {
    "openai": ["user", "assistant"],
    "openai-responses": ["user", "assistant"],
    "anthropic": ["user", "assistant"],
    "gemini": ["user", "model"],
}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_joins_neighbours(format: Format) -> None:
    items: list[MemoryItem] = [
        HumanMemory(content="Hi"), SystemMemory(content="Be brief."), HumanMemory(content="Well?"),
        AIMemory(content="Yes."), SystemMemory(content="Be kind."), AIMemory(content="And?"),
    ]  # fmt: skip

    sent = to_messages(items, format)

    roles = [m["role"] for m in sent]
    assert roles == [*([] if sent.system else ["system"]), *JOINED[format]]
    assert (sent.system or sent[0]["content"]) == "Be brief.\n\nBe kind."
    assert validate(sent, format) == []
    again = to_messages(from_messages(sent, format, system=sent.system), format)
    assert again == sent
