"""Shapes: whatever a client or framework gives as a message, as messages of the known formats.

No client is imported: an object is known by what it holds. What no rule here knows is refused by
name, as it would be kept as an empty message otherwise.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from orbiter.memory.errors import MessageError
from orbiter.memory.messages._common import BEDROCK, DOCUMENTS, json_text, keys_of, objects_in
from orbiter.memory.messages._langchain import langchain_fields, read_langchain
from orbiter.memory.messages._pydantic_ai import (
    is_pydantic_ai,
    plain_pydantic_ai,
    read_pydantic_ai,
)
from orbiter.memory.messages.codec import FORMATS, Answer, Format, Message
from orbiter.memory.messages.convert import codec_for, codecs

__all__ = [
    "as_plain",
    "check_is_whole",
    "format_of",
    "is_bedrock",
    "is_converse_event",
    "is_part",
    "join_events",
    "join_parts",
    "read_bedrock",
    "read_shape",
]

_DEEP = 40
"""Deeper than anything that may be kept."""

_PARSED = frozenset(("parsed", "parsed_arguments", "parsed_output"))
"""What clients add to a message when they parse it; no provider takes it back."""

_FREE = frozenset(("input", "arguments", "args", "response"))
"""Where the keys are a tool's own."""

_PART = ("function_call", "function_response", "inline_data", "thought_signature")
"""Attributes that every `Part` of google-genai has, whatever it holds."""

_MODEL_PARTS = (
    "function_call", "thought", "thought_signature", "executable_code", "code_execution_result",
)  # fmt: skip
"""What only the model's parts hold."""

_CHAT_KEYS = frozenset(("role", "content", "name", "tool_calls", "tool_call_id", "refusal"))
"""What a message of OpenAI Chat has; with a text as its content, no other format claims it."""

_STREAM_TYPES = frozenset(
    ("message_start", "message_stop", "content_block_start", "content_block_stop")
)
_CONVERSE = frozenset(
    (
        "messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop",
        "metadata",
    )
)  # fmt: skip
_STREAM_KEYS = frozenset(("delta", *_CONVERSE)) - {"contentBlockStop", "metadata"}


def as_plain(value: object, deep: int = _DEEP) -> Any:
    """Return *value* as JSON has it: objects of clients as dicts, bytes in base64."""
    if (
        not deep
        or value is None
        or (isinstance(value, str | int | float) and not isinstance(value, Enum))
    ):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Mapping):
        return {key: as_plain(inner, deep - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(inner, deep - 1) for inner in value]
    return _dumped(value)


def _dumped(value: Any) -> Any:
    if is_pydantic_ai(value):
        return plain_pydantic_ai(value)
    if not callable(getattr(value, "model_dump", None)):
        return value
    try:
        # What a client has parsed is not of the type that its field says, and pydantic warns.
        plain = value.model_dump(mode="json", exclude_none=True, warnings=False)
        sent = value.model_dump(mode="json", exclude_unset=True, warnings=False)
        plain = _with_nulls(plain, sent)
    except TypeError:  # not of pydantic, but with its name for it
        plain = as_plain(value.model_dump(exclude_none=True))
    return _without_parsed(plain)


def _with_nulls(plain: Any, sent: Any) -> Any:
    """Return what an object holds with the nulls that were *sent*: providers want some back."""
    if isinstance(plain, list) and isinstance(sent, list) and len(plain) == len(sent):
        return [_with_nulls(*pair) for pair in zip(plain, sent, strict=True)]
    if not isinstance(plain, dict) or not isinstance(sent, dict):
        return plain
    nulls = {key: None for key, value in sent.items() if value is None}
    return nulls | {key: _with_nulls(value, sent.get(key)) for key, value in plain.items()}


def _without_parsed(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_parsed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: inner if key in _FREE else _without_parsed(inner)
        for key, inner in value.items()
        if key not in _PARSED
    }


def is_part(value: object) -> bool:
    """Tell whether *value* is a `Part` of google-genai: a piece of a message, without a role."""
    return not isinstance(value, Mapping) and all(hasattr(value, name) for name in _PART)


def join_parts(parts: Sequence[Any], index: int) -> Message:
    """Return `Part` objects as one Gemini content.

    As in google-genai, parts alone are the user's. They are the model's if one of them can only be
    the model's, such as a function call.
    """
    results = [part for part in parts if part.function_response is not None]
    others = [part for part in parts if part.function_response is None]
    is_model = any(getattr(part, name, None) for part in others for name in _MODEL_PARTS)
    if is_model and results:
        raise MessageError(
            f"message {index}: parts of the model and function responses are mixed in one list; "
            "give each as a `Content` with its role"
        )
    return {"role": "model" if is_model else "user", "parts": [as_plain(part) for part in parts]}


def is_converse_event(value: object) -> bool:
    """Tell whether *value* is an event of a stream of Bedrock's Converse API."""
    return isinstance(value, Mapping) and bool(value) and value.keys() <= _CONVERSE


def join_events(events: Sequence[Mapping[str, Any]], index: int) -> Message:
    """Return the message of Bedrock that the events of one stream say, the first of them first.

    What is whole counts: a stream that was cut off has its texts, and no call without its input.
    """
    try:
        role, content = _read_events(events)
    except (AttributeError, TypeError):
        raise MessageError(
            f"message {index}: these are not the events of a stream of Bedrock; add them as "
            "`converse_stream` gives them"
        ) from None
    if not content:
        raise MessageError(f"message {index}: the stream has no text and no whole tool call")
    return {"role": role, "content": content}


def _read_events(events: Sequence[Mapping[str, Any]]) -> tuple[Any, list[Message]]:
    """Return the role and the blocks that events say."""
    role, blocks, stopped = "assistant", dict[int, Message](), set[int]()
    for event in events:
        kind = next(iter(event))
        body = event[kind] if isinstance(event[kind], Mapping) else {}
        place = body.get("contentBlockIndex", len(stopped))
        if kind == "messageStart":
            role = body.get("role", role)
        elif kind == "contentBlockStart":
            begun = body.get("start", {}).get("toolUse", {})
            if begun.get("type") != "server_tool_use":  # Bedrock has run that one itself
                blocks[place] = {"toolUse": {**begun, "input": ""}} if begun else {}
        elif kind == "contentBlockDelta":
            _extend(blocks.setdefault(place, {}), body.get("delta", {}))
        elif kind == "contentBlockStop":
            stopped.add(place)
    content = [
        block
        for place, each in sorted(blocks.items())
        if (block := _whole_block(each, is_stopped=place in stopped)) is not None
    ]
    return role, content


def _extend(block: Message, delta: Mapping[str, Any]) -> None:
    """Add a delta of Bedrock to the block that it is of."""
    if isinstance(delta.get("text"), str):
        block["text"] = block.get("text", "") + delta["text"]
    if isinstance(called := delta.get("toolUse"), Mapping) and "toolUse" in block:
        block["toolUse"]["input"] += called.get("input", "")
    if isinstance(thought := delta.get("reasoningContent"), Mapping):
        held = block.setdefault("reasoningContent", {})
        if "redactedContent" in thought:
            held["redactedContent"] = held.get("redactedContent", b"") + thought["redactedContent"]
        for name in ("text", "signature"):
            if name in thought:
                said = held.setdefault("reasoningText", {})
                said[name] = said.get(name, "") + thought[name]


def _whole_block(block: Message, *, is_stopped: bool) -> Message | None:
    if "toolUse" in block and is_stopped:
        try:
            input = json.loads(block["toolUse"]["input"] or "{}")
        except ValueError:  # the limit of the answer's length cut it off
            return None
        return {"toolUse": {**block["toolUse"], "input": input}}
    if "reasoningContent" in block:
        return block if is_stopped else None
    return block if block.get("text") else None


def check_is_whole(message: Mapping[str, Any], type_name: str) -> None:
    """Raise `MessageError` for a piece of a stream; *type_name* is that of the client's object."""
    # The first `ChoiceDelta` of OpenAI looks like a whole message that says nothing.
    is_piece = not is_plain_chat(message) and _is_stream_piece(message)
    if type_name == "ChoiceDelta" or is_piece:
        raise MessageError(
            "message 0: this is one piece of a stream; put the pieces of the stream together "
            "first, and add the whole message"
        )


def is_plain_chat(message: Mapping[str, Any]) -> bool:
    """Return whether *message* has a text and the keys of OpenAI Chat, so is of no other format."""
    content, role = message.get("content", 0), message.get("role")
    is_text = content is None or isinstance(content, str)
    return is_text and isinstance(role, str) and role != "model" and message.keys() <= _CHAT_KEYS


def _is_stream_piece(message: Mapping[str, Any]) -> bool:
    kind, choices = message.get("type"), message.get("choices")
    if isinstance(kind, str):  # events of Anthropic and of OpenAI's Responses
        return kind in _STREAM_TYPES or kind.endswith("_delta") or kind.startswith("response.")
    if "role" in message:
        return False
    if message.get("object") == "chat.completion.chunk" or message.keys() & _STREAM_KEYS:
        return True
    if isinstance(choices, list):
        return any(isinstance(choice, Mapping) and "delta" in choice for choice in choices)
    return message.get("done") is False and "message" in message  # Ollama


def read_shape(
    message: Mapping[str, Any], format: Format | None = None
) -> list[tuple[Format, Message]]:
    """Return the provider's messages that *message* is or holds, each with its format.

    A client's whole answer and a message of LangChain, Pydantic AI or Bedrock are known whatever
    *format* says; all else is of that format, if one is given.
    """
    if is_plain_chat(message):
        return [("openai" if format is None else format, dict(message))]
    held = _unwrapped(message)
    if isinstance(held, list):
        if not held:
            raise MessageError("message 0: the answer has no `output`; there is nothing to add")
        return [pair for each in held for pair in read_shape(each, format)]
    for shape in SHAPES:
        pairs = shape.read(held)
        if pairs is not None:
            return pairs
    detected = format_of(held) if format is None else format
    if codec_for(detected).NEEDS_ROLE and held.get("role") is None:
        *most, last = [codec.LABEL for codec in codecs().values()] + [each.label for each in SHAPES]
        raise MessageError(
            f"message 0: it has no `role`, only {keys_of(held)}; rows of a table are stored by "
            f'`remember_many(rows, text="{next(iter(held), "…")}")`; a message is '
            "{'role': …, 'content': …}, or a message or a whole answer of "
            f"{', '.join(most)} or {last}"
        )
    return [(detected, dict(held))]


def format_of(message: Mapping[str, object]) -> Format:
    """Return the format of *message*; `openai` where it could be any, as with a plain text.

    What is of a type that no provider has, or is made of such blocks, is a `MessageError`.
    """
    return next(name for name in reversed(FORMATS) if codec_for(name).claims(message))


def _unwrapped(message: Mapping[str, Any]) -> Answer:
    """Return what the whole answer of a provider holds; anything else is returned as it is."""
    if "role" in message or "type" in message:
        return message
    unwraps = [codec.unwrap for codec in codecs().values()] + [each.unwrap for each in SHAPES]
    answers = (unwrap(message) for unwrap in unwraps)
    return next((answer for answer in answers if answer is not None), message)


class Shape(NamedTuple):
    """A shape that is read as messages of one of the formats, and not written."""

    label: str
    """Its name for a person."""
    read: Callable[[Mapping[str, Any]], list[tuple[Format, Message]] | None]
    """Returns the messages that one of this shape stands for; `None` for any other."""
    unwrap: Callable[[Mapping[str, Any]], Answer | None] = lambda _: None
    """Returns the message that a whole answer holds; `None` for any other."""


def _read_langchain(message: Mapping[str, Any]) -> list[tuple[Format, Message]] | None:
    fields = langchain_fields(message)
    return None if fields is None else read_langchain(fields, format_of)


def _read_bedrock(message: Mapping[str, Any]) -> list[tuple[Format, Message]] | None:
    return [("anthropic", read_bedrock(message))] if is_bedrock(message) else None


def _unwrap_bedrock(answer: Mapping[str, Any]) -> Answer | None:
    output = answer.get("output")
    message = output.get("message") if isinstance(output, Mapping) else None
    return message if isinstance(message, Mapping) else None


def _unwrap_ollama(answer: Mapping[str, Any]) -> Answer | None:
    message = answer.get("message")
    return message if isinstance(message, Mapping) and "role" in message else None


SHAPES = (
    Shape("LangChain", _read_langchain),
    Shape("Pydantic AI", read_pydantic_ai),
    Shape("Bedrock", _read_bedrock, _unwrap_bedrock),
    Shape("Ollama", lambda _: None, _unwrap_ollama),  # its messages are OpenAI's
)
"""The registry of shapes, in the order in which they are tried."""


_MEDIA = {"mp3": "mpeg", "mov": "quicktime", "mkv": "x-matroska", "three_gp": "3gpp"}
"""The names of formats of sounds and films where they are not their media type's."""
_BLOCKS = frozenset(
    (
        "text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent",
        "cachePoint", "reasoningContent", "citationsContent", "searchResult",
    )
)  # fmt: skip


def is_bedrock(message: Mapping[str, Any]) -> bool:
    """Tell whether each block of *message* is one of the Converse API."""
    content = message.get("content")
    if not isinstance(content, list) or not content:
        return False
    return all(
        isinstance(block, Mapping) and "type" not in block and block.keys() & _BLOCKS
        for block in content
    )


def read_bedrock(message: Mapping[str, Any]) -> Message:
    """Return *message* as one of Anthropic's, with the blocks that could not be written again."""
    role = message.get("role")
    return {"role": role, "content": _blocks(message["content"], is_user=role == "user")}


def _blocks(content: Iterable[Mapping[str, Any]], *, is_user: bool) -> list[Message]:
    blocks: list[Message] = []
    came: list[list[Mapping[str, Any]]] = []
    for block in content:
        if "cachePoint" not in block:
            blocks.append(_block(block))
            came.append([block])
        elif blocks:
            point = block["cachePoint"]
            ttl = point.get("ttl") if isinstance(point, Mapping) else None
            blocks[-1]["cache_control"] = {"type": "ephemeral"} | ({"ttl": ttl} if ttl else {})
            came[-1].append(block)
    for made, origin in zip(blocks, came, strict=True):
        if len(origin) == 1 and _is_plain(origin[0], is_user=is_user):
            continue
        made[BEDROCK] = origin
        if made["type"] == "tool_result" and isinstance(made["content"], str):
            made["content"] = [{"type": "text", "text": made["content"]}]
    return blocks


def _is_plain(block: Mapping[str, Any], *, is_user: bool) -> bool:
    """Tell whether a block is written from Anthropic's form as it was."""
    kind = _kind(block)
    held = block[kind] if kind and isinstance(block[kind], Mapping) else {}
    keys = held.keys()
    if kind == "toolResult":
        inside = objects_in(held.get("content"))
        is_known = keys <= {"toolUseId", "content"} or held.get("status") == "error"
        return is_known and all(
            "json" not in each and _is_plain(each, is_user=True) for each in inside
        )
    if kind in ("image", "document"):
        wanted = {"format", "source"} | ({"name"} if kind == "document" else set())
        return is_user and keys == wanted and "content" not in held["source"]
    if kind == "toolUse":
        return keys <= {"toolUseId", "name", "input"}
    return kind in ("text", "reasoningContent")


def _kind(block: Mapping[str, Any]) -> str:
    return next((key for key in block if key in _BLOCKS), "")


def _block(block: Mapping[str, Any]) -> Message:
    kind = _kind(block)
    held = block[kind]
    if kind == "text":
        return {"type": "text", "text": held}
    body = held if isinstance(held, Mapping) else {}
    if kind == "toolUse":
        return {
            "type": "tool_use",
            "id": body.get("toolUseId"),
            "name": body.get("name"),
            "input": body.get("input") or {},
        }
    if kind == "toolResult":
        return _result(body)
    if kind == "guardContent" and isinstance(body.get("image"), Mapping):
        kind, body = "image", body["image"]
    if kind in ("guardContent", "citationsContent"):
        return {"type": "text", "text": _inner_text(body)}
    if kind == "searchResult":
        return {**body, "type": "search_result", "content": _texts(body)}
    made = _thought(body) if kind == "reasoningContent" else _file(kind, body)
    if made is None:
        raise MessageError(
            f"message 0: a block `{kind}` of Bedrock with {keys_of(body)} cannot be read; leave it "
            "out, or say in a `text` block what it holds"
        )
    return made


def _texts(body: Mapping[str, Any]) -> list[Message]:
    return [{"type": "text", **each} for each in objects_in(body.get("content"))]


def _inner_text(body: Mapping[str, Any]) -> str:
    inner = body.get("text")
    if isinstance(inner, Mapping):
        return str(inner.get("text", ""))
    return "".join(str(each.get("text", "")) for each in objects_in(body.get("content")))


def _result(body: Mapping[str, Any]) -> Message:
    content: list[Message] = []
    for each in objects_in(body.get("content")):
        if "json" in each:
            content.append({"type": "text", "text": json_text(each["json"])})
        elif each.keys() & _BLOCKS:
            content.append(_block(each))
        else:
            raise MessageError(f"message 0: a tool result of Bedrock with {keys_of(each)}")
    only = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else content
    result: Message = {"type": "tool_result", "tool_use_id": body.get("toolUseId")}
    result["content"] = only
    return result | ({"is_error": True} if body.get("status") == "error" else {})


def _thought(body: Mapping[str, Any]) -> Message | None:
    said = body.get("reasoningText")
    if isinstance(said, Mapping):
        signature = said.get("signature")
        thought = {"type": "thinking", "thinking": said.get("text", "")}
        return thought | ({"signature": signature} if signature else {})
    if body.get("redactedContent") is not None:
        return {"type": "redacted_thinking", "data": body["redactedContent"]}
    return None


def _file(kind: str, body: Mapping[str, Any]) -> Message | None:
    source = body.get("source")
    if kind not in ("image", "document", "video", "audio") or not isinstance(source, Mapping):
        return None
    form = str(body.get("format", ""))
    media = DOCUMENTS.get(form, "application/octet-stream")
    if kind != "document":
        media = f"{kind}/{_MEDIA.get(form, form)}"
    title = {"title": body["name"]} if body.get("name") else {}
    title |= {key: body[key] for key in ("context", "citations") if body.get(key)}
    held: Message
    if isinstance(source.get("text"), str):
        held = {"type": "text", "media_type": "text/plain", "data": source["text"]}
    elif source.get("content"):
        held = {"type": "content", "content": _texts(source)}
    elif source.get("bytes") is not None:
        held = {"type": "base64", "media_type": media, "data": source["bytes"]}
    elif isinstance(place := source.get("s3Location"), Mapping) and place.get("uri"):
        held = {"type": "url", "url": str(place["uri"]), "media_type": media}
        if place.get("bucketOwner"):
            held["bucket_owner"] = place["bucketOwner"]
    else:
        return None
    return {"type": kind, "source": held, **title}
