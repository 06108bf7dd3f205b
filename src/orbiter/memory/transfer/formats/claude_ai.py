"""Claude.ai's export: `conversations.json` with messages as text, as content blocks, or as both.

One message of the model may hold several calls with their results in between; here each call and
each result is an item of its own, as in every conversation.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath

from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata, ToolMemory
from orbiter.memory.transfer.formats.chatgpt import conversations
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.json_helpers import (
    as_object,
    compact,
    first_text,
    instant,
    plain_text,
)
from orbiter.memory.transfer.formats.threads import Thread, digest, made, start_of

__all__ = ["ClaudeAI"]

_MAX_OPEN = 100
_PROJECT = (b'"docs"', b'"prompt_template"')

Record = Mapping[str, object]


class ClaudeAI:
    """Each conversation is a session; its name is with every message."""

    name = "claude-ai"
    label = "Claude.ai's export, the .zip or its conversations.json"
    companions = ("users.json",)

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the messages."""
        if head:
            is_known = b'"chat_messages"' in head or all(mark in head for mark in _PROJECT)
            return is_known and head.lstrip()[:1] in (b"[", b"{")
        return any(
            "chat_messages" in as_object(next(member.elements(), None))
            for member in conversations(source)
        )

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the messages, conversation by conversation, in the order of the file."""
        number = 0
        for member in conversations(source):
            for value in member.elements():
                number += 1
                record = as_object(value)
                if member is source and isinstance(record.get("docs"), list):
                    yield from project(record, f"project {number}", complain)
                elif not isinstance(record.get("chat_messages"), list):
                    complain(f"conversation {number}", "it has no list of `chat_messages`")
                else:
                    yield from _read(record, f"conversation {number}", complain)
        for member in source.members():
            path = PurePosixPath(member.name)
            if path.name == "memories.json":
                yield from kept_in_mind(member, complain)
            elif member is not source and "projects" in (path.stem, path.parent.name):
                for place, value in enumerate(member.elements(), 1):
                    where = f"{member.name}, project {place}"
                    yield from project(as_object(value), where, complain)


def _read(record: Record, place: str, complain: ReportProblem) -> Iterator[SourceMemory]:
    messages = _branch(record)
    times = [instant(message.get("created_at")) for message in messages]
    thread = Thread(
        "claude-ai",
        first_text(record, "uuid") or digest(compact(record.get("chat_messages"))),
        title=first_text(record, "name"),
        begin=start_of(instant(record.get("created_at")), times),
    )
    for number, (message, at) in enumerate(zip(messages, times, strict=True), 1):
        here = f"{place}, message {number}"
        sender = first_text(message, "sender")
        id = first_text(message, "uuid") or str(number)
        if sender not in ("human", "assistant"):
            complain(here, f"unknown sender `{sender[:40]}`")
            continue
        made = _said(message, here, complain)
        items = made if sender == "human" else list(_answered(message, id, here, complain))
        for part, item in enumerate(items):
            key = id if len(items) == 1 else f"{id}/{part}"
            extra = {"original_id": id, "model": first_text(record, "model")}
            yield thread.next_message(item, key=key, at=at, extra=extra)


def _branch(record: Record) -> list[Record]:
    """Return the messages that were shown last; where none names its parent, all of them."""
    listed = record["chat_messages"]
    messages = [as_object(each) for each in listed] if isinstance(listed, Sequence) else []
    known = {id: each for each in messages if (id := first_text(each, "uuid"))}
    if not any(first_text(each, "parent_message_uuid") in known for each in messages):
        return messages
    leaf = first_text(record, "current_leaf_message_uuid")
    at = known.get(leaf) or messages[-1]
    path: list[Record] = []
    while at and len(path) < len(messages):  # a circle ends, too
        path.append(at)
        at = known.get(first_text(at, "parent_message_uuid"), {})
    return path[::-1]


def _said(message: Record, place: str, complain: ReportProblem) -> list[MemoryItem]:
    """Return what the user said, with the text of the files they attached."""
    texts = [_text(message)]
    named = set[str]()
    for file in _objects(message, "attachments"):
        name, inside = first_text(file, "file_name"), first_text(file, "extracted_content")
        named.add(name)
        texts.append(
            "\n".join(each for each in (f"[file: {name or 'pasted text'}]", inside) if each)
        )
    for file in _objects(message, "files"):
        name = first_text(file, "file_name")
        if name and name not in named:
            named.add(name)
            texts.append(f"[file: {name}]")
    text = "\n\n".join(text for text in texts if text.strip())
    item = made(HumanMemory, complain, place, content=text) if text else None
    return [] if item is None else [item]


def _answered(
    message: Record, id: str, place: str, complain: ReportProblem
) -> Iterator[MemoryItem]:
    """Yield what the model said and did: each turn of calls, then their results."""
    turn = _Turn()
    waiting: dict[str, str] = {}
    blocks = _objects(message, "content")
    for number, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "tool_use":
            if turn.results:
                yield from turn.items(place, complain)
                turn = _Turn()
            call = first_text(block, "id") or f"{id}-{number}"
            name = first_text(block, "name") or "tool"
            turn.calls.append({"id": call, "name": name, "arguments": block.get("input") or {}})
            waiting[call] = name
        elif kind == "tool_result":
            result = _result(block, waiting, place, complain)
            turn.results += [] if result is None else [result]
        elif kind in ("text", "thinking"):
            if turn.results:
                yield from turn.items(place, complain)
                turn = _Turn()
            said = first_text(block, "text", "thinking")
            (turn.texts if kind == "text" else turn.thoughts).append(said)
    if not any(block.get("type") in ("text", "tool_use", "tool_result") for block in blocks):
        turn.texts.append(first_text(message, "text"))
    yield from turn.items(place, complain)


class _Turn:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[dict[str, object]] = []
        self.results: list[ToolMemory] = []

    def items(self, place: str, complain: ReportProblem) -> Iterator[MemoryItem]:
        """Yield what was said, with the calls that were answered, and the answers.

        A result that is not in the message never comes; a call that waits for one would keep what
        was said with it from every model.
        """
        answered = {result.tool_call_id for result in self.results}
        calls = [call for call in self.calls if call["id"] in answered]
        rest = [call for call in self.calls if call["id"] not in answered]
        kept = {"thinking": self.thoughts, "calls": rest}
        native = {"claude-ai": {name: each for name, each in kept.items() if each}}
        text = "\n\n".join(filter(None, self.texts))
        if not text.strip() and rest and not calls:
            text = f"[called {', '.join(str(call['name']) for call in rest)}]"
        if text.strip() or calls:
            item = made(
                AIMemory,
                complain,
                place,
                content=text,
                tool_calls=calls,
                native=native if any(kept.values()) else {},
            )
            if item is not None:
                yield item
        yield from self.results


def _result(
    block: Record, waiting: dict[str, str], place: str, complain: ReportProblem
) -> ToolMemory | None:
    """Return a result; older exports name no call, then it is that of the same tool."""
    id, name = first_text(block, "tool_use_id"), first_text(block, "name")
    if not id:
        some = islice(waiting.items(), _MAX_OPEN)
        id = next((call for call, tool in some if name in ("", tool)), "")
    name = waiting.pop(id, name)
    return made(
        ToolMemory,
        complain,
        place,
        content=plain_text(block.get("content")),
        tool_call_id=id,
        tool_name=name,
        is_error=block.get("is_error") is True,
    )


def _text(message: Record) -> str:
    said = [first_text(b, "text") for b in _objects(message, "content") if b.get("type") == "text"]
    return "\n\n".join(filter(None, said)) or first_text(message, "text")


def _objects(record: Record, name: str) -> list[Record]:
    values = record.get(name)
    return [as_object(each) for each in values] if isinstance(values, list) else []


_LONGEST = 200


def kept_in_mind(source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
    """Yield what Claude keeps in mind of all conversations, and of each project."""
    for value in source.elements():
        record = as_object(value)
        projects = as_object(record.get("project_memories"))
        for key, text in {"": record.get("conversations_memory"), **projects}.items():
            if isinstance(text, str) and text.strip():
                extra = {"kind": "memory", "project": key}
                yield from _memory(text, extra, {}, f"memory/{key}", source.name, complain)


def project(record: Record, place: str, complain: ReportProblem) -> Iterator[SourceMemory]:
    """Yield a project's instructions, and each of its documents."""
    name = first_text(record, "name", "uuid")
    key = f"project/{first_text(record, 'uuid') or name}"
    instructions = first_text(record, "prompt_template")
    if instructions:
        extra = {"kind": "custom_instructions", "project": name}
        yield from _memory(instructions, extra, record, key, place, complain)
    listed = record.get("docs")
    for number, each in enumerate(listed if isinstance(listed, list) else [], 1):
        document = as_object(each)
        title, text = first_text(document, "filename"), first_text(document, "content")
        here = f"{place}, document {number}"
        if not text:
            complain(here, f"`{title[:_LONGEST]}` is empty; not read")
            continue
        extra = {"kind": "document", "project": name, "title": title}
        own = first_text(document, "uuid") or title or str(number)
        yield from _memory(text, extra, document, f"{key}/{own}", here, complain)


def _memory(
    text: str, extra: dict[str, str], dated: Record, key: str, place: str, complain: ReportProblem
) -> Iterator[SourceMemory]:
    about = MemoryMetadata.model_construct(
        extra={name: each[:_LONGEST] for name, each in extra.items() if each}
    )
    at = instant(dated.get("created_at"))
    times = {} if at is None else {"created_at": at, "updated_at": at}
    item = made(MemoryItem, complain, place, content=text, metadata=about, **times)
    if item is not None:
        yield SourceMemory(item, key)
