"""Rows that the library which the seeds come from has written, as rows of ours.

Its table has the same name and the same ten columns, and nothing else: no versions, no schema
number. Nothing of a row is left out. Times may be naive, metadata may hold nulls, and what we
leave out may be spelled out.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from orbiter.memory.backends.sql.rows import COLUMNS, decode
from orbiter.memory.backends.sql.stored_records import Kept
from orbiter.memory.errors import StorageError
from orbiter.memory.model.items import MemoryStatus
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.validation import to_utc

__all__ = ["CHUNK", "KEPT", "adopted", "has_original_columns"]

CHUNK = 1000
"""Rows that are moved at a time."""

KEPT = "memory_items_original"
"""The name that the table gets."""

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def has_original_columns(names: Iterable[str]) -> bool:
    """Tell whether a table called `memory_items` is one that the original library has made."""
    return sorted(names) == sorted(COLUMNS)


def adopted(row: Sequence[Any]) -> Kept:
    """Return a row, of the columns `COLUMNS`, as we write it; `StorageError` if it has no meaning.

    It is read once, so that what is adopted can be read.
    """
    item_id, content, memory_type, status, metadata, extra, created, updated, deleted, version = row
    try:
        kept = Kept(
            _text(item_id),
            _text(content),
            _text(memory_type),
            MemoryStatus(str(status).lower()).value,
            _dumps(_metadata(_json_object(metadata))),
            _extra(_json_object(extra)),
            _instant(created),
            _instant(updated),
            int(bool(deleted)),
            max(1, int(version)),
        )
        decode((*kept[:8], kept.version))
    except (ValueError, TypeError, StorageError) as exc:
        raise StorageError(
            f"row `{item_id}` of `memory_items`, written by the original library, cannot be "
            f"read: {exc}; nothing was changed: repair or delete the row, and open the store "
            "again"
        ) from exc
    return kept


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _json_object(value: object) -> dict[str, Any]:
    parsed = json.loads(value) if isinstance(value, str | bytes) else value
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise TypeError(f"{parsed!r} is not an object")
    return parsed


def _metadata(fields: dict[str, Any]) -> dict[str, Any]:
    """Return metadata without what is not set; what has no place of its own goes to `extra`."""
    scope: dict[str, Any] = {
        name: fields[name] for name in SCOPE_FIELDS if fields.get(name) is not None
    }
    extra = fields.get("extra") or {}
    if not isinstance(extra, dict):
        raise TypeError(f"`extra` is {extra!r}, not an object")
    others = {
        name: value
        for name, value in fields.items()
        if name not in (*SCOPE_FIELDS, "extra") and name not in extra
    }
    whole = {**extra, **others}
    return {**scope, "extra": whole} if whole else scope


def _extra(extra: dict[str, Any]) -> str:
    return _dumps(extra) if extra else "{}"


def _instant(value: object) -> datetime:
    instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(instant, datetime):
        raise TypeError(f"{value!r} is not a time")
    return to_utc(instant)
