"""OpenAI Responses: calls and results are entries of their own, beside messages.

A call needs its output and an output its call, of the same kind; a reasoning entry stays with
what follows it. Whatever the model's side holds besides (searches, server tools, references) is
one turn with it and goes back as it came.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orbiter.memory.calls import call_arguments, call_id, call_name
from orbiter.memory.conversation import Unit
from orbiter.memory.errors import MessageError
from orbiter.memory.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.messages._wire import (
    Message,
    Problem,
    WireIds,
    build,
    joined_text,
    kept,
    legal_name,
    must_be,
    must_be_blocks,
    same_calls,
    with_text,
)

_ROLES = {"system": "system", "human": "user", "ai": "assistant"}
# Calls that we answer. Others, such as a web search, are answered by the server itself.
_CALLS = frozenset(
    ("function_call", "custom_tool_call", "computer_call", "shell_call", "apply_patch_call")
)
_PLAIN_CALLS = frozenset(("function_call", "custom_tool_call"))
_CALL_KEYS = frozenset(("type", "id", "call_id", "status", "name"))


def encode(units: Iterable[Unit]) -> list[Message]:
    """Return the input entries of whole *units*, oldest first."""
    ids = WireIds(r"[\s\S]", 64)
    entries: list[Message] = []
    for unit in units:
        head = unit[0]
        role = role_of(head)
        if role == "ai":
            wire = ids.name_calls(calls_of(head))
            entries += _group(head, unit[1:], wire)
        elif role is not None:
            entries.append(_message(head, role))
    return entries


def _message(item: MemoryItem, role: str) -> Message:
    raw = kept(item, "openai-responses", list)
    if not raw:
        return {"role": _ROLES[role], "content": item.content}
    return _said(raw[0], item.content, "input_text")


def _said(entry: Message, text: str, kind: str) -> Message:
    """Return a message entry that says *text*, with its pictures and keys as they were."""
    content = entry.get("content")
    if isinstance(content, list):
        return {**entry, "content": with_text(content, text, {"type": kind, "text": text})}
    return {**entry, "content": text}


def _group(
    head: MemoryItem, results: Sequence[MemoryItem], wire: Mapping[str, str]
) -> list[Message]:
    """Return a turn of the model and what its calls returned."""
    calls = calls_of(head)
    raw = kept(head, "openai-responses", list)
    outputs = {result_id(item): kept(item, "openai-responses", list) for item in results}
    if not same_calls(_turn_calls(raw), calls) or not _are_answered_in_kind(raw, outputs):
        # Entries refer to each other by id; with other calls, none of the old ones can stay.
        raw = [_plain_call(call) for call in calls]
    entries = _turn(raw, head.content, wire)
    kinds = {entry["call_id"]: entry["type"] for entry in raw if _is_call(entry)}
    for item in results:
        id = result_id(item)
        entries.append(_output(item, outputs[id], kinds[id], wire[id]))
    return entries


def _are_answered_in_kind(raw: Sequence[Message], outputs: Mapping[str, list[Message]]) -> bool:
    for call in filter(_is_call, raw):
        output = outputs.get(call["call_id"], [])
        if call["type"] not in _PLAIN_CALLS and not output:
            return False  # only such a tool's own kind of output answers it
        if output and output[0].get("type") != f"{call['type']}_output":
            return False
    return True


def _turn(raw: Sequence[Message], text: str, wire: Mapping[str, str]) -> list[Message]:
    entries = [_named(entry, wire) if _is_call(entry) else entry for entry in raw]
    if _turn_text(raw) != text or not entries:
        entries = _with_message(entries, text)
    while entries and entries[-1].get("type") == "reasoning":
        entries.pop()  # refused without what it led to
    return entries


def _named(entry: Message, wire: Mapping[str, str]) -> Message:
    named = {**entry, "call_id": wire[entry["call_id"]]}
    return {**named, "name": legal_name(entry.get("name"))} if "name" in entry else named


def _with_message(entries: Sequence[Message], text: str) -> list[Message]:
    """Return the turn saying *text*: in its own message entry, or before its first call."""
    places = [place for place, entry in enumerate(entries) if _is_message(entry)]
    if places:
        said = [_said(entries[places[0]], text, "output_text")]
        return [
            new
            for place, entry in enumerate(entries)
            for new in (said if place == places[0] else [] if place in places else [entry])
        ]
    if not text and entries:
        return list(entries)
    first_call = next((p for p, entry in enumerate(entries) if _is_call(entry)), len(entries))
    spoken = {"role": "assistant", "content": text}
    return [*entries[:first_call], spoken, *entries[first_call:]]


def _plain_call(call: Mapping[str, Any]) -> Message:
    return {
        "type": "function_call",
        "call_id": call_id(call),
        "name": call_name(call),
        "arguments": call_arguments(call),
    }


def _output(item: MemoryItem, raw: Sequence[Message], kind: str, id: str) -> Message:
    if not raw or raw[0].get("type") != f"{kind}_output":
        return {"type": f"{kind}_output", "call_id": id, "output": item.content}
    entry = {**raw[0], "call_id": id}
    if _output_text(entry) == item.content:
        return entry
    output = entry.get("output")
    if isinstance(output, list):
        text = {"type": "input_text", "text": item.content}
        return {**entry, "output": with_text(output, item.content, text)}
    return {**entry, "output": item.content}


def decode(messages: Sequence[Mapping[str, Any]], metadata: MemoryMetadata) -> Iterator[MemoryItem]:
    """Yield items; the entries of one turn of the model become one item."""
    turn: list[Message] = []
    start = 0
    names: dict[str, str] = {}
    for index, entry in enumerate(messages):
        if _is_assistant(entry):
            if turn and _starts_turn(entry, turn):
                yield _read_turn(turn, start, metadata)
                turn = []
            start = start if turn else index
            turn.append(dict(entry))
            if entry.get("type") in _CALLS:
                id = must_be(entry.get("call_id"), str, index, "`call_id`")
                names[id] = str(entry.get("name", entry["type"]))
            continue
        if turn:
            yield _read_turn(turn, start, metadata)
            turn = []
        yield _read_entry(entry, index, names, metadata)
    if turn:
        yield _read_turn(turn, start, metadata)


def _read_entry(
    entry: Mapping[str, Any], index: int, names: Mapping[str, str], metadata: MemoryMetadata
) -> MemoryItem:
    fields: dict[str, Any] = {"metadata": metadata}
    if _is_output(entry):
        id = must_be(entry.get("call_id"), str, index, "`call_id`")
        fields |= {"tool_call_id": id, "tool_name": names.get(id, "")}
        text = _output_text(entry)
        is_plain = entry == {"type": "function_call_output", "call_id": id, "output": text}
        fields |= {"native": {} if is_plain else {"openai-responses": [dict(entry)]}}
        return build(ToolMemory, index, content=text, **fields)
    role, content = entry.get("role"), entry.get("content")
    if isinstance(content, list):
        text = joined_text(must_be_blocks(content, index, "`content`"))
    else:
        text = must_be(content, str, index, "`content`")
    is_plain = entry == {"role": role, "content": text} and role != "developer"
    fields |= {"native": {} if is_plain else {"openai-responses": [dict(entry)]}}
    if role in {"system", "developer"}:
        return build(SystemMemory, index, content=text, **fields)
    if role == "user":
        return build(HumanMemory, index, content=text, **fields)
    raise MessageError(
        f"message {index}: unknown role {role!r}; use `system`, `developer`, `user` or `assistant`"
    )


def _read_turn(turn: list[Message], index: int, metadata: MemoryMetadata) -> AIMemory:
    for place, entry in enumerate(turn):
        if _is_message(entry) and not isinstance(entry.get("content"), str):
            must_be_blocks(entry.get("content"), index + place, "`content`")
    calls = _turn_calls(turn)
    fields: dict[str, Any] = {
        "content": _turn_text(turn),
        "tool_calls": calls,
        "metadata": metadata,
    }
    item = build(AIMemory, index, **fields)
    plain = _turn(
        [_plain_call(call) for call in calls], item.content, {call_id(c): call_id(c) for c in calls}
    )
    if plain == turn:
        return item
    return build(AIMemory, index, native={"openai-responses": turn}, **fields)


def _is_message(entry: Mapping[str, Any]) -> bool:
    return (entry.get("type") or "message") == "message"


def _is_call(entry: Mapping[str, Any]) -> bool:
    return entry.get("type") in _CALLS and isinstance(entry.get("call_id"), str)


def _is_output(entry: Mapping[str, Any]) -> bool:
    kind = str(entry.get("type"))
    return kind.endswith("_output") and kind.removesuffix("_output") in _CALLS


def _is_assistant(entry: Mapping[str, Any]) -> bool:
    if _is_message(entry):
        return entry.get("role") == "assistant"
    return not _is_output(entry)


def _starts_turn(entry: Mapping[str, Any], turn: Sequence[Mapping[str, Any]]) -> bool:
    # Within one turn the model thinks, speaks at most once, then calls; a call keeps it open.
    if any(map(_is_call, turn)):
        return False
    return any(map(_is_message, turn)) and not _is_call(entry)


def _turn_text(turn: Sequence[Mapping[str, Any]]) -> str:
    texts = (entry.get("content") for entry in turn if _is_message(entry))
    return "\n".join(t if isinstance(t, str) else joined_text(t or ()) for t in texts)


def _turn_calls(turn: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    calls = []
    for entry in filter(_is_call, turn):
        name = entry.get("name", entry["type"])
        said = {key: value for key, value in entry.items() if key not in _CALL_KEYS}
        if entry["type"] in _PLAIN_CALLS:
            said = entry.get("arguments", entry.get("input", {}))
        calls.append({"id": entry["call_id"], "name": name, "arguments": said})
    return calls


def _output_text(entry: Mapping[str, Any]) -> str:
    output = entry.get("output")
    if output is None or isinstance(output, str):
        return output or ""
    return joined_text(output) if isinstance(output, list) else json.dumps(output)


def check(messages: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what OpenAI would refuse."""
    open_calls: dict[str, tuple[int, str]] = {}
    seen: set[str] = set()
    for index, entry in enumerate(messages):
        follows = index and messages[index - 1].get("type") == "reasoning"
        if follows and not _is_assistant(entry):
            yield Problem(index - 1, "reasoning without the entry it led to")
        kind = entry.get("type") or "message"
        id = entry.get("call_id")
        if kind in _CALLS:
            yield from _check_call(index, entry, seen)
            seen.add(str(id))
            open_calls[str(id)] = index, f"{kind}_output"
        elif _is_output(entry):
            _, wanted = open_calls.pop(str(id), (0, None))
            if wanted != kind:
                yield Problem(index, f"`{kind}` of `{id}` has no call of its kind before it")
            if entry.get("output") is None and kind != "apply_patch_call_output":
                yield Problem(index, f"`{kind}` of `{id}` has no output")
        elif kind == "message":
            if entry.get("role") not in {"system", "developer", "user", "assistant"}:
                yield Problem(index, f"unknown role {entry.get('role')!r}")
            if not isinstance(entry.get("content"), str | list):
                yield Problem(index, "no content")
    for id, (index, _) in open_calls.items():
        yield Problem(index, f"no output for call `{id}`")
    if messages and messages[-1].get("type") == "reasoning":
        yield Problem(len(messages) - 1, "reasoning without the entry it led to")


def _check_call(index: int, entry: Mapping[str, Any], seen: set[str]) -> Iterator[Problem]:
    id, name = entry.get("call_id"), entry.get("name")
    if not isinstance(id, str) or not 0 < len(id) <= 64:
        yield Problem(index, f"call id {id!r} must have 1 to 64 characters")
    if id in seen:
        yield Problem(index, f"call id `{id}` is used twice")
    if entry["type"] in _PLAIN_CALLS:
        if name != legal_name(name):
            yield Problem(index, f"tool name {name!r} must match [A-Za-z0-9_-]{{1,64}}")
        key = "arguments" if entry["type"] == "function_call" else "input"
        if not isinstance(entry.get(key), str):
            yield Problem(index, f"`{key}` of call `{id}` must be a string")
