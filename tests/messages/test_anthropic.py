"""Anthropic Messages: what is read, and that it is written back as it was."""

import copy
from typing import Any

import pytest
from tests.messages._conversations import ANTHROPIC, RESULTS, TEXTS
from tests.messages._views import answered, called, rewritten, said, there_and_back

from orbiter.memory.errors import MessageError
from orbiter.memory.items import AIMemory, HumanMemory, MemoryMetadata, SystemMemory, ToolMemory
from orbiter.memory.messages import Message, from_messages, to_messages, validate

ASK: Message = {"role": "user", "content": "List the files."}
USE: Message = {"type": "tool_use", "id": "toolu_1", "name": "list_files", "input": {}}
CALL: Message = {"role": "assistant", "content": [USE]}
RESULT: Message = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "README.md"}
THINKING: Message = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}


def test_a_conversation_comes_back_as_it_was() -> None:
    before = copy.deepcopy(ANTHROPIC)

    written = there_and_back(ANTHROPIC, "anthropic")

    assert written == ANTHROPIC == before
    assert validate(written, "anthropic") == []


def test_results_become_items_of_their_own() -> None:
    items = from_messages(ANTHROPIC, "anthropic", system="You are a travel agent.")

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
    items = from_messages(ANTHROPIC, "anthropic")

    assert called(items) == [
        ("toolu_paris", "get_weather", {"city": "Paris"}),
        ("toolu_oslo", "get_weather", {"city": "Oslo", "unit": "C"}),
        ("toolu_table", "book_table", {"people": 2, "at": "19:00"}),
    ]
    assert answered(items) == [
        ("toolu_oslo", "get_weather", RESULTS[1], False),
        ("toolu_paris", "get_weather", RESULTS[0], False),
        ("toolu_table", "book_table", RESULTS[2], True),
    ]


def test_every_item_belongs_to_whom_the_caller_says() -> None:
    whose = MemoryMetadata(user_id="ann")

    items = from_messages(ANTHROPIC, "anthropic", system="Be brief.", metadata=whose)

    assert {item.metadata.user_id for item in items} == {"ann"}


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


def test_an_edited_question_keeps_its_image() -> None:
    written = rewritten(ANTHROPIC, "anthropic", index=0, content="Which is colder?")

    assert ANTHROPIC[0]["content"][0] in written[0]["content"]
    assert {"type": "text", "text": "Which is colder?"} in written[0]["content"]


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


def test_changing_what_was_written_leaves_the_items_alone() -> None:
    items = from_messages(ANTHROPIC, "anthropic")

    written = to_messages(items, "anthropic").messages
    written[0]["content"][0]["source"]["data"] = ""
    written[2]["content"][1]["content"][0]["cache_control"] = {"type": "ephemeral"}

    assert to_messages(items, "anthropic").messages == ANTHROPIC


def test_an_empty_text_block_the_model_sent_is_not_sent_back() -> None:
    messages: list[Message] = [
        ASK,
        {"role": "assistant", "content": [{"type": "text", "text": ""}, USE]},
        {"role": "user", "content": [RESULT]},
    ]

    written = there_and_back(messages, "anthropic")

    assert validate(written, "anthropic") == []


def test_a_tool_name_the_provider_refuses_is_replaced() -> None:
    messages: list[Message] = [
        ASK,
        {"role": "assistant", "content": [{**USE, "name": "functions.list"}]},
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


def test_system_text_stands_outside_the_messages() -> None:
    items = [
        SystemMemory(content="Be brief."),
        HumanMemory(content="Hello."),
        SystemMemory(content="Be kind."),
        SystemMemory(content=""),
    ]

    written = to_messages(items, "anthropic")

    assert written.as_kwargs() == {
        "messages": [{"role": "user", "content": "Hello."}],
        "system": "Be brief.\n\nBe kind.",
    }
    assert to_messages(items[1:2], "anthropic").as_kwargs() == {
        "messages": [{"role": "user", "content": "Hello."}]
    }


def test_a_history_that_begins_with_the_model_gets_an_opening_turn() -> None:
    written = to_messages([AIMemory(content="Welcome.")], "anthropic").messages

    assert [message["role"] for message in written] == ["user", "assistant"]
    assert validate(written, "anthropic") == []


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


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        pytest.param("Hello.", "must be a dict", id="not a message"),
        pytest.param({"role": "system", "content": "x"}, "unknown role 'system'", id="role"),
        pytest.param({"content": "x"}, "unknown role None", id="no role"),
        pytest.param({"role": "user"}, "`content`", id="no content"),
        pytest.param({"role": "user", "content": 7}, "`content`", id="content is a number"),
        pytest.param(
            {"role": "user", "content": [{"type": "tool_result", "content": "x"}]},
            "`tool_use_id`",
            id="no call id",
        ),
        pytest.param({"role": "user", "content": ["Hello."]}, "", id="a block is text"),
        pytest.param({"role": "user", "content": "a\0b"}, "U\\+0000", id="text no store keeps"),
        pytest.param(
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/png",
                            "data": "A" * 2**23,
                        },
                    }
                ],
            },
            "bytes of JSON",
            id="a picture too large to keep",
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_named(bad: Any, words: str) -> None:
    with pytest.raises(MessageError, match=rf"(?s)message 1\b.*{words}"):
        from_messages([ASK, bad], "anthropic")
