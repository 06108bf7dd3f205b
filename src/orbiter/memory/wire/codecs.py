"""Codecs: how one kind of value becomes JSON, and what it is again on the other side.

What a codec refuses is a `ValueError` whose words follow the name of the argument, as in "must be
a whole number, not 'x'"; `calls.py` puts the name before it.
"""

import math
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from orbiter.memory.errors import QueryError
from orbiter.memory.model.validation import check_text, to_utc
from orbiter.memory.model.written_times import parse_iso

__all__ = [
    "ETAG",
    "FLAG",
    "INSTANT",
    "JSON",
    "NOTHING",
    "NUMBER",
    "TEXT",
    "TIME",
    "WHOLE",
    "Codec",
    "choice",
    "enveloped",
    "list_of",
    "map_of",
    "optional",
    "read_tags",
    "short_repr",
    "tuple_of",
]


T = TypeVar("T")

_TOO_LONG = 2**24
_MAX_REPR = 200


_SHORT = reprlib.Repr()  # writes no more of a huge value than is shown
ANY = "*"
_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*')
_VERSION = re.compile(r"0|[1-9][0-9]{0,15}")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """One kind of value: to JSON, from JSON (`ValueError` if it is none), and its JSON Schema."""

    dump: Callable[[T], Any]
    load: Callable[[Any], T]
    schema: Callable[[], dict[str, Any]]
    is_text: bool = False
    """Whether a query parameter carries it as it is; else it carries JSON, such as `true`."""


_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = _MAX_REPR


def short_repr(value: object) -> str:
    """Return *value* for an error: not more of it than a line."""
    text = _SHORT.repr(value)
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]}…"


def _same(value: Any) -> Any:
    return value


def _must(kind: type | tuple[type, ...], what: str) -> Callable[[Any], Any]:
    def load(value: Any) -> Any:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"must be {what}, not {short_repr(value)}")
        return value

    return load


def _load_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {short_repr(value)}")  # noqa: TRY004 - see above
    return check_text(value, max_bytes=_TOO_LONG)


def _dump_text(value: Any) -> Any:
    # Whatever JSON can say is judged where it is used, with the words that a call has there.
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"must be a string, not {short_repr(value)}")


def _load_number(value: Any) -> float:
    number: float = _must((int, float), "a number")(value)
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, not {number}")
    return number


_load_whole = _must(int, "a whole number")


def _load_small(value: Any) -> int:
    number: int = _load_whole(value)
    if abs(number) >= 2**53:
        raise ValueError(f"must be less than 2**53, not {short_repr(number)}")
    return number


def _plain(value: Any) -> Any:
    """Return what JSON can say of *value*, with lists for all that is like one."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"must be JSON, and {value} is not")
        return value
    if isinstance(value, Mapping):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"must be JSON, and the key {short_repr(odd[0])} is not a string")
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [_plain(inner) for inner in value]
    raise ValueError(f"must be JSON, and a `{type(value).__name__}` is not: {short_repr(value)}")


TEXT: Codec[str] = Codec(_dump_text, _load_text, lambda: {"type": "string"}, is_text=True)
WHOLE: Codec[int] = Codec(
    _same,
    _load_small,
    lambda: {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1},
)
NUMBER: Codec[float] = Codec(_plain, _load_number, lambda: {"type": "number"})
FLAG: Codec[bool] = Codec(_same, _must(bool, "true or false"), lambda: {"type": "boolean"})
JSON: Codec[object] = Codec(_plain, _same, dict)
NOTHING: Codec[None] = Codec(lambda _: {}, lambda _: None, lambda: {"type": "object"})


def _dump_instant(value: Any) -> Any:
    if not isinstance(value, datetime):
        raise ValueError(f"must be a datetime, not {short_repr(value)}")  # noqa: TRY004 - see above
    return to_utc(value).isoformat(timespec="microseconds")


def _load_instant(value: Any) -> datetime:
    way = "must be a time such as `2024-05-31T12:00:00Z`"
    if not isinstance(value, str) or len(value) < len("2024-05-31T12:00Z") or value[10] not in "Tt":
        raise ValueError(f"{way}, not {short_repr(value)}")
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{way}, not {short_repr(value)}") from None
    if instant.tzinfo is None:
        raise ValueError(f"{way}, with its offset; {short_repr(value)} has none")
    return to_utc(instant)


INSTANT: Codec[datetime] = Codec(
    _dump_instant,
    _load_instant,
    lambda: {"type": "string", "format": "date-time"},
    is_text=True,
)


def _load_time(value: Any) -> datetime:
    try:
        return to_utc(parse_iso(value))
    except (TypeError, ValueError):
        raise ValueError(
            "must be a time such as `2024-05-31T12:00:00Z`, or a day such as `2024-05-31`, not "
            f"{short_repr(value)}"
        ) from None


TIME: Codec[datetime] = Codec(
    _dump_instant,
    _load_time,
    lambda: {"anyOf": [{"type": "string", "format": each} for each in ("date-time", "date")]},
    is_text=True,
)
"""A time that a caller names: as in Python, one without a zone is UTC, and a day its beginning."""


def choice(*names: str) -> Codec[Any]:
    """Return the codec of a text that is one of *names*."""

    def load(value: Any) -> str:
        if value not in names or not isinstance(value, str):
            raise ValueError(f"must be one of `{'`, `'.join(names)}`, not {short_repr(value)}")
        return value

    return Codec(_same, load, lambda: {"type": "string", "enum": list(names)}, is_text=True)


def optional(codec: Codec[T]) -> Codec[T | None]:
    """Return the codec of a value that may be `None`."""
    return Codec(
        lambda value: None if value is None else codec.dump(value),
        lambda value: None if value is None else codec.load(value),
        lambda: _or_null(codec.schema()),
        is_text=codec.is_text,
    )


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str) and "title" not in schema and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def list_of(codec: Codec[T]) -> Codec[list[T]]:
    """Return the codec of a list."""
    return Codec(
        lambda values: [codec.dump(each) for each in _listed(values)],
        lambda value: [_at(place, codec, each) for place, each in enumerate(_must_list(value))],
        lambda: {"type": "array", "items": codec.schema()},
    )


def tuple_of(codec: Codec[T]) -> Codec[tuple[T, ...]]:
    """Return the codec of a tuple of any length."""
    inner = list_of(codec)
    return Codec(
        lambda value: inner.dump(list(value)), lambda v: tuple(inner.load(v)), inner.schema
    )


def _listed(values: Any) -> Any:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise ValueError(f"must be a list, not {short_repr(values)}")  # noqa: TRY004 - see above
    return values


def _must_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, not {short_repr(value)}")  # noqa: TRY004 - see above
    return value


def _at(place: int, codec: Codec[T], value: Any) -> T:
    try:
        return codec.load(value)
    except QueryError:
        raise
    except ValueError as exc:
        # pydantic's says itself what is wrong, and must stay what it is.
        if type(exc) is not ValueError:
            raise
        raise ValueError(f"is wrong at index {place}: it {exc}") from None


def map_of(codec: Codec[T]) -> Codec[dict[str, T]]:
    """Return the codec of values by names."""

    def load(value: Any) -> dict[str, T]:
        return {name: codec.load(inner) for name, inner in must_be_object(value).items()}

    return Codec(
        lambda values: {name: codec.dump(inner) for name, inner in values.items()},
        load,
        lambda: {"type": "object", "additionalProperties": codec.schema()},
    )


def must_be_object(value: Any) -> dict[str, Any]:
    """Return *value* if it is a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, not {short_repr(value)}")  # noqa: TRY004 - see above
    return value


def enveloped(name: str, codec: Codec[T]) -> Codec[T]:
    """Return the codec of a value that stands in an object, so that more can be added to it."""
    return Codec(
        lambda value: {name: codec.dump(value)},
        lambda value: codec.load(must_be_object(value)[name]),
        lambda: {"type": "object", "required": [name], "properties": {name: codec.schema()}},
    )


def read_tags(header: str) -> list[int] | None:
    """Return the versions that `If-Match` names, `None` for `*`; `ValueError` if it names none.

    A tag that is no version of ours matches nothing, and is left out.
    """
    if header.strip() == ANY:
        return None
    place, versions = 0, []
    while True:
        tag = _TAG.match(header, place)
        if tag is None:
            raise ValueError(
                f'must be the version in quotes, such as `"3"`, not {short_repr(header)}'
            )
        if tag[1]:
            raise ValueError(f'must be a strong tag, such as `"3"`, not {short_repr(header)}')
        if _VERSION.fullmatch(tag[2]):
            versions.append(int(tag[2]))
        place = tag.end()
        if place == len(header):
            return versions
        if header[place] != ",":
            raise ValueError(
                f'must be tags with commas between, such as `"3"`, not {short_repr(header)}'
            )
        place += 1


def _load(value: Any) -> int:
    tags = read_tags(value) if isinstance(value, str) else [value]
    if tags is None or len(tags) != 1:
        raise ValueError(f'must be one version in quotes, such as `"3"`, not {short_repr(value)}')
    return tags[0]


def _dump(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {short_repr(value)}")  # noqa: TRY004 - one family
    if value < 0:
        raise ValueError(f"must be 0 or more, not {value}")
    return f'"{value}"'


ETAG: Codec[int] = Codec(
    _dump, _load, lambda: {"type": "string", "examples": ['"3"']}, is_text=True
)
