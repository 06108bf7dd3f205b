"""What mem0 returns of its memories, saved as JSON: `get_all()`, an export, or one per line."""

import re
from collections.abc import Iterator, Mapping
from functools import partial

from orbiter.memory.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer._formats import Complain, Found, SourceFile
from orbiter.memory.transfer._shapes import as_object, compact, first_text, instant, safely

__all__ = ["Mem0"]

_TEXTS = ("memory", "text", "content", "data")
_LIST = re.compile(rb'\{\s*"(results|memories|data)"\s*:\s*\[')
_SHOWN = ("hash", "categories", "actor_id", "role", "immutable", "expiration_date")


class Mem0:
    """Memories under `results`, `memories`, in a bare list, or one object to a line."""

    name = "mem0"

    def recognises(self, source: SourceFile, head: bytes) -> bool:  # noqa: ARG002
        """Tell by the fields of a memory."""
        has_text = any(f'"{name}"'.encode() in head for name in ("memory", "text"))
        marks = (b'"hash"', b'"user_id"', b'"run_id"', b'"agent_id"', b'"categories"')
        return has_text and b'"mapping"' not in head and any(mark in head for mark in marks)

    def read(self, source: SourceFile, complain: Complain) -> Iterator[Found]:
        """Yield the memories in the order of the file; what names several users, by user."""
        for number, value in enumerate(_records(source), 1):
            record = as_object(value)
            text = first_text(record, *_TEXTS)
            if not text:
                complain(f"memory {number}", f"it has none of `{'`, `'.join(_TEXTS)}`")
                continue
            found = safely(partial(_found, record, text), complain, f"memory {number}")
            if found is not None:
                yield found


def _records(source: SourceFile) -> Iterator[object]:
    """Yield the memories, whatever they stand in; a long list is never in memory as a whole."""
    head = source.head().lstrip()
    inside = _LIST.match(head)
    if head.startswith(b"[") or inside:
        yield from source.elements(*([inside[1].decode()] if inside else []))
        return
    for _, value in source.values():
        found = as_object(value).get("results", value)
        if isinstance(found, list):
            yield from found
        else:
            yield found


def _found(record: Mapping[str, object], text: str) -> Found:
    extra = dict(as_object(record.get("metadata")))
    extra |= {f"mem0_{name}": record[name] for name in _SHOWN if record.get(name) is not None}
    categories = record.get("categories")
    if isinstance(categories, list) and categories:
        extra.setdefault("tags", [each for each in categories if isinstance(each, str)])
    extra.pop("source", None)
    extra.pop("trust", None)
    created, updated = instant(record.get("created_at")), instant(record.get("updated_at"))
    times = {} if created is None else {"created_at": created, "updated_at": updated or created}
    item = MemoryItem(
        content=text,
        metadata=MemoryMetadata(
            session_id=_name(record, "run_id"), agent_id=_name(record, "agent_id"), extra=extra
        ),
        **times,
    )
    owner = _name(record, "user_id")
    own_id = record.get("id")
    key = own_id if isinstance(own_id, str) and own_id else compact([owner, text, str(created)])
    return Found(item, key, () if owner is None else (owner,))


def _name(record: Mapping[str, object], field: str) -> str | None:
    value = record.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None
