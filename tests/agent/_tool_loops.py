"""What an agent and its provider say to each other in six steps, in every shape of a message.

Each step calls two tools at once, or one more. A tool is called twice in one step, and with the
same arguments in later ones, so that a result can be taken for another's.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orbiter.memory.messages import Format, Message, from_messages
from orbiter.memory.model.items import ToolMemory, calls_of
from orbiter.memory.model.tool_calls import call_id, call_input, call_name

QUESTION = "Which city is the warmest?"
ANSWER = "Paris is the warmest."

STEPS: list[list[tuple[str, dict[str, Any], str]]] = [
    [("weather", {"city": "Paris"}, "21 in Paris"), ("weather", {"city": "Oslo"}, "4 in Oslo")],
    [("map", {"zoom": 1}, "a map")],
    [("weather", {"city": "Oslo"}, "5 in Oslo"), ("clock", {}, "noon")],
    [("clock", {}, "one")],
    [("clock", {}, "two"), ("weather", {"city": "Paris"}, "22 in Paris")],
    [("weather", {"city": "Paris"}, "23 in Paris")],
]
"""Of each step: name, arguments and result of each call."""

Outcome = tuple[str, dict[str, Any], str]


@dataclass(frozen=True)
class Script:
    """How one provider says it."""

    format: Format
    """In which the model is shown the conversation."""
    calls: Callable[[int], list[Message]]
    results: Callable[[int], list[Message]]
    answer: Message
    marks: Callable[[int], list[str]] = lambda _: []
    """What only this provider knows of a step, and wants to see again."""


def _of(number: int) -> list[tuple[str, str, dict[str, Any], str]]:
    return [(f"call_{number}_{place}", *call) for place, call in enumerate(STEPS[number])]


def _openai_calls(number: int) -> list[Message]:
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for id, name, args, _ in _of(number)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}]


def _openai_results(number: int) -> list[Message]:
    return [{"role": "tool", "tool_call_id": id, "content": said} for id, _, _, said in _of(number)]


def _ollama_calls(number: int) -> list[Message]:
    calls = [{"function": {"name": name, "arguments": args}} for name, args, _ in STEPS[number]]
    return [{"role": "assistant", "content": "", "tool_calls": calls}]


def _ollama_results(number: int) -> list[Message]:
    return [{"role": "tool", "tool_name": name, "content": said} for name, _, said in STEPS[number]]


def _responses_calls(number: int) -> list[Message]:
    reasoning = {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [],
        "encrypted_content": f"secret{number}",
    }
    return [
        reasoning,
        *(
            {
                "type": "function_call",
                "id": f"fc_{id}",
                "call_id": id,
                "name": name,
                "arguments": json.dumps(args),
                "status": "completed",
            }
            for id, name, args, _ in _of(number)
        ),
    ]


def _responses_results(number: int) -> list[Message]:
    return [
        {"type": "function_call_output", "call_id": id, "output": said}
        for id, _, _, said in _of(number)
    ]


def _anthropic_calls(number: int) -> list[Message]:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": f"secret{number}"}
    uses = [
        {"type": "tool_use", "id": id, "name": name, "input": args}
        for id, name, args, _ in _of(number)
    ]
    return [{"role": "assistant", "content": [thinking, *uses]}]


def _anthropic_results(number: int) -> list[Message]:
    return [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": id, "content": said}],
        }
        for id, _, _, said in _of(number)
    ]


def _gemini_calls(number: int, *, have_ids: bool = False) -> list[Message]:
    parts: list[Message] = [
        {"functionCall": {**({"id": id} if have_ids else {}), "name": name, "args": args}}
        for id, name, args, _ in _of(number)
    ]
    parts[0]["thoughtSignature"] = f"secret{number}"
    return [{"role": "model", "parts": parts}]


def _gemini_results(number: int, *, have_ids: bool = False) -> list[Message]:
    return [
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        **({"id": id} if have_ids else {}),
                        "name": name,
                        "response": {"output": said},
                    }
                }
            ],
        }
        for id, name, _, said in _of(number)
    ]


def _bedrock_calls(number: int) -> list[Message]:
    uses = [
        {"toolUse": {"toolUseId": id, "name": name, "input": args}}
        for id, name, args, _ in _of(number)
    ]
    reasoning = {"reasoningText": {"text": "Hm.", "signature": f"secret{number}"}}
    return [{"role": "assistant", "content": [{"reasoningContent": reasoning}, *uses]}]


def _bedrock_results(number: int) -> list[Message]:
    results = [
        {"toolResult": {"toolUseId": id, "content": [{"text": said}], "status": "success"}}
        for id, _, _, said in _of(number)
    ]
    return [{"role": "user", "content": results}]


def _langchain_calls(number: int) -> list[Message]:
    calls = [
        {"name": name, "args": args, "id": id, "type": "tool_call"}
        for id, name, args, _ in _of(number)
    ]
    return [{"type": "ai", "content": "", "tool_calls": calls, "additional_kwargs": {}}]


def _langchain_results(number: int) -> list[Message]:
    return [
        {"type": "tool", "content": said, "tool_call_id": id, "name": name, "status": "success"}
        for id, name, _, said in _of(number)
    ]


def _pydantic_ai_calls(number: int) -> list[Message]:
    thought = {"part_kind": "thinking", "content": "Hm.", "provider_name": "anthropic"}
    calls = [
        {"part_kind": "tool-call", "tool_name": name, "args": args, "tool_call_id": id}
        for id, name, args, _ in _of(number)
    ]
    parts = [{**thought, "signature": f"secret{number}"}, *calls]
    return [{"kind": "response", "parts": parts}]


def _pydantic_ai_results(number: int) -> list[Message]:
    returns = [
        {"part_kind": "tool-return", "tool_name": name, "content": said, "tool_call_id": id}
        for id, name, _, said in _of(number)
    ]
    return [{"kind": "request", "parts": returns}]


def _secrets(number: int) -> list[str]:
    return [f"secret{each}" for each in range(number + 1)]


_SAID = {"role": "assistant", "content": ANSWER}
_MODEL = {"role": "model", "parts": [{"text": ANSWER}]}

SCRIPTS: dict[str, Script] = {
    "openai": Script("openai", _openai_calls, _openai_results, _SAID),
    "ollama": Script("openai", _ollama_calls, _ollama_results, _SAID),
    "openai-responses": Script(
        "openai-responses", _responses_calls, _responses_results, _SAID, _secrets
    ),
    "anthropic": Script("anthropic", _anthropic_calls, _anthropic_results, _SAID, _secrets),
    "gemini": Script("gemini", _gemini_calls, _gemini_results, _MODEL, _secrets),
    "gemini with ids": Script(
        "gemini",
        lambda number: _gemini_calls(number, have_ids=True),
        lambda number: _gemini_results(number, have_ids=True),
        _MODEL,
        _secrets,
    ),
    "bedrock": Script(
        "anthropic",
        _bedrock_calls,
        _bedrock_results,
        {"role": "assistant", "content": [{"text": ANSWER}]},
        _secrets,
    ),
    "langchain": Script(
        "openai", _langchain_calls, _langchain_results, {"type": "ai", "content": ANSWER}
    ),
    "pydantic ai": Script(
        "anthropic",
        _pydantic_ai_calls,
        _pydantic_ai_results,
        {"kind": "response", "parts": [{"part_kind": "text", "content": ANSWER}]},
        _secrets,
    ),
}


def expected(number: int) -> list[Outcome]:
    """Return the outcome of every call up to and with that step, in order."""
    return [call for step in STEPS[: number + 1] for call in step]


def outcomes(messages: Sequence[Mapping[str, Any]], format: Format) -> list[Outcome]:
    """Return each call that the model is shown, with its result, in order."""
    found: list[Outcome] = []
    open_calls: dict[str, tuple[str, dict[str, Any]]] = {}
    for item in from_messages(messages, format):
        open_calls |= {
            call_id(call): (call_name(call), call_input(call)) for call in calls_of(item)
        }
        if isinstance(item, ToolMemory):
            found.append((*open_calls.pop(item.tool_call_id), item.content))
    assert open_calls == {}
    return found


def calls_per_turn(messages: Sequence[Mapping[str, Any]], format: Format) -> list[int]:
    """Return how many calls the model made in each turn that it is shown, if it made any."""
    counts = [len(calls_of(item)) for item in from_messages(messages, format)]
    return [count for count in counts if count]
