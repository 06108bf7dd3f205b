"""Codecs of entries of key and value; a value crosses as base64."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from orbiter.memory.model.key_value import Delete, Entry, EntryPath, Put, check_value
from orbiter.memory.wire.codecs import (
    FLAG,
    INSTANT,
    NUMBER,
    TEXT,
    WHOLE,
    Codec,
    enveloped,
    list_of,
    must_be_object,
    optional,
    short_repr,
    tuple_of,
)

__all__ = [
    "CHANGES",
    "ENTRIES_OR_NOTHING",
    "ENTRY_LIST",
    "ENTRY_NAME",
    "ENTRY_NAMES",
    "ENTRY_OR_NOTHING",
    "ENTRY_PATH",
    "ENTRY_PATHS",
    "ENTRY_VALUES",
    "TTL",
    "VERSION_NUMBERS",
]

ENTRY_PATH: Codec[EntryPath] = tuple_of(TEXT)


def _load_value(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"must be base64, not {short_repr(value)}")  # noqa: TRY004 - see codecs
    try:
        return b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"must be base64, not {short_repr(value)}") from None


_VALUE: Codec[bytes] = Codec(
    lambda value: b64encode(check_value(value)).decode(),
    _load_value,
    lambda: {"type": "string", "contentEncoding": "base64"},
)
ENTRY_VALUES = list_of(_VALUE)
TTL: Codec[Any] = Codec(
    lambda ttl: ttl.total_seconds() if isinstance(ttl, timedelta) else NUMBER.dump(ttl),
    NUMBER.load,
    NUMBER.schema,
)


def _dump_name(name: Any) -> list[Any]:
    path, key = (name.path, name.key) if isinstance(name, Entry) else name
    return [ENTRY_PATH.dump(path), TEXT.dump(key)]


def _load_name(value: Any) -> tuple[EntryPath, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"must be a path and a key in a list, not {short_repr(value)}")
    return ENTRY_PATH.load(value[0]), TEXT.load(value[1])


ENTRY_NAME: Codec[Any] = Codec(
    _dump_name,
    _load_name,
    lambda: {
        "type": "array",
        "prefixItems": [ENTRY_PATH.schema(), TEXT.schema()],
        "minItems": 2,
        "maxItems": 2,
        "description": "A path and a key.",
    },
)
ENTRY_NAMES = list_of(ENTRY_NAME)

_EXPECTED = optional(WHOLE)


def _dump_change(change: Any) -> dict[str, Any]:
    if not isinstance(change, Put | Delete):
        raise ValueError(f"must be a `Put` or a `Delete`, not {short_repr(change)}")  # noqa: TRY004
    fields = {"path": ENTRY_PATH.dump(change.path), "key": TEXT.dump(change.key)}
    if change.expected_version is not None:
        fields["expected_version"] = _EXPECTED.dump(change.expected_version)
    if isinstance(change, Delete):
        return {**fields, "delete": True}
    ends = {} if change.ttl is None else {"ttl": TTL.dump(change.ttl)}
    return {**fields, "value": _VALUE.dump(change.value), **ends}


def _load_change(value: Any) -> Put | Delete:
    change = must_be_object(value)
    known = {"path", "key", "value", "ttl", "expected_version", "delete"}
    if unknown := change.keys() - known:
        raise ValueError(f"has a field `{min(unknown)}` that no change has")
    if missing := [name for name in ("path", "key") if name not in change]:
        raise ValueError(f"lacks `{missing[0]}`")
    path, key = ENTRY_PATH.load(change["path"]), TEXT.load(change["key"])
    expected = _EXPECTED.load(change.get("expected_version"))
    if FLAG.load(change.get("delete", False)):
        return Delete(path, key, expected)
    if "value" not in change:
        raise ValueError("lacks `value`, or `delete`")
    return Put(
        path, key, _load_value(change["value"]), optional(TTL).load(change.get("ttl")), expected
    )


CHANGES = list_of(
    Codec(
        _dump_change,
        _load_change,
        lambda: {
            "type": "object",
            "title": "EntryChange",
            "description": "Puts a value, or deletes an entry.",
            "required": ["path", "key"],
            "properties": {
                "path": ENTRY_PATH.schema(),
                "key": TEXT.schema(),
                "value": _VALUE.schema(),
                "ttl": {**NUMBER.schema(), "description": "Seconds that it lasts."},
                "expected_version": WHOLE.schema(),
                "delete": FLAG.schema(),
            },
        },
    )
)


_FIELDS: Mapping[str, Codec[Any]] = {
    "path": ENTRY_PATH,
    "key": TEXT,
    "value": _VALUE,
    "version": WHOLE,
    "created_at": INSTANT,
    "updated_at": INSTANT,
    "expires_at": optional(INSTANT),
}

_ENTRY: Codec[Entry] = Codec(
    lambda entry: {name: codec.dump(getattr(entry, name)) for name, codec in _FIELDS.items()},
    lambda value: Entry(
        **{name: codec.load(must_be_object(value)[name]) for name, codec in _FIELDS.items()}
    ),
    lambda: {
        "type": "object",
        "title": "Entry",
        "required": list(_FIELDS),
        "properties": {name: codec.schema() for name, codec in _FIELDS.items()},
    },
)
ENTRY_OR_NOTHING = enveloped("entry", optional(_ENTRY))
ENTRIES_OR_NOTHING = enveloped("entries", list_of(optional(_ENTRY)))
ENTRY_LIST = enveloped("entries", list_of(_ENTRY))
ENTRY_PATHS = enveloped("paths", list_of(ENTRY_PATH))
VERSION_NUMBERS = enveloped("versions", list_of(WHOLE))
