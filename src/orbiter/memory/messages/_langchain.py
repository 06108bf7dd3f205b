"""LangChain's messages as messages of the provider whose blocks they hold.

Read are the objects' own fields (`{"type": "human", "content": …}`), what `message_to_dict` makes
of them, and what `dumpd` does.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from orbiter.memory.errors import MessageError
from orbiter.memory.messages._anthropic import BLOCKS
from orbiter.memory.messages._common import objects_in, type_of
from orbiter.memory.messages.codec import Format, Message

__all__ = ["langchain_fields", "read_langchain"]

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "chat": "",
    "remove": "",
}
_CHUNK = "MessageChunk"
_OURS = frozenset(("tool_call", "invalid_tool_call", "tool_call_chunk"))
"""Blocks that say what `tool_calls` says."""


def langchain_fields(message: Mapping[str, Any]) -> Message | None:
    """Return the fields of a LangChain message, however it was written down; `None` if it is none.

    Its `type` is there as LangChain names it, without the end that a chunk has.
    """
    fields: Mapping[str, Any] = message
    kind = message.get("type")
    if kind == "constructor" and message.get("lc") is not None:
        fields = message.get("kwargs") or {}
        path = message.get("id")
        name = path[-1] if isinstance(path, list) and path else ""
        kind = fields.get("type") or _kind(str(name).removesuffix("Message"))
    elif isinstance(message.get("data"), Mapping):
        fields = message["data"]
    kind = _kind(kind)
    if kind not in _ROLES or "content" not in fields or ("role" in fields and kind != "chat"):
        return None
    return {**fields, "type": kind}


def _kind(kind: object) -> str:
    return kind.removesuffix(_CHUNK).lower() if isinstance(kind, str) else ""


def read_langchain(
    fields: Mapping[str, Any], format_of: Callable[[Message], Format]
) -> list[tuple[Format, Message]]:
    """Return the messages that *fields* stand for, each with its format.

    *format_of* tells the format of a message by its blocks.
    """
    kind = fields["type"]
    if kind == "remove":
        raise MessageError("message 0: a LangChain `RemoveMessage` says nothing; use `forget`")
    role = fields["role"] if kind == "chat" else _ROLES[kind]
    content = fields["content"]
    if isinstance(content, list):
        content = [_block(block) for block in content]
    message: Message = {"role": role, "content": content}
    if fields.get("name"):
        message["name"] = fields["name"]
    if kind == "ai":
        return _read_ai(message, [*_calls(fields.get("tool_calls")), *_invalid(fields)])
    if kind == "system" and _developer(fields):
        message["role"] = "developer"
    if kind == "tool":
        return [_read_tool(message, fields)]
    return [(format_of(message) if isinstance(content, list) else "openai", message)]


def _developer(fields: Mapping[str, Any]) -> bool:
    more = fields.get("additional_kwargs")
    return isinstance(more, Mapping) and more.get("__openai_role__") == "developer"


def _read_tool(message: Message, fields: Mapping[str, Any]) -> tuple[Format, Message]:
    id = fields.get("tool_call_id")
    if fields.get("status") != "error":
        return "openai", {**message, "tool_call_id": id}
    # Only Anthropic's messages say that a tool failed.
    block = {"type": "tool_result", "tool_use_id": id, "content": message["content"]}
    return "anthropic", {"role": "user", "content": [{**block, "is_error": True}]}


def _calls(calls: object) -> list[Message]:
    return [
        {"id": call.get("id"), "name": call.get("name"), "args": call.get("args") or {}}
        for call in objects_in(calls)
    ]


def _invalid(fields: Mapping[str, Any]) -> list[Message]:
    """Return the calls whose arguments are no JSON; the model made them, and awaits results."""
    return _calls(fields.get("invalid_tool_calls"))


def _read_ai(message: Message, calls: list[Message]) -> list[tuple[Format, Message]]:
    blocks = message["content"] if isinstance(message["content"], list) else []
    kinds = {type_of(block) for block in blocks}
    if kinds & (BLOCKS - {"document"}):
        return [("anthropic", {"role": "assistant", "content": _anthropic(blocks, calls)})]
    if "function_call" in kinds or any(map(_is_reasoning_entry, blocks)):
        return [("openai-responses", entry) for entry in _entries(blocks, calls)]
    thoughts = [block["reasoning"] for block in blocks if isinstance(block.get("reasoning"), str)]
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if blocks:
        hidden = _OURS | {"reasoning"}
        message["content"] = [block for block in blocks if type_of(block) not in hidden]
    if calls:
        message["tool_calls"] = [
            {
                **({"id": call["id"]} if call["id"] else {}),
                "type": "function",
                "function": {"name": call["name"], "arguments": _text(call["args"])},
            }
            for call in calls
        ]
        message["content"] = message["content"] or None
    return [("openai", message)]


def _text(args: object) -> str:
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)


def _anthropic(blocks: Iterable[Message], calls: Iterable[Message]) -> list[Message]:
    """Return Anthropic's blocks, with the arguments of the calls as LangChain has put them."""
    left = {call["id"]: call for call in calls}
    kept_blocks = []
    for block in blocks:
        if type_of(block) in _OURS:
            continue
        plain = {key: value for key, value in block.items() if key not in ("index", "partial_json")}
        if type_of(block) == "tool_use" and block.get("id") in left:
            plain["input"] = left.pop(block["id"])["args"]
        kept_blocks.append(plain)
    uses = [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
        for call in left.values()
    ]
    return [*kept_blocks, *uses]


def _is_reasoning_entry(block: Mapping[str, Any]) -> bool:
    return type_of(block) == "reasoning" and "reasoning" not in block


def _entries(blocks: Iterable[Message], calls: Iterable[Message]) -> list[Message]:
    """Return the entries of an OpenAI response that *blocks* were made from."""
    left = {call["id"]: call for call in calls}
    entries: list[Message] = []
    for block in blocks:
        entry = {key: value for key, value in block.items() if key != "index"}
        if type_of(block) in ("text", "refusal"):
            id = entry.pop("id", None)
            said = {"text": "output_text", "refusal": "refusal"}[type_of(block)]
            entry = {"type": "message", "role": "assistant", "content": [{**entry, "type": said}]}
            entry |= {"id": id} if id else {}
        left.pop(entry.get("call_id"), None)
        if type_of(block) not in _OURS:
            entries.append(entry)
    entries += [
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["name"],
            "arguments": _text(call["args"]),
        }
        for call in left.values()
    ]
    return entries


def _block(block: object) -> Message:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not isinstance(block, Mapping):
        raise MessageError(
            f"message 0: a block of `content` must be a dict, not {type(block).__name__}"
        )
    url, data = block.get("url"), block.get("base64", block.get("data"))
    if block.get("type") == "image" and "source" not in block and (url or data):
        mime = block.get("mime_type", "image/png")
        address = url or f"data:{mime};base64,{data}"
        return {"type": "image_url", "image_url": {"url": address}}
    return dict(block)
