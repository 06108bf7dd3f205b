"""Validation: the checks that every text and JSON value passes before it is stored.

Each rule is here because some store could not hold the value, so what one store accepts, all
accept. Every function returns the checked value or raises a `ValueError` that names the place.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

from typing_extensions import Protocol

__all__ = [
    "MAX_DEPTH",
    "MAX_INTEGER",
    "Json",
    "StructuralMeta",
    "check_json",
    "check_name",
    "check_positive",
    "check_tag",
    "check_text",
    "is_missing",
    "is_stored_json",
    "plain_json",
    "plain_time",
    "plain_value",
    "to_utc",
]

MAX_DEPTH = 32
"""How deep JSON may nest: far beyond real use, far below any parser's own limit."""

MAX_INTEGER = 2**63
"""JSON integers beyond 64 bits lose digits in SQLite and in many parsers."""

if TYPE_CHECKING:
    from abc import ABCMeta as _ProtocolMeta
else:
    _ProtocolMeta = type(Protocol)

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""What JSON can say."""


class StructuralMeta(_ProtocolMeta):
    """The kind of protocols whose instances are what has their attributes, wherever from.

    Those of Python look only for what is written in a class, from 3.12 on: a store that is wrapped,
    and passes calls on by `__getattr__`, would be asked for nothing but the basics. Those of
    `typing_extensions` fail on 3.11 once somebody has derived a protocol of `typing` from them.
    """

    __protocol_attrs__: set[str]

    def __instancecheck__(cls, instance: Any) -> bool:  # noqa: N805 - of a metaclass
        """Tell whether *instance* has what the protocol has."""
        if not getattr(cls, "_is_protocol", False):  # a class that is derived from one
            return super().__instancecheck__(instance)
        return type.__instancecheck__(cls, instance) or all(
            getattr(instance, name, None) is not None
            if callable(getattr(cls, name, None))
            else hasattr(type(instance), name) or hasattr(instance, name)
            for name in cls.__protocol_attrs__
        )


def check_text(value: str, *, max_bytes: int) -> str:
    """Return *value* if every store can hold it, code point for code point."""
    if value.isascii():
        size = len(value)
    else:
        try:
            size = len(value.encode())
        except UnicodeEncodeError as exc:
            raise ValueError(
                f"lone surrogate U+{ord(value[exc.start]):04X} at position {exc.start}; "
                "decode the text with errors='replace' first"
            ) from None
    if "\0" in value:
        raise ValueError(
            f"U+0000 at position {value.index(chr(0))}; remove it, no store can keep it"
        )
    if size > max_bytes:
        raise ValueError(f"{size:,} bytes of text, at most {max_bytes:,} are allowed; split it")
    return value


def check_name(value: str, *, max_chars: int) -> str:
    """Return *value* if it can serve as an id: some text, not too long."""
    if not value:
        raise ValueError("must not be empty")
    if len(value) > max_chars:
        raise ValueError(f"{len(value):,} characters, at most {max_chars} are allowed")
    return check_text(value, max_bytes=4 * max_chars)


def check_tag(field: str, value: object) -> str:
    """Return *value* if a Redis Cluster can tell by it where keys lie: a name without braces."""
    if not isinstance(value, str):
        raise ValueError(f"`{field}` must be a string, not {value!r}")  # noqa: TRY004 - one family
    try:
        check_name(value, max_chars=256)
    except ValueError as exc:
        raise ValueError(f"`{field}`: {exc}") from None
    if "{" in value or "}" in value:
        raise ValueError(
            f"`{field}` {value!r} contains a brace, which Redis Cluster treats specially; remove it"
        )
    return value


def check_json(value: object, *, max_bytes: int) -> Json:
    """Return a deep copy of *value* made of plain JSON types only.

    The copy shares nothing with *value*, so later changes to either stay apart.
    """
    if type(value) is dict or type(value) is list:
        with suppress(_UnusualError):
            copied, size = _copy_plain(value, 0)
            if size <= max_bytes:
                return copied
    return _Walk(max_bytes).copy(value, "", 0)


_TEXT = frozenset((str,))


class _UnusualError(Exception):
    """A value is none that `_copy_plain` knows; `_Walk` takes it, or says what is wrong with it."""


def _copy_plain(value: Any, depth: int) -> tuple[Json, int]:
    """Return a copy of a list or an object, and its size as `_Walk` measures it.

    It accepts nothing that `_Walk` would not, in a quarter of the time: nothing is called for a
    value that holds no others, and no path is written for an error that does not happen.
    """
    copied = value.copy()
    size = 2
    entries: Iterable[tuple[Any, Any]]
    if type(value) is dict:
        entries = value.items()
        names = "".join(value) if _TEXT.issuperset(map(type, value)) else "\0"
        if "\0" in names or not names.isascii():
            raise _UnusualError
        size += len(names) + 3 * len(value)
    else:
        entries = enumerate(value)
    for place, inner in entries:
        kind = type(inner)
        if kind is str:
            if "\0" in inner:
                raise _UnusualError
            size += 2 + (len(inner) if inner.isascii() else _utf8_size(inner))
        elif (kind is int and -MAX_INTEGER <= inner < MAX_INTEGER) or (
            kind is float and math.isfinite(inner)
        ):
            size += 8
        elif inner is None or kind is bool:
            size += 5
        elif (kind is dict or kind is list) and depth < MAX_DEPTH - 1:
            copied[place], more = _copy_plain(inner, depth + 1)
            size += more
        else:
            raise _UnusualError
    return copied, size


def _utf8_size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise _UnusualError from None


class _Walk:
    """One pass over a JSON value: copies, checks and measures it."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.room = max_bytes

    def copy(self, value: object, path: str, depth: int) -> Json:
        value = plain_value(value)
        if value is None or value is True or value is False:
            return self._spend(value, 5)
        if isinstance(value, str):
            return self._spend(self._text(value, path), _size(value) + 2)
        if isinstance(value, int):
            return self._spend(self._integer(int(value), path), 8)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{_at(path)}{value} is not JSON; use None or a string")
            return self._spend(float(value), 8)
        if isinstance(value, dict | list) and depth >= MAX_DEPTH:
            raise ValueError(f"{_at(path)}nested deeper than {MAX_DEPTH} levels; flatten it")
        if isinstance(value, dict):
            self._spend(None, 2)
            return {
                self._key(key, path): self.copy(inner, f"{path}.{key}", depth + 1)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            self._spend(None, 2)
            return [self.copy(inner, f"{path}[{i}]", depth + 1) for i, inner in enumerate(value)]
        raise ValueError(
            f"{_at(path)}`{type(value).__name__}` is not JSON; "
            "use None, bool, int, float, str, list or dict"
        )

    def _spend(self, value: Json, size: int) -> Json:
        self.room -= size
        if self.room < 0:
            raise ValueError(f"more than {self.max_bytes:,} bytes of JSON; store it elsewhere")
        return value

    def _text(self, value: str, path: str) -> str:
        try:
            return check_text(str.__str__(value), max_bytes=self.max_bytes)
        except ValueError as exc:
            raise ValueError(f"{_at(path)}{exc}") from None

    def _key(self, key: object, path: str) -> str:
        if not isinstance(key, str):
            raise ValueError(f"{_at(path)}key {key!r} is not a string")  # noqa: TRY004 - pydantic reports ValueError only
        checked = self._text(key, f"{path}.{key!r}")
        self._spend(None, _size(key) + 3)
        return checked

    @staticmethod
    def _integer(value: int, path: str) -> int:
        if not -MAX_INTEGER <= value < MAX_INTEGER:
            raise ValueError(f"{_at(path)}integer beyond 64 bits; store it as a string")
        return value


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _at(path: str) -> str:
    escaped = path.removeprefix(".").encode("unicode_escape").decode()
    return f"at `{escaped}`: " if escaped else ""


def check_positive(**numbers: object) -> None:
    """Raise a `ValueError` that names the first that is no number above 0."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"`{name}` must be a number above 0, not {value!r}")


def is_stored_json(exact: Any, stored: Any) -> bool:
    """Tell whether *stored* is what a database's JSON type makes of *exact*."""
    if isinstance(exact, dict):
        has_keys = isinstance(stored, dict) and exact.keys() == stored.keys()
        return has_keys and all(is_stored_json(value, stored[key]) for key, value in exact.items())
    if isinstance(exact, list):
        is_list = isinstance(stored, list) and len(exact) == len(stored)
        return is_list and all(map(is_stored_json, exact, stored))
    if isinstance(exact, float) and isinstance(stored, int) and not isinstance(stored, bool):
        return exact == float(stored)
    return type(exact) is type(stored) and bool(exact == stored)


def plain_value(value: Any) -> Any:
    """Return a number, a time or a duration of numpy or pandas as Python's own.

    All else comes back as it is, also an array and a time that is missing.
    """
    module = type(value).__module__
    if module == "builtins" or module.partition(".")[0] not in ("numpy", "pandas"):
        return value
    is_time = isinstance(value, datetime | timedelta)
    if not is_time and (getattr(value, "ndim", None) != 0 or not hasattr(value, "dtype")):
        return value
    if value != value:  # noqa: PLR0124 - as a missing one is not itself
        return value
    if is_time:  # of pandas, with nanoseconds, which no store keeps
        is_span = isinstance(value, timedelta)
        return value.to_pytimedelta() if is_span else value.to_pydatetime(warn=False)
    kind = {"M": "datetime64[us]", "m": "timedelta64[us]"}.get(value.dtype.kind)
    return (value if kind is None else value.astype(kind)).item()


def is_missing(cell: Any) -> bool:
    """Tell whether *cell* of a table is none: NaN, or what numpy and pandas have for it."""
    is_number = isinstance(cell, float | date) or type(cell).__module__ == "numpy"
    is_other = is_number and not getattr(cell, "ndim", 0) and cell != cell  # noqa: PLR0124 - as it is not itself
    return is_other or type(cell).__name__ == "NAType"  # of pandas, which cannot be compared


def plain_json(value: Any, path: str = "", depth: int = 0) -> Any:
    """Return *value* with what programs hold instead of JSON as JSON has it.

    A time is its ISO 8601 text; a UUID, a path and an enumeration their text or value; a decimal a
    number; sets, tuples and arrays are lists. All else raises a `ValueError` with its *path*.
    """
    value = plain_value(value)
    if value is None or type(value) in (str, bool, int):
        return value
    if depth > MAX_DEPTH:  # also of what contains itself
        raise ValueError(f"{_at(path[:100])}nested deeper than {MAX_DEPTH} levels; flatten it")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{_at(path)}key {key!r} is not a string")  # noqa: TRY004 - as for all of these
        return {key: plain_json(each, f"{path}.{key}", depth + 1) for key, each in value.items()}
    if getattr(value, "ndim", 0) and hasattr(value, "tolist"):  # an array, or a column of pandas
        value = value.tolist()
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)  # the same each time
    if isinstance(value, list | tuple):
        return [plain_json(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
    if isinstance(value, Enum):
        return plain_json(value.value, path, depth + 1)
    return _plain_scalar(value, path)


def _plain_scalar(value: Any, path: str) -> Any:
    if isinstance(value, UUID | PurePath):
        return str(value)
    if isinstance(value, date | time) and value == value:  # noqa: PLR0124 - one that is not missing
        return value.isoformat()
    if isinstance(value, Decimal) and value.is_finite() and Decimal(repr(float(value))) == value:
        return float(value)
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{_at(path)}{_refusal(value)}")


def _refusal(value: Any) -> str:
    """Return why *value* is not stored, and what to write instead."""
    kind = type(value).__name__
    if isinstance(value, float | date) or kind in ("NAType", "datetime64"):
        return f"{value} is not JSON; leave it out, or use None or a string"
    ways = {"timedelta": "its `total_seconds()`", "Decimal": "its `str()`", "bytes": "a text"}
    way = ways.get(kind, "None, bool, int, float, str, list or dict")
    return f"`{kind}` is not JSON; use {way}"


def plain_time(value: Any) -> Any:
    """Return a time of numpy or pandas, or the midnight of a day, as a datetime, else *value*."""
    plain = plain_value(value)
    return datetime.combine(plain, time.min) if type(plain) is date else plain


def to_utc(value: datetime) -> datetime:
    """Return *value* in UTC; a naive time is taken as UTC."""
    if value != value:  # noqa: PLR0124 - as a missing date of pandas, which passes for a time
        raise ValueError(f"{value} is no time; leave it out")
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{value.isoformat()} lies outside the years 1 to 9999 in UTC") from None
