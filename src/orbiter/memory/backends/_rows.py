"""Items as rows of `memory_items`, and rows as items: the ten columns, the same in every SQL store.

Reading is the hot path: a row that a store wrote becomes an item without being checked again,
some five times faster. A row that looks unlike what `encode` writes, because a newer version or
a person wrote it, goes through `load_item`, which checks everything.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from orbiter.memory._checks import to_utc
from orbiter.memory.errors import StorageError
from orbiter.memory.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    dump_item,
    load_item,
)
from orbiter.memory.query import SCOPE_FIELDS

COLUMNS = (
    "id", "content", "memory_type", "status", "metadata", "extra_json", "created_at", "updated_at",
    "deleted", "version",
)  # fmt: skip
"""The columns of `memory_items`, in order."""

READ = (*COLUMNS[:8], "version")
"""The columns an item is made of."""

EXACT = "@extra"
"""Key in `extra_json` of a literal copy of `metadata.extra`, for databases whose JSON type turns
1e16 into a whole number. It counts only while it equals the column, so edits by hand are seen."""


class Row(NamedTuple):
    """What a store writes of an item; `deleted` and `version` are the database's own affair."""

    id: str
    content: str
    memory_type: str
    status: str
    metadata: str
    extra_json: str
    created_at: datetime
    updated_at: datetime


_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_new, _set = object.__new__, object.__setattr__
_COMMON = frozenset(COLUMNS)
_STATUS = {status.value: status for status in MemoryStatus}
_ITEM_FIELDS = {
    "id", "content", "memory_type", "status", "metadata", "native", "created_at", "updated_at",
    "version",
}  # fmt: skip
_OWN: dict[type[MemoryItem], dict[str, Any]] = {
    SystemMemory: {},
    HumanMemory: {},
    AIMemory: {"tool_calls": list},
    ToolMemory: {"tool_call_id": str, "tool_name": str, "is_error": bool},
}
"""What the known kinds have of their own, and how to make it when it is not written down."""
_KINDS = {kind.model_fields["memory_type"].default: kind for kind in _OWN}
_FIELDS_SET = {kind: frozenset(_ITEM_FIELDS | own.keys()) for kind, own in _OWN.items()}


def encode(item: MemoryItem, *, exact_extra: bool = False) -> Row:
    """Return the row of a checked *item*; `exact_extra` adds the copy under `EXACT`."""
    metadata = item.metadata
    who: dict[str, Any] = {
        name: value for name in SCOPE_FIELDS if (value := getattr(metadata, name)) is not None
    }
    if metadata.extra:
        who["extra"] = metadata.extra
    own = _OWN.get(type(item))
    if own is None:
        extra = {key: value for key, value in dump_item(item).items() if key not in _COMMON}
    else:
        extra = {name: value for name in own if (value := item.__dict__[name])}
        if item.native:
            extra["native"] = item.native
    if exact_extra and metadata.extra:
        extra[EXACT] = metadata.extra
    return Row(
        item.id,
        item.content,
        item.memory_type,
        item.status.value,
        _dumps(who) if who else "{}",
        _dumps(extra) if extra else "{}",
        item.created_at,
        item.updated_at,
    )


def decode(row: Sequence[Any]) -> MemoryItem:
    """Return the item of a row of the columns `READ`."""
    item_id, content, memory_type, status, metadata, extra_json, created, updated, version = row
    try:
        extra = json.loads(extra_json) if extra_json != "{}" else {}
        who = _metadata(metadata, extra.pop(EXACT, None))
        if isinstance(created, str):
            created, updated = _instant(created), _instant(updated)
        kind = _KINDS.get(memory_type) if type(content) is str and type(version) is int else None
        fields = {
            "id": item_id,
            "content": content,
            "memory_type": memory_type,
            "status": _STATUS[status],
            "metadata": who,
            "native": extra.pop("native", None) or {},
            "created_at": created,
            "updated_at": updated,
            "version": version,
        }
        if kind is not None and _fill(fields, _OWN[kind], extra):
            return _build(kind, fields)
        return load_item({**fields, **extra, "status": status})
    except (ValueError, TypeError, AttributeError, KeyError) as exc:
        raise StorageError(
            f"row `{item_id}` of `memory_items` cannot be read: {exc!r}; mend or delete it, or see "
            "`verify()`"
        ) from exc


def _fill(fields: dict[str, Any], own: dict[str, Any], extra: dict[str, Any]) -> bool:
    """Add the fields of a known kind; tell whether the row holds these and nothing else."""
    for name, make in own.items():
        value = extra.pop(name, None)
        if value is None:
            value = make()
        elif type(value) is not make:
            extra[name] = value
            return False
        fields[name] = value
    return not extra and type(fields["native"]) is dict


def _build(kind: type[MemoryItem], fields: dict[str, Any]) -> MemoryItem:
    item = _new(kind)
    _set(item, "__dict__", fields)
    _set(item, "__pydantic_fields_set__", set(_FIELDS_SET[kind]))
    _set(item, "__pydantic_extra__", None)
    _set(item, "__pydantic_private__", None)
    return item


@lru_cache(maxsize=1024)
def _scope(metadata: str) -> dict[str, str | None] | None:
    """Return the fields of plain metadata; `None` if there is more to it. Rows repeat them."""
    found = json.loads(metadata)
    is_plain = found.keys() <= set(SCOPE_FIELDS) and all(
        value is None or isinstance(value, str) for value in found.values()
    )
    return {name: found.get(name) for name in SCOPE_FIELDS} if is_plain else None


_SCOPE_SET = frozenset((*SCOPE_FIELDS, "extra"))


def _metadata(text: str, exact: Any) -> MemoryMetadata:
    # Long metadata is seldom the same twice, and would only fill the cache.
    plain = _scope(text) if len(text) < 512 else None
    if plain is None:
        found = json.loads(text)
        if exact is not None and _is_same(exact, found.get("extra")):
            found["extra"] = exact
        return MemoryMetadata.model_validate(found)
    metadata = _new(MemoryMetadata)
    _set(metadata, "__dict__", {**plain, "extra": {}})
    _set(metadata, "__pydantic_fields_set__", set(_SCOPE_SET))
    _set(metadata, "__pydantic_extra__", None)
    _set(metadata, "__pydantic_private__", None)
    return metadata


def _is_same(exact: Any, found: Any) -> bool:
    """Tell whether *found* is what a database's JSON type makes of *exact*."""
    if isinstance(exact, dict):
        return (
            isinstance(found, dict)
            and exact.keys() == found.keys()
            and all(_is_same(value, found[key]) for key, value in exact.items())
        )
    if isinstance(exact, list):
        return (
            isinstance(found, list)
            and len(exact) == len(found)
            and all(map(_is_same, exact, found))
        )
    if isinstance(exact, float) and isinstance(found, int) and not isinstance(found, bool):
        return exact == float(found)
    return type(exact) is type(found) and bool(exact == found)


def _instant(text: str) -> datetime:
    return to_utc(datetime.fromisoformat(text))


def iso(instant: datetime) -> str:
    """Return *instant* as text of one width, so that text order is time order."""
    return instant.isoformat(timespec="microseconds")
