"""Between history entries and memory items, with nothing lost either way.

What an item has no field for (an entry's class, a `created` that is not an instant, a tool result
that is not text) is kept under `metadata.extra["history"]`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from orbiter.memory._checks import check_json
from orbiter.memory._history_entries import Memory, ResponseMem, UserMem
from orbiter.memory._ids import new_id
from orbiter.memory.calls import ToolCall, call_id, call_input, call_name
from orbiter.memory.copies import copy_item
from orbiter.memory.errors import InvalidItemError
from orbiter.memory.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)

_KEY = "history"
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def to_items(entries: Iterable[Memory], metadata: MemoryMetadata) -> list[MemoryItem]:
    """Return the items of *entries*, in order."""
    items: list[MemoryItem] = []
    for entry in entries:
        if entry.origin and _entry(list(entry.origin)) == entry:
            items += [copy_item(item) for item in entry.origin]
            continue
        before = items[-1].created_at if items else datetime.now(UTC)
        try:
            items += _items(entry, metadata, before)
        except (TypeError, ValueError) as exc:
            raise InvalidItemError(f"{entry!r} cannot be stored: {exc}") from exc
    return items


def from_items(items: Sequence[MemoryItem]) -> list[Memory]:
    """Return the entries of *items*; a response takes in the results that directly follow it."""
    entries = []
    group: list[MemoryItem] = []
    for item in items:
        asked = {call_id(call) for call in calls_of(group[0])} if group else set()
        if role_of(item) == "tool" and result_id(item) in asked:
            group.append(item)
            continue
        if group:
            entries.append(_entry(group))
        group = [item]
    if group:
        entries.append(_entry(group))
    return entries


def _items(entry: Memory, metadata: MemoryMetadata, before: datetime) -> Iterator[MemoryItem]:
    created_at, note = _instant(entry.created, before)
    note |= {"class": type(entry).__name__, "role": entry.role}
    if isinstance(entry, ResponseMem):
        yield from _response_items(entry, metadata, created_at, note)
        return
    kinds = {"user": HumanMemory, "assistant": AIMemory, "system": SystemMemory}
    kind = kinds.get(entry.role)
    fields = {
        "content": entry.message,
        "metadata": _noted(metadata, note),
        "created_at": created_at,
    }
    yield kind(**fields) if kind else MemoryItem(**fields, memory_type=entry.role or "item")


def _response_items(
    entry: ResponseMem, metadata: MemoryMetadata, created_at: datetime, note: dict[str, Any]
) -> Iterator[MemoryItem]:
    item_id = new_id()
    calls: list[dict[str, Any]] = [
        {"id": call.id or f"call_{place}_{item_id}", "name": call.name, "arguments": call.args}
        for place, call in enumerate(entry.tool_calls)
    ]
    note["ids"] = [call.id for call in entry.tool_calls]
    open_calls = list(calls)
    results = []
    for result in entry.tool_results:
        name = result.get("name", "") if isinstance(result, dict) else ""
        call = next((call for call in open_calls if call["name"] == name), None)
        if call is not None:
            open_calls.remove(call)
        results.append(_result_item(result, call["id"] if call else "", metadata, created_at))
    # Results that answer no call stay with the response, or they would be lost as orphans.
    note["unasked"] = [
        [place, entry.tool_results[place]]
        for place, tool in enumerate(results)
        if not tool.tool_call_id
    ]
    yield AIMemory(
        id=item_id,
        content=entry.message,
        tool_calls=calls,
        metadata=_noted(metadata, note),
        created_at=created_at,
    )
    yield from (tool for tool in results if tool.tool_call_id)


def _result_item(
    result: Any, id: str, metadata: MemoryMetadata, created_at: datetime
) -> ToolMemory:
    value = result.get("result") if isinstance(result, dict) else result
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    plain = isinstance(value, str) and set(result) == {"name", "result"}
    return ToolMemory(
        content=text,
        tool_call_id=id,
        tool_name=result["name"] if plain else "",
        metadata=metadata if plain else _noted(metadata, {"result": result}),
        created_at=created_at,
    )


def _entry(group: list[MemoryItem]) -> Memory:
    item, results = group[0], group[1:]
    note = item.metadata.extra.get(_KEY)
    note = note if isinstance(note, dict) else {}
    created = _created(note, item.created_at)
    role = note.get("role", _ROLES.get(role_of(item) or "", item.memory_type))
    name = note.get("class", "ResponseMem" if isinstance(item, AIMemory) else "")
    entry: Memory
    if name == "ResponseMem":
        ids = note.get("ids") or [call_id(call) for call in calls_of(item)]
        calls = [
            ToolCall(call_name(call), call_input(call), id)
            for call, id in zip(calls_of(item), ids, strict=False)
        ]
        returned = [_returned(result) for result in results]
        for place, result in note.get("unasked", ()):
            returned.insert(place, result)
        entry = ResponseMem(item.content, created, calls, returned, role)
    elif name == "UserMem" or (not name and role == "user"):
        entry = UserMem(item.content, created, role)
    else:
        entry = Memory(item.content, created, role)
    entry.origin = tuple(copy_item(part) for part in group)
    return entry


def _returned(item: MemoryItem) -> Any:
    note = item.metadata.extra.get(_KEY)
    if isinstance(note, dict) and "result" in note:
        return note["result"]
    name = item.tool_name if isinstance(item, ToolMemory) else ""
    return {"name": name, "result": item.content}


def _instant(created: Any, before: datetime) -> tuple[datetime, dict[str, Any]]:
    """Return when *created* is, and what must be noted to get the very value back."""
    if isinstance(created, datetime):
        if created.tzinfo is not None:
            return created, {}
        return created.replace(tzinfo=UTC), {"naive": True}
    note = {"created": check_json(created, max_bytes=4096)}
    try:
        if isinstance(created, str):
            return datetime.fromisoformat(created), note
        if isinstance(created, int | float):
            return datetime.fromtimestamp(created, UTC), note
    except (ValueError, OverflowError, OSError):
        pass  # not a time we know; the value itself is noted
    return before, note


def _created(note: dict[str, Any], created_at: datetime) -> Any:
    if "created" in note:
        return note["created"]
    return created_at.replace(tzinfo=None) if note.get("naive") else created_at


def _noted(metadata: MemoryMetadata, note: dict[str, Any]) -> MemoryMetadata:
    kept = {key: value for key, value in note.items() if value != []}
    return metadata.model_copy(update={"extra": _checked({**metadata.extra, _KEY: kept})})


def _checked(extra: dict[str, Any]) -> dict[str, Any]:
    return MemoryMetadata(extra=extra).extra
