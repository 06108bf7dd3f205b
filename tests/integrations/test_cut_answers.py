"""An answer that is cut off inside a tool call is remembered as far as it is whole."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
from tests.integrations.model_provider import Provider, running_provider

from orbiter.memory import AIMemory, sync
from orbiter.memory.messages import Format, validate

_SAID: Any = [{"role": "user", "content": "Weather in Oslo and Rome?"}]


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as server:
        yield server


@pytest.fixture
def alice() -> Iterator[sync.ScopedMemory]:
    with sync.AgentMemory("memory://", embeddings=None) as memory:
        yield memory.scope(user_id="alice")


def _events(*events: dict[str, Any]) -> str:
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)


def _block(place: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": place, "content_block": block},
        *({"type": "content_block_delta", "index": place, "delta": each} for each in deltas),
        {"type": "content_block_stop", "index": place},
    ]


def _use(id: str, *inputs: str) -> tuple[dict[str, Any], ...]:
    block = {"type": "tool_use", "id": id, "name": "weather", "input": {}}
    return block, *({"type": "input_json_delta", "partial_json": each} for each in inputs)


def _claude_events() -> list[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    text = {"type": "text_delta", "text": "I look."}
    return [
        {"type": "message_start", "message": message},
        *_block(0, {"type": "text", "text": ""}, text),
        *_block(1, *_use("t1", '{"city":', ' "Oslo"}')),
        *_block(2, *_use("t2", '{"city": "Ro')),
    ]


def _claude(provider: Provider, alice: sync.ScopedMemory) -> Any:
    return alice.wrap(anthropic.Anthropic(api_key="k", base_url=provider.url, max_retries=0))


def _claude_limit(provider: Provider, alice: sync.ScopedMemory) -> None:
    ends = {"stop_reason": "max_tokens", "stop_sequence": None}
    provider.raw = _events(
        *_claude_events(),
        {"type": "message_delta", "delta": ends, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    list(_claude(provider, alice).messages.create(
        model="m", max_tokens=9, messages=_SAID, stream=True
    ))  # fmt: skip


def _claude_cut(provider: Provider, alice: sync.ScopedMemory) -> None:
    provider.raw = _events(*_claude_events()[:-1])  # the connection is closed
    list(_claude(provider, alice).messages.create(
        model="m", max_tokens=9, messages=_SAID, stream=True
    ))  # fmt: skip


def _claude_error(provider: Provider, alice: sync.ScopedMemory) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    provider.raw = _events(*_claude_events()[:-1], error)
    with pytest.raises(anthropic.APIStatusError):
        list(_claude(provider, alice).messages.create(
            model="m", max_tokens=9, messages=_SAID, stream=True
        ))  # fmt: skip


def _chunk(delta: dict[str, Any], end: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": end}
    head = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"


def _call(id: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def _gpt(provider: Provider, alice: sync.ScopedMemory) -> Any:
    return alice.wrap(openai.OpenAI(api_key="k", base_url=provider.url, max_retries=0))


_CHUNKS = [
    _chunk({"role": "assistant", "content": "I look."}),
    _chunk({"tool_calls": [{"index": 0, **_call("t1", '{"city": "Oslo"}')}]}),
    _chunk({"tool_calls": [{"index": 1, **_call("t2", '{"city": "Ro')}]}),
]


def _gpt_limit(provider: Provider, alice: sync.ScopedMemory) -> None:
    provider.raw = "".join([*_CHUNKS, _chunk({}, "length"), "data: [DONE]\n\n"])
    list(_gpt(provider, alice).chat.completions.create(model="m", messages=_SAID, stream=True))


def _gpt_cut(provider: Provider, alice: sync.ScopedMemory) -> None:
    provider.raw = "".join(_CHUNKS)
    list(_gpt(provider, alice).chat.completions.create(model="m", messages=_SAID, stream=True))


def _gpt_error(provider: Provider, alice: sync.ScopedMemory) -> None:
    provider.raw = "".join([*_CHUNKS, 'data: {"error": {"message": "busy"}}\n\n'])
    with pytest.raises(openai.APIError):
        list(_gpt(provider, alice).chat.completions.create(model="m", messages=_SAID, stream=True))


def _gpt_whole(provider: Provider, alice: sync.ScopedMemory) -> None:
    calls = [_call("t1", '{"city": "Oslo"}'), _call("t2", '{"city": "Ro')]
    message = {"role": "assistant", "content": "I look.", "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "length", "message": message}
    provider.raw = json.dumps(
        {"id": "c", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
    )
    _gpt(provider, alice).chat.completions.create(model="m", messages=_SAID)


def _response_items() -> list[dict[str, Any]]:
    part = {"type": "output_text", "text": "I look.", "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    call = {"type": "function_call", "name": "weather"}
    first = {**call, "id": "f1", "call_id": "t1", "arguments": '{"city": "Oslo"}'}
    second = {**call, "id": "f2", "call_id": "t2", "arguments": '{"city": "Ro'}
    thought = {"id": "rs_1", "type": "reasoning", "summary": []}
    return [
        {**message, "content": [part]},
        {**first, "status": "completed"},
        thought,
        {**second, "status": "incomplete"},
    ]


def _response(provider: Provider, alice: sync.ScopedMemory, *last: dict[str, Any]) -> None:
    response = {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "status": "incomplete",
        "output": _response_items(), "parallel_tool_calls": True, "tools": [],
        "tool_choice": "auto",
    }  # fmt: skip
    done = [
        {"type": "response.output_item.done", "output_index": place, "item": item}
        for place, item in enumerate(_response_items()[:3])
    ]
    ends = [{"type": each["type"], "response": response} for each in last]
    created = {"type": "response.created", "response": {**response, "output": []}}
    events: list[dict[str, Any]] = [created, *done, *ends]
    provider.raw = _events(*({**each, "sequence_number": n} for n, each in enumerate(events)))
    list(_gpt(provider, alice).responses.create(model="m", input=_SAID, stream=True))


def _responses_limit(provider: Provider, alice: sync.ScopedMemory) -> None:
    _response(provider, alice, {"type": "response.incomplete"})


def _responses_cut(provider: Provider, alice: sync.ScopedMemory) -> None:
    _response(provider, alice)


@pytest.mark.parametrize(
    ("call", "format"),
    [
        (_claude_limit, "anthropic"),
        (_claude_cut, "anthropic"),
        (_claude_error, "anthropic"),
        (_gpt_limit, "openai"),
        (_gpt_cut, "openai"),
        (_gpt_error, "openai"),
        (_gpt_whole, "openai"),
        (_responses_limit, "openai-responses"),
        (_responses_cut, "openai-responses"),
    ],
)
def test_what_was_whole_of_an_answer_is_remembered_and_legal(
    provider: Provider,
    alice: sync.ScopedMemory,
    call: Callable[[Provider, sync.ScopedMemory], None],
    format: Format,
) -> None:
    call(provider, alice)
    chat = alice.chat("default")
    items = [item for item in chat.items(open_group="keep") if isinstance(item, AIMemory)]

    assert [item.content for item in items if item.content] == ["I look."]
    assert [each["id"] for item in items for each in item.tool_calls] == ["t1"]
    sent: Any = chat.messages(format=format).as_kwargs()
    assert validate(sent.get("messages") or sent.get("input"), format) == []


def test_a_refusal_that_is_streamed_is_remembered(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    chunks = ({"role": "assistant", "refusal": "I can"}, {"refusal": "not."})
    provider.raw = "".join([*map(_chunk, chunks), _chunk({}, "stop")])
    list(_gpt(provider, alice).chat.completions.create(model="m", messages=_SAID, stream=True))

    sent: Any = alice.chat("default").messages(format="openai").as_kwargs()
    assert sent["messages"][-1]["refusal"] == "I cannot."
