"""OpenAI Chat Completions: what is read, and that it is written back as it was."""

import pytest
from tests.messages._conversations import OPENAI
from tests.messages._views import answered, called, rewritten, said, there_and_back

from orbiter.memory.messages import Message, from_messages, to_messages, validate

ASK: Message = {"role": "user", "content": "List the files."}
CALL: Message = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "list_files", "arguments": '{"path": "."}'},
}
ANSWER: Message = {"role": "tool", "tool_call_id": "call_1", "content": "README.md"}


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

    refused = ("AIMemory", "I cannot help with that.")
    assert said(items) == [("HumanMemory", "First.\nSecond."), refused]
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


def test_an_edited_answer_keeps_its_calls_and_unknown_keys() -> None:
    written = rewritten(OPENAI, "openai", index=2, content="One moment.")

    assert written[2] == {**OPENAI[2], "content": "One moment."}


def test_an_edited_result_still_answers_its_call() -> None:
    written = rewritten(OPENAI, "openai", index=8, content="Open again.")

    assert written[8]["tool_call_id"] == "call_table"
    assert written[8]["content"] == [{"type": "text", "text": "Open again."}]


def test_the_result_of_a_function_call_is_written_as_a_tool_message_takes_it() -> None:
    call = {"name": "list_files", "arguments": "{}"}
    messages: list[Message] = [
        ASK,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "list_files", "content": "README.md"},
    ]

    items = from_messages(messages, "openai")

    assert answered(items)[0][1:] == ("list_files", "README.md", False)
    assert to_messages(items, "openai")[2].keys() == {"role", "content", "tool_call_id"}
