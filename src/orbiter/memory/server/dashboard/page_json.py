"""What a page shows, as JSON: the twin of every page."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum

from pydantic import BaseModel

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.serialization import dump_item

__all__ = ["to_json"]


def to_json(value: object) -> object:
    """Return *value* as what JSON has: verbatim, with nothing made visible or left out."""
    found: object = str(value)
    if value is None or isinstance(value, bool | int | float):
        found = value
    elif isinstance(value, Enum):
        found = to_json(value.value)
    elif isinstance(value, str):
        found = str(value)
    elif isinstance(value, datetime):
        found = value.isoformat()
    elif isinstance(value, MemoryItem):
        found = dump_item(value)
    elif isinstance(value, BaseModel):
        found = value.model_dump(mode="json")
    elif is_dataclass(value) and not isinstance(value, type):
        shown = (each.name for each in fields(value) if not each.name.startswith("_"))
        found = {name: to_json(getattr(value, name)) for name in shown}
    elif isinstance(value, Mapping):
        found = {str(name): to_json(each) for name, each in value.items()}
    elif isinstance(value, Sequence | Set):
        found = [to_json(each) for each in value]
    return found
