"""OpenAI's messages in lines: a conversation to a line, as for fine-tuning, or one message each.

A line has no name of its own. So a conversation is known by what it says, unless it brings an id;
messages in lines are one conversation, known by the file's name and how it begins.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import PurePosixPath

from orbiter.memory.messages import OpenCalls, read_on
from orbiter.memory.model.items import MemoryItem, ToolMemory, calls_of
from orbiter.memory.transfer.formats.foreign_items import (
    Say,
    Thread,
    cut,
    digest,
    matching,
    start_of,
)
from orbiter.memory.transfer.formats.foreign_values import (
    UNREADABLE,
    Record,
    as_object,
    compact,
    first_text,
    instant,
    reason,
)
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory

__all__ = ["OpenAIMessages"]

_MEMBER = re.compile(r".*\.jsonl")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_IDS = ("conversation_id", "session_id", "thread_id", "id")
_TIMES = ("created_at", "timestamp", "create_time", "created")
_TRAINING = ("weight", *_TIMES)
"""Keys of a message that no API takes."""

_MAX_OPEN = 100


class OpenAIMessages:
    """Each conversation is a session."""

    name = "openai"
    label = "Messages in OpenAI's format, .jsonl"

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the first line."""
        if not head or head.lstrip()[:1] != b"{" or b'"role"' not in head:
            return False
        _, value = next(source.values(), (0, None))
        record = as_object(value)
        return isinstance(record.get("messages"), list) or _is_message(record)

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:  # noqa: ARG002
        """Yield the messages in the order of the file."""
        for member in matching(source, _MEMBER):
            yield from _read(member)


def _read(source: SourceFile) -> Iterator[SourceMemory]:
    complain = source.complain
    loose: _Reading | None = None
    last = part = 0
    for line, value in source.values():
        last, part = line, part + 1 if line == last else 0
        place = f"line {line}"
        record = as_object(value)
        messages = record.get("messages")
        if isinstance(messages, list):
            begin = start_of(_time(record), [_time(as_object(each)) for each in messages])
            id = first_text(record, *_IDS) or digest(compact(messages), size=16)
            reading = _Reading(Thread("openai", id, first_text(record, "title"), begin))
            for number, each in enumerate(messages):
                say = partial(complain, f"{place}, message {number + 1}")
                yield from reading.read(as_object(each), str(number), say)
        elif _is_message(record):
            if loose is None:
                stem = PurePosixPath(source.name).stem
                loose = _Reading(Thread("openai", f"{stem}-{digest(compact(record), size=4)}"))
            key = f"{line}.{part}" if part else str(line)
            yield from loose.read(record, key, partial(complain, place))
        else:
            complain(place, "it has neither `messages` nor a `role`")


class _Reading:
    """One conversation, message by message."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._tools: dict[str, str] = {}
        """By open call: what it calls."""
        self._calls = OpenCalls(seed=thread.id)

    def read(self, record: Record, key: str, say: Say) -> Iterator[SourceMemory]:
        message = {name: each for name, each in record.items() if name not in _TRAINING}
        try:
            message = self._renewed(message, key)
            if isinstance(text := message.get("content"), str):
                message["content"] = cut(text, say)
            items = read_on([message], "openai", self._calls)
        except UNREADABLE as exc:
            say(reason(exc))
            return
        for item in items:
            self._name_tool(item)
            name = first_text(record, "name")
            extra = {"original_id": first_text(record, "id"), "name": name}
            if not isinstance(item, ToolMemory):
                extra["speaker"] = name
            yield self._thread.next_message(item, key=key, at=_time(record), extra=extra)

    def _renewed(self, message: dict[str, object], key: str) -> dict[str, object]:
        """Return a message of the time before there were tools as one that calls them."""
        called = as_object(message.pop("function_call", None))
        if called:
            call = {"id": f"call_{key}", "type": "function", "function": dict(called)}
            message["tool_calls"] = [call]
        if message.get("role") == "function":
            name = first_text(message, "name")
            open_calls = [id for id, tool in self._tools.items() if tool == name]
            id = (open_calls or [""])[-1]
            message = {**message, "role": "tool", "tool_call_id": id, "tool_name": name}
            message.pop("name", None)
        return message

    def _name_tool(self, item: MemoryItem) -> None:
        if isinstance(item, ToolMemory):
            item.__dict__["tool_name"] = self._tools.pop(item.tool_call_id, "")
        for call in calls_of(item):
            body = as_object(call.get("function")) or as_object(call.get("custom"))
            self._tools[str(call.get("id"))] = first_text(body, "name")[:256]
            if len(self._tools) > _MAX_OPEN:
                del self._tools[next(iter(self._tools))]


def _is_message(record: Record) -> bool:
    return record.get("role") in _ROLES and ("content" in record or "tool_calls" in record)


def _time(record: Record) -> datetime | None:
    return next((at for name in _TIMES if (at := instant(record.get(name))) is not None), None)
