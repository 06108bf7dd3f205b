"""OpenAI Chat Completions: one item is one message.

Every tool call id is answered by one `tool` message directly after, before any other message.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orbiter.memory.calls import call_arguments, call_id, call_name
from orbiter.memory.conversation import Unit
from orbiter.memory.copies import copy_value
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
    is_mapping_with,
    joined_text,
    kept,
    legal_name,
    must_be,
    must_be_blocks,
    with_text,
)

_ROLES = {"system": "system", "human": "user", "ai": "assistant", "tool": "tool"}
_OWN_KEYS = frozenset(("role", "content", "tool_calls", "tool_call_id"))


def encode(units: Iterable[Unit]) -> list[Message]:
    """Return the messages of whole *units*, oldest first."""
    ids = WireIds(r"[\s\S]", 40)
    messages = []
    for unit in units:
        wire = ids.name_calls(calls_of(unit[0]))
        messages += [_message(item, wire) for item in unit if role_of(item) is not None]
    return messages


def _message(item: MemoryItem, wire: Mapping[str, str]) -> Message:
    rest = kept(item, "openai", dict)
    parts = rest.pop("content", None)
    message: Message = {
        "role": rest.pop("role", _ROLES[role_of(item) or "human"]),
        "content": item.content,
    }
    if isinstance(parts, list):
        text = {"type": "text", "text": item.content}
        message["content"] = with_text(parts, item.content, text) or item.content
    calls = calls_of(item)
    if not message["content"] and (calls or "audio" in rest):
        message["content"] = "" if parts == "" else None
    if calls:
        message["tool_calls"] = [_call(call, wire) for call in calls]
    if isinstance(item, ToolMemory):
        message["tool_call_id"] = wire[result_id(item)]
    return message | rest


def _call(call: Mapping[str, Any], wire: Mapping[str, str]) -> Message:
    id, name = wire[call_id(call)], legal_name(call_name(call))
    if is_mapping_with(call, "custom") and not is_mapping_with(call, "function"):
        custom = {**copy_value(call["custom"]), "name": name}
        return {**copy_value(dict(call)), "id": id, "type": "custom", "custom": custom}
    function: Message = {"name": name, "arguments": call_arguments(call)}
    if not is_mapping_with(call, "function"):
        return {"id": id, "type": "function", "function": function}
    others = {key: copy_value(v) for key, v in call.items() if key != "custom" or v is not None}
    return {**others, "id": id, "type": "function", "function": {**call["function"], **function}}


def decode(messages: Sequence[Mapping[str, Any]], metadata: MemoryMetadata) -> Iterator[MemoryItem]:
    """Yield one item per message."""
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        role = message.get("role")
        content = message.get("content")
        rest = {k: v for k, v in message.items() if k not in _OWN_KEYS and v is not None}
        if isinstance(content, list):
            rest["content"] = must_be_blocks(content, index, "`content`")
        elif content == "" and message.get("tool_calls"):
            rest["content"] = ""
        text = joined_text(content) if isinstance(content, list) else content or ""
        if role == "developer":
            rest["role"] = role
        fields = {
            "content": must_be(text, str, index, "`content`"),
            "native": {"openai": rest} if rest else {},
            "metadata": metadata,
        }
        if role in {"system", "developer"}:
            yield build(SystemMemory, index, **fields)
        elif role == "user":
            yield build(HumanMemory, index, **fields)
        elif role == "assistant":
            calls = must_be_blocks(message.get("tool_calls") or [], index, "`tool_calls`")
            names |= {call_id(call): call_name(call) for call in calls}
            yield build(AIMemory, index, tool_calls=calls, **fields)
        elif role == "tool":
            id = must_be(message.get("tool_call_id"), str, index, "`tool_call_id`")
            yield build(ToolMemory, index, tool_call_id=id, tool_name=names.get(id, ""), **fields)
        else:
            raise MessageError(
                f"message {index}: unknown role {role!r}; "
                "use `system`, `developer`, `user`, `assistant` or `tool`"
            )


def check(messages: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what OpenAI would refuse."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        calls = message.get("tool_calls") or []
        speaks = message.get("content") is not None or message.get("audio") is not None
        if not speaks and not calls:
            yield Problem(index, "no content")
        if role == "tool":
            id = message.get("tool_call_id")
            if id in waiting:
                waiting.remove(id)
            else:
                yield Problem(index, f"tool result `{id}` has no call directly before it")
            continue
        if waiting:
            yield Problem(index, f"tool calls not answered before this message: {waiting}")
        if role not in {"system", "developer", "user", "assistant"}:
            yield Problem(index, f"unknown role {role!r}")
        if calls and role != "assistant":
            yield Problem(index, f"role {role!r} cannot call tools")
        for call in calls:
            yield from _check_call(index, call)
        waiting = [call_id(call) for call in calls if isinstance(call, Mapping)]
        if len(set(waiting)) != len(waiting):
            yield Problem(index, f"one id for two tool calls: {waiting}")
    if waiting:
        yield Problem(len(messages) - 1, f"tool calls never answered: {waiting}")


def _check_call(index: int, call: object) -> Iterator[Problem]:
    if not isinstance(call, Mapping):
        yield Problem(index, f"tool call {call!r} is not an object")
        return
    id = call_id(call)
    if not id or len(id) > 40:
        yield Problem(index, f"tool call id {call.get('id')!r} must have 1 to 40 characters")
    kind, argument = (
        ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
    )
    if call.get("type") != kind or not is_mapping_with(call, kind):
        yield Problem(index, f"tool call `{id}` is not of type `function` or `custom`")
        return
    body = call[kind]
    if body.get("name") != legal_name(body.get("name")):
        yield Problem(index, f"tool name {body.get('name')!r} must match [A-Za-z0-9_-]{{1,64}}")
    if not isinstance(body.get(argument), str):
        yield Problem(index, f"`{argument}` of tool call `{id}` must be a string")
