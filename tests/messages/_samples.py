"""Samples of every message format: all tests that go through the formats take them from here.

A new format adds its entry to each table; `test_codecs.py` says which lacks it.
"""

from collections.abc import Callable
from typing import Any

from orbiter.memory.messages import Format, Message

ASK: dict[Format, Message] = {
    "openai": {"role": "user", "content": "Look."},
    "openai-responses": {"role": "user", "content": "Look."},
    "anthropic": {"role": "user", "content": "Look."},
    "gemini": {"role": "user", "parts": [{"text": "Look."}]},
}
"""A question."""

CALLS: dict[Format, Message] = {
    "openai": {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    },
    "openai-responses": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    "anthropic": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
    },
    "gemini": {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f", "args": {}}}]},
}
"""A call of the tool `f` with the id `c`."""

RESULTS: dict[Format, Message] = {
    "openai": {"role": "tool", "tool_call_id": "c", "content": "42"},
    "openai-responses": {"type": "function_call_output", "call_id": "c", "output": "42"},
    "anthropic": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": "42"}],
    },
    "gemini": {
        "role": "user",
        "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {"result": "42"}}}],
    },
}
"""Its result."""


def _chat_calls(*names: str) -> list[Message]:
    made = [{"function": {"name": name, "arguments": {"n": n}}} for n, name in enumerate(names)]
    return [{"role": "assistant", "content": "", "tool_calls": made}]


def _responses_calls(*names: str) -> list[Message]:
    return [
        {"type": "function_call", "name": name, "arguments": f'{{"n": {n}}}'}
        for n, name in enumerate(names)
    ]


def _anthropic_calls(*names: str) -> list[Message]:
    uses = [{"type": "tool_use", "name": name, "input": {"n": n}} for n, name in enumerate(names)]
    return [{"role": "assistant", "content": uses}]


def _gemini_calls(*names: str) -> list[Message]:
    parts = [{"functionCall": {"name": name, "args": {"n": n}}} for n, name in enumerate(names)]
    return [{"role": "model", "parts": parts}]


def _gemini_result(name: str, text: str) -> Message:
    response = {"name": name, "response": {"output": text}}
    return {"role": "user", "parts": [{"functionResponse": response}]}


CALLS_WITHOUT_IDS: dict[Format, Callable[..., list[Message]]] = {
    "openai": _chat_calls,
    "openai-responses": _responses_calls,
    "anthropic": _anthropic_calls,
    "gemini": _gemini_calls,
}
"""The messages of a turn that calls the tools of these names."""

RESULTS_WITHOUT_IDS: dict[Format, Callable[[str, str], Message]] = {
    "openai": lambda name, text: {"role": "tool", "tool_name": name, "content": text},
    "openai-responses": lambda _, text: {"type": "function_call_output", "output": text},
    "anthropic": lambda _, text: {
        "role": "user",
        "content": [{"type": "tool_result", "content": text}],
    },
    "gemini": _gemini_result,
}
"""The message with a result of the tool of that name."""

HUGE = {"type": "image", "source": {"type": "base64", "data": "A" * 2**23}}


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def turn(*parts: Any, role: Any = "user") -> Message:
    return {"role": role, "parts": list(parts)}


# In every format whose messages have `role` and `content`.
ANY: list[tuple[Any, str]] = [
    (None, "must be a dict"),
    ("Hello.", "must be a dict"),
    ({"role": "robot", "content": "x"}, "unknown role 'robot'"),
    ({"role": ["user"], "content": "x"}, r"unknown role \['user'\]"),
    ({"role": {}, "content": "x"}, "unknown role {}"),
    ({"content": "x"}, "unknown role None"),
    (user(7), "`content`"),
    (user(0), "`content`"),
    (user({"text": "x"}), "`content`"),
    (user(["Hello."]), "`content`"),
    (user([{"type": ["text"], "text": "x"}]), "`type`"),
    (user([{"type": "image", "source": b"raw"}]), "not JSON"),
    (user("a\0b"), r"U\+0000"),
    (user("\ud83d"), "surrogate"),
]

UNREADABLE: dict[Format, list[tuple[Any, str]]] = {
    "openai": [
        *ANY,
        ({"role": "tool", "content": "x"}, "`tool_call_id`"),
        ({"role": "tool", "content": "x", "tool_call_id": ["c"]}, "`tool_call_id`"),
        ({"role": "assistant", "tool_calls": {"id": "x"}}, "`tool_calls`"),
        ({"role": "assistant", "tool_calls": 0}, "`tool_calls`"),
        ({"role": "assistant", "tool_calls": ["x"]}, "`tool_calls`"),
        ({"role": "assistant", "tool_calls": [{"type": {}}]}, "`type`"),
    ],
    "openai-responses": [
        *ANY,
        ({"role": "user"}, "`content`"),
        ({"role": "assistant", "content": 7}, "`content`"),
        ({"type": ["message"], "role": "user", "content": "x"}, r"unknown type \['message'\]"),
        ({"type": {}, "call_id": "c"}, "unknown type {}"),
        ({"type": 7}, "unknown type 7"),
        ({"type": "function_call", "call_id": ["c"], "name": "f"}, "`call_id`"),
        ({"type": "function_call_output", "output": "x"}, "`call_id`"),
        ({"type": "function_call_output", "call_id": "c", "output": ["x"]}, "`output`"),
        ({"type": "computer_call_output", "call_id": "c", "output": {"at": {1}}}, "not JSON"),
    ],
    "anthropic": [
        *ANY,
        ({"role": "critic", "content": "x"}, "unknown role 'critic'"),
        ({"role": "user"}, "`content`"),
        (user([{"type": "tool_result", "content": "x"}]), "`tool_use_id`"),
        (user([{"type": "tool_result", "tool_use_id": ["t"]}]), "`tool_use_id`"),
        (user([{"type": "tool_result", "tool_use_id": "t", "content": 7}]), "`content`"),
        (user([{"type": "tool_result", "tool_use_id": "t", "content": [7]}]), "`content`"),
        (user([HUGE]), "bytes of JSON"),
    ],
    "gemini": [
        (None, "must be a dict"),
        ("Hello.", "must be a dict"),
        (turn({"text": "x"}, role="system"), "unknown role 'system'"),
        (turn({"text": "x"}, role=["user"]), r"unknown role \['user'\]"),
        (turn({"text": "x"}, role=[]), r"unknown role \[\]"),
        ({"role": "user"}, "`parts`"),
        ({"role": "user", "parts": "Hello."}, "`parts`"),
        ({"role": "user", "parts": 5}, "`parts`"),
        (turn("Hello."), "`parts`"),
        (turn("Hello.", role="model"), "`parts`"),
        (turn({"functionResponse": "x"}), "`functionResponse`"),
        (turn({"functionCall": []}, role="model"), "`functionCall`"),
        (turn({"functionResponse": {"name": "f", "response": {"at": {1}}}}), "not JSON"),
        (turn({"text": "a\0b"}), r"U\+0000"),
    ],
}
"""Messages that cannot be read, each with a pattern of what the error says."""
