"""Anthropic Messages: calls are blocks of the assistant's message, results of the next user's.

The user message after a call starts with one `tool_result` per call. System text stands outside
the messages. Thinking blocks go back unmodified, and never last.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from orbiter.memory.conversation.windows import Unit
from orbiter.memory.errors import MessageError
from orbiter.memory.messages._common import (
    OPENING,
    WireIds,
    block_fault,
    block_types,
    build,
    joined_text,
    joined_turns,
    kept,
    legal_name,
    list_faults,
    must_be,
    must_be_blocks,
    objects_in,
    same_calls,
    sound,
    text_block,
    type_of,
    with_text,
)
from orbiter.memory.messages._open_calls import OpenCalls
from orbiter.memory.messages.codec import Answer, Message, Problem
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
from orbiter.memory.model.tool_calls import call_id, call_input, call_name

LABEL = "Anthropic"
SYSTEM_OUTSIDE = True
HAS_CALL_IDS = True
NEEDS_ROLE = True

BLOCKS = frozenset(
    (
        "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document",
        "mcp_tool_use", "mcp_tool_result", "web_search_tool_result", "container_upload",
        "search_result", "compaction", "fallback", "mcp_tool_listing",
    )
)  # fmt: skip
"""Types of blocks that only Anthropic has."""
_BLOCK_KEYS = frozenset(("cache_control", "citations", "source"))
_ID = r"[A-Za-z0-9_-]"
_THINKING = frozenset(("thinking", "redacted_thinking"))
_MODEL_ONLY = _THINKING | {"tool_use", "server_tool_use"}
_RESULT_KEYS = frozenset(("type", "tool_use_id", "content", "is_error"))
_NO_OUTPUT = "(no output)"


def encode(units: Iterable[Unit]) -> list[Message]:
    """Return the messages of whole *units*, oldest first; system items are not among them."""
    ids = WireIds(_ID, 64)
    messages: list[Message] = []
    for unit in units:
        head = unit[0]
        role = role_of(head)
        if role not in {"human", "ai"}:
            continue
        wire = ids.name_calls(calls_of(head))
        if content := _content(head, wire):
            name = "user" if role == "human" else "assistant"
            messages.append({"role": name, "content": content})
        if len(unit) > 1:
            results = [_result(item, wire) for item in unit[1:]]
            messages.append({"role": "user", "content": results})
    return messages


def arrange(messages: Sequence[Message]) -> list[Message]:
    """Return *messages* in turns that alternate; what a person says follows a tool's results."""
    turns = joined_turns(messages, _joined)
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": OPENING})
    return turns


def _joined(first: Message, second: Message) -> Message | None:
    if first["role"] != second["role"]:
        return None
    one, two = first["content"], second["content"]
    if isinstance(one, str) and isinstance(two, str):
        return {**first, "content": f"{one}\n\n{two}"}
    return {**first, "content": [*_as_blocks(one), *_as_blocks(two)]}


def _content(item: MemoryItem, wire: Mapping[str, str]) -> str | list[Message]:
    role = "assistant" if role_of(item) == "ai" else "user"
    raw = sound(kept(item, "anthropic", list), partial(_fault, role=role))
    # A result is an item of its own, also in a user's message.
    raw = [block for block in raw if not _is_result(block)]
    calls = calls_of(item)
    # The API refuses text that is empty or only white space.
    text = item.content if item.content.strip() else ""
    if not raw and not calls:
        return text
    if joined_text(raw) != item.content:
        raw = with_text(raw, text, {"type": "text", "text": text}, before=_is_use)
    if same_calls(_calls(raw), calls):
        blocks = [_named(block, wire) if _is_use(block) else block for block in raw]
    else:
        blocks = [block for block in raw if not _is_use(block)]
        blocks += [_use(call, wire) for call in calls]
    blocks = [block for block in blocks if (said := text_block(block)) is None or said.strip()]
    while blocks and type_of(blocks[-1]) in _THINKING:
        blocks.pop()
    return blocks


def _use(call: Mapping[str, Any], wire: Mapping[str, str]) -> Message:
    return {
        "type": "tool_use",
        "id": wire[call_id(call)],
        "name": legal_name(call_name(call)),
        "input": call_input(call),
    }


def _named(block: Message, wire: Mapping[str, str]) -> Message:
    return {**block, "id": wire[call_id(block)], "name": legal_name(block.get("name"))}


def _result(item: MemoryItem, wire: Mapping[str, str]) -> Message:
    native = kept(item, "anthropic", dict)
    blocks = native.get("content")
    content: Any = item.content
    if isinstance(blocks, list):
        text = {"type": "text", "text": content}
        content = with_text(sound(blocks, _inner_fault), content, text)
    is_error = isinstance(item, ToolMemory) and item.is_error
    if is_error:
        content = content or _NO_OUTPUT
    block: Message = {"type": "tool_result", "tool_use_id": wire[result_id(item)]}
    if content or blocks == "" or isinstance(blocks, list):
        block["content"] = content
    if is_error or native.get("is_error") is False:
        block["is_error"] = is_error
    return block | {key: value for key, value in native.items() if key not in _RESULT_KEYS}


def _as_blocks(content: str | list[Message]) -> list[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _is_use(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_use"


def _is_result(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_result"


def _is_signed(block: Mapping[str, Any]) -> bool:
    return isinstance(signature := block.get("signature"), str) and bool(signature)


def _fault(block: Mapping[str, Any], role: object) -> str | None:
    if _is_result(block) and role != "user":
        return "only a user message can hold tool results"
    if type_of(block) in _MODEL_ONLY and role != "assistant":
        return "only the assistant can call tools or think"
    if type_of(block) == "thinking" and not _is_signed(block):
        return "a thinking block needs the `signature` it came with"
    if _is_use(block) and not isinstance(block.get("input"), Mapping):
        return f"input of tool call `{block.get('id')}` must be an object"
    return block_fault(block)


def _inner_fault(block: Mapping[str, Any]) -> str | None:
    if _is_result(block) or type_of(block) in _MODEL_ONLY:
        return f"a tool result cannot hold `{type_of(block)}`"
    return block_fault(block)


def decode(
    messages: Sequence[Mapping[str, Any]], metadata: MemoryMetadata, open_calls: OpenCalls
) -> Iterator[MemoryItem]:
    """Yield items; a user message gives one per tool result, then one for the rest."""
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role == "system":
            open_calls.speak()
            yield _read_system(content, index, metadata)
            continue
        if role not in ("user", "assistant"):
            raise MessageError(f"message {index}: unknown role {role!r}; use `user` or `assistant`")
        if role == "user":
            open_calls.speak()
        if isinstance(content, str):
            kind = HumanMemory if role == "user" else AIMemory
            yield build(kind, index, content=content, metadata=metadata)
            continue
        blocks = must_be_blocks(content, index, "`content`")
        results = [block for block in blocks if _is_result(block)]
        others = [block for block in blocks if not _is_result(block)]
        for block in results:
            yield _read_result(block, index, open_calls, metadata)
        if others or not results:
            if role == "assistant":
                others = _with_ids(others, open_calls)
            follows = bool(results)
            yield _read_blocks(others, role, index, metadata, follows_results=follows)


def _read_system(content: object, index: int, metadata: MemoryMetadata) -> SystemMemory:
    """Return what the system says among the messages; it is written outside of them."""
    if isinstance(content, str):
        return build(SystemMemory, index, content=content, metadata=metadata)
    blocks = must_be_blocks(content, index, "`content`")
    for block in blocks:
        if type_of(block) != "text":
            raise MessageError(
                f"message {index}: a block of type `{type_of(block)}` in a `system` message cannot "
                "be kept, only text; leave it out"
            )
    return build(SystemMemory, index, content=joined_text(blocks), metadata=metadata)


def _with_ids(blocks: list[Message], open_calls: OpenCalls) -> list[Message]:
    calls = iter(open_calls.open(_calls(blocks)))
    return [{**block, "id": next(calls)["id"]} if _is_use(block) else block for block in blocks]


def _read_result(
    block: Mapping[str, Any], index: int, open_calls: OpenCalls, metadata: MemoryMetadata
) -> ToolMemory:
    id, name = open_calls.answer(
        block.get("tool_use_id"), block.get("name"), index=index, field="`tool_use_id`"
    )
    content = block.get("content")
    rest = {key: value for key, value in block.items() if key not in _RESULT_KEYS}
    if isinstance(content, list):
        rest["content"] = must_be_blocks(content, index, "`content` of a tool result")
    elif content == "":
        rest["content"] = ""
    if block.get("is_error") is False:
        rest["is_error"] = False
    text = joined_text(content) if isinstance(content, list) else content
    if text is None or (block.get("is_error") and content == _NO_OUTPUT):
        text = ""
    return build(
        ToolMemory,
        index,
        content=must_be(text, str, index, "`content` of a tool result"),
        tool_call_id=id,
        tool_name=name,
        is_error=bool(block.get("is_error")),
        native={"anthropic": rest} if rest else {},
        metadata=metadata,
    )


def _read_blocks(
    blocks: list[Message],
    role: str,
    index: int,
    metadata: MemoryMetadata,
    *,
    follows_results: bool,
) -> MemoryItem:
    calls = _calls(blocks)
    fields: dict[str, Any] = {"content": joined_text(blocks), "metadata": metadata}
    kind: type[MemoryItem] = HumanMemory
    if role == "assistant":
        kind = AIMemory
        fields["tool_calls"] = calls
    item = build(kind, index, **fields)
    plain = _content(item, {call_id(call): call_id(call) for call in calls})
    if (_as_blocks(plain) if follows_results and plain else plain) == blocks:
        return item
    return build(kind, index, native={"anthropic": blocks}, **fields)


def _calls(blocks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
        for block in blocks
        if _is_use(block)
    ]


def check(messages: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what Anthropic would refuse."""
    if messages and messages[0].get("role") != "user":
        yield Problem(0, "the first message must be the user's")
    seen: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            yield Problem(index, f"unknown role {role!r}")
        content_blocks = (
            _as_blocks(content) if content and isinstance(content, str) else content or None
        )
        for reason in list_faults(content_blocks, "content", partial(_fault, role=role)):
            yield Problem(index, reason)
        blocks = objects_in(content_blocks)
        yield from _check_results(index, blocks, waiting)
        if blocks and role == "assistant" and type_of(blocks[-1]) in _THINKING:
            yield Problem(index, "the last block must not be thinking")
        if any((said := text_block(block)) is not None and not said.strip() for block in blocks):
            yield Problem(index, "a text block is empty or only white space")
        uses = [block for block in blocks if _is_use(block)]
        for block in uses:
            yield from _check_use(index, block, seen)
            seen.add(str(block.get("id")))
        waiting = [str(block.get("id")) for block in uses]
    if waiting:
        yield Problem(len(messages) - 1, f"tool calls never answered: {waiting}")


def _check_results(
    index: int, blocks: Sequence[Mapping[str, Any]], waiting: Sequence[str]
) -> Iterator[Problem]:
    results = [block for block in blocks if _is_result(block)]
    if results != list(blocks[: len(results)]):
        yield Problem(index, "tool results must come first")
    result_ids = [str(block.get("tool_use_id")) for block in results]
    if sorted(result_ids) != sorted(waiting):
        yield Problem(index, f"calls of the message before: {waiting}, results here: {result_ids}")
    for block in results:
        content = block.get("content")
        if block.get("is_error") and not content:
            yield Problem(index, "the content of a tool error must not be empty")
        if content is not None and content != [] and not isinstance(content, str):
            for reason in list_faults(content, "content of a tool result", _inner_fault):
                yield Problem(index, reason)


def _check_use(index: int, block: Mapping[str, Any], seen: set[str]) -> Iterator[Problem]:
    id, name = block.get("id"), block.get("name")
    if not isinstance(id, str) or not re.fullmatch(f"{_ID}+", id):
        yield Problem(index, f"tool call id {id!r} must match [A-Za-z0-9_-]+")
    elif id in seen:
        yield Problem(index, f"tool call id `{id}` is used twice")
    if name != legal_name(name):
        yield Problem(index, f"tool name {name!r} must match [A-Za-z0-9_-]{{1,64}}")


def claims(message: Mapping[str, object]) -> bool:
    """Tell whether *message* has blocks of Anthropic's, or is a whole answer of it."""
    inside = block_types(message)
    is_answer = message.get("type") == "message" and "usage" in message
    if inside & BLOCKS or "stop_reason" in message or is_answer:
        return True
    if any(block.keys() & _BLOCK_KEYS for block in objects_in(message.get("content"))):
        return True
    return any(str(kind).endswith("_tool_result") for kind in inside)  # each server's tool has one


def unwrap(answer: Mapping[str, Any]) -> Answer | None:  # noqa: ARG001
    """Return nothing: an answer of Anthropic is a message."""
    return None


def as_kwargs(messages: list[Message], system: str) -> dict[str, Any]:
    """Return the arguments of `client.messages.create`."""
    return {"messages": messages} | ({"system": system} if system else {})
