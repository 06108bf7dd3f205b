"""What is no message at all: judged without a crash, and never called legal."""

from typing import Any

import pytest
from tests.messages._shapes import (
    HELLO,
    REPLY,
    USER,
    chat_call,
    chat_calls,
    entry_call,
    function_call,
    function_response,
    model,
    person,
    result,
    results,
    use,
    uses,
)
from tests.rows import each_row

from orbiter.memory.messages import FORMATS, Format, validate

MESSAGES: list[Any] = [None, "x", 5, [], ["x"], {}, {"role": ["x"]}, {"role": {}}, {"role": 5}]
ROLES: list[Any] = [["user"], {}, [], 5]
LISTS: list[Any] = [None, 5, True, {}, {"type": "text"}, [], [5], [None], ["x"], [[]], [{}]]
CONTENTS: list[Any] = [
    *LISTS,
    *([{"type": kind}] for kind in (None, "", "text", *ROLES)),
    *([{"type": "text", "text": text}] for text in (None, *ROLES)),
]
SPOKEN: list[Any] = [
    *MESSAGES,
    *({"role": role, "content": "x"} for role in ROLES),
    *({"role": "user", "content": content} for content in CONTENTS),
    *({"role": "assistant", "content": content} for content in CONTENTS),
]
CALLS: list[Any] = [5, "x", {}, True, [5], [None], [[]], [{}], [{"type": ["function"]}]]
PARTS: list[Any] = [
    *LISTS,
    [{"text": 5}],
    [{"text": None}],
    [{"thought": True}],
    [{"functionCall": 5}],
    [{"functionResponse": []}],
    [{"text": "x", "functionCall": {}}],
]

NONSENSE: dict[Format, list[Any]] = {
    "openai": [
        *SPOKEN,
        *({**REPLY, "tool_calls": calls} for calls in CALLS),
        {"role": "user", "content": None, "audio": {}},
        {"role": "assistant", "content": None, "audio": 5},
        {"role": "tool", "tool_call_id": ["c1"], "content": "x"},
        chat_calls({"id": ["c1"], "type": ["function"], "function": 5}),
        chat_calls(chat_call(name=["f"], arguments=["x"])),
    ],
    "openai-responses": [
        *SPOKEN,
        *({"type": kind, "role": "user", "content": "x"} for kind in ("", *ROLES)),
        {"type": "web_search_call", "id": "ws_1", "role": "system"},
        {"type": "function_call_output", "call_id": ["c1"], "output": "x"},
        entry_call(["c1"]),
        entry_call({}, name=["f"]),
    ],
    "anthropic": [
        *SPOKEN,
        uses(use(["t1"], name=["f"], input=["x"])),
        results(result(["t1"])),
    ],
    "gemini": [
        *MESSAGES,
        *({"role": role, "parts": [{"text": "x"}]} for role in ROLES),
        *({"role": "user", "parts": parts} for parts in PARTS),
        *({"role": "model", "parts": parts} for parts in PARTS),
        model(function_call(["f"], id=5)),
        person(function_response(["f"], id={})),
    ],
}


@each_row(
    ("format", "nonsense"),
    [
        pytest.param(format, nonsense, id=f"{format}-{number}")
        for format, cases in NONSENSE.items()
        for number, nonsense in enumerate(cases)
    ],
)
def test_nonsense_is_reported_where_it_stands(format: Format, nonsense: Any) -> None:
    first = HELLO if format == "gemini" else USER

    for place, messages in enumerate(([nonsense], [first, nonsense])):
        assert place in [problem.index for problem in validate(messages, format)]


@each_row("format", FORMATS)
@each_row("messages", [None, 5, USER, "x"])
def test_what_is_no_list_of_messages_is_reported(format: Format, messages: Any) -> None:
    problems = validate(messages, format)

    assert problems[0].index == 0
    assert "not an object" in problems[0].reason
