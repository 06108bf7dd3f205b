"""What holds for every history, however broken: output is legal, stable and loses no result."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.messages._strategies import (
    damaged_blocks,
    damaged_conversations,
    damaged_messages,
    drawn_histories,
    histories,
    scraps,
    seeded_histories,
    with_natives,
)

from orbiter.memory.conversation.windows import OpenGroup, complete_tool_groups
from orbiter.memory.errors import MessageError
from orbiter.memory.messages import FORMATS, Format, Message, from_messages, to_messages, validate
from orbiter.memory.messages._common import OPENING, legal_name
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    SystemMemory,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.model.tool_calls import call_id, call_input, call_name

pytestmark = pytest.mark.slow

POLICIES: tuple[OpenGroup, ...] = ("drop", "complete")
thorough = settings(max_examples=80, deadline=None)
for_each_format = settings(max_examples=50, deadline=None)


def illegal(items: Sequence[MemoryItem]) -> list[tuple[Format, OpenGroup, str]]:
    """Return what the providers would refuse, over all formats and policies."""
    return [
        (format, policy, str(problem))
        for format in FORMATS
        for policy in POLICIES
        for problem in validate(to_messages(items, format, open_group=policy).messages, format)
    ]


def said_by(item: MemoryItem) -> str:
    """Return the text of an item; of a result, without the words for what a tool showed."""
    return re.sub(r"(?:^|\n)\[image[^]]*]", "", item.content) if result_id(item) else item.content


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
        found.append((type(item).__name__, said_by(item), detail))
    return found


def apart(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return *items* without what makes several of them one turn of the model."""
    others = [{k: v for k, v in i.native.items() if k != "openai-responses"} for i in items]
    return [i.model_copy(update={"native": n}) for i, n in zip(items, others, strict=True)]


def conversation(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    return [item for item in complete_tool_groups(items) if role_of(item) is not None]


def outcomes(items: Sequence[MemoryItem]) -> list[tuple[dict[str, Any], str]]:
    """Return arguments and result of each call, in the order of the calls."""
    found: list[tuple[dict[str, Any], str]] = []
    for place, item in enumerate(items):
        calls = calls_of(item)
        results = {result_id(r): said_by(r) for r in items[place + 1 : place + 1 + len(calls)]}
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


@pytest.mark.parametrize("format", FORMATS)
@for_each_format
@given(st.data())
def test_what_an_item_keeps_of_its_message_is_sent_only_where_it_is_legal(
    format: Format, data: st.DataObject
) -> None:
    items = data.draw(with_natives(format))

    written = to_messages(items, format).messages

    assert validate(written, format) == []
    assert to_messages(from_messages(written, format), format).messages == written


@pytest.mark.parametrize("format", ["openai", "openai-responses"])
@for_each_format
@given(st.data())
def test_nothing_an_item_keeps_gives_it_the_voice_of_another(
    format: Format, data: st.DataObject
) -> None:
    items = data.draw(with_natives(format))

    written = to_messages(items, format).messages

    assert voices(written) == voices(to_messages(bare(items), format).messages)


def voices(messages: Sequence[Message]) -> list[str]:
    """Return who speaks, the model left out; a developer is the system by another name."""
    roles = [message["role"] for message in messages if message.get("role")]
    return [role.replace("developer", "system") for role in roles if role != "assistant"]


def bare(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    return [item.model_copy(update={"native": {}}) for item in items]


@pytest.mark.parametrize("format", FORMATS)
@for_each_format
@given(st.lists(damaged_messages() | damaged_blocks | scraps, max_size=4))
def test_any_messages_are_judged_and_read_or_refused(format: Format, messages: list[Any]) -> None:
    problems = validate(messages, format)

    items = read(messages, format)

    assert problems or items is not None
    assert illegal(items or []) == []


def read(messages: list[Any], format: Format) -> list[MemoryItem] | None:
    try:
        return from_messages(messages, format)
    except MessageError:
        return None


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


@pytest.mark.parametrize("format", ["openai", "openai-responses"])
@thorough
@given(items=histories.map(bare))
def test_messages_read_back_as_the_same_items(format: Format, items: list[MemoryItem]) -> None:
    read = from_messages(to_messages(items, format).messages, format)

    assert meanings(read) == meanings(arranged(conversation(items), format))


def arranged(items: Sequence[MemoryItem], format: Format) -> list[MemoryItem]:
    """Return *items* as they are sent: one system message, neighbours joined, the user first."""
    systems = [item.content for item in items if role_of(item) == "system" and item.content]
    said: list[MemoryItem] = [SystemMemory(content="\n\n".join(systems))] if systems else []
    is_chat, opening = format == "openai", {"content": OPENING}
    for item in (item for item in items if role_of(item) != "system"):
        last = said[-1] if said else None
        if isinstance(item, HumanMemory) and isinstance(last, ToolMemory) and is_chat:
            said.append(AIMemory(**opening))
        if isinstance(item, AIMemory) and (last is None or role_of(last) == "system"):
            said.append(HumanMemory(**opening))
            last = None
        is_run = last is not None and role_of(last) == role_of(item) and not calls_of(last)
        if last is not None and is_run and not result_id(item):
            text = "\n\n".join(filter(None, (last.content, item.content)))
            said[-1] = item.model_copy(update={"content": text})
        else:
            said.append(item)
    return said


@thorough
@given(histories)
def test_no_result_is_lost_or_given_to_another_call(items: list[MemoryItem]) -> None:
    expected = outcomes(complete_tool_groups(items))

    for format in FORMATS:
        read = from_messages(to_messages(items, format).messages, format)

        assert outcomes(read) == expected, format
