"""What mem0 returns of its memories, saved as JSON: `get_all()`, an export, or one per line."""

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from functools import partial

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.json_helpers import (
    as_object,
    compact,
    first_text,
    instant,
    safely,
)
from orbiter.memory.transfer.formats.mcp_memory import relation_of

__all__ = ["Mem0"]

_TEXTS = ("memory", "text", "content", "data")
_LISTS = ("results", "memories", "data")
_LIST = re.compile(rb'\{\s*"(results|memories|data)"\s*:\s*\[')
_KEPT_FIELDS = ("hash", "categories", "actor_id", "role", "immutable", "expiration_date")
_SURE = (b'"hash"', b'"run_id"', b'"agent_id"', b'"categories"')
_FIELDS = {
    "id", "user_id", "metadata", "created_at", "updated_at", "score", *_TEXTS, *_KEPT_FIELDS,
}  # fmt: skip
_RELATIONS = b'"relations"'

Record = Mapping[str, object]


class Mem0:
    """Memories under `results`, `memories`, in a bare list, or one object to a line."""

    name = "mem0"
    label = "Memories of mem0, JSON"
    names_owners = True

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the fields of a memory; notes of a table may have a `user_id`, too."""
        has_text = any(f'"{name}"'.encode() in head for name in ("memory", "text"))
        marks = (b'"hash"', b'"user_id"', b'"run_id"', b'"agent_id"', b'"categories"')
        is_graph = _RELATIONS in head and b'"relationship"' in head
        is_list = has_text and any(mark in head for mark in marks)
        if is_list and not is_graph and not any(mark in head for mark in _SURE):
            is_list = _is_record(next(_records(source, []), None))
        return b'"mapping"' not in head and (is_list or is_graph)

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the memories in the order of the file, then what is said of its graph."""
        owners: set[str | None] = set()
        relations: list[object] = []
        for number, value in enumerate(_records(source, relations), 1):
            memory = _memory(as_object(value), f"memory {number}", complain)
            if memory is not None:
                owners |= {*memory.owners} or {None}
                yield memory
        owner = owners.pop() if len(owners) == 1 else None
        for number, value in enumerate(relations, 1):
            record, place = as_object(value), f"relation {number}"
            user_id = _name(record, "user_id") or owner
            if user_id is None and owners:
                complain(
                    place,
                    "the file has memories of several people and does not say whose this one is",
                )
                continue
            memory = safely(partial(_relation, record, user_id), complain, place)
            if memory is not None:
                yield memory


def _is_record(value: object) -> bool:
    """Tell whether all that an object has is what mem0 writes."""
    return as_object(value).keys() <= _FIELDS


def _records(source: SourceFile, relations: list[object]) -> Iterator[object]:
    """Yield the memories, whatever they stand in; a long list is never in memory as a whole.

    What stands beside them in a graph is added to *relations*.
    """
    head = source.head().lstrip()
    inside = _LIST.match(head)
    if head.startswith(b"["):
        yield from source.elements()
    elif inside:
        yield from source.elements(inside[1].decode())
        relations += source.listed("relations")
    else:
        for _, value in source.values():
            record = as_object(value)
            graph = record.get("relations")
            relations += graph if isinstance(graph, list) else []
            memories = next(
                (each for name in _LISTS if isinstance(each := record.get(name), list)), None
            )
            if memories is not None:
                yield from memories
            elif not isinstance(graph, list):
                yield value


def _memory(record: Record, place: str, complain: ReportProblem) -> SourceMemory | None:
    text = first_text(record, *_TEXTS)
    if text:
        return safely(partial(_source_memory, record, text, place, complain), complain, place)
    if any(isinstance(record.get(name), str) for name in _TEXTS):
        complain(place, "it is empty")
    else:
        complain(place, f"it has none of `{'`, `'.join(_TEXTS)}`")
    return None


def _source_memory(record: Record, text: str, place: str, complain: ReportProblem) -> SourceMemory:
    extra = dict(as_object(record.get("metadata")))
    extra |= {f"mem0_{name}": record[name] for name in _KEPT_FIELDS if record.get(name) is not None}
    categories = record.get("categories")
    if isinstance(categories, list) and categories:
        extra.setdefault("tags", [each for each in categories if isinstance(each, str)])
    fields: dict[str, object] = {}
    for name, read in (("created_at", instant), ("updated_at", instant), ("expiration_date", _end)):
        at = read(record.get(name))
        if at is not None:
            fields["expires_at" if read is _end else name] = at
        elif record.get(name) is not None:
            complain(place, f"its `{name}` is not a valid time: {str(record[name])[:40]!r}")
    if "created_at" in fields:
        fields.setdefault("updated_at", fields["created_at"])
    else:
        fields.pop("updated_at", None)
    about = MemoryMetadata(
        session_id=_name(record, "run_id"), agent_id=_name(record, "agent_id"), extra=extra
    )
    item = MemoryItem.model_validate({"content": text, "metadata": about, **fields})
    owner, own_id = _name(record, "user_id"), _name(record, "id")
    key = own_id or compact([owner, text, str(fields.get("created_at"))])
    return SourceMemory(item, key, () if owner is None else (owner,))


def _relation(record: Record, owner: str | None) -> SourceMemory:
    ends = [
        first_text(record, *names)
        for names in (("source",), ("relationship", "relation"), ("target", "destination"))
    ]
    if not all(ends):
        raise ValueError("it has no `source`, `relationship` and `target`")
    text, extra = relation_of(ends[0], ends[1], ends[2])
    item = MemoryItem(content=text, metadata=MemoryMetadata(extra=extra))
    return SourceMemory(item, compact(["relation", *ends]), () if owner is None else (owner,))


def _end(value: object) -> datetime | None:
    """Return from when on a memory is over: a day counts to its end, as mem0 has it."""
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        day = None
    at = instant(value)
    try:
        return at if day is None or at is None else at + timedelta(days=1)
    except OverflowError:
        return at


def _name(record: Record, field: str) -> str | None:
    value = record.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None
