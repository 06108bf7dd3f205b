"""What each provider refuses, rule by rule, and what it must not be said to refuse."""

import pytest
from tests.messages._conversations import CONVERSATIONS
from tests.messages._shapes import (
    ANSWER,
    HELLO,
    REASONING,
    REPLY,
    TEXT,
    THINKING,
    USER,
    built_in_call,
    built_in_output,
    chat_call,
    chat_calls,
    chat_result,
    entry_call,
    entry_output,
    function_call,
    function_response,
    model,
    person,
    result,
    results,
    use,
    uses,
)
from tests.rows import each_row

from orbiter.memory.errors import MessageError
from orbiter.memory.messages import FORMATS, Format, Message, Problem, validate

ILLEGAL_CHAT = [
    ([USER, chat_result()], "`c1` has no call directly before it", 1),
    ([chat_calls(chat_call()), USER, chat_result()], "`c1` has no call directly before it", 2),
    ([chat_calls(chat_call()), chat_result(), chat_result()], "no call directly before it", 2),
    ([chat_calls(chat_call()), USER], "not answered before this message: ['c1']", 1),
    (
        [chat_calls(chat_call("a"), chat_call("b")), chat_result("b"), REPLY],
        "not answered before this message: ['a']",
        2,
    ),
    ([USER, chat_calls(chat_call())], "never answered: ['c1']", 1),
    ([USER, {"role": "model", "content": "x"}], "unknown role 'model'", 1),
    ([{"content": "x"}], "unknown role None", 0),
    ([USER | {"tool_calls": [chat_call()]}, chat_result()], "'user' cannot call tools", 0),
    ([USER, {"role": "user", "content": None}], "no content", 1),
    ([{"role": "system"}], "no content", 0),
    ([{"role": "assistant", "content": None, "tool_calls": []}], "no content", 0),
    ([chat_calls(chat_call("")), chat_result("")], "must have 1 to 40 characters", 0),
    ([chat_calls(chat_call("c" * 41)), chat_result("c" * 41)], "must have 1 to 40 characters", 0),
    ([USER, chat_calls(chat_call(None))], "id None must have 1 to 40 characters", 1),
    ([chat_calls({"id": "c1", "type": "function"}), chat_result()], "is not of type `function`", 0),
    ([chat_calls({"id": "c1", "type": "custom"}), chat_result()], "is not of type `function`", 0),
    ([chat_calls(chat_call(name="fs.read")), chat_result()], "tool name 'fs.read' must", 0),
    ([chat_calls(chat_call(name="n" * 65)), chat_result()], "[A-Za-z0-9_-]{1,64}", 0),
    ([chat_calls(chat_call(name="")), chat_result()], "tool name '' must match", 0),
    ([chat_calls(chat_call(name=None)), chat_result()], "tool name None must match", 0),
    ([chat_calls(chat_call(arguments={})), chat_result()], "must be a string", 0),
    ([chat_calls(chat_call(arguments=None)), chat_result()], "must be a string", 0),
    ([chat_calls(chat_call(), chat_call()), chat_result()], "one id for two tool calls", 0),
    ([chat_calls(chat_call()), {"role": "tool", "tool_call_id": "c1"}], "content", 1),
    (
        [
            chat_calls({"id": "c1", "type": "custom", "custom": {"name": "f", "input": {}}}),
            chat_result(),
        ],
        "input",
        0,
    ),
    ([USER, chat_calls("x")], "", 1),
]

ILLEGAL_RESPONSES = [
    ([REASONING, USER, REPLY], "reasoning without the entry it led to", 0),
    ([REASONING, entry_output()], "reasoning without the entry it led to", 0),
    ([USER, REASONING], "reasoning without the entry it led to", 1),
    ([USER, entry_output()], "has no call of its kind before it", 1),
    ([entry_output(), entry_call()], "has no call of its kind before it", 0),
    ([entry_call(), entry_output(), entry_output()], "has no call of its kind before it", 2),
    ([USER, entry_call()], "no output for call `c1`", 1),
    ([entry_call("a"), entry_call("b"), entry_output("b")], "no output for call `a`", 0),
    ([USER, {"role": "tool", "content": "x"}], "unknown role 'tool'", 1),
    ([{"type": "message", "content": "x"}], "unknown role None", 0),
    ([USER, {"role": "user", "content": None}], "no content", 1),
    ([entry_call(""), entry_output("")], "must have 1 to 64 characters", 0),
    ([entry_call("c" * 65), entry_output("c" * 65)], "must have 1 to 64 characters", 0),
    ([entry_call(), entry_output(), entry_call(), entry_output()], "`c1` is used twice", 2),
    ([entry_call(name="fs.read"), entry_output()], "tool name 'fs.read' must match", 0),
    ([entry_call(name="n" * 65), entry_output()], "[A-Za-z0-9_-]{1,64}", 0),
    ([entry_call(name=None), entry_output()], "tool name None must match", 0),
    ([entry_call(arguments={}), entry_output()], "must be a string", 0),
    ([USER, {"type": "function_call", "name": "f", "arguments": "{}"}], "call", 1),
    ([entry_call(), {"type": "function_call_output", "call_id": "c1"}], "output", 1),
    (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"},
            entry_output(),
        ],
        "",
        1,
    ),
    ([entry_call(), entry_output(output=5)], "output cannot be of type int", 1),
    ([entry_call(), entry_output(output={})], "output cannot be of type dict", 1),
    ([entry_call(), entry_output(output=[])], "no output", 1),
    ([entry_call(), entry_output(output=[5])], "not an object", 1),
    ([entry_call(), entry_output(output=[{}])], "without a `type`", 1),
    ([entry_call(), entry_output(role="user")], "unknown role 'user'", 1),
    ([built_in_call("shell"), built_in_output("shell", "x")], "output", 1),
    ([built_in_call("shell"), built_in_output("shell", ["x"])], "not an object", 1),
    ([built_in_call("computer"), built_in_output("computer", "x")], "must be an object", 1),
    ([built_in_call("apply_patch"), built_in_output("apply_patch", 5)], "must be a string", 1),
]

ILLEGAL_ANTHROPIC = [
    ([REPLY, USER], "the first message must be the user's", 0),
    ([USER, {"role": "system", "content": "x"}], "unknown role 'system'", 1),
    ([USER, {"role": "assistant", "content": None}, USER], "no content", 1),
    ([USER, {"role": "assistant", "content": []}, USER], "no content", 1),
    ([{"role": "user", "content": ""}], "no content", 0),
    ([USER, uses(use()), results(TEXT, result())], "results must come first", 2),
    (
        [USER, uses(use("a"), use("b")), results(result("a"), TEXT, result("b"))],
        "results must come first",
        2,
    ),
    ([USER, uses(use()), USER], "calls of the message before: ['t1'], results here: []", 2),
    (
        [USER, uses(use("a"), use("b")), results(result("a"))],
        "calls of the message before: ['a', 'b'], results here: ['a']",
        2,
    ),
    ([USER, uses(use()), results(result(), result())], "results here: ['t1', 't1']", 2),
    ([results(result())], "calls of the message before: [], results here: ['t1']", 0),
    ([USER, uses(use()), USER, results(result())], "message before: [], results here", 3),
    ([USER, uses(use())], "never answered: ['t1']", 1),
    ([USER, uses({"type": "text", "text": ""}), USER], "empty or only white space", 1),
    ([USER, uses({"type": "text", "text": " \n"}), USER], "empty or only white space", 1),
    ([{"role": "user", "content": "\t"}], "empty or only white space", 0),
    ([results(use()), results(result())], "only the assistant can call tools", 0),
    ([USER, uses(use("functions.f:0")), results(result("functions.f:0"))], "must match", 1),
    ([USER, uses(use("")), results(result(""))], "must match [A-Za-z0-9_-]+", 1),
    ([USER, uses(use(7)), results(result("7"))], "id 7 must match", 1),
    (
        [USER, uses(use()), results(result()), uses(use()), results(result())],
        "`t1` is used twice",
        3,
    ),
    ([USER, uses(use(), use()), results(result(), result())], "`t1` is used twice", 1),
    ([USER, uses(use(name="fs.read")), results(result())], "tool name 'fs.read' must", 1),
    ([USER, uses(use(name="")), results(result())], "tool name '' must match", 1),
    ([USER, uses(use(name=None)), results(result())], "tool name None must match", 1),
    ([USER, uses(use(input="{}")), results(result())], "`t1` must be an object", 1),
    ([USER, uses(use(input=None)), results(result())], "`t1` must be an object", 1),
    ([USER, uses(use()), uses(result())], "", 2),
    ([USER, uses(THINKING), USER], "thinking", 1),
    ([USER, uses(use()), results(result(content="", is_error=True))], "", 2),
    ([USER, uses("Hello.")], "not an object", 1),
    ([USER, uses(use()), results(result(content=5))], "cannot be of type int", 2),
    ([USER, uses(use()), results(result(content=["x"]))], "not an object", 2),
    ([USER, uses(use()), results(result(content=[{}]))], "without a `type`", 2),
    ([USER, uses(use()), results(result(content=[use()]))], "cannot hold `tool_use`", 2),
    ([results(THINKING, TEXT)], "only the assistant can call tools or think", 0),
]

ILLEGAL_GEMINI = [
    ([ANSWER, HELLO], "the first turn must be the user's", 0),
    ([HELLO, {"role": "assistant", "parts": [{"text": "x"}]}], "unknown role 'assistant'", 1),
    ([HELLO, HELLO], "two turns of `user` in a row", 1),
    ([HELLO, ANSWER, ANSWER], "two turns of `model` in a row", 2),
    (
        [HELLO, model(function_call()), person(function_response()), HELLO],
        "two turns of `user` in a row",
        3,
    ),
    ([HELLO, model()], "no parts", 1),
    ([{"role": "user"}], "no parts", 0),
    ([HELLO, model(function_call()), HELLO], "turn before: ['f'], responses here: []", 2),
    (
        [HELLO, model(function_call("f"), function_call("g")), person(function_response("f"))],
        "turn before: ['f', 'g'], responses here: ['f']",
        2,
    ),
    (
        [HELLO, model(function_call()), person(function_response(), function_response())],
        "turn before: ['f'], responses here: ['f', 'f']",
        2,
    ),
    ([person(function_response())], "turn before: [], responses here: ['f']", 0),
    (
        [HELLO, model(function_call("f")), person(function_response("g"))],
        "turn before: ['f'], responses here: ['g']",
        2,
    ),
    ([HELLO, model(function_call())], "never answered: ['f']", 1),
    ([HELLO, model({"text": ""})], "a text part is empty", 1),
    ([person(function_call()), model(function_response())], "only the model can call", 0),
    (
        [HELLO, model(function_call("fs read")), person(function_response("fs read"))],
        "function name 'fs read' must match",
        1,
    ),
    (
        [HELLO, model(function_call("")), person(function_response(""))],
        "function name '' must match",
        1,
    ),
    (
        [HELLO, model(function_call(None)), person(function_response(None))],
        "function name None must match",
        1,
    ),
    (
        [HELLO, model(function_call(args="{}")), person(function_response())],
        "arguments of `f` must be an object",
        1,
    ),
    (
        [HELLO, model(function_call()), person(function_response(response="done"))],
        "the response of `f` must be an object",
        2,
    ),
    (
        [HELLO, model(function_call()), person({"functionResponse": {"name": "f"}})],
        "the response of `f` must be an object",
        2,
    ),
    ([person("Hello.")], "", 0),
]

ILLEGAL: dict[Format, list[tuple[list[Message], str, int]]] = {
    "openai": ILLEGAL_CHAT,
    "openai-responses": ILLEGAL_RESPONSES,
    "anthropic": ILLEGAL_ANTHROPIC,
    "gemini": ILLEGAL_GEMINI,
}

LEGAL: dict[Format, list[list[Message]]] = {
    "openai": [
        [{"role": "system", "content": "Be brief."}],
        [{"role": "developer", "content": "Be brief."}, USER, USER, REPLY, REPLY],
        [USER, {"role": "assistant", "content": ""}],
        [chat_calls(chat_call("a"), chat_call("b")), chat_result("b"), chat_result("a"), USER],
        [chat_calls(chat_call()), chat_result(), chat_calls(chat_call()), chat_result()],
        [chat_calls(chat_call("functions.f:0")), chat_result("functions.f:0")],
        [chat_calls(chat_call("c" * 40, name="n" * 64)), chat_result("c" * 40)],
        [
            chat_calls({"id": "c1", "type": "custom", "custom": {"name": "f", "input": "ls"}}),
            chat_result(),
        ],
        [chat_calls(chat_call(arguments="not json")), chat_result()],
        [USER, {"role": "assistant", "audio": {"id": "audio_1"}}],
    ],
    "openai-responses": [
        [{"role": "developer", "content": "Be brief."}, USER, USER, REPLY, REPLY],
        [USER, REASONING, REPLY],
        [USER, REASONING, REASONING, entry_call(), entry_output()],
        [entry_call("a"), entry_call("b"), entry_output("b"), entry_output("a"), USER],
        [entry_call(), USER, entry_output()],
        [entry_call("c" * 64, name="n" * 64), entry_output("c" * 64)],
        [USER, {"type": "web_search_call", "id": "ws_1", "status": "completed"}],
        [USER, {"type": "item_reference", "id": "msg_1"}],
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        ],
    ],
    "anthropic": [
        [USER, USER, REPLY, REPLY],
        [USER, uses(use("a"), use("b")), results(result("b"), result("a"), TEXT)],
        [USER, uses(TEXT, use()), results({"type": "tool_result", "tool_use_id": "t1"})],
        [USER, uses(use()), results(result(content="broken", is_error=True))],
        [USER, uses({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}})],
        [
            USER,
            uses(THINKING, use()),
            results(result()),
        ],
        [USER, uses(use(name="n" * 64)), results(result())],
        [USER, uses(use()), results(result(content=[{"type": "text", "text": ""}]))],
    ],
    "gemini": [
        [HELLO],
        [HELLO, ANSWER, HELLO],
        [
            HELLO,
            model({"text": "Looking."}, function_call("a.b:c-d"), function_call("g")),
            person(function_response("a.b:c-d"), function_response("g"), {"text": "Go on."}),
            ANSWER,
        ],
        [HELLO, model(function_call()), {**person(function_response()), "role": "function"}],
        [HELLO, model({"functionCall": {"name": "f"}}), person(function_response())],
        [HELLO, model({"text": "", "thoughtSignature": "CiQB"})],
        [HELLO, model({"text": " "})],
        [{"parts": [{"text": "Hello."}]}],
    ],
}


@each_row(
    ("format", "messages", "words", "index"),
    [
        pytest.param(format, *case, id=f"{format}-{number}")
        for format, cases in ILLEGAL.items()
        for number, case in enumerate(cases)
    ],
)
def test_what_the_provider_refuses_is_reported(
    format: Format, messages: list[Message], words: str, index: int
) -> None:
    problems = validate(messages, format)

    assert [p for p in problems if p.index == index and words in p.reason], problems


@each_row(
    ("format", "messages"),
    [
        pytest.param(format, messages, id=f"{format}-{number}")
        for format, cases in LEGAL.items()
        for number, messages in enumerate(cases)
    ],
)
def test_what_the_provider_accepts_is_not_reported(format: Format, messages: list[Message]) -> None:
    assert validate(messages, format) == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_real_conversation_and_an_empty_one_are_legal(format: Format) -> None:
    assert validate(CONVERSATIONS[format], format) == []
    assert validate([], format) == []


def test_several_faults_are_reported_in_order() -> None:
    messages = [chat_result("x"), {"role": "robot", "content": "x"}, chat_calls(chat_call())]

    problems = validate(messages, "openai")

    assert [problem.index for problem in problems] == [0, 1, 2]


def test_a_problem_prints_as_a_sentence() -> None:
    assert str(Problem(3, "no content")) == "message 3: no content"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(MessageError, match="unknown format `bedrock`"):
        validate([], "bedrock")  # type: ignore[arg-type]  # what an untyped caller would do
