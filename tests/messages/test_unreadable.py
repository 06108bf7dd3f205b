"""Messages that cannot be read: the error says which one and why."""

from typing import Any

import pytest

from orbiter.memory.errors import MessageError
from orbiter.memory.messages import FORMATS, Format, Message, from_messages

ASK: Message = {"role": "user", "content": "List the files."}
TURN: Message = {"role": "user", "parts": [{"text": "List the files."}]}
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
        ({"role": "system", "content": "x"}, "unknown role 'system'"),
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


@pytest.mark.parametrize(
    ("format", "bad", "words"),
    [
        pytest.param(format, *case, id=f"{format}-{number}")
        for format, cases in UNREADABLE.items()
        for number, case in enumerate(cases)
    ],
)
def test_a_message_that_cannot_be_read_is_named(format: Format, bad: Any, words: str) -> None:
    first = TURN if format == "gemini" else ASK

    with pytest.raises(MessageError, match=rf"(?s)^message 1: .*{words}"):
        from_messages([first, bad], format)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("messages", [ASK, "hi", None, 5])
def test_what_is_no_list_of_messages_is_told(format: Format, messages: Any) -> None:
    with pytest.raises(MessageError, match=r"write \[message\]"):
        from_messages(messages, format)


@pytest.mark.parametrize("format", FORMATS)
def test_messages_may_come_one_by_one(format: Format) -> None:
    message = TURN if format == "gemini" else ASK

    items = from_messages((each for each in [message]), format)  # type: ignore[arg-type]  # untyped callers do

    assert [item.content for item in items] == ["List the files."]
