"""What holds for each format alike: a conversation is read whole and written back as it was."""

import copy
import json
from typing import Any

import pytest
from tests.messages._conversations import CALLS, CONVERSATIONS, IDS, RESULTS, TEXTS
from tests.messages._views import answered, called, said, there_and_back

from orbiter.memory.messages import (
    FORMATS,
    Format,
    Message,
    codec_for,
    from_messages,
    to_messages,
    validate,
)
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryMetadata, SystemMemory

every_format = pytest.mark.parametrize("format", FORMATS)

# Results without ids stand in the order of their calls; elsewhere the second result came first.
ORDER: dict[Format, list[int]] = {
    format: [1, 0, 2] if codec_for(format).HAS_CALL_IDS else [0, 1, 2] for format in FORMATS
}
OUTSIDE = "You are a travel agent."
"""The system text of the story, for formats that hold it outside the messages."""


def spoil(value: Any) -> None:
    """Change every text inside *value*, in place."""
    for key in value if isinstance(value, dict) else range(len(value)):
        if isinstance(value[key], str):
            value[key] = "spoilt"
        elif isinstance(value[key], dict | list):
            spoil(value[key])


def without_texts(message: Message) -> Message:
    """Return *message* with only those of its blocks that hold no text."""
    key = "parts" if "parts" in message else "content"
    return message | {key: [block for block in message[key] if "text" not in block]}


@every_format
def test_a_conversation_comes_back_as_it_was(format: Format) -> None:
    before = copy.deepcopy(CONVERSATIONS[format])

    written = there_and_back(CONVERSATIONS[format], format)

    assert written == CONVERSATIONS[format] == before
    assert validate(written, format) == []


@every_format
def test_each_speaker_and_each_result_becomes_an_item_of_its_kind(format: Format) -> None:
    system = OUTSIDE if codec_for(format).SYSTEM_OUTSIDE else ""

    items = from_messages(CONVERSATIONS[format], format, system=system)

    assert said(items) == [
        ("SystemMemory", OUTSIDE),
        ("HumanMemory", TEXTS[0]),
        ("AIMemory", TEXTS[1]),
        *(("ToolMemory", RESULTS[place]) for place in ORDER[format][:2]),
        ("AIMemory", TEXTS[2]),
        ("HumanMemory", TEXTS[3]),
        ("AIMemory", ""),
        ("ToolMemory", RESULTS[2]),
        ("AIMemory", TEXTS[4]),
        ("HumanMemory", TEXTS[5]),
    ]


@pytest.mark.parametrize("format", IDS)
def test_calls_and_their_results_are_read(format: Format) -> None:
    items = from_messages(CONVERSATIONS[format], format)

    ids, is_error = IDS[format], format == "anthropic"
    assert called(items) == [(id, *call) for id, call in zip(ids, CALLS, strict=True)]
    assert answered(items) == [
        (ids[place], CALLS[place][0], RESULTS[place], is_error and place == 2)
        for place in ORDER[format]
    ]


@every_format
def test_every_item_belongs_to_whom_the_caller_says(format: Format) -> None:
    whose = MemoryMetadata(user_id="ann", session_id="s1")

    items = from_messages(CONVERSATIONS[format], format, system="Be brief.", metadata=whose)

    assert [item.metadata for item in items] == [whose] * len(items)
    assert said(items)[0] == ("SystemMemory", "Be brief.")


@every_format
def test_changing_what_was_written_leaves_the_items_alone(format: Format) -> None:
    items = from_messages(CONVERSATIONS[format], format)

    spoil(to_messages(items, format).messages)

    assert to_messages(items, format).messages == CONVERSATIONS[format]


@every_format
def test_changing_what_was_read_leaves_the_items_alone(format: Format) -> None:
    messages = copy.deepcopy(CONVERSATIONS[format])
    items = from_messages(messages, format)

    spoil(messages)

    assert to_messages(items, format).messages == CONVERSATIONS[format]


@every_format
def test_an_edited_question_keeps_its_image_and_unknown_keys(format: Format) -> None:
    items = from_messages(CONVERSATIONS[format], format)
    place = [type(item) for item in items].index(HumanMemory)
    items[place].content = "Which is colder?"

    written = to_messages(items, format).messages

    old = CONVERSATIONS[format]
    assert without_texts(written[place]) == without_texts(old[place])
    assert written[:place] + written[place + 1 :] == old[:place] + old[place + 1 :]
    assert from_messages(written, format)[place].content == "Which is colder?"


@every_format
def test_edited_arguments_are_written(format: Format) -> None:
    items = from_messages(CONVERSATIONS[format], format)
    call = next(item for item in items if isinstance(item, AIMemory))
    call.tool_calls = [
        {"id": id, "name": name, "arguments": {"city": "Rome"}} for id, name, _ in called([call])
    ]

    written = to_messages(items, format).messages

    assert validate(written, format) == []
    there = from_messages(written, format)
    assert [arguments for _, _, arguments in called(there)[:2]] == [{"city": "Rome"}] * 2
    assert said(there) == said(items)


@every_format
def test_a_tool_name_the_provider_refuses_is_replaced(format: Format) -> None:
    odd = json.loads(json.dumps(CONVERSATIONS[format]).replace("get_weather", "weather, now"))

    written = there_and_back(odd, format)

    assert validate(written, format) == []
    there = from_messages(written, format)
    assert {name for _, name, _ in called(there)} == {"weather__now", "book_table"}


@every_format
def test_an_open_call_that_is_kept_comes_back_as_it_was(format: Format) -> None:
    messages = CONVERSATIONS[format][:-3]  # the last result, and what was said after it

    written = to_messages(from_messages(messages, format), format, open_group="keep").messages

    assert written == messages


@pytest.mark.parametrize(
    ("format", "kwargs", "bare"),
    [
        (
            "openai",
            {"messages": [{"role": "system", "content": "Be brief."}]},
            {"messages": [{"role": "user", "content": "Hello."}]},
        ),
        (
            "openai-responses",
            {"input": [{"role": "system", "content": "Be brief."}]},
            {"input": [{"role": "user", "content": "Hello."}]},
        ),
        (
            "anthropic",
            {"messages": [], "system": "Be brief."},
            {"messages": [{"role": "user", "content": "Hello."}]},
        ),
        (
            "gemini",
            {"contents": [], "config": {"system_instruction": "Be brief."}},
            {"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]},
        ),
    ],
)
def test_system_text_stands_where_the_provider_wants_it(
    format: Format, kwargs: dict[str, Any], bare: dict[str, Any]
) -> None:
    assert to_messages([SystemMemory(content="Be brief.")], format).as_kwargs() == kwargs
    assert to_messages([HumanMemory(content="Hello.")], format).as_kwargs() == bare


@pytest.mark.parametrize("format", ["anthropic", "gemini"])
def test_several_system_texts_become_one_outside_the_messages(format: Format) -> None:
    texts = ["Be brief.", "", "Be kind."]

    written = to_messages([SystemMemory(content=text) for text in texts], format)

    assert written.system == "Be brief.\n\nBe kind."


@pytest.mark.parametrize("format", ["anthropic", "gemini"])
def test_a_history_that_begins_with_the_model_gets_an_opening_turn(format: Format) -> None:
    written = to_messages([AIMemory(content="Welcome.")], format).messages

    assert [type(item) for item in from_messages(written, format)] == [HumanMemory, AIMemory]
    assert validate(written, format) == []
