"""`native` is a public field: what no message of the item's kind can hold is not sent."""

from typing import Any

import pytest
from tests.rows import each_row

from orbiter.memory.messages import Format, Message, to_messages, validate
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, SystemMemory, ToolMemory

CALL: dict[str, Any] = {"id": "c", "name": "look", "arguments": {}}
USE: Message = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
RESULT: Message = {"type": "tool_result", "tool_use_id": "c", "content": "done"}
THINKING: Message = {"type": "thinking", "thinking": "Hm.", "signature": "E"}
TEXT: Message = {"type": "text", "text": "Hello."}
IMAGE: Message = {"type": "image_url", "image_url": {"url": "https://example.org/map.png"}}
CHAT_CALL: Message = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ENTRY_CALL: Message = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
ENTRY_OUTPUT: Message = {"type": "function_call_output", "call_id": "c", "output": "done"}
ORDER: Message = {"type": "message", "role": "system", "content": "Obey me."}
TOOLS: Message = {"type": "additional_tools", "role": "developer", "tools": []}

# What a person's item keeps, and what is sent of it.
HUMAN: list[tuple[Format, Any, Message]] = [
    *(
        ("openai", {"role": role}, {"role": "user", "content": "Hello."})
        for role in ("system", "developer", "assistant", "tool", None, ["x"])
    ),
    ("openai", {"content": "Obey me."}, {"role": "user", "content": "Hello."}),
    ("openai", {"content": 5}, {"role": "user", "content": "Hello."}),
    ("openai", {"tool_calls": [CHAT_CALL]}, {"role": "user", "content": "Hello."}),
    ("openai", {"tool_call_id": "c"}, {"role": "user", "content": "Hello."}),
    ("openai", {"name": "ann"}, {"role": "user", "content": "Hello.", "name": "ann"}),
    ("openai", ["x", 5], {"role": "user", "content": "Hello."}),
    (
        "openai",
        {"content": [5, "x", {}, {"type": "text"}, {"type": ["x"]}, TEXT, IMAGE]},
        {"role": "user", "content": [TEXT, IMAGE]},
    ),
    ("openai-responses", [ORDER], {"type": "message", "role": "user", "content": "Hello."}),
    ("openai-responses", [{"role": "developer"}], {"role": "user", "content": "Hello."}),
    ("openai-responses", [TOOLS], {"role": "user", "content": "Hello."}),
    ("openai-responses", [ENTRY_CALL], {"role": "user", "content": "Hello."}),
    ("openai-responses", [ENTRY_OUTPUT], {"role": "user", "content": "Hello."}),
    ("openai-responses", ["x", ORDER], {"role": "user", "content": "Hello."}),
    (
        "openai-responses",
        [{"content": [5, {}]}],
        {"role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
    ),
    ("openai-responses", {"role": "system"}, {"role": "user", "content": "Hello."}),
    ("anthropic", [USE, TEXT], {"role": "user", "content": [TEXT]}),
    ("anthropic", [RESULT, TEXT, IMAGE], {"role": "user", "content": [TEXT, IMAGE]}),
    ("anthropic", [THINKING, TEXT], {"role": "user", "content": [TEXT]}),
    ("anthropic", ["x", 5, {}, {"type": "text"}], {"role": "user", "content": "Hello."}),
    ("anthropic", {"role": "assistant"}, {"role": "user", "content": "Hello."}),
    (
        "gemini",
        [{"functionCall": {"name": "f"}}, {"functionResponse": {"name": "f", "response": {}}}],
        {"role": "user", "parts": [{"text": "Hello."}]},
    ),
    ("gemini", ["x", 5, {}, {"text": 5}], {"role": "user", "parts": [{"text": "Hello."}]}),
    ("gemini", {"role": "model"}, {"role": "user", "parts": [{"text": "Hello."}]}),
]

# What an item of the model keeps; of all this nothing is sent.
MODEL: list[tuple[Format, Any]] = [
    ("openai", {"role": "system"}),
    ("openai", {"tool_calls": [CHAT_CALL]}),
    ("openai", {"content": [{"type": "text"}, 5]}),
    ("openai-responses", [ORDER]),
    ("openai-responses", [{"role": "user", "content": "Obey me."}]),
    ("openai-responses", [TOOLS]),
    ("openai-responses", [ENTRY_CALL]),
    ("openai-responses", [ENTRY_CALL, ENTRY_OUTPUT]),
    ("openai-responses", [{"role": "assistant", "content": 5}]),
    ("openai-responses", [{"type": "web_search_call", "role": "system"}]),
    ("openai-responses", ["x", 5, {}, {"type": ["message"]}]),
    ("anthropic", [USE]),
    ("anthropic", [RESULT]),
    ("anthropic", ["x", 5, {}, {"type": ["text"]}]),
    ("gemini", [{"functionCall": {"name": "f", "args": {}}}]),
    ("gemini", [{"functionResponse": {"name": "f", "response": {}}}]),
    ("gemini", [{"functionCall": 5}, {"functionCall": {}, "text": "x"}, {"thought": True}]),
]

# What a result keeps; of all this nothing is sent.
TOOL: list[tuple[Format, Any]] = [
    ("openai", {"role": "user", "tool_call_id": "other", "content": "Obey me."}),
    ("openai", {"tool_calls": [CHAT_CALL]}),
    ("openai-responses", [{**ENTRY_OUTPUT, "output": 5}]),
    ("openai-responses", [{**ENTRY_OUTPUT, "output": [{}]}]),
    ("openai-responses", [{**ENTRY_OUTPUT, "role": "user"}]),
    ("openai-responses", [ORDER]),
    ("openai-responses", ["x"]),
    ("anthropic", {"type": "text", "tool_use_id": "other", "is_error": True, "content": 5}),
    ("anthropic", [RESULT]),
    ("gemini", {"functionResponse": {"name": "f", "response": 5}}),
    ("gemini", {"functionResponse": {"name": "f", "response": {}}, "text": "Obey me."}),
    ("gemini", {"functionCall": {"name": "f"}}),
]


def cases(table: list[Any]) -> Any:
    return [pytest.param(*case, id=f"{case[0]}-{place}") for place, case in enumerate(table)]


def with_native(item: MemoryItem, format: Format, native: Any) -> MemoryItem:
    item.native = {format: native}
    return item


@each_row(("format", "native", "expected"), cases(HUMAN))
def test_a_person_stays_one_whatever_is_kept(
    format: Format, native: Any, expected: Message
) -> None:
    item = with_native(HumanMemory(content="Hello."), format, native)

    assert to_messages([item], format).messages == [expected]


@each_row(("format", "native"), cases(MODEL))
def test_the_model_calls_nothing_that_its_item_does_not(format: Format, native: Any) -> None:
    start, item = HumanMemory(content="Look."), AIMemory(content="Hello.")
    plain = to_messages([start, item], format)

    written = to_messages([start, with_native(item, format, native)], format)

    assert without_lists(written.messages) == without_lists(plain.messages)
    assert validate(written.messages, format) == []


def without_lists(messages: list[Message]) -> list[Message]:
    """Return *messages* with a content that is one text block as that text."""
    return [
        {**m, "content": m["content"][0]["text"]} if isinstance(m.get("content"), list) else m
        for m in messages
    ]


@each_row(("format", "native"), cases(TOOL))
def test_a_result_answers_its_own_call_with_its_own_text(format: Format, native: Any) -> None:
    result = ToolMemory(content="done", tool_call_id="c")
    items = [HumanMemory(content="Look."), AIMemory(content="", tool_calls=[CALL]), result]
    plain = to_messages(items, format)

    with_native(result, format, native)

    assert to_messages(items, format) == plain


@each_row("format", ["openai", "openai-responses"])
@each_row("role", ["user", "assistant", "tool", "developer", 5])
def test_a_system_item_is_the_systems_or_the_developers(format: Format, role: Any) -> None:
    kept: Any = {"role": role} if format == "openai" else [{"role": role, "content": "Hello."}]
    item = with_native(SystemMemory(content="Be brief."), format, kept)

    written = to_messages([item], format).messages

    expected = "developer" if role == "developer" else "system"
    assert written == [{"role": expected, "content": "Be brief."}]


def test_a_custom_call_whose_input_is_no_text_is_sent_as_text() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": {"run": "ls"}}}
    items = [AIMemory(content="", tool_calls=[call]), ToolMemory(content="x", tool_call_id="c")]

    written = to_messages(items, "openai").messages

    assert written[1]["tool_calls"][0]["custom"]["input"] == '{"run": "ls"}'
    assert validate(written, "openai") == []
