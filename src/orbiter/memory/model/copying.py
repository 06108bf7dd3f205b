"""Copies of items: what a store takes in and gives out shares nothing with what it holds."""

import copy
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel

from orbiter.memory.errors import InvalidItemError
from orbiter.memory.model.display import shortened
from orbiter.memory.model.fences import has_fence, without_fences
from orbiter.memory.model.items import (
    MAX_NATIVE,
    MAX_SCOPE_ID,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    kept_extra,
    new_id,
)
from orbiter.memory.model.serialization import dump_item, load_item
from orbiter.memory.model.validation import check_json, check_text

__all__ = [
    "SLOT_SETTERS",
    "check_content",
    "copy_item",
    "copy_items",
    "copy_metadata",
    "copy_value",
    "item_of_text",
    "scope_of_ids",
    "share_values",
    "unchecked_item",
    "unfenced",
    "validated_copy",
]

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
_ALL_FIELDS = {kind: set(kind.model_fields) for kind in _OPEN_FIELDS}
"""The names of all fields, for `model_fields_set` of every item that has been told all of them.

Shared: nothing is ever added to it. A set of its own would be a third of what an item takes.
"""
_SCOPE_FIELDS = ("user_id", "session_id", "task_id", "agent_id")
_PLAIN = MemoryItem.model_fields["memory_type"].default
_new, _set = object.__new__, object.__setattr__
SLOT_SETTERS = tuple(
    vars(BaseModel)[name].__set__
    for name in (
        "__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__",
    )
)  # fmt: skip
"""What sets all that a model is made of, a third faster than `object.__setattr__`."""
_set_dict, _set_fields_set, _set_extra, _set_private = SLOT_SETTERS


_Plain = TypeVar("_Plain", MemoryItem, HumanMemory, SystemMemory)


def item_of_text(kind: type[_Plain], content: str, metadata: MemoryMetadata) -> _Plain:
    """Return `kind(content=…, metadata=…)`, some five times faster: it checks only the text.

    *metadata* must have been checked, and is the item's own from now on. A text that no store
    keeps is an `InvalidItemError`.
    """
    if type(content) is not str:
        return kind(content=content, metadata=metadata)  # which says what is wrong with it
    check_content(kind, content)
    return unchecked_item(kind, content, metadata)


def check_content(kind: type[MemoryItem], content: str) -> None:
    """Raise `InvalidItemError`, in one line, for a text that no store keeps."""
    try:
        check_text(content, max_bytes=kind.max_content_bytes)
    except ValueError as exc:
        raise InvalidItemError(f"the text `{shortened(content)}` cannot be stored: {exc}") from None


def unchecked_item(kind: type[_Plain], content: str, metadata: MemoryMetadata) -> _Plain:
    """Return `kind(content=…, metadata=…)` without a check, for what no store is given."""
    item = _new(kind)
    now = datetime.now(UTC)
    fields = {
        "id": new_id(),
        "content": content,
        "memory_type": kind.model_fields["memory_type"].default,
        "status": MemoryStatus.ACCEPTED,
        "metadata": metadata,
        "native": {},
        "created_at": now,
        "updated_at": now,
        "version": 1,
        "expires_at": None,
    }
    _set(item, "__dict__", fields)
    _set(item, "__pydantic_fields_set__", {"content", "metadata"})
    _set(item, "__pydantic_extra__", None)
    _set(item, "__pydantic_private__", None)
    return item


def scope_of_ids(ids: Mapping[str, str | None]) -> MemoryMetadata:
    """Return `MemoryMetadata(**ids)`, without a validator if every id is a plain text.

    Most programs name a user before they do anything else, and many make no item themselves. So
    they need not wait until pydantic has built its first validator and looked for plug-ins.
    """
    try:
        is_plain = all(
            value is None or (type(value) is str and check_text(value, max_bytes=MAX_SCOPE_ID))
            for value in ids.values()
        )
    except ValueError:
        is_plain = False
    if not is_plain:
        return MemoryMetadata(**ids)  # which says what is wrong with it
    scope = _new(MemoryMetadata)
    _set(scope, "__dict__", {**dict.fromkeys(_SCOPE_FIELDS), **ids, "extra": {}})
    _set(scope, "__pydantic_fields_set__", set(ids))
    _set(scope, "__pydantic_extra__", None)
    _set(scope, "__pydantic_private__", None)
    return scope


def copy_item(item: MemoryItem) -> MemoryItem:
    """Return a copy that shares nothing changeable with *item*.

    Some twenty times faster than `model_copy(deep=True)`, because it knows what items are made of.
    """
    return copy_items((item,))[0]


def copy_items(items: Iterable[MemoryItem]) -> list[MemoryItem]:
    """Return copies that share nothing changeable with *items*, nor with each other."""
    copies: list[MemoryItem] = []
    for item in items:
        kind, fields = item.__class__, item.__dict__.copy()
        metadata = fields["metadata"]
        if kind not in _OPEN_FIELDS or metadata.__class__ is not MemoryMetadata:
            copies.append(_copy_model(item))
            continue
        # `_copy_model` of the item and of its metadata, written out: most of a window is this.
        scope = metadata.__dict__.copy()
        scope["extra"] = copy_value(scope["extra"]) if scope["extra"] else {}
        fields["native"] = copy_value(fields["native"]) if fields["native"] else {}
        if kind is AIMemory:
            fields["tool_calls"] = copy_value(fields["tool_calls"]) if fields["tool_calls"] else []
        # A set that names every field is shared: nothing can be added to it.
        names = metadata.__pydantic_fields_set__
        who = fields["metadata"] = _new(MemoryMetadata)
        _set_dict(who, scope)
        _set_fields_set(who, names if len(names) == len(scope) else names.copy())
        _set_extra(who, None)
        _set_private(who, None)
        names = item.__pydantic_fields_set__
        twin = _new(kind)
        _set_dict(twin, fields)
        _set_fields_set(twin, names if len(names) == len(fields) else names.copy())
        _set_extra(twin, None)
        _set_private(twin, None)
        copies.append(twin)
    return copies


def copy_metadata(metadata: MemoryMetadata) -> MemoryMetadata:
    """Return a copy that shares nothing changeable with *metadata*."""
    return _copy_model(metadata)


def unfenced(item: MemoryItem) -> MemoryItem:
    """Return *item*, or a copy without the memories that its text quotes behind a fence."""
    if not has_fence(item.content):
        return item
    copy = copy_item(item)
    copy.__dict__["content"] = without_fences(item.content)
    return copy


def validated_copy(item: MemoryItem) -> MemoryItem:
    """Return a checked copy of *item* for a store to keep; our own output is not to be indexed.

    An item checks its fields when they are set, but `model_copy(update=…)` and changes inside a
    list or dict go unseen; so every store checks again at its door. A kind that would not come
    back from `dump_item` and `load_item` as it is, is refused too: no store could keep it.
    """
    if not isinstance(item, MemoryItem):
        raise _no_item(item)
    try:
        # A plain item may name another kind, and is to become one of that.
        names_kind = type(item) is MemoryItem and item.memory_type != _PLAIN
        if type(item) in _OPEN_FIELDS and not names_kind:
            metadata = MemoryMetadata.model_validate(item.metadata.__dict__)
            twin = type(item).model_validate({**item.__dict__, "metadata": metadata})
            twin = _marked(twin)
            for model in (twin, twin.metadata):
                _share_fields_set(model)
            return twin
        return _marked(_round_trip(item))
    except (AttributeError, TypeError, ValueError) as exc:
        raise InvalidItemError(f"item `{item.__dict__.get('id')}` cannot be stored: {exc}") from exc


def _marked(item: MemoryItem) -> MemoryItem:
    """Return *item* itself; if it is our own output, it says that it is not indexed."""
    extra = kept_extra(item)
    if extra is not item.metadata.extra:
        item.__dict__["metadata"] = item.metadata.model_copy(update={"extra": extra})
    return item


def _no_item(value: object) -> InvalidItemError:
    way = "`await` it" if hasattr(value, "__await__") else "make a `HumanMemory(content=...)`"
    return InvalidItemError(f"`{type(value).__name__}` is not a memory item; {way}")


def _round_trip(item: MemoryItem) -> MemoryItem:
    """Return what a store that writes items down would give back, if that is the same."""
    # An object also holds what a `cached_property` returned, which is no field.
    fields = {
        name: item.__dict__[name] for name in type(item).model_fields if name in item.__dict__
    }
    item = type(item).model_validate({**fields, **(item.__pydantic_extra__ or {})})
    record = dump_item(item)
    check_json(record, max_bytes=2 * MAX_NATIVE)
    twin = load_item(record)
    is_same = item.__dict__.items() <= twin.__dict__.items()
    if type(item) is MemoryItem and type(twin).registered and is_same:
        return twin  # a plain item that names a known kind becomes one
    if type(twin) is not type(item):
        raise ValueError(
            f"`{type(item).__name__}` would come back as `{type(twin).__name__}`; give the class "
            "a `memory_type` of its own, or make an item of that kind"
        )
    changed = [name for name, value in item.__dict__.items() if twin.__dict__.get(name) != value]
    if changed:
        raise ValueError(f"`{changed[0]}` would not come back as it is; keep JSON in it")
    return twin


def _copy_model(model: _Model) -> _Model:
    twin = _new(model.__class__)
    fields = model.__dict__.copy()
    for name in _OPEN_FIELDS.get(model.__class__) or fields:
        fields[name] = copy_value(fields[name])
    _set(twin, "__dict__", fields)
    fields_set = model.__pydantic_fields_set__
    is_shared = fields_set is _ALL_FIELDS.get(model.__class__)
    _set(twin, "__pydantic_fields_set__", fields_set if is_shared else fields_set.copy())
    _set(twin, "__pydantic_extra__", copy_value(model.__pydantic_extra__))
    _set(twin, "__pydantic_private__", copy_value(model.__pydantic_private__))
    return twin


def _share_fields_set(model: BaseModel) -> None:
    every = _ALL_FIELDS[model.__class__]
    if model.__pydantic_fields_set__ == every:
        _set(model, "__pydantic_fields_set__", every)


def share_values(item: MemoryItem, other: MemoryItem | None) -> None:
    """Have *item*, which is never changed again, use what is equal in *other*, to save memory."""
    if type(item) not in _OPEN_FIELDS:
        return
    fields = item.__dict__
    if fields["updated_at"] == fields["created_at"]:
        fields["updated_at"] = fields["created_at"]
    if other is not None and type(other) in _OPEN_FIELDS:
        for name in ("metadata", "native"):
            if fields[name] == other.__dict__[name]:
                fields[name] = other.__dict__[name]


def copy_value(value: Any) -> Any:
    """Return a deep copy of a field's value, quick for JSON."""
    kind = value.__class__
    if kind in _ATOMS:
        return value
    # Asked here already whether what is inside can change: most calls of this are spared.
    if kind is dict:
        return {
            key: inner if inner.__class__ in _ATOMS else copy_value(inner)
            for key, inner in value.items()
        }
    if kind is list:
        return [inner if inner.__class__ in _ATOMS else copy_value(inner) for inner in value]
    if kind is MemoryMetadata:
        return _copy_model(value)
    return copy.deepcopy(value)
