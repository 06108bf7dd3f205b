"""Letta's agent file, `.af`: an agent's memory blocks and its messages.

There are two shapes: one agent whose blocks are its `core_memory`, and several under `agents` that
share `blocks`. Some files are JSON that holds the JSON as a text.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from orbiter.memory.messages import from_messages
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.json_helpers import (
    UNREADABLE,
    as_object,
    compact,
    first_text,
    instant,
    later,
    plain_text,
    reason,
    safely,
)
from orbiter.memory.transfer.io.json_stream import parsed_text

__all__ = ["Letta"]

_MAX_NAME = 80
_TEXT_FIELDS = ("message", "content")
"""Where Letta wraps what a user said in JSON: `{"type": "user_message", "message": …}`."""


class Letta:
    """Blocks are memories; each agent's messages are a conversation."""

    name = "letta"
    label = "An agent file of Letta"

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the name, or by what only agents have."""
        has_marks = b'"core_memory"' in head or (b'"agents"' in head and b'"block_ids"' in head)
        return source.name.endswith(".af") or has_marks

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the blocks, then the messages of each agent."""
        document = source.document()
        if isinstance(document, str):
            try:
                document = parsed_text(document, "the file", source.limits, complain)
            except ValueError as exc:
                complain("the file", f"it holds a text that is not valid JSON: {exc}")
        file = as_object(document)
        agents = file.get("agents")
        if isinstance(agents, list):
            yield from _blocks(_objects(file.get("blocks")), "", complain)
            for number, agent in enumerate(_objects(agents)):
                yield from _agent(agent, number, complain)
        elif "core_memory" in file or "messages" in file:
            yield from _agent(file, 0, complain)
        else:
            complain("the file", "it has neither `agents` nor `core_memory`")


def _objects(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _agent(
    agent: Mapping[str, object], number: int, complain: ReportProblem
) -> Iterator[SourceMemory]:
    name = first_text(agent, "name", "id") or f"agent-{number}"
    for field in ("core_memory", "memory_blocks"):
        yield from _blocks(_objects(agent.get(field)), name, complain)
    yield from _messages(name, _objects(agent.get("messages")), complain)


def _blocks(
    blocks: Sequence[Mapping[str, object]], agent: str, complain: ReportProblem
) -> Iterator[SourceMemory]:
    for number, block in enumerate(blocks):
        text = first_text(block, "value")
        if not text:
            continue
        label = first_text(block, "label", "id") or f"block-{number}"
        extra: dict[str, object] = {"block": label}
        if about := first_text(block, "description"):
            extra["description"] = about
        at = instant(block.get("updated_at") or block.get("created_at"))
        make = partial(_block, text, agent, extra)
        if (item := safely(make, complain, f"block `{label}`")) is not None:
            yield SourceMemory(_dated(item, at), compact(["block", agent, number, label]))


def _block(text: str, agent: str, extra: dict[str, object]) -> MemoryItem:
    metadata = MemoryMetadata(agent_id=agent or None, extra=extra)
    return MemoryItem(content=text.strip("\n"), metadata=metadata)


def _messages(
    agent: str, messages: Sequence[Mapping[str, object]], complain: ReportProblem
) -> Iterator[SourceMemory]:
    last: datetime | None = None
    for number, message in enumerate(messages):
        at = instant(message.get("created_at")) or last
        if last is not None and at is not None and at <= last:
            at = later(last, 1)  # the file's order is the conversation's
        last = at
        place = f"message {number} of `{agent[:_MAX_NAME]}`"
        try:
            metadata = MemoryMetadata(session_id=agent, agent_id=agent)
            items = from_messages([_as_chat(message)], "openai", metadata=metadata)
        except UNREADABLE as exc:  # a message of no known shape, or one that no store can hold
            complain(place, reason(exc))
            continue
        for part, item in enumerate(items):
            own = first_text(message, "id") or str(number)
            yield SourceMemory(_dated(item, at), compact(["message", agent, own, part]))


def _as_chat(message: Mapping[str, object]) -> dict[str, object]:
    """Return a message of an agent file as OpenAI has it."""
    text = plain_text(message.get("content") or message.get("text"))
    role = message.get("role")
    if role == "user":
        text = _unwrapped(text)
    chat: dict[str, object] = {"role": role, "content": text}
    for name in ("tool_calls", "tool_call_id", "name"):
        if message.get(name):
            chat[name] = message[name]
    return chat


def _unwrapped(text: str) -> str:
    if not text.startswith("{"):
        return text
    try:
        return first_text(as_object(json.loads(text)), *_TEXT_FIELDS) or text
    except (ValueError, RecursionError):
        return text


def _dated(item: MemoryItem, at: datetime | None) -> MemoryItem:
    return item if at is None else item.model_copy(update={"created_at": at, "updated_at": at})
