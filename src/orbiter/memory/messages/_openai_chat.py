"""OpenAI Chat Completions: one item is one message.

Every tool call id is answered by one `tool` message directly after, before any other message. What
`arrange` sees to OpenAI does not ask for: the chat templates of open models do, by which vLLM,
llama.cpp and others that speak as OpenAI does refuse all else.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orbiter.memory.conversation.windows import Unit
from orbiter.memory.errors import MessageError
from orbiter.memory.messages._common import (
    OPENING,
    WireIds,
    block_types,
    build,
    is_mapping_with,
    joined_content,
    joined_text,
    joined_turns,
    kept,
    keys_of,
    legal_name,
    list_faults,
    must_be,
    must_be_blocks,
    must_be_objects,
    objects_in,
    only_one,
    sound,
    text_block,
    text_or_none,
    with_text,
)
from orbiter.memory.messages._open_calls import OpenCalls
from orbiter.memory.messages.codec import Answer, Message, Problem
from orbiter.memory.model.copying import copy_value
from orbiter.memory.model.items import (
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
from orbiter.memory.model.tool_calls import call_id, call_json, call_name

LABEL = "OpenAI"
SYSTEM_OUTSIDE = False
HAS_CALL_IDS = True
NEEDS_ROLE = True

_ROLES = {"system": "system", "human": "user", "ai": "assistant", "tool": "tool"}
_OWN_KEYS = frozenset(
    ("role", "content", "tool_calls", "tool_call_id", "tool_name", "function_call")
)
_SPEECH = frozenset(("audio", "refusal", "reasoning", "reasoning_content", "thinking"))
"""What an assistant's message may hold in place of content."""
_SPOKEN = frozenset(("audio", "refusal"))
"""What of it says something to the user."""
_THOUGHTS = frozenset(("reasoning", "reasoning_content", "thinking"))
_SYSTEM = ("system", "developer")
_BODIES = frozenset(("function", "custom"))
_PARTS = frozenset(
    (
        "text", "refusal", "reasoning", "image_url", "image", "input_audio", "audio", "audio_url",
        "file", "video", "video_url", "input_video", "media", "document_url", "reference",
    )
)  # fmt: skip
"""What a message may be made of, also at services that speak as OpenAI does."""


def encode(units: Iterable[Unit]) -> list[Message]:
    """Return the messages of whole *units*, oldest first."""
    ids = WireIds(r"[\s\S]", 40)
    systems: list[Message] = []
    others: list[tuple[MemoryItem, Mapping[str, str]]] = []
    for unit in units:
        wire = ids.name_calls(calls_of(unit[0]))
        for item in unit:
            if role_of(item) == "system":
                systems.append(_message(item, wire))
            elif role_of(item) is not None:
                others.append((item, wire))
    roles = [None, *(role_of(item) for item, _ in others), None]
    return systems + [
        _message(item, wire, is_alone=roles[place] not in (roles[place - 1], roles[place + 1]))
        for place, (item, wire) in enumerate(others, start=1)
    ]


def arrange(messages: Sequence[Message]) -> list[Message]:
    """Return *messages* as every chat template takes them; see `Codec.arrange`.

    Mistral's templates leave tools out and want what is left to alternate: where a person speaks
    directly after a tool, the model says something before.
    """
    systems = [message for message in messages if message["role"] in _SYSTEM]
    others = [message for message in messages if message["role"] not in _SYSTEM]
    turns = joined_turns(others, _joined)
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": OPENING})
    said: list[Message] = [each for each in joined_turns(systems, _joined) if each.get("content")]
    for turn in turns:
        if turn["role"] == "user" and said and said[-1]["role"] == "tool":
            said.append({"role": "assistant", "content": OPENING})
        said.append(turn)
    return said


def _joined(first: Message, second: Message) -> Message | None:
    """Return two messages as one, if they are of one role, and no tool's."""
    role = first["role"]
    is_system = role in _SYSTEM
    if (role != second["role"] and not is_system) or role == "tool" or first.get("tool_calls"):
        return None
    if first.get("name") != second.get("name"):
        first, second = _with_name_in_text(first), _with_name_in_text(second)
    both = {**first, **second, "role": role}
    for key in _THOUGHTS & first.keys() & second.keys():
        if isinstance(first[key], str) and isinstance(second[key], str):
            both[key] = f"{first[key]}\n\n{second[key]}"
    both["content"] = joined_content(first.get("content"), second.get("content"), "text")
    if not both["content"] and _needs_no_content(both):
        both["content"] = None
    return both


def _with_name_in_text(message: Message) -> Message:
    """Return the message of a person who has a name as one that says who speaks."""
    rest = {key: value for key, value in message.items() if key != "name"}
    name, content = message.get("name"), message["content"]
    if not isinstance(name, str) or not content:
        return rest
    if isinstance(content, str):
        return {**rest, "content": f"{name}: {content}"}
    return {**rest, "content": [{"type": "text", "text": f"{name}:"}, *content]}


def _message(item: MemoryItem, wire: Mapping[str, str], *, is_alone: bool = True) -> Message:
    """Return the message of an item; one that is not alone is joined to its neighbour."""
    native = kept(item, "openai", dict)
    if not is_alone:  # a message has room for one refusal, and for the sound of one answer
        native = {key: value for key, value in native.items() if key not in _SPOKEN}
    role = _ROLES[role_of(item) or "human"]
    if role == "system" and native.get("role") == "developer":
        role = "developer"
    text, rest = _unspoken(item.content, native) if role == "assistant" else (item.content, native)
    message: Message = {"role": role, "content": text}
    parts = native.get("content")
    if isinstance(parts, list) and role in _SYSTEM:
        parts = [part for part in parts if text_block(part) is not None]
    if isinstance(parts, list):
        message["content"] = with_text(sound(parts), text, {"type": "text", "text": text}) or text
    message |= {k: v for k, v in rest.items() if k not in _OWN_KEYS and v is not None}
    calls = calls_of(item)
    if calls:
        message["tool_calls"] = [_call(call, wire) for call in calls]
    if isinstance(item, ToolMemory):
        message["tool_call_id"] = wire[result_id(item)]
    if not message["content"] and parts != "" and _needs_no_content(message):
        message["content"] = None
    return message


def _unspoken(text: str, native: Message) -> tuple[str, Message]:
    """Return the content of an answer, and what it kept besides: its refusal and its sound.

    If the *text* does not end with what these say, it was changed, and they are left out.
    """
    spoken = _spoken(native)
    if not spoken:
        return text, _with_sound(native)
    if text not in ("", spoken) and not text.endswith(f"\n{spoken}"):
        return text, {key: value for key, value in native.items() if key not in _SPOKEN}
    rest = _with_sound(native)
    return text.removesuffix(spoken).removesuffix("\n") if rest.keys() & _SPOKEN else text, rest


def _spoken(message: Mapping[str, Any]) -> str:
    """Return what an answer says beside its content: why the model refuses, or an audio's text."""
    audio = message.get("audio")
    heard = audio.get("transcript") if isinstance(audio, Mapping) else None
    return next((said for said in (message.get("refusal"), heard) if isinstance(said, str)), "")


def _with_sound(native: Message) -> Message:
    """Return what a message kept, with its audio by id, for as long as OpenAI has it."""
    audio = native.get("audio")
    if not isinstance(audio, Mapping) or not isinstance(audio.get("id"), str):
        return native
    ends = audio.get("expires_at")
    if isinstance(ends, int | float) and ends <= time.time():
        return {key: value for key, value in native.items() if key != "audio"}
    return {**native, "audio": {"id": audio["id"]}}


def _needs_no_content(message: Mapping[str, Any]) -> bool:
    if message.get("role") != "assistant":
        return False
    if message.get("tool_calls") or isinstance(message.get("audio"), Mapping):
        return True
    return bool(message.get("refusal")) and isinstance(message["refusal"], str)


def _call(call: Mapping[str, Any], wire: Mapping[str, str]) -> Message:
    is_custom = is_mapping_with(call, "custom") and not is_mapping_with(call, "function")
    kind, argument = ("custom", "input") if is_custom else ("function", "arguments")
    body: Message = {}
    rest: Message = {}
    if is_mapping_with(call, kind):
        body = copy_value(dict(call[kind]))
        rest = {key: copy_value(value) for key, value in call.items() if key not in _BODIES}
    body["name"] = legal_name(call_name(call))
    if not isinstance(body.get(argument), str):
        body[argument] = call_json(call)
    return {**rest, "id": wire[call_id(call)], "type": kind, kind: body}


def decode(
    messages: Sequence[Mapping[str, Any]], metadata: MemoryMetadata, open_calls: OpenCalls
) -> Iterator[MemoryItem]:
    """Yield one item per message."""
    for index, raw in enumerate(messages):
        message = _as_tools(raw, index)
        role = message.get("role")
        content = message.get("content")
        rest = {k: v for k, v in message.items() if k not in _OWN_KEYS and v is not None}
        if isinstance(content, list):
            rest["content"] = must_be_blocks(content, index, "`content`")
        elif content == "" and _needs_no_content(message):
            rest["content"] = ""
        text = joined_text(content) if isinstance(content, list) else content
        text = must_be("" if text is None else text, str, index, "`content`")
        spoken = _spoken(message) if role == "assistant" else ""
        if role == "developer":
            rest["role"] = role
        fields = {
            "content": "\n".join(filter(None, dict.fromkeys((text, spoken)))),
            "native": {"openai": rest} if rest else {},
            "metadata": metadata,
        }
        if role in ("system", "developer", "user"):
            open_calls.speak()
            yield build(HumanMemory if role == "user" else SystemMemory, index, **fields)
        elif role == "assistant":
            calls = open_calls.open(_read_calls(message, index))
            yield build(AIMemory, index, tool_calls=calls, **fields)
        elif role == "tool":
            id, name = open_calls.answer(
                message.get("tool_call_id"),
                message.get("tool_name", message.get("name")),
                index=index,
                field="`tool_call_id`",
            )
            yield build(ToolMemory, index, tool_call_id=id, tool_name=name, **fields)
        else:
            raise MessageError(
                f"message {index}: unknown role {role!r}; "
                "use `system`, `developer`, `user`, `assistant` or `tool`"
            )


def _as_tools(message: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    """Return *message* with a `function_call` and its result, as they once were, as tools'."""
    role, call = message.get("role"), message.get("function_call")
    if "content" not in message and role in _ROLES.values():
        held = {key for key, value in message.items() if value and key not in _OWN_KEYS}
        if role != "assistant" or (held and not held & _SPEECH and not _has_calls(message)):
            raise MessageError(f"message {index}: `content` is missing; it has {keys_of(message)}")
    if role == "function":
        rest = {key: value for key, value in message.items() if key != "name"}
        return {**rest, "role": "tool", "tool_name": message.get("name")}
    if role != "assistant" or not isinstance(call, Mapping) or message.get("tool_calls"):
        return message
    rest = {key: value for key, value in message.items() if key != "function_call"}
    return {**rest, "tool_calls": [{"type": "function", "function": dict(call)}]}


def _has_calls(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))


def _read_calls(message: Mapping[str, Any], index: int) -> list[Message]:
    value = message.get("tool_calls")
    calls = must_be_objects([] if value is None else value, index, "`tool_calls`")
    for call in calls:
        text_or_none(call.get("type"), index, "each `type` in `tool_calls`")
        if not call_name(call) and not call.keys() & {*_BODIES, "name"}:
            raise MessageError(
                f"message {index}: a tool call without `function` or `name`; it has {keys_of(call)}"
            )
    return calls


def check(messages: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what OpenAI would refuse."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        for reason in _content_faults(message):
            yield Problem(index, reason)
        if role == "tool":
            id = message.get("tool_call_id")
            if id in waiting:
                waiting.remove(id)
            else:
                yield Problem(index, f"tool result `{id}` has no call directly before it")
        elif waiting:
            yield Problem(index, f"tool calls not answered before this message: {waiting}")
            waiting = []
        if role not in (*_ROLES.values(), "developer"):
            yield Problem(index, f"unknown role {role!r}")
        calls = message.get("tool_calls")
        if calls is not None and calls != []:
            yield from _check_calls(index, role, calls)
            waiting = [call_id(call) for call in objects_in(calls)]
    if waiting:
        yield Problem(len(messages) - 1, f"tool calls never answered: {waiting}")


def _content_faults(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    is_absent = content is None and _needs_no_content(message)
    if not is_absent and not isinstance(content, str):
        yield from list_faults(content, "content")


def _check_calls(index: int, role: object, calls: object) -> Iterator[Problem]:
    if role != "assistant":
        yield Problem(index, f"role {role!r} cannot call tools")
    for reason in list_faults(calls, "tool calls", _call_fault):
        yield Problem(index, reason)
    ids = [call_id(call) for call in objects_in(calls)]
    if len(set(ids)) != len(ids):
        yield Problem(index, f"one id for two tool calls: {ids}")


def _call_fault(call: Mapping[str, Any]) -> str | None:
    id = call_id(call)
    if not 0 < len(id) <= 40:
        return f"tool call id {call.get('id')!r} must have 1 to 40 characters"
    is_custom = call.get("type") == "custom"
    kind, argument = ("custom", "input") if is_custom else ("function", "arguments")
    if call.get("type") != kind or not is_mapping_with(call, kind):
        return f"tool call `{id}` is not of type `function` or `custom`"
    body = call[kind]
    if body.get("name") != legal_name(body.get("name")):
        return f"tool name {body.get('name')!r} must match [A-Za-z0-9_-]{{1,64}}"
    if not isinstance(body.get(argument), str):
        return f"`{argument}` of tool call `{id}` must be a string"
    return None


def claims(message: Mapping[str, object]) -> bool:
    """Tell that *message* may be OpenAI's, as any that no other provider claims.

    Blocks that nobody here knows are refused: what they say would be lost.
    """
    unknown = sorted(str(kind) for kind in block_types(message) - _PARTS)
    if unknown:
        raise MessageError(
            f"message 0: a block of type `{unknown[0]}` does not belong to a known provider; "
            "give its text and its `tool_calls`, or set `format=`"
        )
    return True


def unwrap(answer: Mapping[str, Any]) -> Answer | None:
    """Return the message of a chat completion."""
    choices = answer.get("choices")
    return only_one(choices, "choices", "message") if isinstance(choices, list) else None


def as_kwargs(messages: list[Message], system: str) -> dict[str, Any]:  # noqa: ARG001
    """Return the arguments of `client.chat.completions.create`."""
    return {"messages": messages}
