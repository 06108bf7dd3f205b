"""Export to a folder of Markdown notes with YAML front matter, as `formats/markdown.py` reads."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orbiter.memory.agent.chat_history import read_back
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, role_of
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.reports import ConversationInfo
from orbiter.memory.model.trust import source_of
from orbiter.memory.transfer._current_state import (
    RecordStore,
    Remembered,
    conversations,
    merged,
    remembered,
)
from orbiter.memory.transfer.formats.threads import digest
from orbiter.memory.transfer.io.output_file import new_folder

__all__ = ["write_markdown"]

_OURS = (
    "id", "created_at", "updated_at", "expires_at", "memory_type", "status", "source", "trust",
    *SCOPE_FIELDS, "key", "value", "valid_from", "valid_to",
)  # fmt: skip
"""What front matter means to us, whether this note has it or not."""

_YAML_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


async def write_markdown(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, tell: Callable[[], None]
) -> None:
    """Write a note for each memory, and one for each conversation."""
    with new_folder(path) as folder:
        talks = await conversations(store, scope)
        scopes = {told.metadata.model_dump_json() for told in talks}
        async for each in remembered(store, scope):
            if _is_said(each.item, scopes):
                continue
            _write(folder / _file_name(each.item), _note(each))
            tell()
        for number, told in enumerate(talks, 1):
            items, _ = await read_back(store, told.metadata)
            title = _title(items)
            name = _slug(title or told.metadata.session_id or told.metadata.task_id or "chat")
            inside = folder / "conversations"
            inside.mkdir(mode=0o700, exist_ok=True)
            text = _talk(told, title, items)
            _write(inside / f"{told.first_at:%Y-%m-%d}-{name}-{number}.md", text)
            for _ in items:
                tell()


def _is_said(item: MemoryItem, scopes: set[str]) -> bool:
    """Tell whether *item* stands in one of the conversations."""
    whose = item.metadata.model_copy(update={"extra": {}})
    return role_of(item) is not None and whose.model_dump_json() in scopes


def _note(each: Remembered) -> str:
    item = each.item
    head: dict[str, object] = {"id": item.id, "created_at": item.created_at.isoformat()}
    if item.expires_at is not None:
        head["expires_at"] = item.expires_at.isoformat()
    head |= {"memory_type": item.memory_type, "source": source_of(item)}
    head |= {**_named(item.metadata), **each.fact}
    return _with_head(merged(head, each.labels, reserved=_OURS), each.text)


def _talk(told: ConversationInfo, title: str, items: Sequence[MemoryItem]) -> str:
    head: dict[str, object] = {"title": title} if title else {}
    head |= {"created_at": told.first_at.isoformat(), **_named(told.metadata)}
    said = (
        f"## {item.memory_type}, {item.created_at:%Y-%m-%d %H:%M}\n\n{item.content}"
        for item in items
    )
    return _with_head(head, "\n\n".join(said))


def _title(items: Sequence[MemoryItem]) -> str:
    """Return what a conversation is called; its messages say so if it was imported."""
    titles = (item.metadata.extra.get("title") for item in reversed(items))
    return next((title for title in titles if isinstance(title, str) and title.strip()), "")


def _named(who: MemoryMetadata) -> dict[str, object]:
    named = {name: getattr(who, name) for name in SCOPE_FIELDS}
    return {name: value for name, value in named.items() if value is not None}


def _with_head(head: Mapping[str, object], body: str) -> str:
    lines = "".join(f"{_key(name)}: {_json(value)}\n" for name, value in head.items())
    return f"---\n{lines}---\n{body}\n"


def _key(name: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name) and name.lower() not in _YAML_WORDS
    return name if is_plain else _json(name)


def _json(value: object) -> str:
    """Return *value* as JSON, which is YAML: it can neither end the head nor become another."""
    # Readers of YAML take half a character for each half of an escaped emoji, so it stands as it
    # is; what they refuse, or end a line at, is escaped.
    text = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _file_name(item: MemoryItem) -> str:
    title = item.metadata.extra.get("title")
    words = title if isinstance(title, str) and title else item.content
    return f"{item.created_at:%Y-%m-%d}-{_slug(words)}-{digest(item.id, size=6)}.md"


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()[:200]))[:40].strip("-") or "memory"


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        path.chmod(0o600)
        file.write(text)
