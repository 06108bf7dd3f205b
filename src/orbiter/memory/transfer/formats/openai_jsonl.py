"""OpenAI's messages in lines: a conversation to a line, as for fine-tuning, or one message each.

A line has no name of its own. So a conversation is known by what it says, unless it brings an id;
messages in lines are one conversation, known by the file's name and how it begins.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath

from orbiter.memory.messages import OpenCalls, read_on
from orbiter.memory.model.items import MemoryItem, ToolMemory, calls_of
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.json_helpers import (
    UNREADABLE,
    as_object,
    compact,
    first_text,
    instant,
    reason,
)
from orbiter.memory.transfer.formats.threads import Thread, cut, digest, start_of

__all__ = ["OpenAIMessages"]

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_IDS = ("conversation_id", "session_id", "thread_id", "id")
_TIMES = ("created_at", "timestamp", "create_time", "created")
_TRAINING = ("weight", *_TIMES)
"""Keys of a message that no API takes."""

_MAX_OPEN = 100

Record = Mapping[str, object]


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

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the messages in the order of the file."""
        members = list(source.members())
        for member in members:
            where = f"{member.name}, " if member is not source else ""
            if len(members) == 1 or member.name.endswith(".jsonl"):
                yield from _read(member, where, complain)


def _read(source: SourceFile, where: str, complain: ReportProblem) -> Iterator[SourceMemory]:
    loose: _Reading | None = None
    last = part = 0
    for line, value in source.values():
        last, part = line, part + 1 if line == last else 0
        place = f"{where}line {line}"
        record = as_object(value)
        messages = record.get("messages")
        if isinstance(messages, list):
            begin = start_of(_time(record), [_time(as_object(each)) for each in messages])
            id = first_text(record, *_IDS) or digest(compact(messages), size=16)
            thread = Thread("openai", id, title=first_text(record, "title"), begin=begin)
            reading = _Reading(thread, complain)
            for number, each in enumerate(messages):
                yield from reading.read(each, str(number), f"{place}, message {number + 1}")
        elif _is_message(record):
            if loose is None:
                stem = PurePosixPath(source.name).stem
                thread = Thread("openai", f"{stem}-{digest(compact(record), size=4)}")
                loose = _Reading(thread, complain)
            yield from loose.read(record, f"{line}.{part}" if part else str(line), place)
        else:
            complain(place, "it has neither `messages` nor a `role`")


class _Reading:
    """One conversation, message by message."""

    def __init__(self, thread: Thread, complain: ReportProblem) -> None:
        self._thread = thread
        self._complain = complain
        self._tools: dict[str, str] = {}
        """By open call: what it calls."""
        self._calls = OpenCalls(seed=thread.id)

    def read(self, value: object, key: str, place: str) -> Iterator[SourceMemory]:
        record = as_object(value)
        at = _time(record)
        message = {name: each for name, each in record.items() if name not in _TRAINING}
        try:
            message = self._renewed(message, key)
            if isinstance(text := message.get("content"), str):
                message["content"] = cut(text, self._complain, place)
            items = read_on([message], "openai", self._calls)
        except UNREADABLE as exc:
            self._complain(place, reason(exc).removeprefix("message 0: "))
            return
        for item in items:
            self._name_tool(item)
            name = first_text(record, "name")
            extra = {"original_id": first_text(record, "id"), "name": name}
            if not isinstance(item, ToolMemory):
                extra["speaker"] = name
            yield self._thread.next_message(item, key=key, at=at, extra=extra)

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
    for name in _TIMES:
        if name in record and (at := instant(record[name])) is not None:
            return at
    return None
