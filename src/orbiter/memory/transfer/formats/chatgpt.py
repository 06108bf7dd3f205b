"""ChatGPT's export: `conversations.json`, each conversation a tree of which one branch was shown.

The branch ends at `current_node` and is followed to the root. What the user was not shown is not
read: hidden messages, other branches, and the model's thoughts, which are kept beside its answer.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, SystemMemory, ToolMemory
from orbiter.memory.transfer.formats.foreign_items import (
    Say,
    Thread,
    digest,
    made,
    matching,
    note,
    read_each,
    start_of,
)
from orbiter.memory.transfer.formats.foreign_values import (
    Record,
    as_object,
    first_text,
    instant,
    objects_in,
)
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory

__all__ = ["CONVERSATIONS", "ChatGPT"]

CONVERSATIONS = re.compile(r"conversations(-\d+)?\.json")
_TEXTS = ("text", "result", "content", "summary", "snippet")
_THOUGHTS = ("thoughts", "reasoning_recap")
_CONTEXTS = ("user_editable_context", "model_editable_context")
_KINDS = {"image_asset_pointer": "image", "audio_asset_pointer": "audio"}

_MAX_OPEN = 100
_KINDS_OF: Mapping[str, type[MemoryItem]] = {"user": HumanMemory, "system": SystemMemory}


class ChatGPT:
    """Each conversation is a session; its title is with every message."""

    name = "chatgpt"
    label = "ChatGPT's export, the .zip or its conversations.json"
    companions = (
        "chat.html",
        "conversation_asset_file_names.json",
        "export_manifest.json",
        "message_feedback.json",
        "model_comparisons.json",
        "shared_conversations.json",
        "user.json",
        "user_settings.json",
    )

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the tree."""
        if head:
            return b'"mapping"' in head and head.lstrip()[:1] in (b"[", b"{")
        members = matching(source, CONVERSATIONS)
        return any("mapping" in as_object(next(each.elements(), None)) for each in members)

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the messages, conversation by conversation, in the order of the file."""
        known_instructions: set[str] = set()
        number = 0
        for member in matching(source, CONVERSATIONS):
            for number, value in enumerate(member.elements(), number + 1):  # noqa: B020 - goes on
                record = as_object(value)
                if not isinstance(record.get("mapping"), Mapping):
                    complain(f"conversation {number}", "it has no `mapping` of messages")
                    continue
                yield from _Conversation(record, number, complain).read(known_instructions)


class _Conversation:
    def __init__(self, record: Record, number: int, complain: ReportProblem) -> None:
        self._record = record
        self._nodes = as_object(record["mapping"])
        self._place = f"conversation {number}"
        self._complain = complain
        self._say: Say = partial(complain, self._place)
        self._open: deque[tuple[str, str]] = deque(maxlen=_MAX_OPEN)
        """The last calls without a result, as id and tool."""
        self._thoughts: list[str] = []

    def read(self, known_instructions: set[str]) -> Iterator[SourceMemory]:
        record = self._record
        branch = self._branch()
        messages = [(key, each) for key, each in branch if _is_shown(each)]
        times = [instant(each.get("create_time")) for _, each in messages]
        own_id = first_text(record, "conversation_id", "id")
        self._thread = Thread(
            "chatgpt",
            own_id or digest(f"{record.get('title')}{record.get('create_time')}"),
            title=first_text(record, "title"),
            begin=start_of(instant(record.get("create_time")), times),
        )
        yield from self._instructions(branch, known_instructions)
        rows = ((f"{self._place}, message `{key[:40]}`", (key, each)) for key, each in messages)
        yield from read_each(rows, self._message, self._complain)

    def _message(self, row: tuple[str, Record], say: Say) -> Iterator[SourceMemory]:
        key, message = row
        item = self._item(key, message, say)
        if item is None:
            return
        model = first_text(as_object(message.get("metadata")), "model_slug")
        if not model and _role(message) != "user":
            model = first_text(self._record, "default_model_slug")
        extra = {
            "original_id": first_text(message, "id") or key,
            "model": model,
            "gpt": first_text(self._record, "gizmo_id"),
        }
        at = instant(message.get("create_time"))
        yield self._thread.next_message(item, key=key, at=at, extra=extra)

    def _branch(self) -> list[tuple[str, Record]]:
        """Return the messages from the root to the current node."""
        at = self._record.get("current_node")
        if not isinstance(at, str) or at not in self._nodes:
            at = self._last_leaf()
        path: list[tuple[str, Record]] = []
        seen: set[str] = set()
        while isinstance(at, str) and at in self._nodes:
            if at in seen:
                self._say(f"its tree has a cycle at `{at[:40]}`")
                break
            seen.add(at)
            node = as_object(self._nodes[at])
            if message := as_object(node.get("message")):
                path.append((at, message))
            at = node.get("parent")
        if isinstance(at, str) and at not in self._nodes:
            why = f"its branch is incomplete: `{at[:40]}` and earlier messages are not in the file"
            self._say(why)
        return path[::-1]

    def _last_leaf(self) -> str | None:
        """Return the newest message without an answer, where no current one is named."""
        leaves = [
            (as_object(as_object(node).get("message")).get("create_time") or 0, place, key)
            for place, (key, node) in enumerate(self._nodes.items())
            if not as_object(node).get("children")
        ]
        dated = [each for each in leaves if isinstance(each[0], int | float)]
        return max(dated)[2] if dated else None

    def _instructions(
        self, branch: list[tuple[str, Record]], known_instructions: set[str]
    ) -> Iterator[SourceMemory]:
        """Yield what the user told all conversations about themselves, once."""
        for _, message in branch:
            content = as_object(message.get("content"))
            if content.get("content_type") != "user_editable_context":
                continue
            texts = [first_text(content, "user_profile"), first_text(content, "user_instructions")]
            text = "\n\n".join(text for text in texts if text)
            key = digest(text, size=16)
            if text and key not in known_instructions:
                known_instructions.add(key)
                item = note(self._say, text, extra={"kind": "custom_instructions"})
                yield SourceMemory(item, f"custom-instructions/{key}")

    def _item(self, key: str, message: Record, say: Say) -> MemoryItem | None:
        content = as_object(message.get("content"))
        if content.get("content_type") in _THOUGHTS:
            records = objects_in(content, "thoughts")
            self._thoughts += [
                text for each in records if (text := first_text(each, "content", "summary"))
            ]
            return None
        role, text = _role(message), _text(content, message)
        parts = objects_in(content, "parts")
        native: dict[str, Any] = {"chatgpt": {"parts": parts}} if parts else {}
        if role == "assistant":
            return self._answer(key, message, text, native, say)
        self._thoughts.clear()
        if not text.strip():
            return None
        if role in _KINDS_OF:
            return made(_KINDS_OF[role], say, content=text, native=native)
        if role == "tool":
            tool = first_text(as_object(message.get("author")), "name") or "tool"
            call = self._answered(tool)
            fields = {"tool_name": tool, "tool_call_id": call, "native": native}
            return made(ToolMemory, say, content=text, **fields)
        say(f"unknown author `{role[:40]}`")
        return None

    def _answer(
        self, key: str, message: Record, text: str, native: dict[str, Any], say: Say
    ) -> MemoryItem | None:
        """Return what the model said, or the call that it made."""
        if self._thoughts:
            native = {"chatgpt": {**native.get("chatgpt", {}), "thoughts": self._thoughts}}
            self._thoughts = []
        tool = first_text(message, "recipient")
        if tool in ("", "all"):
            return made(AIMemory, say, content=text, native=native) if text.strip() else None
        self._open.append((key, tool))
        call = {"id": key, "name": tool, "arguments": text}
        return made(AIMemory, say, content="", tool_calls=[call], native=native)

    def _answered(self, tool: str) -> str:
        """Return the id of the newest call that a result of *tool* can be for, and close it."""
        for id, called in reversed(self._open):
            if tool.partition(".")[0] == called.partition(".")[0]:
                self._open.remove((id, called))
                return id
        return ""


def _role(message: Record) -> str:
    return first_text(as_object(message.get("author")), "role")


def _is_shown(message: Record) -> bool:
    about = as_object(message.get("metadata"))
    content = as_object(message.get("content"))
    return not (
        about.get("is_visually_hidden_from_conversation") is True
        or message.get("weight") == 0
        or content.get("content_type") in _CONTEXTS
    )


def _text(content: Record, message: Record) -> str:
    """Return what a message says, whatever type of content it has; what is no text is named."""
    parts = content.get("parts")
    texts = [_part(part) for part in parts] if isinstance(parts, list) else []
    if not any(texts):
        texts = [first_text(content, *_TEXTS)]
    for file in objects_in(as_object(message.get("metadata")), "attachments"):
        if name := first_text(file, "name"):
            texts.append(f"[file: {name}]")
    return "\n\n".join(text for text in texts if text)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    record = as_object(part)
    kind = first_text(record, "content_type")
    if not record:
        return ""
    return first_text(record, "text") or f"[{_KINDS.get(kind, kind.split('_')[0] or 'file')}]"
