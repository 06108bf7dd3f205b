"""A message of any shape is read as it is meant, or refused by name; nothing is kept empty."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from orbiter.memory import AIMemory, ToolMemory, validate
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import MessageError, QueryError
from orbiter.memory.messages import FORMATS

# As LlamaIndex, AutoGen, Haystack and Microsoft's Agent Framework make their messages.


class TextBlock(BaseModel):
    block_type: str = "text"
    text: str = "hi"


class LlamaIndexMessage(BaseModel):
    role: str = "user"
    additional_kwargs: dict[str, Any] = {}
    blocks: list[TextBlock] = [TextBlock()]


class AutoGenMessage(BaseModel):
    content: str = "hi"
    source: str = "user"
    type: str = "TextMessage"


class AutoGenResults(BaseModel):
    content: list[dict[str, Any]] = [{"content": "42", "name": "f", "call_id": "c"}]
    type: str = "FunctionExecutionResultMessage"


class ToolContent(BaseModel):
    type: str = "text"
    text: str = "hi"


@dataclass
class HaystackMessage:
    _role: str = "user"
    _content: list[Any] = field(default_factory=lambda: ["hi"])


class AgentFrameworkMessage:
    def __init__(self) -> None:
        self.role, self.contents = "user", ["hi"]


FOREIGN: list[Any] = [
    LlamaIndexMessage(),
    LlamaIndexMessage(role="assistant"),
    LlamaIndexMessage(role="tool"),
    AutoGenMessage(),
    AutoGenResults(),
    ToolContent(),
    HaystackMessage(),
    AgentFrameworkMessage(),
]

UNKNOWN: list[dict[str, Any]] = [
    {"type": "chat_message", "role": {"value": "user"}, "contents": [{"type": "text"}]},
    {"type": "UserMessage", "content": "hi", "source": "user"},
    {"role": "assistant", "content": [{"tool_call": {"tool_name": "f", "arguments": {}}}]},
    {"role": "user", "content": [{"type": "text", "content": "hi"}]},
    {"role": "user", "content": [{"kind": "text", "value": "hi"}]},
    {"role": "user", "content": [{"type": "words", "words": "hi"}]},
    {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "f"}]},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}, {"type": "function_call", "name": "f"}],
    },
    {"role": "user", "message": "hi"},
    {"role": "user", "parts": [{"kind": "text", "value": "hi"}]},
    {"role": "assistant", "tool_calls": [{"tool": "f", "params": {}}]},
    {"role": "user", "content": [{"video": {"format": "mp4", "source": {}}}]},
    {"type": "remove", "content": "", "id": "1"},
    {"choices": []},
    {"object": "response", "output": []},
    {"text": "hi"},
]


@pytest.mark.parametrize("what", FOREIGN, ids=lambda what: type(what).__name__)
async def test_an_object_of_no_known_shape_is_refused_by_name(
    any_alice: ScopedMemory, what: Any
) -> None:
    chat = any_alice.chat("c")

    with pytest.raises((MessageError, QueryError)) as caught:
        await chat.add(what)
    with pytest.raises((MessageError, QueryError)):
        await any_alice.remember(what)

    assert await chat.items() == []
    name = type(what).__name__
    assert name in str(caught.value) or getattr(what, "type", "no type") in str(caught.value)


@pytest.mark.parametrize("message", UNKNOWN, ids=str)
async def test_a_dict_of_no_known_shape_is_refused(
    any_alice: ScopedMemory, message: dict[str, Any]
) -> None:
    chat = any_alice.chat("c")

    with pytest.raises((MessageError, QueryError)):
        await chat.add(["fine", message])

    assert await chat.items() == []


@pytest.mark.parametrize("format", [None, "openai", "anthropic"])
async def test_a_dict_without_a_role_is_named_by_its_keys(
    any_alice: ScopedMemory, format: Any
) -> None:
    with pytest.raises(MessageError, match="^message 1: .*`foo`, `bar`.*'role'.*OpenAI.*Bedrock"):
        await any_alice.chat("c").add(["fine", {"foo": 1, "bar": 2}], format=format)


async def test_the_first_of_two_results_is_shown(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    early = {"role": "tool", "tool_call_id": "c2", "content": "too early"}
    later = {**call, "id": "c2"}

    await chat.add([early, {"role": "assistant", "content": None, "tool_calls": [call]}])
    for content in ("trees", "birds"):
        await chat.add({"role": "tool", "tool_call_id": "c1", "content": content})
    await chat.add({"role": "assistant", "content": None, "tool_calls": [later]})

    assert [m.get("content") for m in (await chat.messages())[1:]] == [None, "trees"]
    page = await any_alice.list(where={"session_id": "c"})
    assert len(list(page)) == 5


@pytest.mark.parametrize("format", [None, *FORMATS])
async def test_a_wrong_format_makes_no_empty_message(any_alice: ScopedMemory, format: Any) -> None:
    chat = any_alice.chat("c")

    with pytest.raises((MessageError, QueryError)):
        await chat.add(AutoGenMessage(), format=format)

    assert await chat.items() == []


async def test_what_is_refused_in_a_list_is_named_by_its_place(any_alice: ScopedMemory) -> None:
    with pytest.raises(MessageError, match="^message 2"):
        await any_alice.chat("c").add(
            ["a", {"role": "user", "content": "b"}, {"role": "user", "message": "c"}]
        )


async def test_hand_made_items_without_ids_find_each_other(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    await chat.add("Look and hear.")

    calls = [{"name": "look", "arguments": {}}, {"name": "hear", "arguments": {}}]
    (said,) = await chat.add(AIMemory(content="", tool_calls=calls))
    await chat.add(ToolMemory(content="birds", tool_name="hear"))
    await chat.add(ToolMemory(content="trees", tool_name="look"))

    assert isinstance(said, AIMemory)
    assert [call.name for call in said.calls if call.id] == ["look", "hear"]
    shown = (await chat.messages()).messages
    assert validate(shown, "openai") == []
    assert [(m["tool_call_id"], m["content"]) for m in shown if m["role"] == "tool"] == [
        (said.calls[1].id, "birds"),
        (said.calls[0].id, "trees"),
    ]


async def test_a_result_that_answers_no_call_is_refused_by_name(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    lost: list[Any] = [
        ToolMemory(content="trees", tool_name="look"),
        {"role": "tool", "tool_name": "look", "content": "trees"},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "look", "response": {"output": "trees"}}}],
        },
    ]

    for result in lost:
        with pytest.raises(MessageError, match="look"):
            await chat.add(result)

    assert await chat.items() == []


async def test_a_result_is_named_after_its_call(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    await chat.add({"role": "assistant", "content": None, "tool_calls": [call]})

    (result,) = await chat.add({"role": "tool", "tool_call_id": "c1", "content": "trees"})

    assert isinstance(result, ToolMemory)
    assert result.tool_name == "look"


async def test_a_repeated_call_without_an_id_is_one(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    call = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}
    response = {"name": "look", "response": {"output": "trees"}}
    result = {"role": "user", "parts": [{"functionResponse": response}]}

    await chat.add("Look.")
    first = await chat.add(call, idempotency_key="call")
    assert await chat.add(call, idempotency_key="call") == first
    second = await chat.add(result, idempotency_key="result")
    assert await chat.add(result, idempotency_key="result") == second

    assert [item.memory_type for item in await chat.items()] == ["human", "ai", "tool"]


async def test_the_whole_answer_of_ollama_is_a_message(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    calls = [{"function": {"name": "look", "arguments": {"at": "trees"}}}]
    message = {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": calls}

    (said,) = await chat.add({"model": "qwen", "message": message, "done": True})

    assert isinstance(said, AIMemory)
    assert [(call.name, call.args) for call in said.calls] == [("look", {"at": "trees"})]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ],
)
async def test_anthropics_blocks_are_known_without_a_format(
    any_alice: ScopedMemory, block: dict[str, Any]
) -> None:
    chat = any_alice.chat("c")
    message = {"role": "user", "content": [block, {"type": "text", "text": "What is it?"}]}

    await chat.add(message)

    assert (await chat.messages(format="anthropic")).messages == [message]


async def test_the_name_of_a_message_is_its_speaker(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    message = {"role": "user", "name": "Ann", "content": "I sold the boat."}

    (said,) = await chat.add(message)
    kept = await any_alice.remember({**message, "name": "Ben"})

    assert said.metadata.extra["speaker"] == "Ann"
    assert kept.metadata.extra["speaker"] == "Ben"
    assert (await chat.messages()).messages == [message]
    page = await any_alice.list(where={"speaker": "Ann"})
    assert [item.content for item in page] == ["I sold the boat."]
    hits = await any_alice.recall("What did Ann sell?")
    assert any(reason.part == "speaker" for hit in hits for reason in hit.why)


async def test_bytes_and_objects_inside_a_dict_are_read(any_alice: ScopedMemory) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": b"\xff\xfe"}
    message = {"role": "user", "content": [{"type": "image", "source": source}, ToolContent()]}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await any_alice.chat("c").add(message)

    (sent,) = (await any_alice.chat("c").messages(format="anthropic")).messages
    assert sent["content"][0]["source"]["data"] == "//4="
    assert sent["content"][1] == {"type": "text", "text": "hi"}


def _converse(*blocks: list[dict[str, Any]], stop: str = "end_turn") -> list[dict[str, Any]]:
    """Return the events of `converse_stream`; a block is its start, if it has one, and deltas."""
    events: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}]
    for place, block in enumerate(blocks):
        for each in block:
            kind = "contentBlockStart" if "start" in each else "contentBlockDelta"
            events.append({kind: {**each, "contentBlockIndex": place}})
        events.append({"contentBlockStop": {"contentBlockIndex": place}})
    usage = {"inputTokens": 9, "outputTokens": 9, "totalTokens": 18}
    metadata = {"usage": usage, "metrics": {"latencyMs": 99}}
    return [*events, {"messageStop": {"stopReason": stop}}, {"metadata": metadata}]


def _use(id: str, *inputs: str) -> list[dict[str, Any]]:
    start = {"start": {"toolUse": {"toolUseId": id, "name": "weather"}}}
    return [start, *({"delta": {"toolUse": {"input": each}}} for each in inputs)]


_LOOK = [{"delta": {"text": "I "}}, {"delta": {"text": "look."}}]
_THOUGHT = [
    {"delta": {"reasoningContent": {"text": "Rain"}}},
    {"delta": {"reasoningContent": {"text": "?"}}},
    {"delta": {"reasoningContent": {"signature": "s1g"}}},
]


async def test_the_events_of_a_stream_of_bedrock_are_one_message(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    calls = [_use("t1", '{"city": ', '"Oslo"}'), _use("t2")]
    results = [
        {"toolResult": {"toolUseId": id, "content": [{"text": "rain"}]}} for id in ("t1", "t2")
    ]
    await chat.add("Weather?")
    await chat.add(_converse(_THOUGHT, _LOOK, *calls, stop="tool_use"))
    await chat.add(
        [{"role": "user", "content": results}, *_converse([{"delta": {"text": "Rain."}}])]
    )

    thought = {"reasoningText": {"text": "Rain?", "signature": "s1g"}}
    assert (await chat.messages(format="anthropic")).as_bedrock()["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": thought},
                {"text": "I look."},
                {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Oslo"}}},
                {"toolUse": {"toolUseId": "t2", "name": "weather", "input": {}}},
            ],
        },
        {"role": "user", "content": results},
        {"role": "assistant", "content": [{"text": "Rain."}]},
    ]


@pytest.mark.parametrize("is_limit", [False, True])
async def test_a_stream_of_bedrock_that_was_cut_off_is_added_as_far_as_it_is_whole(
    any_alice: ScopedMemory, *, is_limit: bool
) -> None:
    chat = any_alice.chat("c")
    events = _converse(_LOOK, _use("t1", '{"city": "Oslo"}'), _use("t2", '{"ci'), stop="max_tokens")
    await chat.add("Weather?")
    await chat.add(events if is_limit else events[:-3])

    _, said = await chat.items(open_group="keep")
    assert isinstance(said, AIMemory)
    assert said.content == "I look."
    assert [each["id"] for each in said.tool_calls] == ["t1"]


async def test_a_stream_of_bedrock_that_says_nothing_is_refused(any_alice: ScopedMemory) -> None:
    with pytest.raises(MessageError, match="message 0: the stream has no text"):
        await any_alice.chat("c").add(_converse()[:1])
    with pytest.raises(MessageError, match="put the pieces of the stream together"):
        await any_alice.chat("c").add(_converse(_LOOK)[1:])


@pytest.mark.parametrize(
    "event",
    [
        {"contentBlockStart": {"start": None}},
        {"contentBlockStart": {"start": {"toolUse": 3}}},
        {"contentBlockDelta": {"delta": None}},
        {"contentBlockDelta": {"delta": {"text": "x"}, "contentBlockIndex": "a"}},
        {"contentBlockStop": {"contentBlockIndex": []}},
        {"contentBlockDelta": {"delta": {"reasoningContent": {"redactedContent": "eA=="}}}},
    ],
)
async def test_events_that_are_none_of_bedrock_are_refused(
    any_alice: ScopedMemory, event: dict[str, Any]
) -> None:
    with pytest.raises(MessageError, match=r"message 0: .*add them as `converse_stream`"):
        await any_alice.chat("c").add([*_converse(_LOOK)[:-2], event])
