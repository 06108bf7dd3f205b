import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, MemoryMetadata, ToolMemory
from orbiter.memory.conversation.history import History, Memory, ResponseMem, ToolCall, UserMem
from orbiter.memory.errors import InvalidItemError
from orbiter.memory.messages import to_messages, validate
from orbiter.memory.model.serialization import dump_item, load_item
from orbiter.memory.testing import random_history

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab{}", max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("k", max_size=2), inner),
    max_leaves=4,
)
_created = st.sampled_from(
    [
        NOON,
        NOON.replace(tzinfo=None),
        NOON.astimezone(timezone(timedelta(hours=9))),
        "2025-01-01T00:00:00Z",
        "yesterday",
        1_735_732_800,
        1_735_732_800.5,
        None,
    ]
)
_roles = st.sampled_from(["user", "assistant", "system", "critic", "tool"])
_calls = st.builds(
    ToolCall,
    st.sampled_from(["add", "mul"]),
    st.dictionaries(st.text("xy", min_size=1, max_size=2), _json, max_size=2) | _json,
    st.sampled_from([None, "c1", "c2"]),
)
_results = st.one_of(
    st.fixed_dictionaries({"name": st.sampled_from(["add", "mul", "other"]), "result": _json}),
    st.fixed_dictionaries({"name": st.just("add"), "result": st.text("ab"), "took": st.just(1)}),
    st.fixed_dictionaries({"name": st.sampled_from(["add", "mul"]), "error": _json}),
    _json,
)
_entries = st.one_of(
    st.builds(Memory, st.text("ab c"), _created, _roles),
    st.builds(UserMem, st.text("ab c"), _created),
    st.builds(
        ResponseMem, st.text("ab c"), _created, st.lists(_calls, max_size=3), st.lists(_results)
    ),
)


@pytest.mark.slow
@given(st.lists(_entries, max_size=6))
@settings(max_examples=100, deadline=None)
def test_entries_come_back_equal(entries: list[Memory]) -> None:
    items = History(entries, size=99).to_items(metadata=MemoryMetadata(user_id="u"))
    stored = [load_item(dump_item(item)) for item in items]

    back = History.from_items(stored).MemoryList
    assert back == entries
    assert [str(entry.created) for entry in back] == [str(entry.created) for entry in entries]
    assert all(item.metadata.user_id == "u" for item in items)


@given(st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_items_come_back_equal_and_in_order(seed: int) -> None:
    items = random_history(random.Random(seed))

    assert History.from_items(items).to_items() == items


def test_a_response_becomes_a_legal_tool_group() -> None:
    response = ResponseMem(
        "let me see",
        NOON,
        [ToolCall("add", {"x": 1}), ToolCall("add", {"x": 2}), ToolCall("mul", {}, "m1")],
        [
            {"name": "mul", "result": "6"},
            {"name": "add", "result": {"sum": 3}},
            {"name": "add", "result": "4"},
        ],
    )

    items = History([UserMem("go", NOON), response]).to_items()

    assert [type(item) for item in items] == [HumanMemory, AIMemory, *[ToolMemory] * 3]
    assert [item.content for item in items] == ["go", "let me see", "6", '{"sum": 3}', "4"]
    assert all(item.created_at == NOON for item in items)
    messages = to_messages(items, "openai").messages
    assert validate(messages, "openai") == []
    assert len(messages) == 5


def test_a_changed_entry_is_written_anew() -> None:
    items: list[MemoryItem] = [
        HumanMemory(content="hi", metadata=MemoryMetadata(user_id="u")),
        AIMemory(content="ho"),
    ]
    history = History.from_items(items)

    history.MemoryList[0].message = "hello"
    first, second = history.to_items()

    assert first.content == "hello"
    assert (first.id, first.metadata.user_id) == (items[0].id, "u")
    assert second == items[1]


def test_converting_twice_gives_the_same_items() -> None:
    history = History([UserMem("hi", None), ResponseMem("ho", 2, [ToolCall("f")])])

    assert history.to_items() == history.to_items()


@each_row("note", [3, {"ids": 3}, {"unasked": [1]}, {"iso": "never"}, {"role": []}, {"args": {}}])
def test_a_note_that_is_not_ours_is_left_alone(note: Any) -> None:
    whose = MemoryMetadata(extra={"history": note})
    item = AIMemory(content="hi", tool_calls=[{"id": "c", "name": "f"}], metadata=whose)

    history = History.from_items([item])

    assert history.MemoryList[0].message == "hi"
    assert history.to_items() == [item]


def test_a_window_drops_whole_groups() -> None:
    items = [
        HumanMemory(content="go"),
        AIMemory(content="", tool_calls=[{"id": "c", "name": "f", "arguments": {}}]),
        ToolMemory(content="r", tool_call_id="c", tool_name="f"),
        AIMemory(content="done"),
    ]
    history = History.from_items(items)

    assert [item.content for item in History(history.window(2)).to_items()] == ["", "r", "done"]
    assert [item.content for item in History(history.window(1)).to_items()] == ["done"]


def test_a_history_of_items_has_room_for_all_unless_asked_otherwise() -> None:
    items = [HumanMemory(content=str(number)) for number in range(25)]

    assert len(History.from_items(items).MemoryList) == 25
    assert len(History.from_items(items, size=3).MemoryList) == 3


def test_a_history_shows_counts_and_compares_its_entries() -> None:
    history = History([UserMem("hi", 1)], size=3)

    assert len(history) == 1
    assert repr(history) == "History([<Memory role=user message='hi' created=1>], size=3)"
    assert history == History.from_items(history.to_items(), size=3)
    assert history != History([UserMem("ho", 1)], size=3)


@each_row(
    "entry",
    [
        Memory("hi", object(), "user"),
        ResponseMem("hi", NOON, [ToolCall("f")], [{"name": "f", "result": object()}]),
        ResponseMem("hi", NOON, [ToolCall("f", {"x": object()})]),
        ResponseMem("hi", NOON, [], [object()]),
        ResponseMem("hi", NOON, [{"name": "object"}]),  # type: ignore[list-item]  # under test
    ],
)
def test_what_is_not_json_is_refused_with_a_clear_error(entry: Any) -> None:
    with pytest.raises(InvalidItemError, match="object"):
        History([entry]).to_items()


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"name": "look", "error": "no such city"}, "no such city"),
        ({"name": "look", "error": {"code": 404}}, '{"code": 404}'),
        ({"name": "look", "error": "late", "after": 3}, "late"),
        ({"name": "look", "error": "late", "result": None}, "late"),
    ],
)
def test_what_a_failed_tool_says_is_an_error(result: dict[str, Any], content: str) -> None:
    entry = ResponseMem("", NOON, [ToolCall("look")], [result])

    items = History([entry]).to_items()

    failed = items[-1]
    assert isinstance(failed, ToolMemory)
    assert (failed.content, failed.tool_name, failed.is_error) == (content, "look", True)
    assert History.from_items(items).MemoryList == [entry]
