"""What mem0 returns of its memories, saved as JSON: `get_all()`, an export, or one per line."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from orbiter.memory.transfer.formats.foreign_items import Say, note, read_each
from orbiter.memory.transfer.formats.foreign_values import (
    Record,
    as_object,
    compact,
    first_text,
    instant,
    name_in,
)
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.mcp_memory import relation_of

__all__ = ["Mem0"]

_TEXTS = ("memory", "text", "content", "data")
_LISTS = ("results", "memories", "data")
_KEPT_FIELDS = ("hash", "categories", "actor_id", "role", "immutable", "expiration_date")
_SURE = (b'"hash"', b'"run_id"', b'"agent_id"', b'"categories"')
_FIELDS = {
    "id", "user_id", "metadata", "created_at", "updated_at", "score", *_TEXTS, *_KEPT_FIELDS,
}  # fmt: skip


class Mem0:
    """Memories under `results`, `memories`, in a bare list, or one object to a line."""

    name = "mem0"
    label = "Memories of mem0, JSON"
    names_owners = True

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the fields of a memory; notes of a table may have a `user_id`, too."""
        if b'"mapping"' in head:
            return False
        if b'"relations"' in head and b'"relationship"' in head:
            return True
        has_text = b'"memory"' in head or b'"text"' in head
        if has_text and any(mark in head for mark in _SURE):
            return True
        first = next(_records(source, []), None) if has_text and b'"user_id"' in head else None
        return first is not None and as_object(first).keys() <= _FIELDS

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the memories in the order of the file, then what is said of its graph."""
        owners: set[str | None] = set()
        relations: list[object] = []
        rows = enumerate(_records(source, relations), 1)
        memories = ((f"memory {number}", as_object(value)) for number, value in rows)
        for memory in read_each(memories, _memory, complain):
            owners |= {*memory.owners} or {None}
            yield memory
        rows = enumerate(relations, 1)
        related = ((f"relation {number}", as_object(value)) for number, value in rows)
        yield from read_each(related, partial(_relation, owners), complain)


def _records(source: SourceFile, relations: list[object]) -> Iterator[object]:
    """Yield the memories, whatever they stand in; what stands beside them goes to *relations*."""
    if source.head().lstrip().startswith(b"["):
        yield from source.elements()
        return
    for _, value in source.values():
        record = as_object(value)
        graph = record.get("relations")
        relations += graph if isinstance(graph, list) else []
        lists = (record.get(name) for name in _LISTS)
        memories = next((each for each in lists if isinstance(each, list)), None)
        if memories is not None:
            yield from memories
        elif not isinstance(graph, list):
            yield value


def _memory(record: Record, say: Say) -> Iterator[SourceMemory]:
    text = first_text(record, *_TEXTS)
    if not text:
        is_empty = any(isinstance(record.get(name), str) for name in _TEXTS)
        raise ValueError("it is empty" if is_empty else f"it has none of `{'`, `'.join(_TEXTS)}`")
    extra = dict(as_object(record.get("metadata")))
    extra |= {f"mem0_{name}": record[name] for name in _KEPT_FIELDS if record.get(name) is not None}
    categories = record.get("categories")
    if isinstance(categories, list) and categories:
        extra.setdefault("tags", [each for each in categories if isinstance(each, str)])
    times = {name: instant(record.get(name)) for name in ("created_at", "updated_at")}
    times["expiration_date"] = _end(record.get("expiration_date"))
    for name, at in times.items():
        if at is None and record.get(name) is not None:
            say(f"its `{name}` is not a valid time: {str(record[name])[:40]!r}")
    at, changed, end = times.values()
    more: dict[str, Any] = {"updated_at": changed} if at and changed else {}
    more |= {"expires_at": end} if end else {}
    session, agent = name_in(record, "run_id"), name_in(record, "agent_id")
    item = note(say, text, at=at, extra=extra, session=session, agent=agent, **more)
    owner = name_in(record, "user_id")
    key = name_in(record, "id") or compact([owner, text, str(at)])
    yield SourceMemory(item, key, () if owner is None else (owner,))


def _relation(owners: set[str | None], record: Record, say: Say) -> Iterator[SourceMemory]:
    """Yield a relation, which is the owner's of the file if it names nobody itself."""
    owner = name_in(record, "user_id") or (next(iter(owners)) if len(owners) == 1 else None)
    if owner is None and owners:
        raise ValueError(
            "the file has memories of several people and does not say whose this one is"
        )
    fields = (("source",), ("relationship", "relation"), ("target", "destination"))
    ends = [first_text(record, *names) for names in fields]
    if not all(ends):
        raise ValueError("it has no `source`, `relationship` and `target`")
    text, extra = relation_of(*ends)
    item = note(say, text, extra=extra)
    yield SourceMemory(item, compact(["relation", *ends]), () if owner is None else (owner,))


def _end(value: object) -> datetime | None:
    """Return when a memory expires: at the end of a day, as mem0 has it."""
    at = instant(value)
    try:
        is_day = isinstance(value, str) and date.fromisoformat(value) is not None
        return at + timedelta(days=1) if is_day and at is not None else at
    except (ValueError, OverflowError):
        return at
