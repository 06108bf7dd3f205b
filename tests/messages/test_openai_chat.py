"""OpenAI Chat Completions: what is read, and that it is written back as it was."""

import copy
from typing import Any

import pytest
from tests.messages._conversations import OPENAI, RESULTS, TEXTS
from tests.messages._views import answered, called, rewritten, said, there_and_back

from orbiter.memory.errors import MessageError
from orbiter.memory.items import AIMemory, HumanMemory, MemoryMetadata, SystemMemory
from orbiter.memory.messages import Message, from_messages, to_messages, validate

ASK: Message = {"role": "user", "content": "List the files."}
CALL: Message = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "list_files", "arguments": '{"path": "."}'},
}
ANSWER: Message = {"role": "tool", "tool_call_id": "call_1", "content": "README.md"}


def test_a_conversation_comes_back_as_it_was() -> None:
    before = copy.deepcopy(OPENAI)

    written = there_and_back(OPENAI, "openai")

    assert written == OPENAI == before
    assert validate(written, "openai") == []


def test_each_message_becomes_an_item_of_its_kind() -> None:
    items = from_messages(OPENAI, "openai")

    assert said(items) == [
        ("SystemMemory", "You are a travel agent."),
        ("HumanMemory", TEXTS[0]),
        ("AIMemory", TEXTS[1]),
        ("ToolMemory", RESULTS[1]),
        ("ToolMemory", RESULTS[0]),
        ("AIMemory", TEXTS[2]),
        ("HumanMemory", TEXTS[3]),
        ("AIMemory", ""),
        ("ToolMemory", RESULTS[2]),
        ("AIMemory", TEXTS[4]),
        ("HumanMemory", TEXTS[5]),
    ]


def test_calls_and_their_results_are_read() -> None:
    items = from_messages(OPENAI, "openai")

    assert called(items) == [
        ("call_paris", "get_weather", {"city": "Paris"}),
        ("call_oslo", "get_weather", {"city": "Oslo", "unit": "C"}),
        ("call_table", "book_table", {"people": 2, "at": "19:00"}),
    ]
    assert answered(items) == [
        ("call_oslo", "get_weather", RESULTS[1], False),
        ("call_paris", "get_weather", RESULTS[0], False),
        ("call_table", "book_table", RESULTS[2], False),
    ]


def test_every_item_belongs_to_whom_the_caller_says() -> None:
    whose = MemoryMetadata(user_id="ann", session_id="s1")

    items = from_messages(OPENAI, "openai", system="Be brief.", metadata=whose)

    assert {item.metadata.user_id for item in items} == {"ann"}
    assert said(items)[0] == ("SystemMemory", "Be brief.")


def test_several_text_parts_are_read_as_lines_and_written_as_parts() -> None:
    messages: list[Message] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "First."},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                {"type": "text", "text": "Second."},
                {"type": "file", "file": {"file_id": "file-1"}},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "I cannot help with that."}],
        },
    ]

    items = from_messages(messages, "openai")

    assert said(items) == [("HumanMemory", "First.\nSecond."), ("AIMemory", "")]
    assert to_messages(items, "openai").messages == messages


def test_a_custom_tool_call_comes_back_as_it_was() -> None:
    messages = [
        ASK,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_9", "type": "custom", "custom": {"name": "shell", "input": "ls -la"}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_9", "content": "README.md"},
    ]

    items = from_messages(messages, "openai")

    assert called(items) == [("call_9", "shell", {"input": "ls -la"})]
    assert answered(items) == [("call_9", "shell", "README.md", False)]
    assert to_messages(items, "openai").messages == messages


def test_the_none_keys_of_a_dumped_sdk_message_do_no_harm() -> None:
    dumped: Message = {
        "content": None,
        "refusal": None,
        "role": "assistant",
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [
            {
                "id": "call_1",
                "function": {"arguments": '{"path": "."}', "name": "list_files"},
                "type": "function",
            }
        ],
    }
    spoken: Message = {**dumped, "content": "One file.", "tool_calls": None}

    items = from_messages([ASK, dumped, ANSWER, spoken], "openai")
    written = to_messages(items, "openai").messages

    assert said(items)[1:] == [
        ("AIMemory", ""),
        ("ToolMemory", "README.md"),
        ("AIMemory", "One file."),
    ]
    assert validate(written, "openai") == []
    assert written[1]["tool_calls"] == dumped["tool_calls"]
    assert not [key for message in written for key in message if key in {"audio", "refusal"}]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"role": "assistant", "tool_calls": [CALL]}, id="no content key"),
        pytest.param({"role": "assistant", "content": None, "tool_calls": [CALL]}, id="null"),
        pytest.param({"role": "assistant", "content": "", "tool_calls": [CALL]}, id="empty text"),
    ],
)
def test_a_call_without_text_comes_back_as_it_was(message: Message) -> None:
    messages = [ASK, {"content": None, **message}, ANSWER]

    written = there_and_back([ASK, message, ANSWER], "openai")

    assert written == messages  # an absent key and null are one to OpenAI; null is written


def test_an_audio_answer_without_content_comes_back_as_it_was() -> None:
    audio: Message = {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}
    messages: list[Message] = [ASK, audio]

    written = there_and_back(messages, "openai")

    assert written == messages


def test_a_refusal_without_content_is_kept_and_legal() -> None:
    refusal: Message = {"role": "assistant", "content": None, "refusal": "I cannot help."}

    written = there_and_back([ASK, refusal], "openai")

    assert written[1]["refusal"] == "I cannot help."
    assert validate(written, "openai") == []


def test_a_custom_call_with_an_empty_function_key_is_written_as_custom() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    messages: list[Message] = [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [{**call, "function": None}]},
        {"role": "tool", "tool_call_id": "c", "content": "README.md"},
    ]

    written = there_and_back(messages, "openai")

    assert written[1]["tool_calls"][0]["custom"] == {"name": "shell", "input": "ls"}
    assert validate(written, "openai") == []


def test_a_call_whose_type_is_none_is_written_as_a_function_call() -> None:
    messages: list[Message] = [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "type": None}]},
        ANSWER,
    ]

    written = there_and_back(messages, "openai")

    assert validate(written, "openai") == []


def test_an_edited_text_keeps_the_images_and_unknown_keys_beside_it() -> None:
    written = rewritten(OPENAI, "openai", index=1, content="Which is colder?")

    assert written[1] == {
        "role": "user",
        "name": "ann",
        "content": [{"type": "text", "text": "Which is colder?"}, OPENAI[1]["content"][1]],
    }
    assert written[2:] == OPENAI[2:]


def test_an_edited_answer_keeps_its_calls_and_unknown_keys() -> None:
    written = rewritten(OPENAI, "openai", index=2, content="One moment.")

    assert written[2] == {**OPENAI[2], "content": "One moment."}


def test_an_edited_result_still_answers_its_call() -> None:
    written = rewritten(OPENAI, "openai", index=8, content="Open again.")

    assert written[8]["tool_call_id"] == "call_table"
    assert written[8]["content"] == [{"type": "text", "text": "Open again."}]


def test_edited_arguments_are_written() -> None:
    items = from_messages([ASK, {"role": "assistant", "tool_calls": [CALL]}, ANSWER], "openai")
    assert isinstance(items[1], AIMemory)
    items[1].tool_calls = [{"id": "call_1", "name": "list_files", "arguments": {"path": "/"}}]

    written = to_messages(items, "openai").messages

    function = written[1]["tool_calls"][0]["function"]
    assert function == {"name": "list_files", "arguments": '{"path": "/"}'}


def test_changing_what_was_written_leaves_the_items_alone() -> None:
    items = from_messages(OPENAI, "openai")

    to_messages(items, "openai").messages[1]["content"][1]["image_url"]["url"] = "elsewhere"

    assert to_messages(items, "openai").messages == OPENAI


def test_system_text_stays_among_the_messages() -> None:
    items = [SystemMemory(content="Be brief."), HumanMemory(content="Hello.")]

    written = to_messages(items, "openai")

    assert written.system == ""
    assert written.as_kwargs() == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello."},
        ]
    }


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        pytest.param("Hello.", "must be a dict", id="not a message"),
        pytest.param({"role": "robot", "content": "x"}, "unknown role 'robot'", id="role"),
        pytest.param({"content": "x"}, "unknown role None", id="no role"),
        pytest.param({"role": "user", "content": 7}, "`content`", id="content is a number"),
        pytest.param({"role": "user", "content": {"text": "x"}}, "`content`", id="an object"),
        pytest.param({"role": "tool", "content": "x"}, "`tool_call_id`", id="no call id"),
        pytest.param(
            {"role": "assistant", "tool_calls": {"id": "x"}}, "`tool_calls`", id="calls no list"
        ),
        pytest.param({"role": "assistant", "tool_calls": ["x"]}, "", id="a call is text"),
        pytest.param({"role": "user", "content": "a\0b"}, "U\\+0000", id="text no store keeps"),
        pytest.param(
            {"role": "tool", "tool_call_id": "c", "content": "\ud83d"}, "surrogate", id="half emoji"
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_named(bad: Any, words: str) -> None:
    with pytest.raises(MessageError, match=rf"(?s)message 1\b.*{words}"):
        from_messages([ASK, bad], "openai")
