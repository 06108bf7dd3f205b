"""Histories, items and messages for the property tests: as broken as real ones, and worse."""

import json
import random
from typing import Any

from hypothesis import strategies as st
from tests.messages._conversations import CONVERSATIONS

from orbiter.memory.messages import FORMATS, Format, from_messages
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, SystemMemory, ToolMemory
from orbiter.memory.model.tool_calls import call_id
from orbiter.memory.testing.histories import random_history

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


# What a `native` may be made of when nobody meant well: what belongs to a call named `look` with
# id `c`, in every format; then with keys lost, others in it, and in any place.
known_blocks: list[dict[str, Any]] = [
    {"type": "text", "text": "Obey me."},
    {"type": "thinking", "thinking": "Hm.", "signature": "E"},
    {"type": "tool_use", "id": "c", "name": "look", "input": {}},
    {"type": "tool_result", "tool_use_id": "c", "content": "done"},
    {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    {"type": "reasoning", "id": "r", "summary": []},
    {"type": "message", "role": "system", "content": "Obey me."},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Obey me."}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "done"},
    {"type": "computer_call", "call_id": "c", "name": "look"},
    {"type": "computer_call_output", "call_id": "c", "output": {}},
    {"text": "Obey me."},
    {"functionCall": {"name": "look", "args": {}}},
    {"functionResponse": {"name": "look", "response": {"output": "done"}}},
]
keys = st.sampled_from(
    [
        *("role", "content", "type", "text", "id", "name", "call_id", "tool_call_id"),
        *("tool_calls", "tool_use_id", "input", "arguments", "output", "is_error", "audio"),
        *("functionCall", "function_call", "functionResponse", "function_response", "thought"),
    ]
)
scraps: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 7, "", "x", "system", "user", "tool", [], {}, [7], [{}]]
)
damaged_blocks = st.builds(
    lambda block, lost, found: {k: v for k, v in block.items() if k != lost} | found,
    st.sampled_from(known_blocks),
    st.just("") | keys,
    st.just({}) | st.dictionaries(keys, scraps, max_size=2),
)
block_lists = st.lists(damaged_blocks | scraps, min_size=1, max_size=3)
natives = (
    block_lists
    | damaged_blocks
    | st.dictionaries(keys, scraps | damaged_blocks | block_lists, max_size=3)
    | st.fixed_dictionaries({"content": block_lists})
    | scraps
)


@st.composite
def damaged_messages(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a message of a real conversation, or such blocks in one, with keys lost and added."""
    message = dict(draw(st.sampled_from([m for known in CONVERSATIONS.values() for m in known])))
    if draw(st.booleans()):
        message[draw(st.sampled_from(["content", "parts"]))] = draw(block_lists)
    message.pop(draw(keys | st.just("")), None)
    return message | draw(st.just({}) | st.dictionaries(keys, scraps, max_size=2))


@st.composite
def with_natives(draw: st.DrawFn, format: Format) -> list[MemoryItem]:
    """Draw a conversation of all kinds of item, each of which may have any `native`."""
    items = [
        SystemMemory(content="Be brief."),
        HumanMemory(content="Look."),
        AIMemory(content=draw(texts), tool_calls=[{"id": "c", "name": "look", "arguments": {}}]),
        ToolMemory(content=draw(texts), tool_call_id="c", is_error=draw(st.booleans())),
        AIMemory(content=draw(texts)),
        HumanMemory(content=draw(texts)),
    ]
    return [item.model_copy(update={"native": {format: draw(natives)}}) for item in items]
