"""Copies at a store's door: what comes in and what goes out shares nothing with what is held."""

import copy
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orbiter.memory._checks import check_json
from orbiter.memory.errors import InvalidItemError
from orbiter.memory.items import (
    MAX_JSON,
    MAX_NATIVE,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    dump_item,
)

__all__ = ["copy_item", "copy_value", "take_in"]

_Model = TypeVar("_Model", bound=BaseModel)

_ATOMS = frozenset((str, int, float, bool, type(None), datetime, MemoryStatus))
# What can change inside each known kind, so that a copy need not look at every field. Copying is
# the cost of every read.
_OPEN_FIELDS: dict[type[BaseModel], tuple[str, ...]] = {
    MemoryMetadata: ("extra",),
    MemoryItem: ("metadata", "native"),
    SystemMemory: ("metadata", "native"),
    HumanMemory: ("metadata", "native"),
    ToolMemory: ("metadata", "native"),
    AIMemory: ("metadata", "native", "tool_calls"),
}
_new, _set = object.__new__, object.__setattr__


def copy_item(item: MemoryItem) -> MemoryItem:
    """Return a copy that shares nothing changeable with *item*.

    Some ten times faster than `model_copy(deep=True)`, because it knows what items are made of.
    """
    return _copy_model(item)


def take_in(item: MemoryItem) -> MemoryItem:
    """Return a copy of *item* for a store to keep; refuse one that was changed into nonsense.

    Fields are checked when they are set; only a list or dict changed in place can go wrong.
    """
    if not isinstance(item, MemoryItem):
        raise InvalidItemError(
            f"`{type(item).__name__}` is not a memory item; make a `HumanMemory(content=...)`"
        )
    try:
        if type(item) in _OPEN_FIELDS:
            calls = item.tool_calls if isinstance(item, AIMemory) else []
            for part, limit in (
                (item.metadata.extra, MAX_JSON),
                (calls, MAX_JSON),
                (item.native, MAX_NATIVE),
            ):
                if part:
                    check_json(part, max_bytes=limit)
        else:
            check_json(dump_item(item), max_bytes=2 * MAX_NATIVE)
    except (ValueError, ValidationError) as exc:
        raise InvalidItemError(f"item `{item.id}` cannot be stored: {exc}") from exc
    return _copy_model(item)


def _copy_model(model: _Model) -> _Model:
    twin = _new(model.__class__)
    fields = model.__dict__.copy()
    for name in _OPEN_FIELDS.get(model.__class__) or fields:
        fields[name] = copy_value(fields[name])
    _set(twin, "__dict__", fields)
    _set(twin, "__pydantic_fields_set__", model.__pydantic_fields_set__.copy())
    _set(twin, "__pydantic_extra__", copy_value(model.__pydantic_extra__))
    _set(twin, "__pydantic_private__", copy_value(model.__pydantic_private__))
    return twin


def copy_value(value: Any) -> Any:
    """Return a deep copy of a field's value, quick for JSON."""
    kind = value.__class__
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: copy_value(inner) for key, inner in value.items()} if value else {}
    if kind is list:
        return [copy_value(inner) for inner in value] if value else []
    if kind is MemoryMetadata:
        return _copy_model(value)
    return copy.deepcopy(value)
