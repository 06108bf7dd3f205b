"""Reading goes on where it stopped: calls without ids, and results that come later."""

from typing import Any

import pytest
from tests.messages._conversations import CONVERSATIONS
from tests.messages._samples import ASK, CALLS_WITHOUT_IDS, RESULTS_WITHOUT_IDS
from tests.messages._views import answered, called
from tests.rows import each_row

from orbiter.memory.errors import MessageError
from orbiter.memory.messages import FORMATS, Format, Message, from_messages, to_messages, validate
from orbiter.memory.model.items import AIMemory, MemoryItem, ToolMemory


def calls(format: Format, *names: str) -> list[Message]:
    """Return the messages of a turn that calls tools, none of which has an id."""
    return CALLS_WITHOUT_IDS[format](*names)


def result(format: Format, name: str, text: str) -> Message:
    """Return the message with a result, which has no id."""
    return RESULTS_WITHOUT_IDS[format](name, text)


def one_by_one(messages: list[Message], format: Format) -> list[MemoryItem]:
    items: list[MemoryItem] = []
    for message in messages:
        items += from_messages([message], format, after=items)
    return items


@each_row("format", FORMATS)
@each_row("read", [from_messages, one_by_one])
def test_results_without_ids_answer_calls_without_ids_in_order(read: Any, format: Format) -> None:
    messages = [
        ASK[format],
        *calls(format, "look", "look"),
        result(format, "look", "first"),
        result(format, "look", "second"),
        *calls(format, "look"),
        result(format, "look", "third"),
    ]

    items = read(messages, format)

    ids = [id for id, *_ in called(items)]
    assert len(set(ids)) == 3
    assert all(ids)
    assert answered(items) == [
        (ids[0], "look", "first", False),
        (ids[1], "look", "second", False),
        (ids[2], "look", "third", False),
    ]
    for other in FORMATS:
        written = to_messages(items, other).messages
        assert validate(written, other) == []
        assert [text for _, _, text, _ in answered(from_messages(written, other))] == [
            "first", "second", "third",
        ]  # fmt: skip


@pytest.mark.parametrize("format", ["openai", "gemini"])
def test_a_result_answers_the_open_call_of_its_name(format: Format) -> None:
    messages = [
        ASK[format],
        *calls(format, "look", "hear"),
        result(format, "hear", "birds"),
        result(format, "look", "trees"),
    ]

    items = one_by_one(messages, format)

    (look, *_), (hear, *_) = called(items)
    assert [(id, text) for id, _, text, _ in answered(items)] == [(hear, "birds"), (look, "trees")]


def test_made_ids_are_the_same_each_time_and_never_sent_to_gemini() -> None:
    messages = [
        ASK["gemini"],
        *calls("gemini", "look", "look"),
        result("gemini", "look", "first"),
        result("gemini", "look", "second"),
    ]

    items = from_messages(messages, "gemini")
    written = to_messages(items, "gemini").messages

    assert called(items) == called(from_messages(messages, "gemini"))
    assert "'id'" not in str(written)


def test_a_response_has_the_id_that_the_model_gave_its_call() -> None:
    call = {"role": "model", "parts": [{"functionCall": {"id": "fc-1", "name": "look"}}]}
    items = from_messages([ASK["gemini"], call], "gemini")
    items.append(ToolMemory(content="trees", tool_call_id="fc-1"))

    written = to_messages(items, "gemini").messages

    assert written[2]["parts"][0]["functionResponse"]["id"] == "fc-1"


@pytest.mark.parametrize("format", FORMATS)
def test_a_conversation_is_read_one_by_one_as_at_once(format: Format) -> None:
    messages = CONVERSATIONS[format]

    items = one_by_one(messages, format)

    assert to_messages(items, format).messages == messages
    at_once = from_messages(messages, format)
    assert [each[1:] for each in answered(items)] == [each[1:] for each in answered(at_once)]


def test_a_late_result_answers_the_newest_turn_that_waits_for_it() -> None:
    messages = [
        ASK["openai"],
        *calls("openai", "look"),  # never answered
        ASK["openai"],
        *calls("openai", "look"),
        {"role": "assistant", "content": "One moment."},
        result("openai", "look", "trees"),
    ]

    items = from_messages(messages, "openai")

    assert [id for id, *_ in answered(items)] == [[id for id, *_ in called(items)][1]]


def test_a_function_call_of_old_is_a_tool_call() -> None:
    messages: list[Message] = [
        ASK["openai"],
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "42"},
    ]

    items = from_messages(messages, "openai")
    written = to_messages(items, "openai").messages

    assert [type(item) for item in items[1:]] == [AIMemory, ToolMemory]
    assert "function_call" not in written[1]
    assert written[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert validate(written, "openai") == []


@pytest.mark.parametrize("format", ["openai", "openai-responses", "anthropic"])
def test_a_result_without_an_id_that_answers_nothing_is_refused(format: Format) -> None:
    with pytest.raises(MessageError, match="no call"):
        from_messages([ASK[format], result(format, "look", "trees")], format)
