"""A sliding window of plain conversation entries.

The names, constructors and reprs are `synaptic.core.base.memory`'s, kept to the letter.
Between entries and memory items nothing is lost: what an item has no field for (an entry's class,
a `created` that is not an instant in UTC, a tool result that is not text) is kept under
`metadata.extra["history"]`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from orbiter.memory.errors import InvalidItemError, ToolCallNotFoundError
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
    calls_of,
    new_id,
    result_id,
    role_of,
)
from orbiter.memory.model.query import check_size
from orbiter.memory.model.tool_calls import ToolCall, call_id, call_input, call_name
from orbiter.memory.model.validation import check_json

__all__ = ["History", "Memory", "ResponseMem", "ToolCall", "UserMem"]


class Memory:
    """An entry in a conversation: what was said, when and by whom. Entries compare by value.

    `origin` holds the items it was read from, to give back while the entry says the same.
    """

    def __init__(self, message: str, created: Any, role: str) -> None:
        self.message = message
        self.created = created
        self.role = role
        self.origin: tuple[MemoryItem, ...] = ()

    def __repr__(self) -> str:
        return f"<Memory role={self.role} message={self.message!r} created={self.created}>"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = ({**vars(entry), "origin": None} for entry in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]  # entries can change


class ResponseMem(Memory):
    """What the model answered, the tools it called and what they returned."""

    def __init__(
        self,
        message: str,
        created: Any,
        tool_calls: list[ToolCall],
        tool_results: list[Any] | None = None,
        role: str = "assistant",
    ) -> None:
        super().__init__(message, created, role)
        self.tool_calls = tool_calls
        self.tool_results = [] if tool_results is None else tool_results

    def list_tool_calls(self) -> list[str]:
        """Return the names of the called tools, in order."""
        return [call.name for call in self.tool_calls]

    def get_tool_call(self, name: str) -> ToolCall:
        """Return the first call of that tool; `LookupError` if there is none."""
        for call in self.tool_calls:
            if call.name == name:
                return call
        called = ", ".join(f"`{known}`" for known in self.list_tool_calls()) or "no tool"
        raise ToolCallNotFoundError(f"no call of `{name}` in this response; it called {called}")

    def __repr__(self) -> str:
        return (
            f"<Memory role={self.role} message={self.message!r} created={self.created} "
            f"tool_calls={self.tool_calls} tool_results={self.tool_results}>"
        )


class UserMem(Memory):
    """What the user said."""

    def __init__(self, message: str, created: Any, role: str = "user") -> None:
        super().__init__(message, created, role)


class History:
    """Keeps the newest `size` entries, oldest first.

    A response holds its tool calls and their results in one entry, so the window never splits
    a tool group.
    """

    def __init__(self, memoryList: list[Memory] | None = None, size: int = 10) -> None:
        self.MemoryList: list[Memory] = list(memoryList or ())
        self.size = check_size("size", size)
        self._size_update()

    def __len__(self) -> int:
        return len(self.MemoryList)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return (self.MemoryList, self.size) == (other.MemoryList, other.size)

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"History({self.MemoryList!r}, size={self.size})"

    def _size_update(self) -> None:
        del self.MemoryList[: max(0, len(self.MemoryList) - self.size)]

    def window(self, size: int) -> list[Memory]:
        """Set how many entries are kept, drop the oldest beyond that, and return the rest."""
        self.size = check_size("size", size)
        self._size_update()
        return self.MemoryList

    def add(self, memory: Memory) -> None:
        """Append an entry and drop the oldest beyond `size`."""
        self.MemoryList.append(memory)
        self._size_update()

    def to_items(self, *, metadata: MemoryMetadata | None = None) -> list[MemoryItem]:
        """Return the entries as memory items; `from_items` brings back equal entries.

        *metadata* is given to entries that did not come from items themselves.
        """
        return _to_items(self.MemoryList, metadata or MemoryMetadata())

    @classmethod
    def from_items(cls, items: Sequence[MemoryItem], *, size: int | None = None) -> "History":
        """Return a history of *items*; by default it is large enough for all of them.

        As long as an entry is not changed, `to_items` gives its items back as they were.
        """
        entries = _from_items(items)
        return cls(entries, size=max(10, len(entries)) if size is None else size)


_KEY = "history"
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_KINDS = {"user": HumanMemory, "assistant": AIMemory, "system": SystemMemory}
_NOTED = {"class": str, "role": str, "iso": str, "ids": list, "args": list, "unasked": list}


def _to_items(entries: Iterable[Memory], metadata: MemoryMetadata) -> list[MemoryItem]:
    """Return the items of *entries*, in order; the same ones each time while nothing changes."""
    items: list[MemoryItem] = []
    for entry in entries:
        if not entry.origin or _entry(entry.origin) != entry:
            before = items[-1].created_at if items else datetime.now(UTC)
            try:
                entry.origin = _written(entry, metadata, before)
            except (AttributeError, TypeError, ValueError) as exc:
                raise InvalidItemError(f"{entry!r} cannot be stored: {exc}") from exc
        items += [copy_item(item) for item in entry.origin]
    return items


def _from_items(items: Sequence[MemoryItem]) -> list[Memory]:
    """Return the entries of *items*; a response takes in the results that directly follow it."""
    groups: list[list[MemoryItem]] = []
    for item in items:
        call_ids = {call_id(call) for call in calls_of(groups[-1][0])} if groups else set()
        if role_of(item) == "tool" and result_id(item) in call_ids:
            groups[-1].append(copy_item(item))
        else:
            groups.append([copy_item(item)])
    entries = []
    for group in groups:
        entry = _entry(group)
        entry.origin = tuple(group)
        entries.append(entry)
    return entries


def _written(entry: Memory, metadata: MemoryMetadata, before: datetime) -> tuple[MemoryItem, ...]:
    """Return the items of an entry; one that came from items keeps their identity."""
    if not entry.origin:
        return tuple(_items(entry, new_id(), metadata, before))
    old = entry.origin[0]
    extra = {key: value for key, value in old.metadata.extra.items() if key != _KEY}
    own_metadata = old.metadata.model_copy(update={"extra": extra})
    first, *rest = _items(entry, old.id, own_metadata, before)
    first.status, first.native, first.version = old.status, old.native, old.version
    return (first, *rest)


def _items(
    entry: Memory, id: str, metadata: MemoryMetadata, before: datetime
) -> Iterator[MemoryItem]:
    created_at, note = _instant(entry.created, before)
    note |= {"class": type(entry).__name__, "role": entry.role}
    if isinstance(entry, ResponseMem):
        yield from _response_items(entry, id, metadata, created_at, note)
        return
    kind = _KINDS.get(entry.role)
    fields = {
        "id": id,
        "content": entry.message,
        "metadata": _noted(metadata, note),
        "created_at": created_at,
    }
    yield kind(**fields) if kind else MemoryItem(**fields, memory_type=entry.role or "item")


def _response_items(
    entry: ResponseMem,
    id: str,
    metadata: MemoryMetadata,
    created_at: datetime,
    note: dict[str, Any],
) -> Iterator[MemoryItem]:
    calls: list[dict[str, Any]] = [
        {"id": call.id or f"call_{place}_{id}", "name": call.name, "arguments": call.args}
        for place, call in enumerate(entry.tool_calls)
    ]
    note["ids"] = [call.id for call in entry.tool_calls]
    if not all(isinstance(call.args, dict) for call in entry.tool_calls):
        note["args"] = [call.args for call in entry.tool_calls]
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
        id=id,
        content=entry.message,
        tool_calls=calls,
        metadata=_noted(metadata, note),
        created_at=created_at,
    )
    yield from (tool for tool in results if tool.tool_call_id)


def _result_item(
    result: Any, id: str, metadata: MemoryMetadata, created_at: datetime
) -> ToolMemory:
    is_object = isinstance(result, dict)
    is_error = is_object and result.get("error") is not None and result.get("result") is None
    key = "error" if is_error else "result"
    value = result.get(key) if is_object else result
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    name = result.get("name") if is_object else None
    plain = isinstance(value, str) and is_object and set(result) == {"name", key}
    return ToolMemory(
        content=text,
        tool_call_id=id,
        tool_name=name if isinstance(name, str) else "",
        is_error=is_error,
        metadata=metadata if plain else _noted(metadata, {"result": result}),
        created_at=created_at,
    )


def _entry(group: Sequence[MemoryItem]) -> Memory:
    item, results = group[0], group[1:]
    note = _note(item)
    created = _created(note, item.created_at)
    role = note.get("role", _ROLES.get(role_of(item) or "", item.memory_type))
    name = note.get("class", "ResponseMem" if isinstance(item, AIMemory) else "")
    if name == "ResponseMem":
        returned = [_returned(result) for result in results]
        for place, result in note.get("unasked", ()):
            returned.insert(place, result)
        return ResponseMem(item.content, created, _tool_calls(item, note), returned, role)
    if name == "UserMem" or (not name and role == "user"):
        return UserMem(item.content, created, role)
    return Memory(item.content, created, role)


def _tool_calls(item: MemoryItem, note: dict[str, Any]) -> list[ToolCall]:
    calls = calls_of(item)
    ids = note.get("ids", ())
    arguments = note.get("args", ())
    if len(ids) != len(calls):
        ids = [call_id(call) or None for call in calls]
    if len(arguments) != len(calls):
        arguments = [call_input(call) for call in calls]
    return [
        ToolCall(call_name(call), args, id)
        for call, args, id in zip(calls, arguments, ids, strict=True)
    ]


def _note(item: MemoryItem) -> dict[str, Any]:
    """Return what was noted; anything of another shape under our key is somebody else's."""
    note = item.metadata.extra.get(_KEY)
    if not isinstance(note, dict):
        return {}
    if not all(isinstance(note[key], kind) for key, kind in _NOTED.items() if key in note):
        return {}
    pairs = note.get("unasked", ())
    are_pairs = all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], int) for p in pairs)
    return note if are_pairs else {}


def _returned(item: MemoryItem) -> Any:
    note = _note(item)
    if "result" in note:
        return note["result"]
    if not isinstance(item, ToolMemory):
        return {"name": "", "result": item.content}
    return {"name": item.tool_name, "error" if item.is_error else "result": item.content}


def _instant(created: Any, before: datetime) -> tuple[datetime, dict[str, Any]]:
    """Return when *created* is, and what must be noted to get the very value back."""
    if isinstance(created, datetime):
        note = {} if created.tzinfo is UTC else {"iso": created.isoformat()}
        return created if created.tzinfo else created.replace(tzinfo=UTC), note
    noted = {"created": check_json(created, max_bytes=4096)}
    try:
        if isinstance(created, str):
            return datetime.fromisoformat(created), noted
        if isinstance(created, int | float):
            return datetime.fromtimestamp(created, UTC), noted
    except (ValueError, OverflowError, OSError):
        pass  # not a time we know; the value itself is noted
    return before, noted


def _created(note: dict[str, Any], created_at: datetime) -> Any:
    if "created" in note:
        return note["created"]
    try:
        return datetime.fromisoformat(note["iso"]) if "iso" in note else created_at
    except ValueError:
        return created_at


def _noted(metadata: MemoryMetadata, note: dict[str, Any]) -> MemoryMetadata:
    kept = {key: value for key, value in note.items() if value != []}
    extra = MemoryMetadata(extra={**metadata.extra, _KEY: kept}).extra
    return metadata.model_copy(update={"extra": extra})
