"""Anthropic Messages: what is read, and that it is written back as it was."""

from typing import Any

import pytest
from tests.messages._conversations import ANTHROPIC
from tests.messages._views import answered, rewritten, said, there_and_back

from orbiter.memory.errors import MessageError
from orbiter.memory.messages import Message, format_of, from_messages, to_messages, validate
from orbiter.memory.model.items import AIMemory, HumanMemory, ToolMemory

ASK: Message = {"role": "user", "content": "List the files."}
USE: Message = {"type": "tool_use", "id": "toolu_1", "name": "list_files", "input": {}}
CALL: Message = {"role": "assistant", "content": [USE]}
RESULT: Message = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "README.md"}
THINKING: Message = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}


def test_several_text_blocks_are_read_as_lines_and_written_as_blocks() -> None:
    messages: list[Message] = [
        ASK,
        {
            "role": "assistant",
            "content": [
                THINKING,
                {"type": "text", "text": "First.", "citations": None},
                {"type": "text", "text": "Second."},
                {"type": "container_upload", "file_id": "file_1"},
            ],
        },
    ]

    items = from_messages(messages, "anthropic")

    assert said(items)[1] == ("AIMemory", "First.\nSecond.")
    assert to_messages(items, "anthropic").messages == messages


@pytest.mark.parametrize(
    "result",
    [
        pytest.param({**RESULT, "is_error": False}, id="not an error"),
        pytest.param({"type": "tool_result", "tool_use_id": "toolu_1"}, id="no content"),
        pytest.param({**RESULT, "content": []}, id="empty content"),
        pytest.param(
            {**RESULT, "content": [{"type": "text", "text": "Broken."}], "is_error": True},
            id="error in blocks",
        ),
    ],
)
def test_a_result_comes_back_as_it_was(result: Message) -> None:
    messages = [ASK, CALL, {"role": "user", "content": [result]}]

    written = there_and_back(messages, "anthropic")

    assert written == messages


def test_a_result_whose_content_is_none_is_empty() -> None:
    messages = [ASK, CALL, {"role": "user", "content": [{**RESULT, "content": None}]}]

    items = from_messages(messages, "anthropic")

    assert answered(items) == [("toolu_1", "list_files", "", False)]


def test_results_followed_by_text_come_back_as_one_message() -> None:
    messages = [
        ASK,
        CALL,
        {"role": "user", "content": [RESULT, {"type": "text", "text": "Go on."}]},
    ]

    items = from_messages(messages, "anthropic")
    written = to_messages(items, "anthropic").messages

    assert said(items)[2:] == [("ToolMemory", "README.md"), ("HumanMemory", "Go on.")]
    assert written == messages


def test_an_edited_answer_keeps_its_thinking_and_calls() -> None:
    written = rewritten(ANTHROPIC, "anthropic", index=1, content="One moment.")

    old = ANTHROPIC[1]["content"]
    assert written[1]["content"][:4] == [*old[:2], {"type": "text", "text": "One moment."}, old[3]]
    assert validate(written, "anthropic") == []


def test_an_edited_answer_keeps_the_cache_marks_of_its_calls() -> None:
    written = rewritten(ANTHROPIC, "anthropic", index=1, content="One moment.")

    assert written[1]["content"][4] == ANTHROPIC[1]["content"][4]


def test_an_edited_answer_keeps_what_the_server_searched() -> None:
    written = rewritten(ANTHROPIC, "anthropic", index=4, content="Paris.")

    old = ANTHROPIC[3]["content"]
    assert written[3]["content"] == [*old[:2], {"type": "text", "text": "Paris."}]


def test_an_edited_result_keeps_its_image_and_its_cache_mark() -> None:
    written = rewritten(ANTHROPIC, "anthropic", index=3, content="22 degrees")

    result = written[2]["content"][1]
    assert result["tool_use_id"] == "toolu_paris"
    assert result["cache_control"] == {"type": "ephemeral"}
    assert result["content"] == [
        {"type": "text", "text": "22 degrees"},
        ANTHROPIC[2]["content"][1]["content"][1],
    ]


def test_edited_arguments_are_written() -> None:
    items = from_messages(ANTHROPIC, "anthropic")
    assert isinstance(items[1], AIMemory)
    items[1].tool_calls = [{**call, "arguments": {"city": "Rome"}} for call in items[1].tool_calls]

    written = to_messages(items, "anthropic").messages

    blocks = [block for block in written[1]["content"] if block["type"] == "tool_use"]
    assert [block["input"] for block in blocks] == [{"city": "Rome"}, {"city": "Rome"}]
    assert written[1]["content"][:2] == ANTHROPIC[1]["content"][:2]


def test_an_empty_text_block_the_model_sent_is_not_sent_back() -> None:
    messages: list[Message] = [
        ASK,
        {"role": "assistant", "content": [{"type": "text", "text": ""}, USE]},
        {"role": "user", "content": [RESULT]},
    ]

    written = there_and_back(messages, "anthropic")

    assert validate(written, "anthropic") == []


def test_an_answer_of_thinking_alone_is_not_sent_back() -> None:
    messages: list[Message] = [
        ASK,
        {"role": "assistant", "content": [THINKING]},
        {"role": "user", "content": "Are you there?"},
    ]

    written = there_and_back(messages, "anthropic")

    last_kinds = [m["content"][-1].get("type") for m in written if isinstance(m["content"], list)]
    assert "thinking" not in last_kinds


def test_an_error_without_words_is_sent_with_some() -> None:
    items = [
        HumanMemory(content="List the files."),
        AIMemory(content="", tool_calls=[{"id": "toolu_1", "name": "list_files"}]),
        ToolMemory(content="", tool_call_id="toolu_1", is_error=True),
    ]

    written = to_messages(items, "anthropic").messages

    result = written[2]["content"][0]
    assert result["content"] or not result.get("is_error")


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_blank_texts_are_left_out(blank: str) -> None:
    items = [
        HumanMemory(content="Hello."),
        AIMemory(content=blank),
        HumanMemory(content=blank),
        AIMemory(content=blank, tool_calls=[{"id": "toolu_1", "name": "list_files"}]),
        ToolMemory(content="README.md", tool_call_id="toolu_1"),
    ]

    written = to_messages(items, "anthropic").messages

    assert written == [
        {"role": "user", "content": "Hello."},
        CALL,
        {"role": "user", "content": [RESULT]},
    ]


def test_thinking_without_its_signature_is_reported_and_not_sent() -> None:
    thought: Message = {"type": "thinking", "thinking": "Hm."}  # as models of other providers think
    messages: list[Message] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Sun."}]},
    ]

    assert ["signature" in each.reason for each in validate(messages, "anthropic")] == [True]
    sent = to_messages(from_messages(messages, "anthropic"), "anthropic").messages
    assert validate(sent, "anthropic") == []
    assert thought not in sent[1]["content"]


@pytest.mark.parametrize("content", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_a_system_message_among_the_others_is_system_text(content: Any) -> None:
    messages: list[Message] = [
        {"role": "user", "content": "Hello."},
        {"role": "system", "content": content},
        {"role": "assistant", "content": "Hello, Ann."},
    ]

    written = to_messages(from_messages(messages, "anthropic"), "anthropic")

    assert written == [messages[0], messages[2]]
    assert written.system == "Be brief."


def test_a_system_message_with_more_than_text_is_refused() -> None:
    tool = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}

    with pytest.raises(MessageError, match="^message 0: .*`tool_addition`.*leave it out"):
        from_messages([{"role": "system", "content": [tool]}], "anthropic")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
        {"type": "mcp_tool_listing", "mcp_server_name": "files", "tools": []},
    ],
)
def test_new_blocks_of_an_answer_are_known_without_a_format(block: Message) -> None:
    answer: Message = {"role": "assistant", "content": [block, {"type": "text", "text": "Hi."}]}

    assert format_of(answer) == "anthropic"
    assert there_and_back([{"role": "user", "content": "Hello."}, answer], "anthropic")[1] == answer
