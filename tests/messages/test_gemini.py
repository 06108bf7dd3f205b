"""Gemini contents: what is read, and that it is written back as it was."""

from typing import Any

import pytest
from tests.messages._conversations import GEMINI, RESULTS
from tests.messages._views import answered, called, rewritten, said, there_and_back
from tests.rows import each_row

from orbiter.memory.messages import Message, from_messages, to_messages, validate
from orbiter.memory.model.items import AIMemory, HumanMemory, ToolMemory

ASK: Message = {"role": "user", "parts": [{"text": "List the files."}]}
CALL: Message = {
    "role": "model",
    "parts": [
        {
            "functionCall": {"id": "fc-1", "name": "list_files", "args": {"path": "."}},
            "thoughtSignature": "CiQB",
        }
    ],
}


def respond(**response: Any) -> Message:
    """Return the user turn that answers `CALL`."""
    return {"role": "user", "parts": [{"functionResponse": {"name": "list_files", **response}}]}


def model_call(**call: Any) -> Message:
    """Return a model turn with one call."""
    return {"role": "model", "parts": [{"functionCall": call}]}


def test_calls_without_ids_get_some_and_are_answered_in_order() -> None:
    items = from_messages(GEMINI, "gemini")

    (paris, *first), (oslo, *second), (table, *third) = called(items)
    assert (first, second) == (
        ["get_weather", {"city": "Paris"}],
        ["get_weather", {"city": "Oslo", "unit": "C"}],
    )
    assert (table, third) == ("fc-77", ["book_table", {"people": 2, "at": "19:00"}])
    assert paris != oslo
    assert answered(items) == [
        (paris, "get_weather", RESULTS[0], False),
        (oslo, "get_weather", RESULTS[1], False),
        ("fc-77", "book_table", RESULTS[2], True),
    ]


def test_responses_with_ids_answer_the_calls_of_those_ids() -> None:
    calls: list[Message] = [
        {"functionCall": {"id": id, "name": "look", "args": {}}} for id in ("a", "b")
    ]
    responses = [
        {"functionResponse": {"id": id, "name": "look", "response": {"output": f"saw {id}"}}}
        for id in ("b", "a")
    ]
    messages: list[Message] = [
        ASK,
        {"role": "model", "parts": calls},
        {"role": "user", "parts": responses},
    ]

    items = from_messages(messages, "gemini")
    written = to_messages(items, "gemini").messages

    assert [(id, text) for id, _, text, _ in answered(items)] == [("b", "saw b"), ("a", "saw a")]
    assert written[2]["parts"] == responses[::-1]


@each_row(
    "response",
    [
        pytest.param({"id": "fc-1", "response": {"output": "README.md"}}, id="with id"),
        pytest.param({"response": {"result": ["README.md"]}}, id="a list"),
        pytest.param({"response": {}}, id="nothing"),
        pytest.param({"response": {"error": {"code": 404}}}, id="an error object"),
        pytest.param(
            {
                "response": {"output": "see the picture"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}],
            },
            id="with a picture",
        ),
        pytest.param({"response": {"output": "1", "more": 2}, "willContinue": False}, id="keys"),
    ],
)
def test_a_response_comes_back_as_it_was(response: dict[str, Any]) -> None:
    messages = [ASK, CALL, respond(**response), {"role": "model", "parts": [{"text": "Done."}]}]

    written = there_and_back(messages, "gemini")

    assert written == messages
    assert validate(written, "gemini") == []


def test_a_turn_of_role_function_is_read_as_responses() -> None:
    messages = [ASK, CALL, {**respond(response={"output": "README.md"}), "role": "function"}]

    items = from_messages(messages, "gemini")

    assert answered(items) == [("fc-1", "list_files", "README.md", False)]
    assert validate(to_messages(items, "gemini").messages, "gemini") == []


def test_a_content_without_role_is_the_users() -> None:
    messages: list[Message] = [{"parts": [{"text": "Hello."}]}]

    items = from_messages(messages, "gemini")

    assert said(items) == [("HumanMemory", "Hello.")]


def test_the_snake_case_keys_of_the_python_sdk_are_read() -> None:
    messages: list[Message] = [
        ASK,
        {
            "role": "model",
            "parts": [{"function_call": {"name": "list_files", "args": {"path": "."}}}],
        },
        {
            "role": "user",
            "parts": [
                {"function_response": {"name": "list_files", "response": {"output": "README.md"}}}
            ],
        },
    ]

    items = from_messages(messages, "gemini")

    assert [type(item) for item in items] == [HumanMemory, AIMemory, ToolMemory]
    assert [name for _, name, _ in called(items)] == ["list_files"]


def test_the_none_keys_of_a_dumped_sdk_content_do_no_harm() -> None:
    none = dict.fromkeys(("functionCall", "functionResponse", "inlineData", "thought"))
    messages: list[Message] = [
        {"role": "user", "parts": [{**none, "text": "Hello."}]},
        {"role": "model", "parts": [{**none, "text": "Hello, Ann."}]},
    ]

    items = from_messages(messages, "gemini")

    assert said(items) == [("HumanMemory", "Hello."), ("AIMemory", "Hello, Ann.")]
    assert validate(to_messages(items, "gemini").messages, "gemini") == []


def test_an_edited_answer_keeps_its_thought() -> None:
    written = rewritten(GEMINI, "gemini", index=1, content="One moment.")

    assert written[1]["parts"][:2] == [GEMINI[1]["parts"][0], {"text": "One moment."}]


def test_an_edited_answer_keeps_its_calls_with_their_signatures() -> None:
    written = rewritten(GEMINI, "gemini", index=1, content="One moment.")

    assert written[1]["parts"][2:] == GEMINI[1]["parts"][2:]


def test_an_edited_answer_is_still_answered() -> None:
    written = rewritten(GEMINI, "gemini", index=6, content="I will book it.")

    there = from_messages(written, "gemini")
    assert [id for id, *_ in answered(there)] == [id for id, *_ in called(there)]


def test_a_response_whose_id_no_call_has_answers_the_call_of_its_name() -> None:
    call = model_call(name="list_files", args={})
    messages = [ASK, call, respond(id="client-1", response={"output": "README.md"})]

    items = from_messages(messages, "gemini")

    assert [id for id, *_ in answered(items)] == [id for id, *_ in called(items)]
    assert to_messages(items, "gemini").messages == messages


def test_an_edited_answer_keeps_the_code_that_ran() -> None:
    written = rewritten(GEMINI, "gemini", index=4, content="Paris.")

    assert written[3]["parts"] == [*GEMINI[3]["parts"][:2], {"text": "Paris."}]


def test_an_edited_response_keeps_its_id_and_its_picture() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    messages = [ASK, CALL, respond(id="fc-1", response={"output": "old"}, parts=[picture])]

    written = rewritten(messages, "gemini", index=2, content="new")

    assert written[2] == respond(id="fc-1", response={"output": "new"}, parts=[picture])


def test_an_empty_text_part_the_model_sent_is_not_sent_back() -> None:
    messages: list[Message] = [
        ASK,
        {"role": "model", "parts": [{"text": "README.md"}, {"text": ""}]},
    ]

    written = there_and_back(messages, "gemini")

    assert validate(written, "gemini") == []


def test_an_empty_text_part_with_a_signature_is_sent_back() -> None:
    messages: list[Message] = [
        ASK,
        {
            "role": "model",
            "parts": [{"text": "README.md"}, {"text": "", "thoughtSignature": "CiQB"}],
        },
    ]

    written = there_and_back(messages, "gemini")

    assert written[0] == ASK
    assert {"text": "", "thoughtSignature": "CiQB"} in written[1]["parts"]


def test_items_of_one_side_become_one_turn() -> None:
    items = [
        HumanMemory(content="List the files."),
        HumanMemory(content="All of them."),
        AIMemory(content="One moment."),
        AIMemory(content="", tool_calls=[{"id": "1", "name": "list_files"}]),
        ToolMemory(content="README.md", tool_call_id="1"),
        HumanMemory(content="Go on."),
    ]

    written = to_messages(items, "gemini").messages

    assert [(content["role"], len(content["parts"])) for content in written] == [
        ("user", 2),
        ("model", 2),
        ("user", 2),
    ]
    assert validate(written, "gemini") == []
