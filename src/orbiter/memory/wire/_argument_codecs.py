"""Codecs of arguments: filters, expiry, status, minimum trust, extra fields."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import parse_where
from orbiter.memory.model.items import MemoryMetadata, MemoryStatus
from orbiter.memory.model.validation import plain_time, to_utc
from orbiter.memory.model.written_times import SPAN, read_span
from orbiter.memory.recall.time_bounds import UNDERSTOOD, read_bound
from orbiter.memory.wire._item_codecs import status_schema
from orbiter.memory.wire.codecs import INSTANT, TIME, Codec, must_be_object, optional, short_repr

__all__ = ["EXPIRES", "EXTRA", "INDEX", "SINCE", "STATUS", "TRUST", "UNTIL", "WHERE"]

_MAX_VALUES = 2_000

_MAX_SECONDS = 100 * 366 * 86_400.0
"""A hundred years."""


def _dump_where(value: Any) -> Any:
    parse_where(value)  # so that its errors are those of a call without a server
    return _timeless(value)


def _timeless(value: Any) -> Any:
    value = plain_time(value)
    if isinstance(value, datetime):
        return INSTANT.dump(value)
    if isinstance(value, Mapping):
        return {name: _timeless(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_timeless(inner) for inner in value]
    return value


def _load_where(value: Any) -> Any:
    """Return a filter, unless it holds more values than anybody asks for by hand.

    A call without a server takes any number; here a short request must not keep others waiting.
    """
    where = must_be_object(value)
    count = 0
    waiting: list[dict[str, Any] | list[Any]] = [where]
    while waiting:
        inner = waiting.pop()
        parts = inner.values() if isinstance(inner, dict) else inner
        count += len(inner)
        if count > _MAX_VALUES:
            raise QueryError(f"`where` has more than {_MAX_VALUES:,} values; ask in several calls")
        waiting.extend(part for part in parts if isinstance(part, dict | list))
    return where


WHERE: Codec[Any] = Codec(
    _dump_where,
    _load_where,
    lambda: {
        "type": "object",
        "title": "Where",
        "description": (
            'Field names, each with a value or a condition: `{"lang": "en", "stars": {"$gte": 4}}`.'
        ),
    },
)


def _dump_expires(value: Any) -> Any:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        if abs(seconds) <= _MAX_SECONDS:
            return seconds
        from orbiter.memory.agent.inputs import read_end  # noqa: PLC0415 - hardly ever

        return optional(INSTANT).dump(read_end(value))
    if value == "never":
        return value
    if not isinstance(value, datetime):
        raise QueryError(f"`expires` must be a datetime or a timedelta, not {short_repr(value)}")
    return INSTANT.dump(value)


def _load_expires(value: Any) -> Any:
    if value == "never":
        return value
    seconds = value
    if isinstance(value, str):
        span = read_span(value)
        if span is None:
            return _load_end(value)
        seconds = span.total_seconds()
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise ValueError(_must_be(value))  # noqa: TRY004 - what codecs raise
    if not abs(seconds) <= _MAX_SECONDS:
        raise QueryError(f"`expires` is out of range: {short_repr(value)}")
    return timedelta(seconds=seconds)


def _load_end(text: str) -> datetime:
    try:
        return TIME.load(text)
    except ValueError:
        raise ValueError(_must_be(text)) from None


def _must_be(value: object) -> str:
    return (
        "must be a time such as `2027-01-31T12:00:00Z`, a day, seconds from now as a number, or "
        f"a span such as `30d`, `12h` or `2w`, not {short_repr(value)}"
    )


EXPIRES: Codec[Any] = Codec(
    _dump_expires,
    _load_expires,
    lambda: {
        "description": (
            "When it expires: a time, seconds from now, a span such as `30d`, or, in an update, "
            "`never`."
        ),
        "anyOf": [
            *TIME.schema()["anyOf"],
            {"type": "number", "exclusiveMinimum": 0, "maximum": _MAX_SECONDS},
            {"type": "string", "pattern": f"^{SPAN.pattern}$"},
            {"type": "string", "const": "never"},
        ],
    },
)


def _bound(name: str) -> Codec[datetime]:
    def load(value: Any) -> datetime:
        if not isinstance(value, str):
            raise ValueError(f"must be a text such as {UNDERSTOOD}, not {short_repr(value)}")  # noqa: TRY004
        return to_utc(read_bound(name, value))

    return Codec(INSTANT.dump, load, lambda: {"type": "string"}, is_text=True)


SINCE, UNTIL = _bound("since"), _bound("until")
"""The bounds of a search, in words that questions have, too."""


def _load_status(value: Any) -> MemoryStatus:
    try:
        return MemoryStatus(value)
    except ValueError:
        raise QueryError(
            f"unknown status `{value}`; use `draft`, `accepted` or `discard`"
        ) from None


STATUS: Codec[MemoryStatus] = Codec(
    lambda value: getattr(value, "value", value),  # a plain text will do, and is checked there
    _load_status,
    status_schema,
    is_text=True,
)


def _dump_trust(value: Any) -> Any:
    from orbiter.memory.model.trust import read_trust  # noqa: PLC0415

    return read_trust(value).name.lower()


def _load_trust(value: Any) -> Any:
    if not isinstance(value, str | int):
        raise ValueError(f"must be one of the kinds of sources, not {short_repr(value)}")  # noqa: TRY004 - one family
    from orbiter.memory.model.trust import read_trust  # noqa: PLC0415

    return read_trust(value)


TRUST: Codec[Any] = Codec(
    _dump_trust,
    _load_trust,
    lambda: {"type": "string", "enum": ["user", "agent", "tool", "import", "web"]},
    is_text=True,
)


def _dump_extra(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise QueryError(f"`extra` must be a mapping, not {value!r}")
    return MemoryMetadata(extra=dict(value)).extra


EXTRA: Codec[Any] = Codec(_dump_extra, must_be_object, lambda: {"type": "object"})


def _dump_index(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _load_index(value: Any) -> Any:
    is_list = isinstance(value, list) and all(isinstance(text, str) for text in value)
    if not isinstance(value, bool) and not is_list:
        raise ValueError(f"must be true, false or a list of texts, not {short_repr(value)}")
    return value


INDEX: Codec[Any] = Codec(
    _dump_index,
    _load_index,
    lambda: {
        "description": "Whether recall may return it, or the texts by which it is found.",
        "anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}],
    },
)
