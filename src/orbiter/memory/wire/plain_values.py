"""Values of JSON as they are: checked, shown in an error, and bytes as text."""

import reprlib
from base64 import b64encode
from typing import Any

__all__ = ["dump_bytes", "must_be_object", "short_repr"]

_MAX_REPR = 200

_SHORT = reprlib.Repr()  # writes no more of a huge value than is shown
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = _MAX_REPR


def short_repr(value: object) -> str:
    """Return *value* for an error: not more of it than a line."""
    text = _SHORT.repr(value)
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]}…"


def must_be_object(value: Any) -> dict[str, Any]:
    """Return *value* if it is a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, not {short_repr(value)}")  # noqa: TRY004 - see above
    return value


def dump_bytes(value: bytes) -> str:
    """Return the base64 of *value*; no other text stands for bytes."""
    return b64encode(value).decode()
