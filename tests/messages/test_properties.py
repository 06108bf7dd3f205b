"""What holds for every history, however broken: output is legal, stable and loses no result."""

import json
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.messages._conversations import CONVERSATIONS
from tests.messages._views import FORMATS

from orbiter.memory.calls import call_id, call_input, call_name
from orbiter.memory.conversation import OpenGroup, whole_groups
from orbiter.memory.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    SystemMemory,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.messages import Format, from_messages, to_messages, validate
from orbiter.memory.messages._wire import legal_name
from orbiter.memory.testing.histories import random_history

POLICIES: tuple[OpenGroup, ...] = ("drop", "complete")
thorough = settings(max_examples=200, deadline=None)

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.sampled_from(["", " ", "\n", "Hello."]) | st.text(characters, max_size=20)
ids = st.sampled_from(["call_0", "call_1", "functions.Bash:0", "z" * 80]) | texts
names = st.sampled_from(["search", "fs.read file", "n" * 80]) | texts
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
# `NaN` and the like have a test of their own in `test_across_formats`.
free_texts = texts.filter(lambda text: "N" not in text and "I" not in text and "\\" not in text)
arguments = objects | objects.map(json.dumps) | free_texts | st.none()


@st.composite
def tool_calls(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a call in one of the shapes an agent may have stored."""
    id, name, given_arguments = draw(ids), draw(names), draw(arguments)
    function = {"name": name, "arguments": given_arguments}
    shape = draw(st.integers(0, 3))
    if shape == 0:
        return {"id": id, "type": "function", "function": function}
    if shape == 1:
        return {"id": id, "type": "custom", "custom": {"name": name, "input": draw(free_texts)}}
    return {"id": id, **function}


@st.composite
def groups(draw: st.DrawFn) -> list[MemoryItem]:
    """Draw calls with results that are mostly there, in any order, sometimes twice."""
    calls = draw(st.lists(tool_calls(), min_size=1, max_size=3))
    answers: list[MemoryItem] = []
    for call in calls:
        for _ in range(draw(st.sampled_from([1, 1, 1, 1, 0, 2]))):
            content, is_error = draw(texts), draw(st.booleans())
            answers.append(
                ToolMemory(content=content, tool_call_id=call_id(call), is_error=is_error)
            )
    is_late = draw(st.sampled_from([False, False, False, True]))
    between = [HumanMemory(content=draw(texts))] if is_late else []
    shuffled = draw(st.permutations(answers))
    return [AIMemory(content=draw(texts), tool_calls=calls), *between, *shuffled]


single_items: st.SearchStrategy[MemoryItem] = st.one_of(
    st.builds(HumanMemory, content=texts),
    st.builds(AIMemory, content=texts),
    st.builds(SystemMemory, content=texts),
    st.builds(ToolMemory, content=texts, tool_call_id=ids),
    st.builds(MemoryItem, content=texts, memory_type=st.just("note")),
)
drawn_histories = st.lists(groups() | single_items.map(lambda item: [item]), max_size=6).map(
    lambda parts: [item for part in parts for item in part]
)
seeded_histories = st.integers(0, 2**32).map(lambda seed: random_history(random.Random(seed)))
histories = drawn_histories | seeded_histories


@st.composite
def damaged_conversations(draw: st.DrawFn) -> list[MemoryItem]:
    """Draw a real conversation of which items were lost, moved to the end, or edited."""
    format = draw(st.sampled_from(FORMATS))
    items: list[MemoryItem] = []
    for item in from_messages(CONVERSATIONS[format], format):
        fate = draw(st.sampled_from(["stay", "stay", "stay", "edit", "lose"]))
        if fate == "edit":
            item.content = draw(texts)
        if fate != "lose":
            items.append(item)
    is_moved = draw(st.booleans())
    if items and is_moved:
        items.append(items.pop(draw(st.integers(0, len(items) - 1))))
    return items


def illegal(items: Sequence[MemoryItem]) -> list[tuple[Format, OpenGroup, str]]:
    """Return what the providers would refuse, over all formats and policies."""
    return [
        (format, policy, str(problem))
        for format in FORMATS
        for policy in POLICIES
        for problem in validate(to_messages(items, format, open_group=policy).messages, format)
    ]


def meanings(items: Sequence[MemoryItem]) -> list[tuple[str, str, object]]:
    """Return kind and text of each item, with what it calls or which call it answers."""
    found: list[tuple[str, str, object]] = []
    asked: list[str] = []
    for item in items:
        detail: object = None
        if isinstance(item, AIMemory):
            asked = [call_id(call) for call in calls_of(item)]
            detail = [(legal_name(call_name(c)), call_input(c)) for c in calls_of(item)]
        elif isinstance(item, ToolMemory):
            detail = asked.index(result_id(item))
        found.append((type(item).__name__, item.content, detail))
    return found


def conversation(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    return [item for item in whole_groups(items) if role_of(item) is not None]


def outcomes(items: Sequence[MemoryItem]) -> list[tuple[dict[str, Any], str]]:
    """Return arguments and result of each call, in the order of the calls."""
    found: list[tuple[dict[str, Any], str]] = []
    for place, item in enumerate(items):
        calls = calls_of(item)
        results = {result_id(r): r.content for r in items[place + 1 : place + 1 + len(calls)]}
        found += [(call_input(call), results[call_id(call)]) for call in calls]
    return found


@thorough
@given(drawn_histories)
def test_any_history_is_written_legally(items: list[MemoryItem]) -> None:
    assert illegal(items) == []


@thorough
@given(seeded_histories)
def test_any_seeded_history_is_written_legally(items: list[MemoryItem]) -> None:
    assert illegal(items) == []


@thorough
@given(damaged_conversations())
def test_a_damaged_conversation_is_written_legally(items: list[MemoryItem]) -> None:
    assert illegal(items) == []


@thorough
@given(histories)
def test_what_is_written_is_json(items: list[MemoryItem]) -> None:
    for format in FORMATS:
        written = to_messages(items, format, open_group="complete").as_kwargs()

        assert json.loads(json.dumps(written, allow_nan=False)) == written


@thorough
@given(histories | damaged_conversations())
def test_reading_and_writing_again_changes_nothing(items: list[MemoryItem]) -> None:
    for format in FORMATS:
        once = to_messages(items, format, open_group="complete").messages

        twice = to_messages(from_messages(once, format), format).messages

        assert twice == once, format


@thorough
@given(histories)
def test_writing_leaves_the_items_as_they_were(items: list[MemoryItem]) -> None:
    before = [item.model_copy(deep=True) for item in items]

    for format in FORMATS:
        to_messages(items, format, open_group="complete")

    assert items == before


@thorough
@given(histories)
def test_chat_messages_read_back_as_the_same_items(items: list[MemoryItem]) -> None:
    written = to_messages(items, "openai").messages

    read = from_messages(written, "openai")

    assert meanings(read) == meanings(conversation(items))


@thorough
@given(histories)
def test_responses_entries_read_back_as_the_same_items(items: list[MemoryItem]) -> None:
    written = to_messages(items, "openai-responses").messages

    read = from_messages(written, "openai-responses")

    assert meanings(read) == meanings(joined_turns(conversation(items)))


def joined_turns(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return *items* with a text and wordless calls directly after it as the one turn they are.

    The wire has no mark between the two: a message entry, then call entries.
    """
    joined: list[MemoryItem] = []
    for item in items:
        last = joined[-1] if joined else None
        if (
            isinstance(item, AIMemory)
            and item.tool_calls
            and not item.content
            and isinstance(last, AIMemory)
            and not last.tool_calls
        ):
            joined[-1] = AIMemory(content=last.content, tool_calls=item.tool_calls)
        else:
            joined.append(item)
    return joined


@thorough
@given(histories)
def test_no_result_is_lost_or_given_to_another_call(items: list[MemoryItem]) -> None:
    expected = outcomes(whole_groups(items))

    for format in FORMATS:
        read = from_messages(to_messages(items, format).messages, format)

        assert outcomes(read) == expected, format
