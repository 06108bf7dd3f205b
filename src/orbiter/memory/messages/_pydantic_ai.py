"""Pydantic AI's messages as messages of OpenAI Chat, or of Anthropic where only those can say it.

Read are `ModelRequest` and `ModelResponse`, and what `ModelMessagesTypeAdapter` writes of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from orbiter.memory.errors import MessageError
from orbiter.memory.messages._common import json_text, objects_in
from orbiter.memory.messages.codec import Format, Message
from orbiter.memory.model.tool_calls import call_input

__all__ = ["is_pydantic_ai", "plain_pydantic_ai", "read_pydantic_ai"]

_KINDS = ("request", "response")
_SIGNED = ("anthropic", "bedrock")
"""Whose thinking goes back with its signature."""
_TEXTS = ("text-content", "structured-content")
_STANDARD = str.maketrans("-_", "+/")
"""Pydantic writes bytes in the alphabet for URLs, and providers read the other one."""


def is_pydantic_ai(value: object) -> bool:
    """Tell whether *value* is a `ModelRequest` or a `ModelResponse`."""
    is_message = is_dataclass(value) and getattr(value, "kind", None) in _KINDS
    return is_message and isinstance(getattr(value, "parts", None), Sequence)


def plain_pydantic_ai(value: object) -> Message:
    """Return a message as `ModelMessagesTypeAdapter` would write it."""
    plain = to_jsonable_python(value, bytes_mode="base64", exclude_none=True, fallback=str)
    return dict(plain)


def read_pydantic_ai(message: Mapping[str, Any]) -> list[tuple[Format, Message]] | None:
    """Return the messages that *message* stands for; `None` for one of another shape.

    What was said and called is read, and what tools returned. The rest is for Pydantic AI itself:
    instructions, settings, what a provider's own tools did.
    """
    parts = objects_in(message.get("parts"))
    is_ours = message.get("kind") in _KINDS and all("part_kind" in part for part in parts)
    if not is_ours or "role" in message:
        return None
    if message["kind"] == "response":
        return _read_response(parts)
    return [pair for part in parts if (pair := _read_part(part)) is not None]


def _read_part(part: Message) -> tuple[Format, Message] | None:
    kind = str(part["part_kind"])
    if kind == "system-prompt":
        return "openai", {"role": "system", "content": part.get("content")}
    if kind == "retry-prompt" and part.get("tool_name"):
        return _read_result({**part, "outcome": "retried"})
    if kind.endswith("-return"):
        return _read_result(part)
    content = _prompt(part)
    if content is None:
        return None
    if any(block["type"] == "document" for block in objects_in(content)):
        # Of the formats, Anthropic's has documents by URL beside all else.
        content = [_of_anthropic(block) for block in objects_in(content)]
        return "anthropic", {"role": "user", "content": content}
    return "openai", {"role": "user", "content": content}


def _of_anthropic(block: Message) -> Message:
    """Return a block of a prompt as one of Anthropic's."""
    if block["type"] in ("text", "document"):
        return block
    url = str(block["image_url"]["url"] if block["type"] == "image_url" else "")
    kind, url = ("image", url) if url else ("document", str(block["file"]["file_data"]))
    if not url.startswith("data:"):
        return {"type": kind, "source": {"type": "url", "url": url}}
    media, _, data = url.removeprefix("data:").partition(";base64,")
    title = {"title": block["file"]["filename"]} if kind == "document" else {}
    return {"type": kind, "source": {"type": "base64", "media_type": media, "data": data}, **title}


def _read_result(part: Message) -> tuple[Format, Message]:
    id, text = part.get("tool_call_id"), _text(part.get("content"))
    if part.get("outcome", "success") == "success":
        return "openai", {"role": "tool", "tool_call_id": id, "content": text}
    # Only Anthropic's messages say that a tool failed.
    block = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": True}
    return "anthropic", {"role": "user", "content": [block]}


def _read_response(parts: list[Message]) -> list[tuple[Format, Message]]:
    thoughts = [part for part in parts if part["part_kind"] == "thinking"]
    if any(map(_is_signed, thoughts)):
        blocks = [block for part in parts if (block := _block(part)) is not None]
        return [("anthropic", {"role": "assistant", "content": blocks})]
    texts = [text for text in map(_said, parts) if text]
    calls = [
        {
            "id": part.get("tool_call_id"),
            "type": "function",
            "function": {"name": part.get("tool_name"), "arguments": _arguments(part)},
        }
        for part in parts
        if _is_call(part)
    ]
    if not texts and not calls:
        return []
    message: Message = {"role": "assistant", "content": "\n".join(texts) or None}
    if calls:
        message["tool_calls"] = calls
    if thought := "\n".join(part.get("content") or "" for part in thoughts):
        message["reasoning_content"] = thought
    return [("openai", message)]


def _said(part: Message) -> str | None:
    """Return what the model said in *part*, if it did."""
    key = {"text": "content", "speech": "transcript"}.get(part["part_kind"])
    return part.get(key) if key else None


def _is_call(part: Message) -> bool:
    kind = str(part["part_kind"])
    return kind.endswith("-call") and not kind.startswith("builtin-")  # the provider's own tools


def _arguments(part: Message) -> str:
    args = part.get("args")
    return args if isinstance(args, str) and args else json_text(args or {})


def _is_signed(part: Message) -> bool:
    return bool(part.get("signature")) and part.get("provider_name") in _SIGNED


def _block(part: Message) -> Message | None:
    """Return a part of a response as a block of Anthropic's."""
    if said := _said(part):
        return {"type": "text", "text": said}
    if _is_call(part):
        called = {"id": part.get("tool_call_id"), "name": part.get("tool_name")}
        return {
            "type": "tool_use",
            **called,
            "input": call_input({"arguments": part.get("args") or {}}),
        }
    if part["part_kind"] != "thinking" or not _is_signed(part):
        return None
    if part.get("id") == "redacted_thinking":
        return {"type": "redacted_thinking", "data": part["signature"]}
    thought = part.get("content") or ""
    return {"type": "thinking", "thinking": thought, "signature": part["signature"]}


def _text(content: object) -> str:
    return content if isinstance(content, str) else json_text(content)


def _prompt(part: Message) -> str | list[Message] | None:
    """Return what a part tells the model as the user; `None` if it tells nothing."""
    kind, content = part["part_kind"], part.get("content")
    if kind == "speech":
        return part.get("transcript")
    if kind in ("retry-feedback", "retry-prompt"):
        return _text(content)
    if kind != "user-prompt" or not isinstance(content, list):
        return content if kind == "user-prompt" else None
    blocks = [_content(each) for each in content if _kind(each) != "cache-point"]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return "\n".join(texts) if len(texts) == len(blocks) else blocks


def _kind(each: object) -> object:
    return each.get("kind") if isinstance(each, Mapping) else None


def _content(each: Any) -> Message:
    if isinstance(each, str):
        return {"type": "text", "text": each}
    kind = _kind(each)
    if kind in _TEXTS:
        return {"type": "text", "text": each["content"]}
    if kind == "image-url":
        return {"type": "image_url", "image_url": {"url": each["url"]}}
    if kind == "document-url":
        return {"type": "document", "source": {"type": "url", "url": each["url"]}}
    if kind != "binary":
        raise MessageError(
            f"message 0: `{kind}` in a prompt of Pydantic AI cannot be read; leave it out, or say "
            "in a text what it holds"
        )
    media = str(each.get("media_type"))
    url = f"data:{media};base64,{str(each['data']).translate(_STANDARD)}"
    if media.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {
        "type": "file",
        "file": {"filename": each.get("identifier") or "file", "file_data": url},
    }
