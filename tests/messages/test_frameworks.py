"""What `chat.add` reads of Bedrock, LangChain and Pydantic AI is written back the same."""

import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from pydantic_ai import messages as pydantic_ai
from tests.messages._conversations import CONVERSATIONS
from tests.messages._strategies import damaged_conversations, histories, with_natives
from tests.rows import each_row

from orbiter.memory import AgentMemory, AIMemory, HumanMemory, MemoryItem
from orbiter.memory.messages import (
    FORMATS,
    as_plain,
    from_messages,
    read_shape,
    to_bedrock,
    to_langchain,
    to_pydantic_ai,
    validate,
)

PIXEL = base64.b64encode(b"\x89PNG picture").decode()
CALL = {"type": "tool_call", "id": "call_1", "name": "weather", "args": {"city": "Oslo"}}


async def _stored(messages: Sequence[Any]) -> list[MemoryItem]:
    async with AgentMemory("memory://", embeddings=None) as memory:
        chat = memory.scope(user_id="alice").chat("c")
        for message in messages:
            await chat.add(message)
        return await chat.items()


def _system_and_question(*rest: BaseMessage) -> list[BaseMessage]:
    return [SystemMessage("Be brief."), HumanMessage("Weather in Oslo?"), *rest]


_LANGCHAIN: dict[str, list[BaseMessage]] = {
    "texts": _system_and_question(AIMessage("Rain.")),
    "tool group": _system_and_question(
        AIMessage("I look.", tool_calls=[CALL, {**CALL, "id": "call_2"}]),
        ToolMessage("rain", tool_call_id="call_1", name="weather"),
        ToolMessage("no such city", tool_call_id="call_2", name="weather", status="error"),
        AIMessage("Rain."),
    ),
    "picture": [
        HumanMessage(
            [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
            ]
        ),
        AIMessage("A cat."),
    ],
    "thoughts of Anthropic": _system_and_question(
        AIMessage(
            [
                {"type": "thinking", "thinking": "Hm.", "signature": "s1g"},
                {"type": "redacted_thinking", "data": "aGlkZGVu"},
                {"type": "text", "text": "I look."},
            ],
            tool_calls=[CALL],
        ),
        ToolMessage("rain", tool_call_id="call_1", name="weather"),
    ),
    "thoughts without signature": _system_and_question(
        AIMessage([{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Rain."}])
    ),
}


@each_row("name", _LANGCHAIN)
async def test_messages_of_langchain_come_back(name: str) -> None:
    messages = _LANGCHAIN[name]

    assert to_langchain(await _stored(messages)) == messages


def _request(*parts: Any) -> pydantic_ai.ModelRequest:
    return pydantic_ai.ModelRequest(parts=list(parts))


def _response(*parts: Any) -> pydantic_ai.ModelResponse:
    return pydantic_ai.ModelResponse(parts=list(parts))


def _return(id: str, outcome: Any = "success") -> pydantic_ai.ToolReturnPart:
    return pydantic_ai.ToolReturnPart("weather", "rain", tool_call_id=id, outcome=outcome)


def _tool_call(id: str) -> pydantic_ai.ToolCallPart:
    return pydantic_ai.ToolCallPart("weather", {"city": "Oslo"}, tool_call_id=id)


_PYDANTIC_AI: dict[str, list[pydantic_ai.ModelMessage]] = {
    "texts": [
        _request(pydantic_ai.SystemPromptPart("Be brief.")),
        _request(pydantic_ai.UserPromptPart("Weather?")),
        _response(pydantic_ai.TextPart("Rain.")),
    ],
    "tool group": [
        _request(pydantic_ai.UserPromptPart("Weather?")),
        _response(pydantic_ai.TextPart("I look."), _tool_call("call_1"), _tool_call("call_2")),
        _request(_return("call_1"), _return("call_2", "failed")),
        _response(pydantic_ai.TextPart("Rain.")),
    ],
    "picture": [
        _request(
            pydantic_ai.UserPromptPart(
                [
                    "What is this?",
                    pydantic_ai.BinaryContent(b"\x89PNG picture", media_type="image/png"),
                    pydantic_ai.ImageUrl("https://example.org/cat.png"),
                ]
            )
        ),
    ],
    "files": [
        _request(
            pydantic_ai.UserPromptPart(
                [
                    "What do they say?",
                    pydantic_ai.BinaryContent(
                        b"%PDF report", media_type="application/pdf", identifier="report.pdf"
                    ),
                    pydantic_ai.BinaryContent(b"a,b", media_type="text/csv"),
                ]
            )
        ),
    ],
    "a file by URL": [
        _request(
            pydantic_ai.UserPromptPart(
                [
                    "What do they say?",
                    pydantic_ai.DocumentUrl("https://example.org/report.pdf"),
                    pydantic_ai.BinaryContent(b"%PDF report", media_type="application/pdf"),
                    pydantic_ai.BinaryContent(b"\x89PNG picture", media_type="image/png"),
                    pydantic_ai.ImageUrl("https://example.org/cat.png"),
                ]
            )
        ),
    ],
    "thoughts of Anthropic": [
        _request(pydantic_ai.UserPromptPart("Weather?")),
        _response(
            pydantic_ai.ThinkingPart("Hm.", signature="s1g", provider_name="anthropic"),
            pydantic_ai.ThinkingPart(
                "", id="redacted_thinking", signature="aGk=", provider_name="anthropic"
            ),
            _tool_call("call_1"),
        ),
        _request(_return("call_1")),
    ],
    "thoughts without signature": [
        _request(pydantic_ai.UserPromptPart("Weather?")),
        _response(pydantic_ai.ThinkingPart("Hm."), pydantic_ai.TextPart("Rain.")),
    ],
}


def _timeless(messages: Sequence[pydantic_ai.ModelMessage]) -> list[Any]:
    dumped = pydantic_ai.ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    keys = ("timestamp", "run_id", "conversation_id", "identifier")
    for message in dumped:
        for part in (message, *message["parts"]):
            for key in keys:
                part.pop(key, None)
            for each in part["content"] if isinstance(part.get("content"), list) else ():
                for key in keys if isinstance(each, dict) else ():
                    each.pop(key, None)
    return list(dumped)


@each_row("name", _PYDANTIC_AI)
async def test_messages_of_pydantic_ai_come_back(name: str) -> None:
    messages = _PYDANTIC_AI[name]

    assert _timeless(to_pydantic_ai(await _stored(messages))) == _timeless(messages)


_USE = {"toolUse": {"toolUseId": "call_1", "name": "weather", "input": {"city": "Oslo"}}}
_RETURN = {"toolResult": {"toolUseId": "call_1", "content": [{"text": "rain"}]}}

_BEDROCK: dict[str, list[dict[str, Any]]] = {
    "texts": [
        {"role": "user", "content": [{"text": "Weather?"}]},
        {"role": "assistant", "content": [{"text": "Rain."}]},
    ],
    "tool group": [
        {"role": "user", "content": [{"text": "Weather?"}]},
        {"role": "assistant", "content": [{"text": "I look."}, _USE]},
        {"role": "user", "content": [{"toolResult": {**_RETURN["toolResult"], "status": "error"}}]},
        {"role": "assistant", "content": [{"text": "Rain."}]},
    ],
    "picture": [
        {
            "role": "user",
            "content": [
                {"text": "What is this?"},
                {"image": {"format": "png", "source": {"bytes": b"\x89PNG picture"}}},
            ],
        },
    ],
    "documents": [
        {
            "role": "user",
            "content": [
                {"text": "What do they say?"},
                {
                    "document": {
                        "format": "pdf",
                        "name": "Report (2026)",
                        "source": {"bytes": b"%PDF report"},
                    }
                },
                {"document": {"format": "txt", "name": "notes", "source": {"text": "Buy milk."}}},
                {"document": {"format": "xlsx", "name": "sums", "source": {"bytes": b"PK"}}},
            ],
        },
    ],
    "files in S3": [
        {
            "role": "user",
            "content": [
                {"text": "What do they say?"},
                {
                    "image": {
                        "format": "jpeg",
                        "source": {"s3Location": {"uri": "s3://bucket/picture.jpg"}},
                    }
                },
                {
                    "document": {
                        "format": "pdf",
                        "name": "Report",
                        "source": {
                            "s3Location": {"uri": "s3://bucket/key", "bucketOwner": "111122223333"}
                        },
                    }
                },
            ],
        },
    ],
    "thoughts": [
        {"role": "user", "content": [{"text": "Weather?"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s1g"}}},
                {"reasoningContent": {"redactedContent": b"hidden"}},
                _USE,
            ],
        },
        {"role": "user", "content": [_RETURN, {"text": "Thanks"}]},
    ],
}


@each_row("name", _BEDROCK)
async def test_messages_of_bedrock_come_back(name: str) -> None:
    messages = _BEDROCK[name]

    assert to_bedrock(await _stored(messages)) == {"messages": messages}


async def test_pictures_go_from_one_to_another() -> None:
    items = await _stored(_LANGCHAIN["picture"])

    content = to_bedrock(items)["messages"][0]["content"]
    assert content[1] == _BEDROCK["picture"][0]["content"][1]
    assert len(content) == 2  # there are none by URL
    assert _timeless(to_pydantic_ai(items))[:1] == _timeless(_PYDANTIC_AI["picture"])


_PDF = base64.b64encode(b"%PDF report").decode()
_FILES: dict[str, dict[str, Any]] = {
    "openai": {
        "type": "file",
        "file": {"filename": "my_report.pdf", "file_data": f"data:application/pdf;base64,{_PDF}"},
    },
    "openai-responses": {
        "type": "input_file",
        "filename": "my_report.pdf",
        "file_data": f"data:application/pdf;base64,{_PDF}",
    },
    "anthropic": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": _PDF},
        "title": "my_report.pdf",
    },
    "gemini": {
        "inlineData": {
            "mimeType": "application/pdf", "data": _PDF, "displayName": "my_report.pdf",
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_of_every_provider_is_written_as_a_document(format: Any) -> None:
    file = _FILES[format]
    messages: list[Any] = [{"role": "user", "content": [file]}] * 2
    if format == "gemini":
        messages = [{"role": "user", "parts": [file]}] * 2
    items = from_messages(messages, format)

    (asked,) = to_bedrock(items)["messages"]
    documents = [each["document"] for each in asked["content"] if "document" in each]
    assert [each["name"] for each in documents] == ["my report", "my report (2)"]
    assert {each["format"] for each in documents} == {"pdf"}
    assert {each["source"]["bytes"] for each in documents} == {b"%PDF report"}
    assert "text" in asked["content"][0]  # without one, Bedrock takes no document
    for request in to_pydantic_ai(items):
        prompt: Any = request.parts[0]
        for file_part in prompt.content:
            assert (file_part.data, file_part.media_type) == (b"%PDF report", "application/pdf")
            assert file_part.identifier == "my_report.pdf"


@pytest.mark.parametrize("format", FORMATS)
async def test_a_context_and_the_messages_of_a_chat_are_written_as_well(format: Any) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        chat = memory.scope(user_id="alice").chat("c")
        for message in _LANGCHAIN["tool group"]:
            await chat.add(message)
        said = await chat.messages(format=format)
        context = await chat.context("And now?", format=format)

    assert [each.type for each in said.as_langchain()] == (
        ["system", "human", "ai", "tool", "tool", "ai"]
    )
    assert [each.kind for each in said.as_pydantic_ai()][1:] == (
        ["request", "response", "request", "response"]
    )
    assert said.as_bedrock()["system"] == [{"text": "Be brief."}]
    assert "And now?" in str(context.as_bedrock()["messages"][-1])
    assert "And now?" in str(context.as_langchain()[-1].content)
    assert "And now?" in str(context.as_pydantic_ai()[-1])


def _illegal(items: Sequence[MemoryItem]) -> list[str]:
    """Return what a provider behind each of them would refuse."""
    blocks = to_bedrock(items)["messages"]
    of_claude = [message for each in blocks for _, message in read_shape(as_plain(each))]
    problems = [f"Bedrock: {each}" for each in validate(of_claude, "anthropic")]
    roles = [each["role"] for each in blocks]
    if any(one == other for one, other in pairwise(roles)):
        problems.append(f"Bedrock: roles {roles}")
    of_gpt: Any = convert_to_openai_messages(to_langchain(items))
    problems += [f"LangChain: {each}" for each in validate(of_gpt, "openai")]
    waiting: list[str] = []
    seen: set[str] = set()
    for message in to_pydantic_ai(items):
        returned = [part.tool_call_id for part in message.parts if part.part_kind == "tool-return"]
        called = [part.tool_call_id for part in message.parts if part.part_kind == "tool-call"]
        if sorted(returned) != sorted(waiting) or seen & set(called):
            problems.append(f"Pydantic AI: {waiting} is answered with {returned}")
        waiting = called
        seen |= set(called)
    return [*problems, *waiting]


@pytest.mark.parametrize("format", CONVERSATIONS)
def test_a_story_of_every_provider_is_legal_elsewhere(format: Any) -> None:
    items = from_messages(CONVERSATIONS[format], format)

    assert _illegal(items) == []
    assert len(to_langchain(items)) >= 9


def test_no_person_thinks_as_a_model_does() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
    hidden = {"type": "redacted_thinking", "data": "EqQB"}
    words = {"type": "text", "text": "Hello."}
    native = {"openai": {"content": [thought, hidden, words], "reasoning_content": "Hm."}}

    assert _illegal([HumanMemory(content="Hello.", native=native)]) == []


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.one_of(histories, damaged_conversations(), *(map(with_natives, FORMATS))))
def test_what_is_written_is_legal_however_broken_the_history(items: list[MemoryItem]) -> None:
    assert _illegal(items) == []


@pytest.mark.parametrize("media", ["application/pdf", "audio/mp3", "image/svg+xml"])
async def test_a_file_is_never_given_as_a_picture(media: str) -> None:
    parts = [{"text": "Read it."}, {"inlineData": {"mimeType": media, "data": PIXEL}}]
    items = await _stored([{"role": "user", "parts": parts}])

    (message,) = to_bedrock(items)["messages"]
    assert message["content"][0] == {"text": "Read it."}
    assert [list(each) for each in message["content"][1:]] == (
        [["document"]] if media == "application/pdf" else []
    )
    (asked,) = to_langchain(items)
    (request,) = to_pydantic_ai(items)
    if not media.startswith("image/"):
        kind = "audio" if media.startswith("audio/") else "file"
        assert asked.content[1] == {"type": kind, "base64": PIXEL, "mime_type": media}
    part: Any = request.parts[0]
    assert part.content[1].media_type == media


async def test_what_pydantic_ai_has_no_form_for_leaves_no_empty_message() -> None:
    document = {"type": "document", "source": {"type": "file", "file_id": "f"}}
    items = await _stored(
        [{"role": "user", "content": [document]}, {"role": "assistant", "content": "I see."}]
    )

    request, response = to_pydantic_ai(items)
    assert request.parts[0].content  # type: ignore[union-attr]
    assert response.parts == [pydantic_ai.TextPart("I see.")]


@pytest.mark.parametrize("format", ["openai", "openai-responses", "anthropic"])
def test_calls_and_results_among_what_a_message_kept_are_not_written(format: str) -> None:
    stray = [
        {"type": "tool_use", "id": "c", "name": "look", "input": {}},
        {"type": "tool_result", "tool_use_id": "c", "content": "rain"},
    ]
    for native in (stray, {"content": stray}):
        items = [HumanMemory(content="Look.", native={format: native})]

        assert _illegal(items) == []
        assert "rain" not in str(to_langchain(items))


def test_a_call_whose_id_is_no_text_is_left_out_of_what_is_written() -> None:
    use = {"type": "tool_use", "id": ["x"], "name": "look", "input": {}}
    item = AIMemory(content="I look.", native={"anthropic": [use]})

    said = to_langchain([HumanMemory(content="Hi"), item])

    assert [each.content for each in said] == ["Hi", "I look."]


def test_of_a_model_that_says_nothing_the_turn_stays() -> None:
    native = {"openai": [{"type": [7]}], "anthropic": [{"type": "reasoning", "id": "r"}]}
    nothing = AIMemory(content="\n", native=native)
    items = [HumanMemory(content="Hi"), nothing, HumanMemory(content="Well?")]

    assert [each.kind for each in to_pydantic_ai(items)] == ["request", "response", "request"]
