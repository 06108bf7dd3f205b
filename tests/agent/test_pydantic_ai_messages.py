"""Messages of Pydantic AI go into a chat, as objects and as they are written down."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models.test import TestModel

from orbiter.memory import validate
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import MessageError

Form = Callable[[list[ModelMessage]], list[Any]]


def written(messages: list[ModelMessage]) -> list[Any]:
    return list(json.loads(ModelMessagesTypeAdapter.dump_json(messages)))


every_form = pytest.mark.parametrize("form", [list, written], ids=["objects", "written"])

HISTORY: list[ModelMessage] = [
    ModelRequest([SystemPromptPart("Be brief."), UserPromptPart("How warm is Oslo?")]),
    ModelResponse(
        [
            ThinkingPart("Look it up."),
            TextPart("I look."),
            ToolCallPart("weather", {"city": "Oslo"}, tool_call_id="c1"),
            ToolCallPart("weather", '{"city": "Os"}', tool_call_id="c2"),
        ]
    ),
    ModelRequest(
        [
            ToolReturnPart("weather", {"degrees": 2}, tool_call_id="c1"),
            ToolReturnPart("weather", "no such city", tool_call_id="c2", outcome="failed"),
        ]
    ),
    ModelResponse([TextPart("Two degrees.")]),
]


@every_form
async def test_a_history_is_read_as_it_was(any_alice: ScopedMemory, form: Form) -> None:
    chat = any_alice.chat("c")

    items = await chat.add(form(HISTORY))

    assert [item.memory_type for item in items] == ["system", "human", "ai", "tool", "tool", "ai"]
    sent = list(await chat.messages(format="anthropic"))
    assert validate(sent, "anthropic") == []
    assert sent[1]["content"] == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Os"}},
    ]
    failed = {"type": "tool_result", "tool_use_id": "c2", "content": "no such city"}
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": '{"degrees": 2}'},
        {**failed, "is_error": True},
    ]


@every_form
async def test_signed_thinking_goes_back_to_its_provider(
    any_alice: ScopedMemory, form: Form
) -> None:
    thought = ThinkingPart("Look.", signature="EqQB", provider_name="anthropic")
    call = ToolCallPart("weather", '{"city": "Oslo"}', tool_call_id="c1")
    chat = any_alice.chat("c")

    await chat.add("How warm is Oslo?")
    await chat.add(form([ModelResponse([thought, call])]))
    await chat.add(form([ModelRequest([ToolReturnPart("weather", "2", tool_call_id="c1")])]))

    sent = list(await chat.messages(format="anthropic"))
    assert sent[1]["content"] == [
        {"type": "thinking", "thinking": "Look.", "signature": "EqQB"},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
    ]


@every_form
async def test_pictures_and_files_of_a_prompt(any_alice: ScopedMemory, form: Form) -> None:
    picture = BinaryContent(b"\xff\xfe", media_type="image/png")
    paper = BinaryContent(b"%PDF", media_type="application/pdf", identifier="paper")
    prompt: list[UserContent] = [
        "What is it?",
        ImageUrl("https://example.org/a.png"),
        CachePoint(),
        picture,
        paper,
    ]

    await any_alice.chat("c").add(form([ModelRequest([UserPromptPart(prompt)])]))

    (sent,) = await any_alice.chat("c").messages(format="openai")
    assert sent["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,//4="}},
        {
            "type": "file",
            "file": {"filename": "paper", "file_data": "data:application/pdf;base64,JVBERg=="},
        },
    ]


async def test_what_a_run_returned_is_remembered(any_alice: ScopedMemory) -> None:
    agent = Agent(TestModel(custom_output_text="Tea, as always."), instructions="Be brief.")

    result = await agent.run("What do I drink?")
    await any_alice.chat("c").add(result.all_messages())

    assert await any_alice.chat("c").messages(format="openai") == [
        {"role": "user", "content": "What do I drink?"},
        {"role": "assistant", "content": "Tea, as always."},
    ]


@every_form
async def test_what_is_for_pydantic_ai_alone_is_left_out(
    any_alice: ScopedMemory, form: Form
) -> None:
    searched = NativeToolCallPart("web_search", {"query": "Oslo"}, tool_call_id="c1")
    chat = any_alice.chat("c")

    await chat.add(form([ModelResponse([searched, TextPart("Two degrees.")])]))
    await chat.add(form([ModelResponse([ThinkingPart("Hm.")])]))

    assert [item.content for item in await chat.items()] == ["Two degrees."]


@every_form
async def test_what_cannot_be_read_is_refused_by_name(any_alice: ScopedMemory, form: Form) -> None:
    prompt = UserPromptPart([VideoUrl("https://example.org/a.mp4")])

    with pytest.raises(MessageError, match=r"^message 0.*: `video-url` in a prompt"):
        await any_alice.chat("c").add(form([ModelRequest([prompt])]))
