"""Items as messages of Bedrock, LangChain and Pydantic AI, which `chat.add` reads.

A conversation comes out as legal as with `to_messages`: tool groups are whole, each call has an id
of its own, results stand behind their calls. What an item kept of its message (pictures, files,
thoughts) is written where the other side has a form for it, and left out elsewhere.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from orbiter.memory._lazy import missing_extra
from orbiter.memory.conversation.windows import Unit, newest_first, walk_units
from orbiter.memory.messages._common import (
    BEDROCK,
    DOCUMENTS,
    OPENING,
    WireIds,
    kept,
    legal_name,
    objects_in,
)
from orbiter.memory.messages._parts import Part, data_of, in_words, parts_of, result_parts, says
from orbiter.memory.messages.codec import Message
from orbiter.memory.model.items import MemoryItem, ToolMemory, calls_of, result_id, role_of
from orbiter.memory.model.tool_calls import call_id, call_input, call_name

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from pydantic_ai.messages import ModelMessage

__all__ = ["to_bedrock", "to_langchain", "to_pydantic_ai"]

_ID, _MAX_ID = r"[A-Za-z0-9_-]", 40  # what all providers behind a framework take


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, with an id that no other has."""

    id: str
    name: str
    input: dict[str, Any]
    kept: list[Message]
    """The blocks of Bedrock that it was, if there was more to it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool returned."""

    call: Call
    text: str
    is_error: bool
    parts: list[Part]
    """Its texts, pictures and files; none if its text was changed since."""
    kept: list[Message]


@dataclass(frozen=True, slots=True)
class Speech:
    """What somebody says; a model's has calls, and all their results."""

    role: str
    parts: list[Part]
    calls: list[Call]
    results: list[Result]


def _speeches(items: Sequence[MemoryItem], *, joins_results: bool = False) -> list[Speech]:
    """Return what is said, as every chat template takes it: see `Codec.arrange`.

    With *joins_results*, a tool's results and what the user says next are one message.
    """
    ids = WireIds(_ID, _MAX_ID)
    units = [unit for _, unit in walk_units(newest_first(items))][::-1]
    whole = [speech for unit in units if (speech := _speech(unit, ids)) is not None]
    whole.sort(key=lambda speech: speech.role != "system")
    filler = [Part(OPENING)]
    said: list[Speech] = []
    for speech in whole:
        before = said[-1] if said else None
        if before is not None and before.role == speech.role and not before.calls:
            said[-1] = replace(speech, parts=_joined(before.parts, speech.parts))
            continue
        is_first = before is None or before.role == "system"
        if speech.role == "ai" and is_first:
            said.append(Speech("human", filler, [], []))
        elif speech.role == "human" and before and before.results and not joins_results:
            said.append(Speech("ai", filler, [], []))
        said.append(speech)
    return said


def _joined(first: list[Part], second: list[Part]) -> list[Part]:
    """Return parts in their order, with a blank line between two texts that meet."""
    if not (first and second) or not all(_is_text(part) for part in (first[-1], second[0])):
        return [*first, *second]
    met = replace(first[-1], text=f"{first[-1].text}\n\n{second[0].text}")
    return [*first[:-1], met, *second[1:]]


def _is_text(part: Part) -> bool:
    return part.kind == "text" and not part.kept and part.block is None


def _speech(unit: Unit, ids: WireIds) -> Speech | None:
    heads = [item for item in unit if not isinstance(item, ToolMemory)]
    called = [call for head in heads for call in calls_of(head)]
    wire = ids.name_calls(called)
    uses = [use for head in heads for use in objects_in(kept(head, "anthropic", list))]
    came = {str(use.get("id")): objects_in(use.get(BEDROCK)) for use in uses}
    calls = {
        id: Call(wire[id], legal_name(call_name(each)), call_input(each), came.get(id, []))
        for each in called
        if (id := call_id(each))
    }
    results = [
        _result(item, calls[result_id(item)]) for item in unit if isinstance(item, ToolMemory)
    ]
    role = role_of(unit[0])
    parts = [part for head in heads for part in parts_of(head)]
    if role == "ai":  # a model makes pictures, and takes none as its own words
        parts = [part if part.kept else in_words(part) for part in parts]
    if role not in ("system", "human", "ai") or not (parts or calls):
        return None
    return Speech(role, parts, list(calls.values()), results)


def _result(item: ToolMemory, call: Call) -> Result:
    parts = result_parts(item)
    text = item.content
    if any(part.kind != "text" for part in parts):
        text = "\n".join(in_words(part).text for part in parts)
    native = kept(item, "anthropic", dict)
    is_as_it_came = says(item, objects_in(native.get("content")))
    came = objects_in(native.get(BEDROCK)) if is_as_it_came else []
    return Result(call, text, item.is_error, parts, came)


# Bedrock

_FORMS = ("png", "jpeg", "gif", "webp")
"""The pictures that it takes."""
_BYTES = ("bytes", "redactedContent")
_NO_NAME = re.compile(r"[^A-Za-z0-9()\[\]-]+")
"""What the name of a document must not have, but for single spaces."""


def to_bedrock(items: Sequence[MemoryItem]) -> dict[str, Any]:
    """Return the arguments of `client.converse` of Amazon Bedrock: `messages` and `system`."""
    messages: list[Message] = []
    system: list[Message] = []
    names: set[str] = set()
    for speech in _speeches(items, joins_results=True):
        blocks = [block for part in speech.parts for block in _bedrock(part)]
        if speech.role == "human":
            blocks += [block for part in speech.parts for block in _bedrock_documents(part, names)]
            if any("document" in block for block in blocks) and "text" not in blocks[0]:
                blocks.insert(0, {"text": OPENING})  # without a text it takes no document
        while blocks and "reasoningContent" in blocks[-1] and not speech.calls:
            blocks.pop()  # nothing follows from it
        blocks += [block for each in speech.calls for block in _bedrock_call(each)]
        if speech.role == "system":
            system += blocks
            continue
        _say(messages, "assistant" if speech.role == "ai" else "user", blocks)
        _say(
            messages,
            "user",
            [block for each in speech.results for block in _bedrock_result(each, names)],
        )
    return {"messages": messages} | ({"system": system} if system else {})


def _say(messages: list[Message], role: str, blocks: list[Message]) -> None:
    """Append blocks; roles alternate, and the user's is the first, also where it has no blocks."""
    if not blocks:
        return
    if not messages and role == "assistant":
        messages.append({"role": "user", "content": [{"text": OPENING}]})
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    else:
        messages.append({"role": role, "content": blocks})


def _bedrock(part: Part) -> list[Message]:
    """Return the blocks of a part, but for documents: those that it was, or one."""
    if part.kept:
        return [_with_bytes(block) for block in part.kept]
    block = _bedrock_block(part)
    return [] if block is None else [block]


def _with_bytes(value: Any) -> Any:
    """Return what was kept of Bedrock as its client takes it: bytes are no base64 there."""
    if isinstance(value, list):
        return [_with_bytes(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: data_of(each) if key in _BYTES and isinstance(each, str) else _with_bytes(each)
        for key, each in value.items()
    }


def _bedrock_block(part: Part) -> Message | None:
    if part.kind == "text":
        return {"text": part.text}
    if part.kind == "thought" and part.data:
        said = {"text": part.text, "signature": part.data}
        return {"reasoningContent": {"reasoningText": said}}
    data = data_of(part.data)
    if part.kind == "hidden thought" and data is not None:
        return {"reasoningContent": {"redactedContent": data}}
    if part.kind == "image" and data is not None:
        form = part.media.removeprefix("image/").replace("jpg", "jpeg")
        return {"image": {"format": form, "source": {"bytes": data}}} if form in _FORMS else None
    if part.kind == "url" and (place := _in_s3(part)):
        form = place.pop("media").removeprefix("image/")
        return {"image": {"format": form, "source": {"s3Location": place}}}
    return None  # it has pictures by URL only of S3, and thoughts need a signature


def _in_s3(part: Part) -> dict[str, str] | None:
    """Return where a file of Bedrock is in S3, with its `media` type; `None` for other URLs."""
    source = (part.block or {}).get("source")
    if not isinstance(source, Mapping) or not part.text.startswith("s3://"):
        return None
    place = {"uri": part.text, "media": str(source.get("media_type") or "")}
    owner = source.get("bucket_owner")
    return place | ({"bucketOwner": str(owner)} if owner else {})


def _bedrock_documents(part: Part, names: set[str]) -> list[Message]:
    document = None if part.kept else _bedrock_document(part)
    if document is None:
        return []
    return [{"document": {**document, "name": _free_name(part.name, names)}}]


def _bedrock_document(part: Part) -> Message | None:
    """Return a file without its name; `None` for what is none, or of a kind that it takes not."""
    place = _in_s3(part) if part.kind == "file url" else None
    kind = place.pop("media") if place else part.media
    form = next((form for form, media in DOCUMENTS.items() if media == kind), None)
    if place and form:
        return {"format": form, "source": {"s3Location": place}}
    data = data_of(part.data) if part.kind == "file" and form is not None else None
    if not data:
        return None
    block = part.block or {}
    is_text = isinstance(source := block.get("source"), Mapping) and source.get("type") == "text"
    held = {"text": data.decode()} if is_text else {"bytes": data}
    return {"format": form, "source": held}


def _free_name(name: str, names: set[str]) -> str:
    """Return a name that no other document has, as Bedrock takes it."""
    stem = name.rpartition(".")[0] or name
    plain = _NO_NAME.sub(" ", stem).strip()[:150].strip() or "document"
    free = next(
        each for n in count(1) if (each := plain if n == 1 else f"{plain} ({n})") not in names
    )
    names.add(free)
    return free


def _bedrock_call(call: Call) -> list[Message]:
    came = dict(call.kept[0].get("toolUse") or {}) if call.kept else {}
    said = {**came, "toolUseId": call.id, "name": call.name, "input": call.input}
    return [{"toolUse": said}, *call.kept[1:]]


def _bedrock_result(result: Result, names: set[str]) -> list[Message]:
    if result.kept:
        came, *points = _with_bytes(result.kept)
        return [
            {"toolResult": {**came.get("toolResult", {}), "toolUseId": result.call.id}},
            *points,
        ]
    blocks = [block for part in result.parts for block in _in_result(part, names)]
    text = result.text if result.text.strip() else "(no output)"
    said: Message = {"toolUseId": result.call.id, "content": blocks or [{"text": text}]}
    return [{"toolResult": said | ({"status": "error"} if result.is_error else {})}]


def _in_result(part: Part, names: set[str]) -> list[Message]:
    if part.kind == "text" and not part.text.strip():
        return []
    blocks = _bedrock(part) or _bedrock_documents(part, names)
    return blocks or [{"text": in_words(part).text}]


# LangChain


def _worded(speech: Speech) -> list[Part]:
    """Return the parts of a speech, with words for all pictures that a model made."""
    return [in_words(part) for part in speech.parts] if speech.role == "ai" else speech.parts


def to_langchain(items: Sequence[MemoryItem]) -> "list[BaseMessage]":
    """Return LangChain's messages, for `model.invoke` or the state of a graph."""
    try:
        from langchain_core import messages as kinds  # noqa: PLC0415 - for those who have it
    except ModuleNotFoundError as exc:
        raise missing_extra("messages of LangChain need it", "langchain") from exc
    messages: list[BaseMessage] = []
    for speech in _speeches(items):
        parts = _worded(speech)
        content: Any = [_langchain(part) for part in parts]
        if all(part.kind == "text" for part in parts):
            content = "\n".join(part.text for part in parts)
        if speech.role == "system":
            messages.append(kinds.SystemMessage(content=content))
        elif speech.role == "human":
            messages.append(kinds.HumanMessage(content=content))
        else:
            calls = [
                {"type": "tool_call", "id": each.id, "name": each.name, "args": each.input}
                for each in speech.calls
            ]
            messages.append(kinds.AIMessage(content=content, tool_calls=calls))
        messages += [
            kinds.ToolMessage(
                content=each.text,
                tool_call_id=each.call.id,
                name=each.call.name,
                status="error" if each.is_error else "success",
            )
            for each in speech.results
        ]
    return messages


def _langchain(part: Part) -> Message:
    if part.kind == "thought" and part.data:
        return {"type": "thinking", "thinking": part.text, "signature": part.data}
    if part.kind == "thought":
        return {"type": "reasoning", "reasoning": part.text}
    if part.kind == "hidden thought":
        return {"type": "redacted_thinking", "data": part.data}
    if part.kind in ("image", "url"):
        url = part.text or f"data:{part.media};base64,{part.data}"
        return {"type": "image_url", "image_url": {"url": url}}
    if part.block is not None or part.kind == "text":
        return part.block or {"type": "text", "text": part.text}
    kind = part.media.partition("/")[0]
    kind = kind if kind in ("audio", "video") else "file"
    held = {"base64": part.data} if part.kind == "file" else {"url": part.text}
    return {"type": kind, **held, "mime_type": part.media}


# Pydantic AI


def to_pydantic_ai(items: Sequence[MemoryItem]) -> "list[ModelMessage]":
    """Return Pydantic AI's messages, for `message_history` of an agent's run."""
    try:
        from pydantic_ai import messages as kinds  # noqa: PLC0415 - for those who have it
    except ModuleNotFoundError as exc:
        raise missing_extra("messages of Pydantic AI need it", "pydantic-ai") from exc
    messages: list[ModelMessage] = []
    for speech in _speeches(items):
        if speech.role == "system":
            text = "\n".join(part.text for part in speech.parts)
            messages.append(kinds.ModelRequest(parts=[kinds.SystemPromptPart(content=text)]))
        elif speech.role == "human":
            content = [made for part in speech.parts if (made := _prompt(kinds, part)) is not None]
            texts = [each for each in content if isinstance(each, str)]
            said = "\n".join(texts) if len(texts) == len(content) else content
            # What has no form here is left out, but an empty message no provider takes.
            prompt = kinds.UserPromptPart(content=said or OPENING)
            messages.append(kinds.ModelRequest(parts=[prompt]))
        else:
            parts = [made for part in _worded(speech) if (made := _said(kinds, part)) is not None]
            parts += [
                kinds.ToolCallPart(tool_name=each.name, args=each.input, tool_call_id=each.id)
                for each in speech.calls
            ]
            # As above; without it, what the user says before and after would meet.
            said_nothing = kinds.TextPart(content=OPENING)
            messages.append(kinds.ModelResponse(parts=parts or [said_nothing]))
        if speech.results:
            returned = [
                kinds.ToolReturnPart(
                    tool_name=each.call.name,
                    content=each.text,
                    tool_call_id=each.call.id,
                    outcome="failed" if each.is_error else "success",
                )
                for each in speech.results
            ]
            messages.append(kinds.ModelRequest(parts=returned))
    return messages


def _prompt(kinds: Any, part: Part) -> Any:
    """Return a part of what a person says; `None` for what Pydantic AI has no form for."""
    if part.kind == "text":
        return part.text
    if part.kind == "url":
        return kinds.ImageUrl(url=part.text)
    if part.kind == "file url":
        media = {"media_type": part.media} if part.media else {}
        return kinds.DocumentUrl(url=part.text, **media)
    data = data_of(part.data)
    if part.kind in ("image", "file") and data:
        named = {"identifier": part.name} if part.name else {}
        return kinds.BinaryContent(data=data, media_type=part.media, **named)
    return None


def _said(kinds: Any, part: Part) -> Any:
    """Return a part of what a model says."""
    if part.kind == "text":
        return kinds.TextPart(content=part.text)
    of_anthropic = {"signature": part.data, "provider_name": "anthropic"} if part.data else {}
    if part.kind == "thought":
        return kinds.ThinkingPart(content=part.text, **of_anthropic)
    if part.kind == "hidden thought":
        return kinds.ThinkingPart(content="", id="redacted_thinking", **of_anthropic)
    return None
