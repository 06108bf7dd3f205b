"""A conversation read from one provider and sent to another."""

import json
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from tests.messages._conversations import CALLS, CONVERSATIONS, RESULTS, TEXTS
from tests.messages._views import answered, called
from tests.rows import each_row

from orbiter.memory.errors import MessageError, QueryError
from orbiter.memory.messages import (
    FORMATS,
    Format,
    Message,
    codec_for,
    from_messages,
    to_messages,
    validate,
)
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, SystemMemory, ToolMemory

PAIRS = list(permutations(FORMATS, 2))
WITH_IDS = [format for format in FORMATS if codec_for(format).HAS_CALL_IDS]


def texts(items: Sequence[MemoryItem]) -> list[str]:
    spoken = (item for item in items if isinstance(item, HumanMemory | AIMemory))
    return [item.content for item in spoken if item.content]


def outcomes(items: Sequence[MemoryItem]) -> list[tuple[str, dict[str, Any], str]]:
    """Return name, arguments and result of each call, in the order of the calls."""
    found = {id: text for id, _, text, _ in answered(items)}
    return [(name, arguments, found[id]) for id, name, arguments in called(items)]


def group(*ids: str, name: str = "look", arguments: Any = None) -> list[MemoryItem]:
    """Return a question, calls with these ids, and a result for each, in reverse."""
    calls = [{"id": id, "name": name, "arguments": arguments or {"of": id}} for id in ids]
    results = [ToolMemory(content=f"result of {id}", tool_call_id=id) for id in reversed(ids)]
    return [HumanMemory(content="Look."), AIMemory(content="", tool_calls=calls), *results]


@each_row(("source", "target"), PAIRS)
def test_a_conversation_is_legal_and_whole_elsewhere(source: Format, target: Format) -> None:
    items = from_messages(CONVERSATIONS[source], source)

    written = to_messages(items, target).messages

    assert validate(written, target) == []
    there = from_messages(written, target)
    assert texts(there) == TEXTS
    # Where a result may hold no picture, a word stands for it.
    said = [(*call, result.partition("\n[image")[0]) for *call, result in outcomes(there)]
    assert said == [
        (name, arguments, result) for (name, arguments), result in zip(CALLS, RESULTS, strict=True)
    ]


@each_row(("source", "target"), PAIRS)
def test_what_only_one_provider_understands_is_not_sent_to_another(
    source: Format, target: Format
) -> None:
    items = from_messages(CONVERSATIONS[source], source)

    sent = json.dumps(to_messages(items, target).messages)

    private = ("signature", "Signature", "encrypted", "Two cities", "example.org/weather")
    assert [word for word in private if word in sent] == []


@pytest.mark.parametrize("target", [format for format in FORMATS if format != "anthropic"])
def test_a_turn_of_nothing_that_another_provider_understands_is_not_sent(target: Format) -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    messages: list[Message] = [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": [search]},
        {"role": "user", "content": "And?"},
    ]

    written = to_messages(from_messages(messages, "anthropic"), target).messages

    assert validate(written, target) == []
    roles = [message["role"] for message in written]
    assert set(roles) == {"user"}
    assert to_messages(from_messages(messages, "anthropic"), "anthropic").messages == messages


@each_row(("source", "target"), PAIRS)
def test_system_text_reaches_every_provider(source: Format, target: Format) -> None:
    items = [SystemMemory(content="Be brief."), HumanMemory(content="Hello.")]
    written = to_messages(items, source)
    read = from_messages(written.messages, source, system=written.system)

    kwargs = to_messages(read, target).as_kwargs()

    assert json.dumps(kwargs).count("Be brief.") == 1


@pytest.mark.parametrize("pair", [("anthropic", "gemini"), ("gemini", "anthropic")])
def test_an_error_stays_an_error(pair: tuple[Format, Format]) -> None:
    source, target = pair
    items = from_messages(CONVERSATIONS[source], source)

    there = from_messages(to_messages(items, target).messages, target)

    assert [is_error for *_, is_error in answered(there)] == [False, False, True]


@each_row("format", WITH_IDS)
@each_row(
    "ids",
    [
        pytest.param(["functions.Bash:0", "functions.Bash:1"], id="odd characters"),
        pytest.param(["a.b", "a:b", "a b", "a_b"], id="alike but for odd characters"),
        pytest.param(["x" * 80, "x" * 79 + "y"], id="80 characters"),
        pytest.param(["é", "日本", "🎉"], id="other alphabets"),
    ],
)
def test_an_id_the_provider_refuses_is_replaced_in_call_and_result(
    format: Format, ids: list[str]
) -> None:
    items = group(*ids)

    written = to_messages(items, format).messages

    assert validate(written, format) == []
    there = from_messages(written, format)
    assert len({id for id, _, _ in called(there)}) == len(ids)
    assert outcomes(there) == [("look", {"of": id}, f"result of {id}") for id in ids]
    assert written == to_messages(items, format).messages


@pytest.mark.parametrize("format", WITH_IDS)
def test_a_legal_id_stays_as_it_is(format: Format) -> None:
    items = [*group("call_1", "toolu-2"), *group("call_3")]

    there = from_messages(to_messages(items, format).messages, format)

    assert [id for id, _, _ in called(there)] == ["call_1", "toolu-2", "call_3"]


@pytest.mark.parametrize("format", FORMATS)
def test_an_id_reused_in_a_later_group_answers_its_own_call(format: Format) -> None:
    first, second = group("call_0", arguments={"n": 1}), group("call_0", arguments={"n": 2})
    second[-1].content = "second result"

    written = to_messages([*first, *second], format).messages

    assert validate(written, format) == []
    assert outcomes_by_group(from_messages(written, format)) == [
        ({"n": 1}, "result of call_0"),
        ({"n": 2}, "second result"),
    ]


def outcomes_by_group(items: Sequence[MemoryItem]) -> list[tuple[dict[str, Any], str]]:
    pairs = [items[place : place + 2] for place, item in enumerate(items) if called([item])]
    return [(called(pair)[0][2], pair[1].content) for pair in pairs]


@pytest.mark.parametrize("format", ["openai-responses", "anthropic"])
def test_no_id_is_sent_twice_where_that_is_refused(format: Format) -> None:
    items = [item for _ in range(3) for item in group("call_0", "call_1")]

    there = from_messages(to_messages(items, format).messages, format)

    ids = [id for id, _, _ in called(there)]
    assert len(set(ids)) == len(ids) == 6
    assert ids[:2] == ["call_0", "call_1"]
    assert sorted(ids) == sorted(id for id, *_ in answered(there))


def test_gemini_calls_are_written_without_ids() -> None:
    written = to_messages(group("functions.Bash:0"), "gemini").messages

    assert written[1]["parts"] == [
        {"functionCall": {"name": "look", "args": {"of": "functions.Bash:0"}}}
    ]


@each_row("format", FORMATS)
@each_row("name", ["", "fs read", "n" * 80, "名前"])
def test_a_tool_name_the_provider_refuses_is_replaced(format: Format, name: str) -> None:
    written = to_messages(group("call_1", name=name), format).messages

    assert validate(written, format) == []
    assert [text for *_, text in outcomes(from_messages(written, format))] == ["result of call_1"]


@each_row("format", FORMATS)
@each_row(
    "arguments",
    [
        "not json",
        "[1, 2]",
        "7",
        '{"a": ',
        '{"x": NaN}',
        '{"x": -Infinity}',
        '{"x": 1e999}',
        '{"x": "\\ud83d"}',
    ],
)
def test_whatever_the_model_wrote_as_arguments_can_be_sent(format: Format, arguments: str) -> None:
    written = to_messages(group("call_1", arguments=arguments), format).messages

    assert validate(written, format) == []
    json.dumps(written, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize("format", FORMATS)
def test_an_open_call_is_dropped_completed_or_kept(format: Format) -> None:
    items = group("call_1", "call_2")[:-1]

    dropped = to_messages(items, format).messages
    completed = to_messages(items, format, open_group="complete").messages
    kept = to_messages(items, format, open_group="keep").messages

    assert called(from_messages(dropped, format)) == []
    assert validate(dropped, format) == validate(completed, format) == []
    there = from_messages(completed, format)
    assert [text for *_, text in outcomes(there)] == [
        "No result was recorded for this tool call.",
        "result of call_2",
    ]
    assert len(called(from_messages(kept, format))) == 2
    assert [text for _, _, text, _ in answered(from_messages(kept, format))] == ["result of call_2"]


@pytest.mark.parametrize("format", FORMATS)
def test_items_that_are_no_messages_are_left_out(format: Format) -> None:
    items = [HumanMemory(content="Hello."), MemoryItem(content="a note", memory_type="note")]

    assert to_messages(items, format) == to_messages(items[:1], format)


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_gives_no_messages(format: Format) -> None:
    written = to_messages([], format)

    assert (written.messages, written.system) == ([], "")
    assert from_messages([], format) == []


def test_a_picture_without_words_leaves_a_legal_conversation_elsewhere() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/map.png"}}
    items = from_messages(
        [{"role": "user", "content": [picture]}, {"role": "assistant", "content": "A map."}],
        "openai",
    )

    assert [validate(to_messages(items, format).messages, format) for format in FORMATS] == [[]] * 4


def test_an_unknown_format_or_policy_is_refused() -> None:
    with pytest.raises(MessageError, match="unknown format `bedrock`; use one of openai, "):
        to_messages([], "bedrock")  # type: ignore[arg-type]  # what an untyped caller would do
    with pytest.raises(MessageError, match="unknown format `bedrock`"):
        from_messages([], "bedrock")  # type: ignore[arg-type]  # what an untyped caller would do
    with pytest.raises(QueryError, match="unknown policy `close`"):
        to_messages([], "openai", open_group="close")  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("format", ["opnai", None, ["openai"]])
def test_an_unknown_format_is_told_with_the_known_ones(format: Any) -> None:
    for call in (to_messages, from_messages, validate):
        with pytest.raises(MessageError, match="openai, openai-responses, anthropic, gemini"):
            call([], format)
