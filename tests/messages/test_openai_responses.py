"""OpenAI Responses: what is read, and that it is written back as it was."""

import json

import pytest
from tests.messages._conversations import RESPONSES
from tests.messages._views import answered, called, rewritten, said, there_and_back
from tests.rows import each_row

from orbiter.memory.conversation.tokens import count_tokens
from orbiter.memory.conversation.windows import complete_tool_groups
from orbiter.memory.messages import Message, from_messages, to_messages, validate
from orbiter.memory.model.items import MemoryItem

ASK: Message = {"role": "user", "content": "List the files."}
REASONING: Message = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "gA"}
CUSTOM_CALL: Message = {
    "type": "custom_tool_call",
    "call_id": "call_9",
    "name": "shell",
    "input": "ls -la",
}
CUSTOM_OUTPUT: Message = {
    "type": "custom_tool_call_output",
    "call_id": "call_9",
    "output": "README.md",
}
COMPUTER_CALL: Message = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "call_c",
    "action": {"type": "click", "x": 3, "y": 4, "button": "left"},
    "pending_safety_checks": [],
    "status": "completed",
}
COMPUTER_OUTPUT: Message = {
    "type": "computer_call_output",
    "call_id": "call_c",
    "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="},
}


def test_an_answer_of_another_text_has_the_keys_that_openai_asks_for() -> None:
    block = {"type": "output_text", "text": "Long", "annotations": [{"type": "file_citation"}]}
    answer: Message = {"type": "message", "id": "m", "role": "assistant", "content": [block]}

    *_, written = rewritten([ASK, answer], "openai-responses", index=1, content="Short")

    assert written["content"] == [{"type": "output_text", "text": "Short", "annotations": []}]


def test_two_answers_in_a_row_stay_two_items() -> None:
    messages: list[Message] = [
        ASK,
        {"role": "assistant", "content": "One moment."},
        REASONING,
        {"role": "assistant", "content": "Here they are."},
    ]

    items = from_messages(messages, "openai-responses")

    assert said(items)[1:] == [("AIMemory", "One moment."), ("AIMemory", "Here they are.")]
    assert to_messages(items, "openai-responses").messages == messages


def test_entries_without_a_result_to_wait_for_come_back_as_they_were() -> None:
    messages: list[Message] = [
        ASK,
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "files", "tools": []},
        {
            "type": "mcp_approval_request",
            "id": "mcpr_1",
            "server_label": "files",
            "name": "list",
            "arguments": "{}",
        },
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "files",
            "name": "list",
            "arguments": "{}",
            "output": "README.md",
        },
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBO"},
        {"type": "item_reference", "id": "msg_7"},
        {
            "type": "message",
            "id": "msg_8",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": "I cannot read it."}],
        },
        {"role": "user", "content": "Why?"},
    ]

    written = there_and_back(messages, "openai-responses")

    assert written == messages
    assert validate(written, "openai-responses") == []


def test_the_none_keys_of_a_dumped_sdk_output_come_back_as_they_were() -> None:
    messages: list[Message] = [
        ASK,
        {
            "id": "rs_1",
            "summary": [],
            "type": "reasoning",
            "content": None,
            "encrypted_content": None,
            "status": None,
        },
        {
            "arguments": "{}",
            "call_id": "call_1",
            "name": "list_files",
            "type": "function_call",
            "id": "fc_1",
            "namespace": None,
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": ""},
    ]

    written = there_and_back(messages, "openai-responses")

    assert written == messages


def test_a_user_message_whose_type_is_none_is_the_users() -> None:
    messages: list[Message] = [{"type": None, "role": "user", "content": "Hello."}]

    items = from_messages(messages, "openai-responses")

    assert said(items) == [("HumanMemory", "Hello.")]


@each_row(
    "pair",
    [
        pytest.param((CUSTOM_CALL, CUSTOM_OUTPUT), id="custom tool"),
        pytest.param((COMPUTER_CALL, COMPUTER_OUTPUT), id="computer"),
        pytest.param(
            (
                {
                    "type": "apply_patch_call",
                    "call_id": "call_p",
                    "operation": {"type": "delete_file", "path": "old.txt"},
                    "status": "completed",
                },
                {"type": "apply_patch_call_output", "call_id": "call_p", "status": "completed"},
            ),
            id="patch without output",
        ),
        pytest.param(
            (
                {
                    "type": "shell_call",
                    "call_id": "call_s",
                    "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None},
                    "status": "completed",
                },
                {
                    "type": "shell_call_output",
                    "call_id": "call_s",
                    "output": [
                        {
                            "stdout": "README.md",
                            "stderr": "",
                            "outcome": {"type": "exit", "exit_code": 0},
                        }
                    ],
                    "max_output_length": None,
                },
            ),
            id="shell",
        ),
        pytest.param(
            (
                {
                    "type": "local_shell_call",
                    "id": "lsh_1",
                    "call_id": "call_l",
                    "action": {"type": "exec", "command": ["ls"], "env": {}},
                    "status": "completed",
                },
                {"type": "local_shell_call_output", "id": "lsh_1", "output": '{"stdout": "x"}'},
            ),
            id="local shell",
        ),
        pytest.param(
            (
                {
                    "type": "tool_search_call",
                    "id": "tsc_1",
                    "call_id": None,
                    "execution": "server",
                    "arguments": {"paths": ["files"]},
                    "status": "completed",
                },
                {
                    "type": "tool_search_output",
                    "id": "tso_1",
                    "call_id": None,
                    "execution": "server",
                    "tools": [],
                    "status": "completed",
                },
            ),
            id="tool search on the server",
        ),
        pytest.param(
            (
                {
                    "type": "program",
                    "id": "prog_1",
                    "call_id": "call_g",
                    "code": "1 + 1",
                    "fingerprint": "fp",
                },
                {
                    "type": "program_output",
                    "id": "progo_1",
                    "call_id": "call_g",
                    "result": "2",
                    "status": "completed",
                },
            ),
            id="program",
        ),
    ],
)
def test_a_call_of_a_built_in_tool_comes_back_as_it_was(pair: tuple[Message, Message]) -> None:
    messages = [ASK, *pair, {"role": "assistant", "content": "Done."}]

    written = there_and_back(messages, "openai-responses")

    assert written == messages
    assert validate(written, "openai-responses") == []


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
    ],
)
def test_what_a_developer_sets_between_messages_comes_back_as_it_was(entry: Message) -> None:
    messages = [ASK, entry, {"role": "assistant", "content": "Done."}]

    items = from_messages(messages, "openai-responses")

    assert said(items)[1:] == [("SystemMemory", ""), ("AIMemory", "Done.")]
    assert to_messages(items, "openai-responses").messages == messages


def test_an_open_call_of_a_built_in_tool_can_be_kept() -> None:
    messages = [ASK, REASONING, COMPUTER_CALL]

    items = from_messages(messages, "openai-responses")

    assert to_messages(items, "openai-responses", open_group="keep").messages == messages


def test_an_edited_result_of_a_built_in_tool_is_sent_as_text() -> None:
    messages = [ASK, COMPUTER_CALL, COMPUTER_OUTPUT]

    written = rewritten(messages, "openai-responses", index=2, content="No screen.")

    assert [entry.get("type") for entry in written[1:]] == ["function_call", "function_call_output"]
    assert written[2]["output"] == "No screen."
    assert validate(written, "openai-responses") == []


def test_a_custom_call_and_its_free_text_are_read() -> None:
    items = from_messages([ASK, CUSTOM_CALL, CUSTOM_OUTPUT], "openai-responses")

    assert called(items) == [("call_9", "shell", {"input": "ls -la"})]
    assert answered(items) == [("call_9", "shell", "README.md", False)]


def test_a_built_in_tool_has_one_name_in_call_and_result() -> None:
    items = from_messages([ASK, COMPUTER_CALL, COMPUTER_OUTPUT], "openai-responses")

    ((id, name, asked),) = called(items)
    assert (id, name, asked["action"]) == ("call_c", "computer_call", COMPUTER_CALL["action"])
    assert [name for _, name, _, _ in answered(items)] == ["computer_call"]


def test_what_a_built_in_tool_was_asked_is_read() -> None:
    operation = {"type": "delete_file", "path": "old.txt"}
    messages: list[Message] = [
        ASK,
        {"type": "apply_patch_call", "call_id": "p", "operation": operation, "status": "completed"},
        {"type": "apply_patch_call_output", "call_id": "p", "status": "completed", "output": "ok"},
    ]

    items = from_messages(messages, "openai-responses")

    assert operation in (called(items)[0][2], called(items)[0][2].get("operation"))


def test_a_completed_custom_call_gets_an_output_of_its_kind() -> None:
    items = from_messages([ASK, CUSTOM_CALL], "openai-responses")

    written = to_messages(items, "openai-responses", open_group="complete").messages

    assert [entry.get("type") for entry in written[1:]] == [
        "custom_tool_call",
        "custom_tool_call_output",
    ]


def test_an_edited_turn_leaves_its_custom_call_and_output_of_one_kind() -> None:
    messages = [
        ASK,
        {"role": "assistant", "content": "Looking."},
        CUSTOM_CALL,
        {**CUSTOM_OUTPUT, "id": "ctco_1"},
    ]

    written = rewritten(messages, "openai-responses", index=1, content="One moment.")

    assert written[1] == {"role": "assistant", "content": "One moment."}
    kinds = [str(entry.get("type")).removesuffix("_output") for entry in written[2:]]
    assert kinds in (["custom_tool_call"] * 2, ["function_call"] * 2)


def test_an_edited_turn_is_legal_and_keeps_its_calls() -> None:
    written = rewritten(RESPONSES, "openai-responses", index=2, content="One moment.")

    items = from_messages(written, "openai-responses")
    assert said(items)[2] == ("AIMemory", "One moment.")
    assert called(items) == called(from_messages(RESPONSES, "openai-responses"))
    assert validate(written, "openai-responses") == []


def test_an_edited_turn_keeps_its_web_search() -> None:
    written = rewritten(RESPONSES, "openai-responses", index=5, content="Paris.")

    assert RESPONSES[8] in written
    assert "Paris." in [content for _, content in said(from_messages(written, "openai-responses"))]


def test_an_edited_turn_never_parts_a_web_search_from_its_reasoning() -> None:
    search: Message = {"type": "web_search_call", "id": "ws_9", "status": "completed"}
    messages = [ASK, REASONING, search, {"role": "assistant", "content": "Found."}]

    written = rewritten(messages, "openai-responses", index=1, content="Found it.")

    assert (search in written) == (REASONING in written)


def test_an_edited_result_keeps_its_images() -> None:
    written = rewritten(RESPONSES, "openai-responses", index=4, content="22 degrees")

    assert written[7]["call_id"] == "call_paris"
    assert written[7]["output"] == [
        {"type": "input_text", "text": "22 degrees"},
        RESPONSES[7]["output"][1],
    ]


def test_reasoning_that_led_nowhere_is_left_out() -> None:
    messages = [ASK, REASONING, {"role": "user", "content": "Are you there?"}]

    written = there_and_back(messages, "openai-responses")

    assert validate(written, "openai-responses") == []


CALLS: list[Message] = [
    {
        "type": "function_call",
        "id": f"fc_{id}",
        "call_id": id,
        "name": "look",
        "arguments": "{}",
        "status": "completed",
    }
    for id in ("a", "b")
]
OUTPUTS: list[Message] = [
    {"type": "function_call_output", "call_id": id, "output": f"saw {id}"} for id in ("a", "b")
]


def one_by_one(messages: list[Message]) -> list[MemoryItem]:
    """Return the items of messages that were each read alone."""
    return [item for each in messages for item in from_messages([each], "openai-responses")]


def test_a_turn_that_came_entry_by_entry_is_sent_as_one() -> None:
    messages = [ASK, REASONING, *CALLS, *OUTPUTS]

    items = one_by_one(messages)

    assert to_messages(items, "openai-responses").messages == messages
    assert complete_tool_groups(items) == items
    (called,) = [m for m in to_messages(items, "openai").messages if m["role"] == "assistant"]
    assert [call["id"] for call in called["tool_calls"]] == ["a", "b"]


def test_plain_calls_that_came_one_by_one_are_not_parted_by_outputs() -> None:
    plain = [{k: v for k, v in call.items() if k not in ("id", "status")} for call in CALLS]
    messages = [ASK, *plain, *OUTPUTS]

    assert to_messages(one_by_one(messages), "openai-responses").messages == messages


def test_turns_with_outputs_between_them_stay_apart() -> None:
    messages = [ASK, REASONING, CALLS[0], OUTPUTS[0], {**REASONING, "id": "rs_2"}, CALLS[1]]
    messages.append(OUTPUTS[1])

    assert to_messages(one_by_one(messages), "openai-responses").messages == messages


def test_a_call_that_was_never_answered_takes_no_other_with_it() -> None:
    again = {**REASONING, "id": "rs_2"}
    messages = [ASK, REASONING, CALLS[0], again, CALLS[1], OUTPUTS[1]]

    written = to_messages(one_by_one(messages), "openai-responses").messages

    assert written == [ASK, again, CALLS[1], OUTPUTS[1]]


def test_an_open_turn_that_came_entry_by_entry_is_kept_whole() -> None:
    messages = [ASK, REASONING, *CALLS]

    written = to_messages(one_by_one(messages), "openai-responses", open_group="keep").messages

    assert written == messages


def test_a_call_whose_reasoning_is_missing_is_reported() -> None:
    messages = [ASK, CALLS[0], OUTPUTS[0], REASONING, CALLS[1], OUTPUTS[1]]

    assert [
        (problem.index, "reasoning" in problem.reason)
        for problem in validate(messages, "openai-responses")
    ] == [(1, True)]


def test_a_call_whose_reasoning_is_missing_is_sent_without_its_id() -> None:
    written = there_and_back([ASK, CALLS[0], OUTPUTS[0]], "openai-responses")

    assert "id" not in written[1]
    assert validate(written, "openai-responses") == []


def test_reasoning_whose_call_is_missing_is_reported() -> None:
    problems = validate([ASK, REASONING, OUTPUTS[0]], "openai-responses")

    assert "reasoning without the entry it led to" in [problem.reason for problem in problems]


def test_a_screenshot_is_a_picture_and_no_text() -> None:
    screen = "data:image/png;base64," + "iVBORw0KGgo" * 20_000
    output = {"type": "computer_screenshot", "image_url": screen}
    messages = [ASK, COMPUTER_CALL, {**COMPUTER_OUTPUT, "output": output}]

    items = from_messages(messages, "openai-responses")

    assert items[-1].content == "[image]"
    assert count_tokens(items) < 2_000
    assert to_messages(items, "openai-responses").messages == messages
    there = to_messages(items, "anthropic").messages
    (result,) = there[-1]["content"]
    assert result["content"] == [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": screen.partition(",")[2],
            },
        }
    ]


def test_a_screenshot_that_was_stored_as_text_is_sent_as_it_came() -> None:
    items = from_messages([ASK, COMPUTER_CALL, COMPUTER_OUTPUT], "openai-responses")
    items[-1].content = json.dumps(COMPUTER_OUTPUT["output"])

    written = to_messages(items, "openai-responses").messages

    assert written == [ASK, COMPUTER_CALL, COMPUTER_OUTPUT]
