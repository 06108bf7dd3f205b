"""Gemini contents: user and model turns that alternate, made of parts.

A model turn with function calls is followed by a user turn with as many function responses, in
the same order; calls need no ids. System text stands outside the contents. Parts are read in the
spelling of the REST interface (`functionCall`) and in that of the Python client (`function_call`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from orbiter.memory.conversation.windows import Unit
from orbiter.memory.errors import MessageError
from orbiter.memory.messages._common import (
    OPENING,
    build,
    joined_text,
    joined_turns,
    json_text,
    kept,
    keys_of,
    legal_name,
    list_faults,
    must_be_object,
    must_be_objects,
    objects_in,
    only_one,
    sound,
    with_text,
)
from orbiter.memory.messages._open_calls import OpenCalls
from orbiter.memory.messages.codec import Answer, Message, Problem
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.model.tool_calls import call_id, call_input, call_name

LABEL = "Gemini"
SYSTEM_OUTSIDE = True
HAS_CALL_IDS = False
NEEDS_ROLE = False

_Item = TypeVar("_Item", bound=MemoryItem)

_CALLS = ("functionCall", "function_call")
_RESPONSES = ("functionResponse", "function_response")
_OBJECTS = frozenset((*_CALLS, *_RESPONSES))
# What may stand beside the one thing that a part holds.
_ASIDE = frozenset(
    ("thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata")
)
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
        parts = _parts(head)
        contents.append({"role": "user" if role == "human" else "model", "parts": parts})
        answers = {result_id(item): item for item in unit[1:]}
        # Ids are sent only where the model gave some; those made up here are nothing to it.
        written = [call for call in map(_call, parts) if call is not None]
        pairs = zip(calls_of(head), written, strict=True)
        responses = [
            _answer(call, answers[call_id(call)], sent.get("id"))
            for call, sent in pairs
            if call_id(call) in answers
        ]
        contents.append({"role": "user", "parts": responses})
    return [content for content in contents if content["parts"]]


def arrange(messages: Sequence[Message]) -> list[Message]:
    """Return *messages* in turns that alternate, the user's first."""
    turns = joined_turns(messages, _joined)
    if turns and turns[0]["role"] == "model":
        turns.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
    return turns


def _joined(first: Message, second: Message) -> Message | None:
    if _role(first) != _role(second):
        return None
    return {**first, "parts": [*first["parts"], *second["parts"]]}


def _parts(item: MemoryItem) -> list[Message]:
    role = "model" if role_of(item) == "ai" else "user"
    raw = sound(kept(item, "gemini", list), partial(_fault, role=role))
    # A response is an item of its own, also in a user's turn.
    raw = [part for part in raw if response_in(part) is None]
    raw = with_text(raw, item.content, {"text": item.content}, text_part, before=_is_call)
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
    return [part for part in parts if not _is_empty(part)]


def _named(part: Message) -> Message:
    key = _key(part, _CALLS) or ""
    return {**part, key: {**part[key], "name": _legal(part[key].get("name"))}}


def _answer(call: Mapping[str, Any], item: MemoryItem, id: str | None = None) -> Message:
    name = _legal(call_name(call))
    id_field = {"id": id} if id else {}
    is_error = isinstance(item, ToolMemory) and item.is_error
    fresh = {"error" if is_error else "output": item.content}
    raw = kept(item, "gemini", dict)
    key = _key(raw, _RESPONSES)
    if key is None or _fault(raw, "user") is not None:
        return {"functionResponse": {**id_field, "name": name, "response": fresh}}
    unchanged = _answer_text(raw[key]) == item.content
    return {**raw, key: {**raw[key], **({} if unchanged else {"response": fresh}), "name": name}}


def decode(
    messages: Sequence[Mapping[str, Any]], metadata: MemoryMetadata, open_calls: OpenCalls
) -> Iterator[MemoryItem]:
    """Yield items; a user turn gives one per function response, then one for the rest."""
    for index, content in enumerate(messages):
        role = _role(content)
        parts = must_be_objects(content.get("parts"), index, "`parts`")
        for part in parts:
            for key in part.keys() & _OBJECTS:
                if part[key] is not None:
                    must_be_object(part[key], index, f"`{key}`")
            if not _holds_something(part):
                raise MessageError(f"message {index}: a part that holds {keys_of(part)} is unknown")
        if role == "model":
            yield _read_model(parts, index, metadata, open_calls)
        elif role == "user":
            for part in parts:
                if response_in(part) is not None:
                    yield _read_answer(part, open_calls, index, metadata)
            others = [part for part in parts if response_in(part) is None]
            if others or not parts:
                open_calls.speak()
                yield _with_native(HumanMemory, others, index, metadata)
        else:
            raise MessageError(f"message {index}: unknown role {role!r}; use `user` or `model`")


def _read_model(
    parts: list[Message], index: int, metadata: MemoryMetadata, open_calls: OpenCalls
) -> AIMemory:
    calls = open_calls.open(
        [
            {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args") or {}}
            for call in map(_call, parts)
            if call is not None
        ]
    )
    return _with_native(AIMemory, parts, index, metadata, tool_calls=calls)


def _with_native(
    kind: type[_Item], parts: list[Message], index: int, metadata: MemoryMetadata, **fields: Any
) -> _Item:
    """Make an item that keeps *parts* if they could not be written again without."""
    fields |= {"content": joined_text(parts, text_part), "metadata": metadata}
    item = build(kind, index, **fields)
    return item if _parts(item) == parts else build(kind, index, native={"gemini": parts}, **fields)


def _read_answer(
    part: Message, open_calls: OpenCalls, index: int, metadata: MemoryMetadata
) -> ToolMemory:
    response = response_in(part) or {}
    id, name = open_calls.answer(
        response.get("id"), response.get("name"), index=index, field="`id`", by_name=True
    )
    body = response.get("response")
    fields = {
        "content": _answer_text(response),
        "tool_call_id": id,
        "tool_name": name,
        "is_error": isinstance(body, Mapping) and set(body) == {"error"},
        "metadata": metadata,
    }
    item = build(ToolMemory, index, **fields)
    if _answer({"name": name}, item) == part:
        return item
    return build(ToolMemory, index, native={"gemini": part}, **fields)


def _answer_text(response: Mapping[str, Any]) -> str:
    body = response.get("response")
    if isinstance(body, Mapping) and len(body) == 1:
        only = body.get("output", body.get("error"))
        if isinstance(only, str):
            return only
    return json_text(body)


def _legal(name: object) -> str:
    return legal_name(name, extra=_NAME)


def text_part(part: Mapping[str, Any]) -> str | None:
    """Return the text of a part that says something; a thought says nothing."""
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else None


def _role(content: Mapping[str, Any]) -> object:
    role = content.get("role")
    return "user" if role in (None, "", "function") else role


def _key(part: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    return next((key for key in keys if isinstance(part.get(key), Mapping)), None)


def _call(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    key = _key(part, _CALLS)
    return part[key] if key else None


def _is_call(part: Mapping[str, Any]) -> bool:
    return _call(part) is not None


def response_in(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a function returned, of a part that says so."""
    key = _key(part, _RESPONSES)
    return part[key] if key else None


def _said(part: Mapping[str, Any]) -> tuple[object, object]:
    call = _call(part) or {}
    args = call.get("args")
    return call.get("name"), {} if args is None else args


def _is_empty(part: Mapping[str, Any]) -> bool:
    return part.get("text") == "" and not any(part[key] for key in part if key != "text")


def _fault(part: Mapping[str, Any], role: object) -> str | None:
    held = [key for key, value in part.items() if value is not None]
    if all(key in _ASIDE for key in held):
        return "a part holds nothing"
    if not _holds_something(part):
        return f"a part holds nothing known: {held}"
    if len([key for key in held if key == "text" or key in _OBJECTS]) > 1:
        return f"a part holds more than one thing: {held}"
    if not isinstance(part.get("text"), str | None):
        return "the text of a part must be text"
    if any(part.get(key) is not None and _key(part, (key,)) is None for key in _OBJECTS):
        return "a call or response is not an object"
    return _object_fault(part, role)


def _holds_something(part: Mapping[str, Any]) -> bool:
    """Tell whether a part is text, or an object as all other kinds are, also such as are new."""
    if "text" in part or not any(value is not None for value in part.values()):
        return True
    return any(isinstance(part[key], Mapping) or key in _ASIDE for key in part)


def _object_fault(part: Mapping[str, Any], role: object) -> str | None:
    call, response = _call(part), response_in(part)
    body = call or response or {}
    name = body.get("name")
    if not isinstance(body.get("id"), str | None):
        return f"the id of `{name}` must be text"
    if call is not None:
        if role != "model":
            return "only the model can call functions"
        if not isinstance(call.get("args"), Mapping | None):
            return f"arguments of `{name}` must be an object"
    if response is not None:
        if role == "model":
            return "only a user turn can hold function responses"
        if not isinstance(response.get("response"), Mapping):
            return f"the response of `{name}` must be an object"
    return None


def check(messages: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what Gemini would refuse."""
    if messages and messages[0].get("role") == "model":
        yield Problem(0, "the first turn must be the user's")
    waiting: list[object] = []
    before = None
    for index, content in enumerate(messages):
        role = _role(content)
        if role not in ("user", "model"):
            yield Problem(index, f"unknown role {role!r}")
        if role == before:
            yield Problem(index, f"two turns of `{role}` in a row")
        before = role
        for reason in list_faults(content.get("parts"), "parts", partial(_fault, role=role)):
            yield Problem(index, reason)
        parts = objects_in(content.get("parts"))
        if any(map(_is_empty, parts)):
            yield Problem(index, "a text part is empty")
        answered = [r.get("name") for r in map(response_in, parts) if r is not None]
        if answered != waiting:
            yield Problem(index, f"calls of the turn before: {waiting}, responses here: {answered}")
        waiting = [call.get("name") for call in map(_call, parts) if call is not None]
        for name in waiting:
            if name != _legal(name):
                yield Problem(index, f"function name {name!r} must match [A-Za-z0-9_.:-]{{1,64}}")
    if waiting:
        yield Problem(len(messages) - 1, f"function calls never answered: {waiting}")


def claims(message: Mapping[str, object]) -> bool:
    """Tell whether *message* is made of parts, or is the model's."""
    return "parts" in message or message.get("role") == "model"


def unwrap(answer: Mapping[str, Any]) -> Answer | None:
    """Return the content of an answer, or of one candidate."""
    candidates, content = answer.get("candidates"), answer.get("content")
    if isinstance(candidates, list):
        content = only_one(candidates, "candidates", "content")
    elif not isinstance(content, Mapping) or "parts" not in content:
        return None
    return {**content, "role": content.get("role") or "model"}


def as_kwargs(messages: list[Message], system: str) -> dict[str, Any]:
    """Return the arguments of `client.models.generate_content`: `contents` and `config`."""
    config = {"config": {"system_instruction": system}} if system else {}
    return {"contents": messages} | config
