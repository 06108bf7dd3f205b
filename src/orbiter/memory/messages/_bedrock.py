"""Messages of Amazon Bedrock's Converse API, which Strands uses too, as Anthropic's.

A Converse block has one key that says what it is; Anthropic's says so in `type`. What Anthropic's
blocks cannot hold is refused by name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from orbiter.memory.errors import MessageError
from orbiter.memory.messages._common import json_text, keys_of, objects_in
from orbiter.memory.messages.codec import Message

__all__ = ["is_bedrock", "read_bedrock"]

_BLOCKS = frozenset(
    (
        "text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent",
        "cachePoint", "reasoningContent", "citationsContent", "searchResult",
    )
)  # fmt: skip
_DOCUMENTS = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
}


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
    """Return *message* as one of Anthropic's."""
    return {"role": message.get("role"), "content": _blocks(message["content"])}


def _blocks(content: Iterable[Mapping[str, Any]]) -> list[Message]:
    found: list[Message] = []
    for block in content:
        if "cachePoint" in block:
            if found:
                found[-1]["cache_control"] = {"type": "ephemeral"}
            continue
        found.append(_block(block))
    return found


def _block(block: Mapping[str, Any]) -> Message:
    kind = next(key for key in block if key in _BLOCKS)
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
    if kind in ("guardContent", "citationsContent"):
        return {"type": "text", "text": _inner_text(body)}
    made = _thought(body) if kind == "reasoningContent" else _file(kind, body)
    if made is None:
        raise MessageError(
            f"message 0: a block `{kind}` of Bedrock with {keys_of(body)} cannot be read; leave it "
            "out, or say in a `text` block what it holds"
        )
    return made


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
    if kind not in ("image", "document") or not isinstance(source, Mapping):
        return None
    form = str(body.get("format", ""))
    media = f"image/{form}" if kind == "image" else _DOCUMENTS.get(form)
    title = {"title": body["name"]} if body.get("name") else {}
    if isinstance(source.get("text"), str):
        held = {"type": "text", "media_type": "text/plain", "data": source["text"]}
    elif source.get("bytes") is not None and media:
        held = {"type": "base64", "media_type": media, "data": source["bytes"]}
    else:
        return None
    return {"type": kind, "source": held, **title}
