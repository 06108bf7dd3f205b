"""Arguments as they cross the wire, where that is more than their type says.

A server reads what people write by hand, too, such as `30d` or `last week`; what a client sends is
what the call takes in Python, said in JSON.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Union, get_args

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema
from typing_extensions import TypedDict

from orbiter.memory.agent.inputs import Given
from orbiter.memory.agent.keywords import ItemRef, ScopeId, Time
from orbiter.memory.errors import QueryError
from orbiter.memory.messages.codec import Format, check_format
from orbiter.memory.model.copying import check_content
from orbiter.memory.model.items import MAX_NATIVE, MemoryItem, MemoryMetadata
from orbiter.memory.model.key_value import (
    Delete,
    Entry,
    EntryPath,
    Put,
    check_changes,
    check_entry_path,
    check_key,
    check_names,
    check_value,
)
from orbiter.memory.model.serialization import _kind as kind_of
from orbiter.memory.model.serialization import load_item
from orbiter.memory.model.validation import MAX_DEPTH, check_json, plain_time, to_utc
from orbiter.memory.model.written_times import SPAN, parse_iso, read_span
from orbiter.memory.wire.codecs import Codec, to_json
from orbiter.memory.wire.etags import ETAG
from orbiter.memory.wire.leaf_types import Base64, Flag, Memory, Number, Text, Whole
from orbiter.memory.wire.plain_values import dump_bytes, must_be_object, short_repr
from orbiter.memory.wire.results import wire_type

__all__ = ["argument_codec"]

_MAX_VALUES = 2_000

_MAX_SECONDS = 100 * 366 * 86_400.0
"""A hundred years."""


def _described(**schema: Any) -> Any:
    """Return the type of anything at all, with a JSON Schema that says what it may be."""
    return Annotated[object, WithJsonSchema(schema)]


# Times

_TIME = [{"type": "string", "format": each} for each in ("date-time", "date")]


def _dump_time(value: Any) -> Any:
    if not isinstance(value, datetime):
        raise ValueError(f"must be a datetime, not {short_repr(value)}")  # noqa: TRY004 - one family
    return to_json(value)


def _load_time(value: Any) -> datetime:
    try:
        return to_utc(parse_iso(value))
    except (TypeError, ValueError):
        raise ValueError(
            "must be a time such as `2024-05-31T12:00:00Z`, or a day such as `2024-05-31`, not "
            f"{short_repr(value)}"
        ) from None


def _bound(name: str) -> Codec:
    """Return the codec of a bound of a search, in words that questions have, too."""

    def load(value: Any) -> datetime:
        from orbiter.memory.recall.time_bounds import UNDERSTOOD, read_bound  # noqa: PLC0415 - not for clients

        if not isinstance(value, str):
            raise ValueError(f"must be a text such as {UNDERSTOOD}, not {short_repr(value)}")  # noqa: TRY004
        return to_utc(read_bound(name, value))

    return Codec(str, dump_value=_dump_time, load_value=load)


def _dump_expires(value: Any) -> Any:
    if value == "never":
        return value
    if not isinstance(value, timedelta):
        return _dump_time(value)
    if abs(value.total_seconds()) <= _MAX_SECONDS:
        return value.total_seconds()
    from orbiter.memory.agent.inputs import read_end  # noqa: PLC0415 - hardly ever

    return to_json(read_end(value))


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
        raise ValueError(f"{_END}, not {short_repr(value)}")  # noqa: TRY004 - one family
    if not abs(seconds) <= _MAX_SECONDS:
        raise QueryError(f"`expires` is out of range: {short_repr(value)}")
    return timedelta(seconds=seconds)


def _load_end(text: str) -> datetime:
    try:
        return _load_time(text)
    except ValueError:
        raise ValueError(f"{_END}, not {short_repr(text)}") from None


_END = (
    "must be a time such as `2027-01-31T12:00:00Z`, a day, seconds from now as a number, or a span "
    "such as `30d`, `12h` or `2w`"
)
_EXPIRES = _described(
    description=(
        "When it expires: a time, seconds from now, a span such as `30d`, or, in an update, "
        "`never`."
    ),
    anyOf=[
        *_TIME,
        {"type": "number", "exclusiveMinimum": 0, "maximum": _MAX_SECONDS},
        {"type": "string", "pattern": f"^{SPAN.pattern}$"},
        {"type": "string", "const": "never"},
    ],
)


# What is given to be remembered


def _dump_given(value: Any) -> Any:
    if isinstance(value, str):
        return _dump_content(value)
    if isinstance(value, MemoryItem):
        return to_json(value)
    # It may be an object of a provider's client; the words are those of a call without a server.
    from orbiter.memory.agent.inputs import as_message, check_readable  # noqa: PLC0415

    if not isinstance(value, Mapping):
        check_readable(value)
    message = as_message(value)
    try:
        return check_json(_with_lists(message), max_bytes=MAX_NATIVE)
    except ValueError as exc:
        raise ValueError(f"cannot be sent: {exc}") from None


def _dump_content(value: Any) -> Any:
    """Return a text that is to be kept; one that nobody may keep is not even sent."""
    if isinstance(value, str) and len(value) > MemoryItem.max_content_bytes:
        check_content(MemoryItem, value)  # raises what it would raise there
    return _dump_text(value)


def _dump_text(value: Any) -> Any:
    # Whatever JSON can say is judged where it is used, with the words that a call has there.
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"must be a string, not {short_repr(value)}")


def _with_lists(value: object, deep: int = MAX_DEPTH) -> object:
    if deep and isinstance(value, Mapping):
        return {name: _with_lists(inner, deep - 1) for name, inner in value.items()}
    if deep and isinstance(value, list | tuple):
        return [_with_lists(inner, deep - 1) for inner in value]
    return value


def _load_given(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"must be a string, a message or a memory, not {short_repr(value)}")  # noqa: TRY004 - one family
    if "memory_type" not in value:  # no provider's message has such a key
        return value
    name = value["memory_type"]
    kind = kind_of(name) if isinstance(name, str) else None
    # Unlike a stored one, what a client gives must be what its class takes.
    return load_item(value) if kind is None else kind.model_validate(value)


def _dump_things(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise QueryError("`remember_many` takes a list; use `remember` for one")
    from orbiter.memory.agent.inputs import join_parts  # noqa: PLC0415 - as above

    return [_dump_given(each) for each in join_parts(value)]


def _load_things(value: Any) -> Any:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, not {short_repr(value)}")  # noqa: TRY004 - one family
    return [_load_given(each) for each in value]


def _dump_messages(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(e, str) for e in value):
        # Most likely a role and a text, which a call without a server refuses.
        from orbiter.memory.agent.inputs import read_messages  # noqa: PLC0415

        read_messages(value, MemoryMetadata(), {}, None, as_human=True)
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return _dump_things(value) if is_list else _dump_given(value)


_Given = Annotated[
    object,
    WithJsonSchema(
        {
            "title": "Given",
            "description": (
                "A string, a provider's message, or a memory, which has a `memory_type`."
            ),
            "anyOf": [{"type": "string", "minLength": 1}, {"type": "object", "minProperties": 1}],
        }
    ),
]
_GIVEN = Codec(_Given, dump_value=_dump_given, load_value=_load_given)
_THINGS = Codec(list[_Given], dump_value=_dump_things, load_value=_load_things)
_MESSAGES = Codec(
    _Given | list[_Given],
    dump_value=_dump_messages,
    load_value=lambda value: (_load_things if isinstance(value, list) else _load_given)(value),
)


# Ids, tags, sources


def _dump_ids(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_dump_ids(each) for each in value]
    if isinstance(value, MemoryItem):
        return value.id
    if not isinstance(value, str):
        raise QueryError(f"`item_id` must be an item's id, not {short_repr(value)}; pass `item.id`")
    return value


def _load_ids(value: Any) -> Any:
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str):
            raise ValueError(f"must be the id of a memory, not {short_repr(each)}")  # noqa: TRY004 - one family
    return value


def _dump_texts(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise QueryError(f"`tags` must be a list of strings, not {short_repr(value)}")
    return [_dump_text(each) for each in value]


def _load_sources(value: Any) -> Any:
    if isinstance(value, list):
        return [load_item(must_be_object(each)) for each in value]
    if isinstance(value, str):
        raise ValueError("must be memories, as an object or a list of them")  # noqa: TRY004 - one family
    return load_item(must_be_object(value))


def _load_source(value: Any) -> Any:
    return value if isinstance(value, str) else _load_sources(value)


_Label = Annotated[str, Field(min_length=1)]
_SOURCE = Codec(_Label | Memory | list[Memory], load_value=_load_source)
_SOURCES = Codec(Memory | list[Memory], load_value=_load_sources)


# Values and filters


def _timeless(value: Any) -> Any:
    value = plain_time(value)
    if isinstance(value, Mapping):
        return {name: _timeless(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_timeless(inner) for inner in value]
    return to_json(value) if isinstance(value, datetime) else value


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


_WHERE = _described(
    type="object",
    description=(
        'Field names, each with a value or a condition: `{"lang": "en", "stars": {"$gte": 4}}`.'
    ),
)


def _load_index(value: Any) -> Any:
    is_list = isinstance(value, list) and all(isinstance(text, str) for text in value)
    if not isinstance(value, bool) and not is_list:
        raise ValueError(f"must be true, false or a list of texts, not {short_repr(value)}")
    return value


_INDEX = _described(
    description="Whether recall may return it, or the texts by which it is found.",
    anyOf=[{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}],
)


def _load_trust(value: Any) -> Any:
    if not isinstance(value, str | int):
        raise ValueError(f"must be one of the kinds of sources, not {short_repr(value)}")  # noqa: TRY004 - one family
    from orbiter.memory.model.trust import read_trust  # noqa: PLC0415

    return read_trust(value)


# Entries of key and value


class EntryChange(TypedDict):
    """Puts a value, or deletes an entry."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    path: tuple[Text, ...]
    key: Text
    value: NotRequired[Base64]
    ttl: NotRequired[Annotated[Number | None, Field(description="Seconds that it lasts.")]]
    expected_version: NotRequired[Whole | None]
    delete: NotRequired[Flag]


def _dump_changes(changes: Any) -> Any:
    return [
        {name: each for name, each in to_json(change).items() if each is not None}
        | ({"delete": True} if isinstance(change, Delete) else {})
        for change in check_changes(changes)
    ]


def _load_change(change: dict[str, Any]) -> Put | Delete:
    if change.pop("delete", False):
        return Delete(change["path"], change["key"], change.get("expected_version"))
    if "value" not in change:
        raise ValueError("lacks `value`, or `delete`")
    return Put(**change)


def _dump_name(name: Any) -> list[Any]:
    path, key = (name.path, name.key) if isinstance(name, Entry) else name
    return [list(check_entry_path(path)), check_key(key)]


def _dump_names(names: Any) -> Any:
    check_names(names)
    return [_dump_name(each) for each in names]


def _dump_seconds(ttl: Any) -> Any:
    return ttl.total_seconds() if isinstance(ttl, timedelta) else _dump_plain(ttl)


# Which is which


def _dump_plain(value: Any) -> Any:
    """Return a value that JSON can say; what it means is judged where it is used."""
    return value if isinstance(value, str) else check_json(_with_lists(value), max_bytes=2**24)


_DAY_OR_TIME = Codec(_described(anyOf=_TIME), dump_value=_dump_time, load_value=_load_time)
_TAGS = Codec(list[Text], dump_value=_dump_texts)
_TEXT = Codec(Text, dump_value=_dump_text)
_ID = Codec(Text, dump_value=_dump_ids)
_NAMED: dict[str, Codec] = {
    "add_tags": _TAGS,
    "changes": Codec(
        list[Annotated[EntryChange, AfterValidator(_load_change)]], dump_value=_dump_changes
    ),
    "content": Codec(Text, dump_value=_dump_content),
    "expected_version": ETAG,
    "expires": Codec(_EXPIRES, dump_value=_dump_expires, load_value=_load_expires),
    "extra": Codec(_described(type="object"), load_value=must_be_object),
    "format": Codec(Format, dump_value=check_format, load_value=check_format),
    "item": Codec(str | list[str], dump_value=_dump_ids, load_value=_load_ids),
    "min_trust": Codec(
        Literal["user", "agent", "tool", "import", "web"],
        dump_value=lambda trust: trust.name.lower() if isinstance(trust, Enum) else trust,
        load_value=_load_trust,
    ),
    "remove_tags": _TAGS,
    "since": _bound("since"),
    "tags": _TAGS,
    "things": _THINGS,
    "until": _bound("until"),
    "value": Codec(object, dump_value=_dump_plain),
    "where": Codec(_WHERE, dump_value=_timeless, load_value=_load_where),
}
"""The arguments that mean more than their type, and mean the same in every call."""

_NAME = tuple[EntryPath, str]
_TYPED: dict[Any, Codec] = {
    Time: _DAY_OR_TIME,
    ItemRef: _ID,
    str | MemoryItem: _ID,
    ScopeId: _TEXT,
    str: _TEXT,
    bool | Sequence[str]: Codec(_INDEX, dump_value=_dump_plain, load_value=_load_index),
    Given: _GIVEN,
    Given | Sequence[Given]: _MESSAGES,
    MemoryItem | Sequence[MemoryItem] | str: _SOURCE,
    MemoryItem | Sequence[MemoryItem]: _SOURCES,
    EntryPath: Codec(wire_type(EntryPath), dump_value=lambda path: list(check_entry_path(path))),
    Sequence[bytes]: Codec(
        wire_type(list[bytes]),
        dump_value=lambda values: [dump_bytes(check_value(each)) for each in values],
    ),
    timedelta | float: Codec(Number, dump_value=_dump_seconds),
    _NAME: Codec(wire_type(_NAME), dump_value=_dump_name),
    Entry | _NAME: Codec(wire_type(_NAME), dump_value=_dump_name),
    Sequence[_NAME]: Codec(wire_type(list[_NAME]), dump_value=_dump_names),
}
"""The types of other arguments that cross as something else."""


def argument_codec(name: str, hint: Any, default: Any) -> Codec:
    """Return the codec of an argument with that name, type and default."""
    parts = get_args(hint)
    if type(None) in parts:
        hint = Union[tuple(each for each in parts if each is not type(None))]  # noqa: UP007 - of any number
    codec = _NAMED.get(name) or _TYPED.get(hint) or Codec(wire_type(hint), dump_value=_dump_plain)
    return codec.or_none() if default is None else codec
