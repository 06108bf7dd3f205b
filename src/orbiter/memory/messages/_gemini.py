"""Gemini contents: user and model turns that alternate, made of parts.

A model turn with function calls is followed by a user turn with as many function responses, in
the same order; calls need no ids. System text stands outside the contents. Parts are read in the
spelling of the REST interface (`functionCall`) and in that of the Python client (`function_call`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from orbiter.memory._ids import new_id
from orbiter.memory.calls import call_id, call_input, call_name
from orbiter.memory.conversation import Unit
from orbiter.memory.errors import MessageError
from orbiter.memory.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.messages._wire import (
    OPENING,
    Message,
    Problem,
    build,
    joined_text,
    kept,
    legal_name,
    must_be_blocks,
    must_be_object,
    with_text,
)

_Item = TypeVar("_Item", bound=MemoryItem)

_OBJECTS = frozenset(("functionCall", "function_call", "functionResponse", "function_response"))
_NAME = ".:"
"""What a function name may hold besides letters, digits, underscore and dash."""


def encode(units: Iterable[Unit]) -> list[Message]:
    """Return the contents of whole *units*, oldest first; system items are not among them."""
    contents: list[Message] = []
    for unit in units:
        head = unit[0]
        role = role_of(head)
        if role not in {"human", "ai"}:
            continue
        _append(contents, "user" if role == "human" else "model", _parts(head))
        answers = {result_id(item): item for item in unit[1:]}
        answered = [call for call in calls_of(head) if call_id(call) in answers]
        _append(contents, "user", [_answer(call, answers[call_id(call)]) for call in answered])
    if contents and contents[0]["role"] == "model":
        contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
    return contents


def _append(contents: list[Message], role: str, parts: list[Message]) -> None:
    if not parts:
        return
    if contents and contents[-1]["role"] == role:
        contents[-1]["parts"].extend(parts)
    else:
        contents.append({"role": role, "parts": parts})


def _parts(item: MemoryItem) -> list[Message]:
    raw = with_text(
        kept(item, "gemini", list),
        item.content,
        {"text": item.content},
        _text_part,
        before=_is_call,
    )
    calls = calls_of(item)
    if [_said(part) for part in raw if _is_call(part)] == [
        (call_name(call), call_input(call)) for call in calls
    ]:
        parts = [_named(part) if _is_call(part) else part for part in raw]
    else:
        parts = [part for part in raw if not _is_call(part)]
        parts += [
            {"functionCall": {"name": _legal(call_name(call)), "args": call_input(call)}}
            for call in calls
        ]
    return [part for part in parts if part != {"text": ""}]


def _named(part: Message) -> Message:
    key = "functionCall" if isinstance(part.get("functionCall"), Mapping) else "function_call"
    return {**part, key: {**part[key], "name": _legal(part[key].get("name"))}}


def _answer(call: Mapping[str, Any], item: MemoryItem) -> Message:
    name = _legal(call_name(call))
    is_error = isinstance(item, ToolMemory) and item.is_error
    fresh = {"error" if is_error else "output": item.content}
    raw = kept(item, "gemini", dict)
    response = _response(raw)
    if response is None:
        return {"functionResponse": {"name": name, "response": fresh}}
    key = "functionResponse" if "functionResponse" in raw else "function_response"
    unchanged = _answer_text(response) == item.content
    return {**raw, key: {**response, **({} if unchanged else {"response": fresh}), "name": name}}


def decode(messages: Sequence[Mapping[str, Any]], metadata: MemoryMetadata) -> Iterator[MemoryItem]:
    """Yield items; a user turn gives one per function response, then one for the rest."""
    waiting: list[dict[str, Any]] = []
    for index, content in enumerate(messages):
        role = content.get("role") or "user"
        parts = must_be_blocks(content.get("parts"), index, "`parts`")
        for part in parts:
            for key in part.keys() & _OBJECTS:
                must_be_object(part[key] or {}, index, f"`{key}`")
        if role == "model":
            item = _read_model(parts, index, metadata)
            waiting = list(item.tool_calls)
            yield item
        elif role in {"user", "function"}:
            for part in parts:
                if _response(part) is not None:
                    yield _read_answer(part, waiting, index, metadata)
            others = [part for part in parts if _response(part) is None]
            if others or not parts:
                yield _with_native(HumanMemory, others, index, metadata)
        else:
            raise MessageError(f"message {index}: unknown role {role!r}; use `user` or `model`")


def _read_model(parts: list[Message], index: int, metadata: MemoryMetadata) -> AIMemory:
    calls = []
    for part in parts:
        if _is_call(part):
            call = _call(part)
            id = call.get("id") or f"call_{new_id()}"
            calls.append({"id": id, "name": call.get("name"), "arguments": call.get("args") or {}})
    return _with_native(AIMemory, parts, index, metadata, tool_calls=calls)


def _with_native(
    kind: type[_Item], parts: list[Message], index: int, metadata: MemoryMetadata, **fields: Any
) -> _Item:
    """Make an item that keeps *parts* if they could not be written again without."""
    fields |= {"content": joined_text(parts, _text_part), "metadata": metadata}
    item = build(kind, index, **fields)
    return item if _parts(item) == parts else build(kind, index, native={"gemini": parts}, **fields)


def _read_answer(
    part: Message, waiting: list[dict[str, Any]], index: int, metadata: MemoryMetadata
) -> ToolMemory:
    response = _response(part) or {}
    id, name = response.get("id"), response.get("name")
    by_id = (call for call in waiting if id and call["id"] == id)
    by_name = (call for call in waiting if call["name"] == name)
    call = next(by_id, None) or next(by_name, None)
    if call is not None:
        waiting.remove(call)
    body = response.get("response")
    fields = {
        "content": _answer_text(response),
        "tool_call_id": call["id"] if call else str(id or ""),
        "tool_name": str(name or ""),
        "is_error": isinstance(body, Mapping) and set(body) == {"error"},
        "metadata": metadata,
    }
    item = build(ToolMemory, index, **fields)
    if call is not None and _answer(call, item) == part:
        return item
    return build(ToolMemory, index, native={"gemini": part}, **fields)


def _answer_text(response: Mapping[str, Any]) -> str:
    body = response.get("response")
    if isinstance(body, Mapping) and len(body) == 1:
        only = body.get("output", body.get("error"))
        if isinstance(only, str):
            return only
    return json.dumps(body, ensure_ascii=False)


def _legal(name: object) -> str:
    return legal_name(name, extra=_NAME)


def _text_part(part: Mapping[str, Any]) -> str | None:
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else None


def _call(part: Mapping[str, Any]) -> Mapping[str, Any]:
    found = part.get("functionCall") or part.get("function_call")
    return found if isinstance(found, Mapping) else {}


def _is_call(part: Mapping[str, Any]) -> bool:
    return any(isinstance(part.get(key), Mapping) for key in ("functionCall", "function_call"))


def _response(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = part.get("functionResponse") or part.get("function_response")
    return found if isinstance(found, Mapping) else None


def _said(part: Mapping[str, Any]) -> tuple[object, object]:
    call = _call(part)
    return call.get("name"), call.get("args") or {}


def check(messages: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what Gemini would refuse."""
    if messages and messages[0].get("role") == "model":
        yield Problem(0, "the first turn must be the user's")
    waiting: list[object] = []
    before = None
    for index, content in enumerate(messages):
        role = content.get("role") or "user"
        role = "user" if role == "function" else role
        found = content.get("parts") or []
        parts = [part for part in found if isinstance(part, Mapping)]
        if role not in {"user", "model"}:
            yield Problem(index, f"unknown role {role!r}")
        if role == before:
            yield Problem(index, f"two turns of `{role}` in a row")
        before = role
        if not parts or len(parts) != len(found):
            yield Problem(index, "no parts, or a part that is not an object")
        yield from _check_parts(index, str(role), parts)
        answered = [r.get("name") for r in map(_response, parts) if r is not None]
        if answered != waiting:
            yield Problem(index, f"calls of the turn before: {waiting}, responses here: {answered}")
        waiting = [_call(part).get("name") for part in parts if _is_call(part)]
    if waiting:
        yield Problem(len(messages) - 1, f"function calls never answered: {waiting}")


def _check_parts(index: int, role: str, parts: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    for part in parts:
        if part == {"text": ""}:
            yield Problem(index, "a text part is empty")
        if _is_call(part):
            if role != "model":
                yield Problem(index, "only the model can call functions")
            name, args = _said(part)
            if name != _legal(name):
                yield Problem(index, f"function name {name!r} must match [A-Za-z0-9_.:-]{{1,64}}")
            if not isinstance(args, Mapping):
                yield Problem(index, f"arguments of `{name}` must be an object")
        response = _response(part)
        if response is not None and not isinstance(response.get("response"), Mapping):
            yield Problem(index, f"the response of `{response.get('name')}` must be an object")
