"""Claude.ai's export: `conversations.json` with messages as text, as content blocks, or as both.

One message of the model may hold several calls with their results in between; here each call and
each result is an item of its own, as in every conversation.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import PurePosixPath

from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, ToolMemory
from orbiter.memory.transfer.formats.chatgpt import CONVERSATIONS
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
    compact,
    first_text,
    instant,
    objects_in,
    plain_text,
)
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory

__all__ = ["ClaudeAI"]

_MAX_OPEN = 100
_MAX_LABEL = 200
_PROJECT = (b'"docs"', b'"prompt_template"')


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
        members = matching(source, CONVERSATIONS)
        return any("chat_messages" in as_object(next(each.elements(), None)) for each in members)

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the messages, conversation by conversation, in the order of the file."""
        number = 0
        for member in matching(source, CONVERSATIONS):
            for number, value in enumerate(member.elements(), number + 1):  # noqa: B020 - goes on
                record, place = as_object(value), f"conversation {number}"
                if member is source and isinstance(record.get("docs"), list):
                    yield from _project(record, f"project {number}", complain)
                elif not isinstance(record.get("chat_messages"), list):
                    complain(place, "it has no list of `chat_messages`")
                else:
                    yield from _conversation(record, place, complain)
        for member in source.members():
            path = PurePosixPath(member.name)
            if path.name == "memories.json":
                yield from _kept_in_mind(member, complain)
            elif member is not source and "projects" in (path.stem, path.parent.name):
                for count, value in enumerate(member.elements(), 1):
                    where = f"{member.name}, project {count}"
                    yield from _project(as_object(value), where, complain)


def _conversation(record: Record, place: str, complain: ReportProblem) -> Iterator[SourceMemory]:
    messages = _branch(record)
    thread = Thread(
        "claude-ai",
        first_text(record, "uuid") or digest(compact(record.get("chat_messages"))),
        title=first_text(record, "name"),
        begin=start_of(
            instant(record.get("created_at")),
            [instant(each.get("created_at")) for each in messages],
        ),
    )
    model = first_text(record, "model")

    def read(row: tuple[int, Record], say: Say) -> Iterator[SourceMemory]:
        number, message = row
        id = first_text(message, "uuid") or str(number)
        sender = first_text(message, "sender")
        if sender not in ("human", "assistant"):
            raise ValueError(f"unknown sender `{sender[:40]}`")
        items = list((_said if sender == "human" else _answered)(message, id, say))
        for part, item in enumerate(items):
            key = id if len(items) == 1 else f"{id}/{part}"
            at, extra = instant(message.get("created_at")), {"original_id": id, "model": model}
            yield thread.next_message(item, key=key, at=at, extra=extra)

    rows = ((f"{place}, message {row[0]}", row) for row in enumerate(messages, 1))
    yield from read_each(rows, read, complain)


def _branch(record: Record) -> list[Record]:
    """Return the messages that were shown last; where none names its parent, all of them."""
    messages = objects_in(record, "chat_messages")
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


def _said(message: Record, id: str, say: Say) -> Iterator[MemoryItem]:  # noqa: ARG001
    """Yield what the user said, with the text of the files they attached."""
    blocks = objects_in(message, "content")
    said = [first_text(each, "text") for each in blocks if each.get("type") == "text"]
    texts = ["\n\n".join(filter(None, said)) or first_text(message, "text")]
    named = set[str]()
    for file in objects_in(message, "attachments"):
        name, inside = first_text(file, "file_name"), first_text(file, "extracted_content")
        named.add(name)
        texts.append("\n".join(filter(None, (f"[file: {name or 'pasted text'}]", inside))))
    for file in objects_in(message, "files"):
        name = first_text(file, "file_name")
        if name and name not in named:
            named.add(name)
            texts.append(f"[file: {name}]")
    text = "\n\n".join(text for text in texts if text.strip())
    item = made(HumanMemory, say, content=text) if text else None
    if item is not None:
        yield item


def _answered(message: Record, id: str, say: Say) -> Iterator[MemoryItem]:
    """Yield what the model said and did: each turn of calls, then their results."""
    turn = _Turn()
    waiting: dict[str, str] = {}
    blocks = objects_in(message, "content")
    for number, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "tool_use":
            if turn.results:
                yield from turn.items(say)
                turn = _Turn()
            call = first_text(block, "id") or f"{id}-{number}"
            name = first_text(block, "name") or "tool"
            turn.calls.append({"id": call, "name": name, "arguments": block.get("input") or {}})
            waiting[call] = name
        elif kind == "tool_result":
            result = _result(block, waiting, say)
            turn.results += [] if result is None else [result]
        elif kind in ("text", "thinking"):
            if turn.results:
                yield from turn.items(say)
                turn = _Turn()
            said = first_text(block, "text", "thinking")
            (turn.texts if kind == "text" else turn.thoughts).append(said)
    if not any(block.get("type") in ("text", "tool_use", "tool_result") for block in blocks):
        turn.texts.append(first_text(message, "text"))
    yield from turn.items(say)


class _Turn:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[dict[str, object]] = []
        self.results: list[ToolMemory] = []

    def items(self, say: Say) -> Iterator[MemoryItem]:
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
            fields = {"tool_calls": calls, "native": native if any(kept.values()) else {}}
            item = made(AIMemory, say, content=text, **fields)
            if item is not None:
                yield item
        yield from self.results


def _result(block: Record, waiting: dict[str, str], say: Say) -> ToolMemory | None:
    """Return a result; older exports name no call, then it is that of the same tool."""
    id, name = first_text(block, "tool_use_id"), first_text(block, "name")
    if not id:
        some = islice(waiting.items(), _MAX_OPEN)
        id = next((call for call, tool in some if name in ("", tool)), "")
    name = waiting.pop(id, name)
    return made(
        ToolMemory,
        say,
        content=plain_text(block.get("content")),
        tool_call_id=id,
        tool_name=name,
        is_error=block.get("is_error") is True,
    )


def _kept_in_mind(source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
    """Yield what Claude keeps in mind of all conversations, and of each project."""
    say = partial(complain, source.name)
    for value in source.elements():
        record = as_object(value)
        projects = as_object(record.get("project_memories"))
        for key, text in {"": record.get("conversations_memory"), **projects}.items():
            if isinstance(text, str) and text.strip():
                yield _memory(say, text, "memory", f"memory/{key}", record={}, project=key)


def _project(record: Record, place: str, complain: ReportProblem) -> Iterator[SourceMemory]:
    """Yield a project's instructions, and each of its documents."""
    name = first_text(record, "name", "uuid")
    key = f"project/{first_text(record, 'uuid') or name}"
    if text := first_text(record, "prompt_template"):
        say = partial(complain, place)
        yield _memory(say, text, "custom_instructions", key, record=record, project=name)

    def read(row: tuple[int, Record], say: Say) -> Iterator[SourceMemory]:
        number, document = row
        title, text = first_text(document, "filename"), first_text(document, "content")
        if not text:
            raise ValueError(f"`{title[:_MAX_LABEL]}` is empty; not read")
        own = f"{key}/{first_text(document, 'uuid') or title or number}"
        yield _memory(say, text, "document", own, record=document, project=name, title=title)

    documents = enumerate(objects_in(record, "docs"), 1)
    yield from read_each(
        ((f"{place}, document {n}", (n, each)) for n, each in documents), read, complain
    )


def _memory(
    say: Say, text: str, kind: str, key: str, *, record: Record, **labels: str
) -> SourceMemory:
    extra = {name: each[:_MAX_LABEL] for name, each in labels.items() if each}
    at = instant(record.get("created_at"))
    return SourceMemory(note(say, text, at=at, extra={"kind": kind, **extra}), key)
