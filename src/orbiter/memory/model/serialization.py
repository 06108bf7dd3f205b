"""Serialization: items as plain JSON values, and back as their own class."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, ValidationError

from orbiter.memory.model.items import MemoryItem, _iso, _registry
from orbiter.memory.model.validation import to_utc

__all__ = ["dump_item", "kind_of", "load_item", "unknown_kind"]

_HOMES = {
    "extraction": "orbiter.memory.model.derived",
    "fact": "orbiter.memory.model.facts",
    "summary": "orbiter.memory.model.derived",
}
"""The modules of those of our own kinds that few programs need."""


def _end(value: object) -> object:
    """Return an end as a store writes it as an instant; a class may have meant something else."""
    if isinstance(value, str) and len(value) == len(_iso(datetime.now(UTC))):
        try:
            return to_utc(datetime.fromisoformat(value))
        except ValueError:
            return value
    return value


def _end_as_json(value: object) -> object:
    return _iso(value) if isinstance(value, datetime) else value


class _UnknownMemory(MemoryItem):
    """A stored kind whose class is not imported here: all its fields are kept as they are."""

    model_config = ConfigDict(extra="allow")
    registered: ClassVar[bool] = False
    expires_at: Annotated[Any, BeforeValidator(_end), PlainSerializer(_end_as_json)] = None


def dump_item(item: MemoryItem) -> dict[str, Any]:
    """Return *item* as plain JSON values; `load_item` brings it back, class and all.

    An item that does not end says nothing of it. Computed fields are left out: they follow from
    the others.
    """
    record = item.model_dump(mode="json", round_trip=True)
    if item.expires_at is None:
        record.pop("expires_at", None)
    return record


def _kind(name: str) -> type[MemoryItem] | None:
    """Return the class of a kind; ours that few programs need are loaded when one is read."""
    return kind_of(name) if name in _registry or name in _HOMES else None


def kind_of(name: str) -> type[MemoryItem]:
    """Return the class of one of our own kinds, or of one that was registered."""
    if name not in _registry:
        import_module(_HOMES[name])
    return _registry[name]


def unknown_kind(name: str | None) -> str | None:
    """Return what is wrong with a kind where nothing is of it; `None` if there is such a kind."""
    kinds = {*_registry, *_HOMES} - {"extraction"}
    if name is None or name in kinds:
        return None
    others = "`, `".join(sorted(kinds - {"item"}))
    return f"unknown type `{name[:80]}`; use `item` for notes, or `{others}`"


def load_item(record: Mapping[str, Any]) -> MemoryItem:
    """Return the item that `dump_item` wrote, as its own class.

    A kind whose class is not imported, or has changed so much that it refuses the record, comes
    back as a `MemoryItem` that keeps every field.
    """
    name = record.get("memory_type")
    kind = _kind(name) if isinstance(name, str) else None
    if kind is not None:
        try:
            return kind.model_validate(dict(record))
        except ValidationError:
            # Written by another version of the class: what is stored must stay readable.
            pass
    plain = kind is None and record.keys() <= MemoryItem.model_fields.keys()
    return (MemoryItem if plain else _UnknownMemory).model_validate(dict(record))
