"""Codecs of our own plain values, made from the types of their fields: a new field crosses, too.

Classes are named by module and looked up at the first use: most clients need few of them.
"""

import types
from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.wire._item_codecs import ITEM, METADATA
from orbiter.memory.wire.codecs import (
    FLAG,
    INSTANT,
    JSON,
    NUMBER,
    TEXT,
    WHOLE,
    Codec,
    choice,
    list_of,
    map_of,
    must_be_object,
    optional,
    tuple_of,
)

__all__ = ["object_schema", "record"]

_PLAIN: dict[object, Codec[Any]] = {
    str: TEXT,
    int: WHOLE,
    float: NUMBER,
    bool: FLAG,
    datetime: INSTANT,
    object: JSON,
    Any: JSON,
    MemoryMetadata: METADATA,
}


def object_schema(title: str, /, **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object that has all of *properties*."""
    required = list(properties)
    return {"type": "object", "title": title, "required": required, "properties": properties}


def record(module: str, name: str) -> Codec[Any]:
    """Return the codec of the dataclass *name* of the module `orbiter.memory.` *module*."""

    def found() -> type[Any]:
        kind: type[Any] = getattr(import_module(f"orbiter.memory.{module}"), name)
        return kind

    return _lazy(lambda: _of_dataclass(found()))


def _lazy(make: Callable[[], Codec[Any]]) -> Codec[Any]:
    made = cache(make)
    return Codec(
        lambda value: made().dump(value),
        lambda value: made().load(value),
        lambda: made().schema(),
    )


def _of_dataclass(kind: type[Any]) -> Codec[Any]:
    """Return the codec of a dataclass: an object with all its fields."""
    module = import_module(kind.__module__)
    hints = get_type_hints(kind, vars(module))
    codecs = {each.name: _codec_of(hints[each.name]) for each in fields(kind)}
    known = [
        each.name
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    ]

    def dump(value: Any) -> dict[str, Any]:
        return {name: codec.dump(getattr(value, name)) for name, codec in codecs.items()}

    def load(value: Any) -> Any:
        given = must_be_object(value)
        if missing := [name for name in known if name not in given]:
            raise ValueError(f"lacks `{missing[0]}`")
        # What a newer version sends beside is not known here, and left alone.
        return kind(**{n: codec.load(given[n]) for n, codec in codecs.items() if n in given})

    def schema() -> dict[str, Any]:
        properties = {name: codec.schema() for name, codec in codecs.items()}
        return {
            "type": "object",
            "title": kind.__name__,
            "required": list(codecs),
            "properties": properties,
        }

    return Codec(dump, load, schema)


def _codec_of(hint: Any) -> Codec[Any]:  # noqa: PLR0911 - one for each kind of type
    """Return the codec for a field of that type."""
    if isinstance(hint, type) and issubclass(hint, MemoryItem):
        return ITEM
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return choice(*inner)
    if origin in (Union, types.UnionType) and type(None) in inner and len(inner) == 2:
        return optional(_codec_of(next(each for each in inner if each is not type(None))))
    if origin is tuple and inner[-1] is ...:
        return tuple_of(_codec_of(inner[0]))
    if origin is list:
        return list_of(_codec_of(inner[0]))
    if origin is dict:
        return map_of(_codec_of(inner[1]))
    if isinstance(hint, type):
        return _of_dataclass(hint)
    raise TypeError(f"there is no codec for `{hint}`")
