"""Memories in the formats of others: a table, a folder of notes, conversations, a graph.

Only what is remembered now is written; the native format holds the past as well.
"""

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Protocol

from orbiter.memory.agent._core import Store
from orbiter.memory.agent._messages import read_back
from orbiter.memory.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.messages import to_messages
from orbiter.memory.records import Record
from orbiter.memory.reports import SPOKEN, ConversationInfo
from orbiter.memory.transfer._mcp import observation_of
from orbiter.memory.transfer._target import new_file, new_folder
from orbiter.memory.trust import source_of

__all__ = ["WRITERS", "RecordStore", "safe_cell"]

Progress = Callable[[int, int], None]

_PAGE = 500
_MANY = 10**6
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_COLUMNS = (
    "id", "created_at", "updated_at", "memory_type", "status", "user_id", "session_id", "task_id",
    "agent_id", "source", "tags", "importance", "content", "extra",
)  # fmt: skip


class RecordStore(Store, Protocol):
    """A store whose items can be walked in the order in which they came."""

    async def records(
        self, *, after: str | None = None, limit: int = 1000, metadata: MemoryMetadata | None = None
    ) -> list[Record]:
        """Return the next records."""
        ...


async def _items(store: RecordStore, scope: MemoryMetadata | None) -> AsyncIterator[MemoryItem]:
    """Yield what is remembered now, in the order in which it came."""
    last = None
    while page := await store.records(after=last, limit=_PAGE, metadata=scope):
        for record in page:
            if not record.deleted:
                yield record.item
        last = page[-1].item.id


async def _conversations(
    store: RecordStore, scope: MemoryMetadata | None
) -> list[ConversationInfo]:
    found = await store.conversations(metadata=scope, limit=_MANY)
    return found[::-1]  # the one that ended first, first


# A table


def safe_cell(text: str) -> str:
    """Return *text* so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


async def write_csv(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, tell: Callable[[], None]
) -> None:
    """Write a table with a row for each memory."""
    with new_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        rows = csv.writer(text)
        rows.writerow(_COLUMNS)
        async for item in _items(store, scope):
            rows.writerow([safe_cell(cell) for cell in _cells(item)])
            tell()
        text.detach()


def _cells(item: MemoryItem) -> list[str]:
    who = item.metadata
    extra = dict(who.extra)
    source = source_of(item)
    for name in ("source", "trust"):
        extra.pop(name, None)
    tags, importance = extra.pop("tags", []), extra.pop("importance", "")
    named = ", ".join(map(str, tags)) if isinstance(tags, list) else str(tags)
    scope = [value or "" for value in (who.user_id, who.session_id, who.task_id, who.agent_id)]
    times = [item.created_at.isoformat(), item.updated_at.isoformat()]
    more = json.dumps(extra, ensure_ascii=False) if extra else ""
    return [
        item.id, *times, item.memory_type, item.status.value, *scope, source, named,
        str(importance), item.content, more,
    ]  # fmt: skip


# Conversations as OpenAI's messages


async def write_openai(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, tell: Callable[[], None]
) -> None:
    """Write a line for each conversation, `{"messages": […]}`; memories that are none are left."""
    with new_file(path) as file:
        for told in await _conversations(store, scope):
            items, _ = await read_back(store, told.metadata)
            sent = to_messages(items, "openai").messages
            if sent:
                file.write(_line({"messages": sent}))
            for _ in items:
                tell()


# A graph, as the MCP reference server keeps it


async def write_mcp(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, tell: Callable[[], None]
) -> None:
    """Write an entity for whatever memories are about, with them as its observations."""
    entities: dict[str, tuple[str, list[str]]] = {}
    relations: list[Mapping[str, object]] = []
    async for item in _items(store, scope):
        tell()
        relation = item.metadata.extra.get("relation")
        if isinstance(relation, Mapping):
            relations.append({"type": "relation", **relation})
            continue
        name, kind, text = observation_of(item)
        _, observations = entities.setdefault(name, (kind, []))
        if text:
            observations.append(text)
    with new_file(path) as file:
        for name, (kind, observations) in entities.items():
            told = {"name": name, "entityType": kind, "observations": observations}
            file.write(_line({"type": "entity", **told}))
        for each in relations:
            file.write(_line(each))


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


# A folder of notes


async def write_markdown(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, tell: Callable[[], None]
) -> None:
    """Write a note for each memory, and one for each conversation."""
    with new_folder(path) as folder:
        conversations = await _conversations(store, scope)
        scopes = {told.metadata.model_dump_json() for told in conversations}
        async for item in _items(store, scope):
            if _is_said(item, scopes):
                continue
            _write(folder / _file_name(item), _note(item))
            tell()
        for number, told in enumerate(conversations, 1):
            items, _ = await read_back(store, told.metadata)
            name = _slug(told.metadata.session_id or told.metadata.task_id or "chat")
            inside = folder / "conversations"
            inside.mkdir(mode=0o700, exist_ok=True)
            _write(inside / f"{told.first_at:%Y-%m-%d}-{name}-{number}.md", _talk(told, items))
            for _ in items:
                tell()


def _is_said(item: MemoryItem, scopes: set[str]) -> bool:
    """Tell whether *item* stands in one of the conversations."""
    whose = item.metadata.model_copy(update={"extra": {}})
    is_message = item.memory_type in SPOKEN and item.status is MemoryStatus.ACCEPTED
    return is_message and whose.model_dump_json() in scopes


def _note(item: MemoryItem) -> str:
    who = item.metadata
    head: dict[str, object] = {"id": item.id, "created_at": item.created_at.isoformat()}
    head |= {"memory_type": item.memory_type, "source": source_of(item)}
    named = {name: getattr(who, name) for name in ("session_id", "task_id", "agent_id")}
    head |= {name: value for name, value in named.items() if value is not None}
    head |= {name: value for name, value in who.extra.items() if name not in ("source", "trust")}
    return _with_head(head, item.content)


def _talk(told: ConversationInfo, items: list[MemoryItem]) -> str:
    who = told.metadata
    head = {"session_id": who.session_id, "task_id": who.task_id, "agent_id": who.agent_id}
    said = (
        f"## {item.memory_type}, {item.created_at:%Y-%m-%d %H:%M}\n\n{item.content}"
        for item in items
    )
    named: dict[str, object] = {name: value for name, value in head.items() if value is not None}
    return _with_head({"created_at": told.first_at.isoformat(), **named}, "\n\n".join(said))


def _with_head(head: Mapping[str, object], body: str) -> str:
    # JSON is YAML, so that no value can end the head or become another.
    lines = "".join(f"{_key(name)}: {json.dumps(value)}\n" for name, value in head.items())
    return f"---\n{lines}---\n{body}\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][\w-]*", name) else json.dumps(name)


def _file_name(item: MemoryItem) -> str:
    title = item.metadata.extra.get("title")
    words = title if isinstance(title, str) and title else item.content
    return f"{item.created_at:%Y-%m-%d}-{_slug(words)}-{_slug(item.id)[-12:]}.md"


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()[:200]))[:40].strip("-") or "memory"


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        path.chmod(0o600)
        file.write(text)


WRITERS = {
    "csv": write_csv,
    "markdown": write_markdown,
    "mcp": write_mcp,
    "openai": write_openai,
}
"""What writes each format."""
