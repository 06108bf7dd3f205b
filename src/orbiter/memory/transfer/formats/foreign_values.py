"""Reading values out of foreign JSON and tables: each function takes anything."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from orbiter.memory.model.validation import to_utc

__all__ = [
    "UNREADABLE",
    "Record",
    "as_object",
    "compact",
    "first_text",
    "instant",
    "later",
    "name_in",
    "objects_in",
    "plain_text",
    "reason",
]

Record = Mapping[str, object]

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What making an item of a foreign value may raise: some file has a shape nobody thought of."""

_MILLISECONDS = 1e11
"""As seconds this is the year 5138, so a larger number counts milliseconds."""


def as_object(value: object) -> Record:
    """Return *value* if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def objects_in(record: Record, name: str) -> list[Record]:
    """Return the objects of the list in a field."""
    values = record.get(name)
    return (
        [each for each in values if isinstance(each, Mapping)] if isinstance(values, list) else []
    )


def first_text(record: Record, *names: str) -> str:
    """Return the first of the named fields that is a text with something in it."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def name_in(record: Record, field: str) -> str | None:
    """Return the id or the name in a field, as a text; `None` if there is none."""
    value = record.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def plain_text(content: object) -> str:
    """Return the text of a message's content: a text, or parts that hold some."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return first_text(content, "text", "content", "value")
    if isinstance(content, Sequence):
        return "\n\n".join(text for part in content if (text := plain_text(part)))
    return ""


def instant(value: object) -> datetime | None:
    """Return the time that a number of seconds, or an ISO text, stands for; `None` if it is none.

    SQLite's `CURRENT_TIMESTAMP`, without a zone, is UTC.
    """
    try:
        if isinstance(value, bool):
            return None
        if isinstance(value, int | float) and value > 0:
            seconds = value / 1000 if value > _MILLISECONDS else value
            return datetime.fromtimestamp(seconds, UTC)
        if isinstance(value, datetime):
            return to_utc(value)
        if isinstance(value, str) and value:
            return to_utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError, OSError):
        return None
    return None


def later(at: datetime, microseconds: int) -> datetime:
    """Return the time that is so much later, or the last there is."""
    try:
        return at + timedelta(microseconds=microseconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def reason(error: Exception) -> str:
    """Return why something cannot be made an item, in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, ValueError):
        return f"it has an unknown structure ({type(error).__name__}: {error})"
    if not isinstance(error, ValidationError):
        return str(error).removeprefix("message 0: ")
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    names = ".".join(map(str, first["loc"]))
    return f"it cannot be stored: `{names}`: {first['msg'].removeprefix('Value error, ')}"


def compact(value: object) -> str:
    """Return *value* as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), sort_keys=True)
