"""Letta's agent file, `.af`: an agent's memory blocks and its messages.

There are two shapes: one agent whose blocks are its `core_memory`, and several under `agents` that
share `blocks`. Some files are JSON that holds the JSON as a text.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial

from orbiter.memory.messages import from_messages
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.transfer.formats.foreign_items import Say, dated, note, read_each
from orbiter.memory.transfer.formats.foreign_values import (
    Record,
    as_object,
    compact,
    first_text,
    instant,
    later,
    objects_in,
    plain_text,
)
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory

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
        say = partial(complain, "the file")
        document = source.document()
        if isinstance(document, str):
            try:
                document = source.parsed(document, say)
            except ValueError as exc:
                say(f"it holds a text that is not valid JSON: {exc}")
        file = as_object(document)
        if isinstance(file.get("agents"), list):
            yield from _blocks(file, "blocks", "", complain)
            for number, agent in enumerate(objects_in(file, "agents")):
                yield from _agent(agent, number, complain)
        elif "core_memory" in file or "messages" in file:
            yield from _agent(file, 0, complain)
        else:
            say("it has neither `agents` nor `core_memory`")


def _agent(agent: Record, number: int, complain: ReportProblem) -> Iterator[SourceMemory]:
    name = first_text(agent, "name", "id") or f"agent-{number}"
    for field in ("core_memory", "memory_blocks"):
        yield from _blocks(agent, field, name, complain)
    rows = (
        (f"message {place} of `{name[:_MAX_NAME]}`", (place, message))
        for place, message in enumerate(objects_in(agent, "messages"))
    )
    yield from read_each(rows, _Messages(name).read, complain)


def _blocks(
    record: Record, field: str, agent: str, complain: ReportProblem
) -> Iterator[SourceMemory]:
    def read(row: tuple[int, str, Record], say: Say) -> Iterator[SourceMemory]:
        number, label, block = row
        if text := first_text(block, "value"):
            about = first_text(block, "description")
            extra = {"block": label, **({"description": about} if about else {})}
            at = instant(block.get("updated_at") or block.get("created_at"))
            item = note(say, text.strip("\n"), at=at, extra=extra, agent=agent or None)
            yield SourceMemory(item, compact(["block", agent, number, label]))

    rows = []
    for number, block in enumerate(objects_in(record, field)):
        label = first_text(block, "label", "id") or f"block-{number}"
        rows.append((f"block `{label}`", (number, label, block)))
    yield from read_each(rows, read, complain)


class _Messages:
    """The conversation of one agent; the file's order is the conversation's."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._last: datetime | None = None

    def read(self, row: tuple[int, Record], say: Say) -> Iterator[SourceMemory]:  # noqa: ARG002
        number, message = row
        at = instant(message.get("created_at")) or self._last
        if self._last is not None and at is not None and at <= self._last:
            at = later(self._last, 1)
        self._last = at
        metadata = MemoryMetadata(session_id=self._agent, agent_id=self._agent)
        items = from_messages([_as_chat(message)], "openai", metadata=metadata)
        own = first_text(message, "id") or str(number)
        for part, item in enumerate(items):
            yield SourceMemory(dated(item, at), compact(["message", self._agent, own, part]))


def _as_chat(message: Record) -> dict[str, object]:
    """Return a message of an agent file as OpenAI has it."""
    text = plain_text(message.get("content") or message.get("text"))
    role = message.get("role")
    if role == "user":
        text = _unwrapped(text)
    more = ("tool_calls", "tool_call_id", "name")
    fields = {name: message[name] for name in more if message.get(name)}
    return {"role": role, "content": text, **fields}


def _unwrapped(text: str) -> str:
    try:
        record = as_object(json.loads(text)) if text.startswith("{") else {}
    except (ValueError, RecursionError):
        return text
    return first_text(record, *_TEXT_FIELDS) or text
