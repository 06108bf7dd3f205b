"""Claude Code's transcripts: a file of lines for each session, each line a message or a note.

A message of the model comes in several lines that share its id, one for each block; they are put
together again. What a subagent did is a session of its own. Notes of the program are not read.
"""

import re
from collections.abc import Iterator
from typing import TypeVar

from orbiter.memory.messages import from_messages
from orbiter.memory.model.items import calls_of
from orbiter.memory.transfer.formats.foreign_items import (
    Say,
    Thread,
    cut,
    matching,
    note,
    read_each,
)
from orbiter.memory.transfer.formats.foreign_values import Record, as_object, first_text, instant
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory

__all__ = ["ClaudeCode"]

_MEMBER = re.compile(r".*\.jsonl")
_NOTES = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")
_COMMANDS = ("<command-", "<local-command-", "<bash-")
"""How the lines begin that a command of the program wrote in the user's name."""

_MAX_KNOWN = 20_000

_Turn = tuple[int, Record, object]
"""The number of a line, the line, and what its message holds."""

_Value = TypeVar("_Value")


class ClaudeCode:
    """Each session is a session here; folder and branch are with every message."""

    name = "claude-code"
    label = "Sessions of Claude Code, .jsonl"

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the fields of a line."""
        if head:
            is_line = b'"sessionId"' in head and b'"uuid"' in head and b'"type"' in head
            return head.lstrip()[:1] == b"{" and (is_line or b'"leafUuid"' in head)
        return any(_is_transcript(member) for member in source.members())

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:  # noqa: ARG002
        """Yield the messages in the order of the file."""
        for member in matching(source, _MEMBER):
            transcript = _Transcript()
            yield from read_each(transcript.turns(member), transcript.messages, member.complain)


def _is_transcript(source: SourceFile) -> bool:
    if not source.name.endswith(".jsonl"):
        return False
    for number, value in source.values():
        record = as_object(value)
        if {"sessionId", "uuid"} <= record.keys() or "leafUuid" in record:
            return True
        if number > 20:  # some notes come first
            break
    return False


class _Transcript:
    def __init__(self) -> None:
        self._threads: dict[str, Thread] = {}
        self._roots: dict[str, str] = {}
        """By message of a subagent: what it was begun with."""
        self._pending: tuple[int, Record, list[object]] | None = None

    def turns(self, source: SourceFile) -> Iterator[tuple[str, _Turn]]:
        """Yield the lines with their content; those of one message of the model together."""
        for number, value in source.values():
            record = as_object(value)
            kind = record.get("type")
            if kind == "summary" or (kind in ("user", "assistant") and not _is_note(record)):
                if kind == "assistant" and self._continues(record):
                    continue
                yield from self._end()
                content = as_object(record.get("message")).get("content")
                if kind == "assistant" and isinstance(content, list):
                    self._pending = number, record, list(content)
                else:
                    yield f"line {number}", (number, record, content)
        yield from self._end()

    def _continues(self, record: Record) -> bool:
        """Add the blocks of a line to the message that they belong to, if it is the last one."""
        if self._pending is None:
            return False
        _, first, blocks = self._pending
        own, before = as_object(record.get("message")), as_object(first.get("message"))
        is_same = bool(first_text(own, "id")) and own.get("id") == before.get("id")
        if not is_same or self._session(record) != self._session(first):
            return False
        more = own.get("content")
        if not isinstance(more, list):
            return False
        blocks += [block for block in more if block not in blocks]
        return True

    def _end(self) -> Iterator[tuple[str, _Turn]]:
        if self._pending is not None:
            turn, self._pending = self._pending, None
            yield f"line {turn[0]}", turn

    def messages(self, turn: _Turn, say: Say) -> Iterator[SourceMemory]:
        number, record, content = turn
        if record["type"] == "summary":
            yield from _title(record, say)
            return
        if isinstance(content, list):
            content = [_cut(block, say) for block in content]
        elif isinstance(content, str):
            content = cut(content, say)
        items = from_messages([{"role": record["type"], "content": content}], "anthropic")
        items = [item for item in items if item.content.strip() or item.native or calls_of(item)]
        id = first_text(record, "uuid") or str(number)
        extra = {
            "original_id": id,
            "model": first_text(as_object(record.get("message")), "model"),
            "folder": first_text(record, "cwd"),
            "branch": first_text(record, "gitBranch"),
        }
        for part, item in enumerate(items):
            key = id if len(items) == 1 else f"{id}/{part}"
            at = instant(record.get("timestamp"))
            yield self._thread(record).next_message(item, key=key, at=at, extra=extra)

    def _session(self, record: Record) -> str:
        session = first_text(record, "sessionId") or "unnamed"
        if record.get("isSidechain") is not True:
            return session
        agent = first_text(record, "agentId")
        if not agent:
            id, parent = first_text(record, "uuid"), first_text(record, "parentUuid")
            agent = self._roots[id] = self._roots.get(parent, id)
            _forget_oldest(self._roots)
        return f"{session}/{agent}"

    def _thread(self, record: Record) -> Thread:
        session = self._session(record)
        if session not in self._threads:
            begin = instant(record.get("timestamp"))
            self._threads[session] = Thread("claude-code", session, begin=begin)
            _forget_oldest(self._threads)
        return self._threads[session]


def _forget_oldest(known: dict[str, _Value]) -> None:
    """Keep what is known of a file from growing with it."""
    if len(known) > _MAX_KNOWN:
        del known[next(iter(known))]


def _is_note(record: Record) -> bool:
    message = as_object(record.get("message"))
    content = message.get("content")
    is_command = isinstance(content, str) and content.lstrip().startswith(_COMMANDS)
    return (
        any(record.get(name) is True for name in _NOTES)
        or message.get("model") == "<synthetic>"
        or (is_command and record.get("type") == "user")
    )


def _cut(block: object, say: Say) -> object:
    """Return a block whose text is no longer than an item can hold."""
    record = as_object(block)
    texts = ((name, record.get(name)) for name in ("text", "content"))
    short = {name: cut(text, say) for name, text in texts if isinstance(text, str)}
    return {**record, **short} if record else block


def _title(record: Record, say: Say) -> Iterator[SourceMemory]:
    """Yield what a session was about, as it is listed."""
    text, leaf = first_text(record, "summary"), first_text(record, "leafUuid")
    if text:
        item = note(say, text, extra={"kind": "title", "original_id": leaf[:200]})
        yield SourceMemory(item, f"title/{leaf}")
