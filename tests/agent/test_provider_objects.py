"""What the official clients return goes into a chat, and comes out as their providers want it."""

import base64
import json
from typing import Any

import pytest
from anthropic.types import RawContentBlockDeltaEvent, RawMessageStartEvent
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    message_to_dict,
)
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel
from tests.agent import _clients
from tests.agent._clients import Wire, types

from orbiter.memory import AIMemory, ToolMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import MessageError
from orbiter.memory.messages import Format, validate
from orbiter.memory.model.items import role_of

QUESTION = "Which is warmer, Paris or Oslo?"
CALLS = [("c1", "weather", {"city": "Paris"}), ("c2", "weather", {"city": "Oslo", "day": None})]
SIGNATURE = base64.b64encode(b"\xff\xfe\xfb signed").decode()

COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "annotations": [],
                "tool_calls": [
                    {
                        "id": id,
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(args)},
                    }
                    for id, name, args in CALLS
                ],
            },
        }
    ],
}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Two calls."}],
    "encrypted_content": "gAAA",
}
ENTRIES = [
    {
        "type": "function_call",
        "id": f"fc_{id}",
        "call_id": id,
        "name": name,
        "arguments": json.dumps(args),
        "status": "completed",
    }
    for id, name, args in CALLS
]
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt",
    "status": "completed",
    "output": [REASONING, *ENTRIES],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
BLOCKS: list[str | dict[Any, Any]] = [
    {"type": "thinking", "thinking": "Two calls.", "signature": "EqQB"},
    {"type": "text", "text": "I will look both up."},
    *({"type": "tool_use", "id": id, "name": name, "input": args} for id, name, args in CALLS),
]
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": BLOCKS,
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
PARTS: list[dict[str, Any]] = [
    {"text": "Two calls.", "thought": True},
    {"functionCall": {"name": "weather", "args": CALLS[0][2]}, "thoughtSignature": SIGNATURE},
    {"functionCall": {"name": "weather", "args": CALLS[1][2]}},
]
CANDIDATES = {
    "candidates": [{"content": {"role": "model", "parts": PARTS}, "finishReason": "STOP"}]
}


@pytest.fixture(params=["memory", "http"])
def any_url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """Return the address of a store in the process, or behind a server: objects cross the wire."""
    return "memory://" if request.param == "memory" else f"served://{tmp_path}/agent.db"


async def results(any_alice: ScopedMemory, *messages: Any) -> None:
    """Check the calls that the chat has, and add results."""
    items = await any_alice.chat("c").items(open_group="keep")
    calls = [call for item in items if isinstance(item, AIMemory) for call in item.calls]
    assert [(call.name, call.args) for call in calls] == [(name, args) for _, name, args in CALLS]
    await any_alice.chat("c").add(list(messages))


async def kwargs(any_alice: ScopedMemory, format: Format) -> dict[str, Any]:
    sent = await any_alice.chat("c").messages(format=format)
    assert validate(sent.messages, format) == []
    return sent.as_kwargs()


@pytest.mark.parametrize("is_whole", [True, False], ids=["the whole answer", "its message"])
async def test_openai_chat(any_alice: ScopedMemory, *, is_whole: bool) -> None:
    wire = Wire([COMPLETION, COMPLETION])
    ask = _clients.openai_chat(wire)
    chat = any_alice.chat("c")
    await chat.add(QUESTION)

    answer = await ask(await kwargs(any_alice, "openai"))
    await chat.add(answer if is_whole else answer.choices[0].message)
    tools = [{"role": "tool", "tool_call_id": id, "content": f"{id}: 5"} for id, _, _ in CALLS]
    await results(any_alice, *tools)
    await ask(await kwargs(any_alice, "openai"))

    call: dict[str, Any] = {"role": "assistant", "content": None, "annotations": []}
    call["tool_calls"] = COMPLETION["choices"][0]["message"]["tool_calls"]
    assert wire.asked[1]["messages"] == [{"role": "user", "content": QUESTION}, call, *tools]


@pytest.mark.parametrize("how", ["the whole answer", "a list", "one by one"])
async def test_openai_responses(any_alice: ScopedMemory, how: str) -> None:
    wire = Wire([RESPONSE, RESPONSE])
    ask = _clients.openai_responses(wire)
    chat = any_alice.chat("c")
    await chat.add(QUESTION)

    answer = await ask(await kwargs(any_alice, "openai-responses"))
    for what in [answer] if how == "the whole answer" else [answer.output]:
        for each in what if how == "one by one" else [what]:
            await chat.add(each)
    outputs = [
        {"type": "function_call_output", "call_id": id, "output": f"{id}: 5"} for id, _, _ in CALLS
    ]
    await results(any_alice, *outputs)
    await ask(await kwargs(any_alice, "openai-responses"))

    question = {"role": "user", "content": QUESTION}
    assert wire.asked[1]["input"] == [question, REASONING, *ENTRIES, *outputs]


@pytest.mark.parametrize("how", ["the message", "its blocks in a dict"])
async def test_anthropic(any_alice: ScopedMemory, how: str) -> None:
    wire = Wire([MESSAGE, MESSAGE])
    ask = _clients.anthropic(wire)
    chat = any_alice.chat("c")
    await chat.add(QUESTION)

    answer = await ask(await kwargs(any_alice, "anthropic"))
    is_message = how == "the message"
    await chat.add(answer if is_message else {"role": "assistant", "content": answer.content})
    returned = [
        {"type": "tool_result", "tool_use_id": id, "content": f"{id}: 5"} for id, _, _ in CALLS
    ]
    await results(any_alice, {"role": "user", "content": returned})
    await ask(await kwargs(any_alice, "anthropic"))

    assert wire.asked[1]["messages"] == [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": BLOCKS},
        {"role": "user", "content": returned},
    ]


DIRECT: dict[Format, tuple[Any, dict[str, Any], str]] = {
    "openai": (_clients.openai_chat, COMPLETION, "messages"),
    "openai-responses": (_clients.openai_responses, RESPONSE, "input"),
    "anthropic": (_clients.anthropic, MESSAGE, "messages"),
    "gemini": (_clients.gemini, CANDIDATES, "contents"),
}


@pytest.mark.parametrize("format", DIRECT)
async def test_a_client_takes_the_messages_as_they_are(
    any_alice: ScopedMemory, format: Format
) -> None:
    client, answer, argument = DIRECT[format]
    wire = Wire([answer])
    chat = any_alice.chat("c")
    await chat.add(QUESTION)

    messages = await chat.messages(format=format)
    await client(wire)({argument: messages})

    assert wire.asked[0][argument] == messages == messages.messages
    assert messages[0]["role"] == "user"
    assert (await chat.messages(format=format)) == messages


GEMINI: dict[str, Any] = {
    "the whole answer": lambda answer: answer,
    "its candidate": lambda answer: answer.candidates[0],
    "its content": lambda answer: answer.candidates[0].content,
    "its parts": lambda answer: answer.candidates[0].content.parts,
}


@pytest.mark.parametrize("results_are", ["a content", "parts"])
@pytest.mark.parametrize("how", GEMINI)
async def test_google_genai(any_alice: ScopedMemory, how: str, results_are: str) -> None:
    wire = Wire([CANDIDATES, CANDIDATES])
    ask = _clients.gemini(wire)
    chat = any_alice.chat("c")
    picture = types.Part.from_bytes(data=b"\xff\xfe\xfb", mime_type="image/png")
    await chat.add(types.Content(role="user", parts=[types.Part(text=QUESTION), picture]))

    answer = await ask(await kwargs(any_alice, "gemini"))
    await chat.add(GEMINI[how](answer))
    returned = [
        types.Part.from_function_response(name=name, response={"output": f"{id}: 5"})
        for id, name, _ in CALLS
    ]
    is_content = results_are == "a content"
    content = types.Content(role="user", parts=returned)
    await results(any_alice, *([content] if is_content else returned))
    again = await kwargs(any_alice, "gemini")
    await ask(again)

    first, called, answered = wire.asked[1]["contents"]
    assert first == wire.asked[0]["contents"][0]
    assert base64.urlsafe_b64decode(first["parts"][1]["inlineData"]["data"]) == b"\xff\xfe\xfb"
    signature = called["parts"][1].pop("thoughtSignature")
    assert base64.urlsafe_b64decode(signature) == base64.b64decode(SIGNATURE)
    assert [part.get("functionCall") for part in called["parts"]] == [
        None,
        PARTS[1]["functionCall"],
        PARTS[2]["functionCall"],
    ]
    assert [part["functionResponse"]["response"] for part in answered["parts"]] == [
        {"output": f"{id}: 5"} for id, _, _ in CALLS
    ]
    given = [types.Content.model_validate(content) for content in again["contents"]]
    assert given[1].parts is not None
    assert given[1].parts[1].thought_signature == base64.b64decode(SIGNATURE)


async def test_a_part_of_google_genai_alone(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    picture = types.Part.from_bytes(data=b"\xff\xfe", mime_type="image/png")

    (asked,) = await chat.add([types.Part(text=QUESTION), picture])
    (called,) = await chat.add(types.Part.from_function_call(name="weather", args={"city": "Oslo"}))
    result = types.Part.from_function_response(name="weather", response={"output": "rain"})
    (answered,) = await chat.add(result)
    answer = {"content": {"parts": [{"text": "Paris."}]}, "finishReason": "STOP"}
    (said,) = await chat.add(types.Candidate.model_validate(answer))
    (thought,) = await chat.add(types.Part(text="Done.", thought_signature=b"signed"))
    kept = await any_alice.remember(types.Part(text="I live in Paris."))

    assert [role_of(item) for item in (asked, called, answered, said, thought, kept)] == [
        "human", "ai", "tool", "ai", "ai", "human",
    ]  # fmt: skip
    assert isinstance(called, AIMemory)
    assert isinstance(answered, ToolMemory)
    assert (answered.tool_call_id, answered.content) == (called.calls[0].id, "rain")
    contents = (await kwargs(any_alice, "gemini"))["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user", "model"]


async def test_parts_of_both_sides_in_one_list_are_refused(any_alice: ScopedMemory) -> None:
    call = types.Part.from_function_call(name="weather", args={})
    result = types.Part.from_function_response(name="weather", response={"output": "rain"})

    with pytest.raises(MessageError, match="^message 1: .* `Content` with its role"):
        await any_alice.chat("c").add(["Hi.", call, result])

    assert await any_alice.chat("c").items() == []


DELTA: dict[str, Any] = {"role": "assistant", "content": ""}
CHUNK: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt",
    "choices": [{"index": 0, "delta": DELTA}],
}
TEXT_DELTA: dict[str, Any] = {"type": "text_delta", "text": "Hi"}
STREAMED: dict[str, Any] = {
    "a chunk": ChatCompletionChunk.model_validate(CHUNK),
    "its choice": ChatCompletionChunk.model_validate(CHUNK).choices[0],
    "its delta": ChatCompletionChunk.model_validate(CHUNK).choices[0].delta,
    "the chunk with the usage": ChatCompletionChunk.model_validate({**CHUNK, "choices": []}),
    "a chunk of a server that names no object": {"choices": [{"index": 0, "delta": DELTA}]},
    "an event of Responses": ResponseTextDeltaEvent(
        type="response.output_text.delta",
        content_index=0,
        delta="Hi",
        item_id="msg_1",
        logprobs=[],
        output_index=0,
        sequence_number=1,
    ),
    "the first event of Anthropic": RawMessageStartEvent.model_validate(
        {"type": "message_start", "message": MESSAGE}
    ),
    "an event of Anthropic": RawContentBlockDeltaEvent.model_validate(
        {"type": "content_block_delta", "index": 0, "delta": TEXT_DELTA}
    ),
    "its delta alone": TEXT_DELTA,
    "a chunk of Ollama": {"message": {"role": "assistant", "content": "Hi"}, "done": False},
    "an event of Bedrock": {"contentBlockDelta": {"delta": {"text": "Hi"}}},
}


@pytest.mark.parametrize("what", STREAMED.values(), ids=STREAMED)
async def test_a_piece_of_a_stream_is_refused_as_one(any_alice: ScopedMemory, what: Any) -> None:
    with pytest.raises(MessageError, match="put the pieces of the stream together"):
        await any_alice.chat("c").add(what)

    assert await any_alice.chat("c").items() == []


LANGCHAIN: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage(QUESTION, name="ann"),
    AIMessage("", tool_calls=[{"id": id, "name": name, "args": args} for id, name, args in CALLS]),
    ToolMessage("21", tool_call_id="c1", name="weather"),
    ToolMessage("no such city", tool_call_id="c2", status="error"),
    AIMessage("Paris."),
]


@pytest.mark.parametrize("how", ["objects", "dicts", "dumped"])
async def test_langchain(any_alice: ScopedMemory, how: str) -> None:
    chat = any_alice.chat("c")
    write: Any = {"objects": lambda m: m, "dicts": message_to_dict, "dumped": dumpd}[how]

    await chat.add([write(message) for message in LANGCHAIN])

    items = await chat.items()
    assert [item.content for item in items] == [
        "Be brief.", QUESTION, "", "21", "no such city", "Paris.",
    ]  # fmt: skip
    assert items[1].metadata.extra["speaker"] == "ann"
    failed = items[4]
    assert isinstance(failed, ToolMemory)
    assert (failed.tool_name, failed.is_error) == ("weather", True)
    back = convert_to_messages((await kwargs(any_alice, "openai"))["messages"])
    assert [(type(m), m.text) for m in back] == [(type(m), m.text) for m in LANGCHAIN]
    called = back[2]
    assert isinstance(called, AIMessage)
    assert [(call["id"], call["name"], call["args"]) for call in called.tool_calls] == CALLS


async def test_langchain_with_blocks_of_anthropic(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    await chat.add(HumanMessage(QUESTION))

    calls: Any = [{"id": id, "name": name, "args": args} for id, name, args in CALLS]
    await chat.add(AIMessage(BLOCKS, tool_calls=calls))
    await results(any_alice, *(ToolMessage("5", tool_call_id=id) for id, _, _ in CALLS))

    assert (await kwargs(any_alice, "anthropic"))["messages"][1]["content"] == BLOCKS


async def test_langchain_with_entries_of_openai(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    await chat.add(HumanMessage(QUESTION))

    calls: Any = [{"id": id, "name": name, "args": args} for id, name, args in CALLS]
    said = {"type": "text", "text": "I look.", "annotations": [], "id": "msg_1"}
    await chat.add(AIMessage([REASONING, said, *ENTRIES], tool_calls=calls))
    await results(any_alice, *(ToolMessage("5", tool_call_id=id) for id, _, _ in CALLS))

    sent = (await kwargs(any_alice, "openai-responses"))["input"]
    assert sent[1] == REASONING
    assert (sent[2]["id"], sent[2]["content"][0]["text"]) == ("msg_1", "I look.")
    assert sent[3:5] == ENTRIES


async def test_a_chunk_of_langchain_and_a_picture(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    picture = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}

    await chat.add(HumanMessage(["What is it?", picture]))
    await chat.add(AIMessageChunk(content="A map."))

    sent = (await kwargs(any_alice, "openai"))["messages"]
    assert sent == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {
                    "type": "image_url",
                    "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
                },
            ],
        },
        {"role": "assistant", "content": "A map."},
    ]


async def test_bedrock(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    picture = {"format": "png", "source": {"bytes": b"\xff\xfe"}}
    await chat.add({"role": "user", "content": [{"text": QUESTION}, {"image": picture}]})
    uses = [{"toolUse": {"toolUseId": id, "name": name, "input": args}} for id, name, args in CALLS]
    thought = {"reasoningText": {"text": "Two calls.", "signature": "EqQB"}}
    answer = {"role": "assistant", "content": [{"reasoningContent": thought}, *uses]}

    await chat.add({"output": {"message": answer}, "stopReason": "tool_use"})
    first = {"toolUseId": "c1", "content": [{"json": {"degrees": 21}}]}
    second = {"toolUseId": "c2", "content": [{"text": "no"}], "status": "error"}
    await results(
        any_alice,
        {"role": "user", "content": [{"toolResult": first}, {"toolResult": second}]},
    )

    assert (await kwargs(any_alice, "anthropic"))["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": QUESTION},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "//4="},
                },
            ],
        },
        {"role": "assistant", "content": [BLOCKS[0], *BLOCKS[2:]]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": '{"degrees": 21}'},
                {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
            ],
        },
    ]


class Warmer(BaseModel):
    city: str


async def test_what_openais_client_parsed_is_not_sent_back(any_alice: ScopedMemory) -> None:
    choice = {**COMPLETION["choices"][0], "finish_reason": "stop"}
    choice["message"] = {"role": "assistant", "content": '{"city": "Paris"}'}
    wire = Wire([{**COMPLETION, "choices": [choice]}])
    client = _clients.openai_client(wire)

    answer = await client.chat.completions.parse(
        model="gpt", messages=[{"role": "user", "content": QUESTION}], response_format=Warmer
    )
    await any_alice.chat("c").add([QUESTION, answer])

    assert answer.choices[0].message.parsed == Warmer(city="Paris")
    assert (await kwargs(any_alice, "openai"))["messages"][1] == choice["message"]
