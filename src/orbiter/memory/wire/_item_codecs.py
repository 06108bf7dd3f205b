"""Codecs of memories, and of what is given to become one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbiter.memory.errors import QueryError
from orbiter.memory.model.copying import check_content
from orbiter.memory.model.items import MAX_NATIVE, MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.serialization import _kind as kind_of
from orbiter.memory.model.serialization import dump_item, load_item
from orbiter.memory.model.validation import MAX_DEPTH, check_json
from orbiter.memory.wire.codecs import (
    JSON,
    TEXT,
    Codec,
    list_of,
    map_of,
    must_be_object,
    optional,
    short_repr,
)

if TYPE_CHECKING:
    from orbiter.memory.agent.results import Page
    from orbiter.memory.model.facts import FactMemory

__all__ = [
    "CONTENT",
    "FACT",
    "GIVEN",
    "ITEM",
    "ITEMS_OR_IDS",
    "ITEM_OR_ID",
    "METADATA",
    "PAGE",
    "SOURCE",
    "SOURCES",
    "TAGS",
    "THINGS",
    "VALUE",
    "WHAT",
]

_SCOPE = {name: {"type": ["string", "null"]} for name in MemoryMetadata.model_fields}


def _item_schema(title: str = "Memory", **more: Any) -> dict[str, Any]:
    time = {"type": "string", "format": "date-time"}
    return {
        "type": "object",
        "title": title,
        "required": ["id", "content", "memory_type", "status", "metadata", "created_at", *more],
        "properties": {
            "id": {"type": "string"},
            "content": {"type": "string"},
            "memory_type": {"type": "string"},
            "status": status_schema(),
            "metadata": _metadata_schema(),
            "native": {"type": "object"},
            "created_at": time,
            "updated_at": time,
            "version": {"type": "integer", "minimum": 1},
            "expires_at": time,
            **more,
        },
    }


def status_schema() -> dict[str, Any]:
    return {"type": "string", "enum": [each.value for each in MemoryStatus]}


def _metadata_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "title": "Scope",
        "properties": {**_SCOPE, "extra": {"type": "object"}},
    }


def _load_kept(value: Any) -> MemoryItem:
    """Read an item that a server sends: of a kind or a version that is not known here, too."""
    return load_item(must_be_object(value))


ITEM: Codec[MemoryItem] = Codec(dump_item, _load_kept, _item_schema)


def _load_fact(value: Any) -> "FactMemory":
    from orbiter.memory.model.facts import FactMemory  # noqa: PLC0415 - few calls need it

    return FactMemory.model_validate(must_be_object(value))


def _fact_schema() -> dict[str, Any]:
    return _item_schema("Fact", key={"type": "string"}, value={})


FACT: Codec["FactMemory"] = Codec(dump_item, _load_fact, _fact_schema)

METADATA: Codec[MemoryMetadata] = Codec(
    lambda value: value.model_dump(mode="json"),
    lambda value: MemoryMetadata.model_validate(must_be_object(value)),
    _metadata_schema,
)


# What is given to be remembered


def _load_new(value: Any) -> MemoryItem:
    """Read an item that a client gives: one that its class refuses is a mistake."""
    record = must_be_object(value)
    name = record.get("memory_type")
    kind = kind_of(name) if isinstance(name, str) else None
    return load_item(record) if kind is None else kind.model_validate(record)


def _dump_given(value: Any) -> Any:
    if isinstance(value, str):
        return dump_content(value)
    if isinstance(value, MemoryItem):
        return dump_item(value)
    # It may be an object of a provider's client; the words are those of a call without a server.
    from orbiter.memory.agent.inputs import as_message, check_readable  # noqa: PLC0415

    if not isinstance(value, Mapping):
        check_readable(value)
    return _checked(as_message(value), MAX_NATIVE)


def dump_content(value: Any) -> Any:
    """Return a text that is to be kept; one that nobody may keep is not even sent."""
    if isinstance(value, str) and len(value) > MemoryItem.max_content_bytes:
        check_content(MemoryItem, value)  # raises what it would raise there
    return value


def _checked(value: object, most: int) -> Any:
    try:
        return check_json(_with_lists(value, MAX_DEPTH), max_bytes=most)
    except ValueError as exc:
        raise ValueError(f"cannot be sent: {exc}") from None


def _with_lists(value: object, deep: int) -> object:
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
    # No provider's message has such a key.
    return _load_new(value) if "memory_type" in value else value


def _given_schema() -> dict[str, Any]:
    return {
        "title": "Given",
        "description": "A string, a provider's message, or a memory, which has a `memory_type`.",
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "object", "minProperties": 1},
        ],
    }


GIVEN: Codec[Any] = Codec(_dump_given, _load_given, _given_schema)


def _dump_things(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise QueryError("`remember_many` takes a list; use `remember` for one")
    return _dump_list(value)


def _dump_list(things: Sequence[Any]) -> list[Any]:
    from orbiter.memory.agent.inputs import join_parts  # noqa: PLC0415 - as above

    return [_dump_given(each) for each in join_parts(things)]


_LIST = list_of(GIVEN)
THINGS: Codec[Any] = Codec(_dump_things, _LIST.load, _LIST.schema)


def _dump_what(value: Any) -> Any:
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(e, str) for e in value):
        # Most likely a role and a text, which a call without a server refuses.
        from orbiter.memory.agent.inputs import read_messages  # noqa: PLC0415

        read_messages(value, MemoryMetadata(), {}, None, as_human=True)
    return _dump_list(value) if is_list else _dump_given(value)


WHAT: Codec[Any] = Codec(
    _dump_what,
    lambda value: _LIST.load(value) if isinstance(value, list) else _load_given(value),
    lambda: {"anyOf": [_given_schema(), _LIST.schema()]},
)


def _load_id(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be the id of a memory, not {short_repr(value)}")  # noqa: TRY004 - one family
    return value


def _dump_id(value: Any) -> str:
    if isinstance(value, MemoryItem):
        return value.id
    if not isinstance(value, str):
        raise QueryError(f"`item_id` must be an item's id, not {short_repr(value)}; pass `item.id`")
    return value


ITEM_OR_ID: Codec[Any] = Codec(
    _dump_id,
    _load_id,
    lambda: {"type": "string"},
    is_text=True,
)


def _dump_ids(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_dump_id(each) for each in value]
    return _dump_id(value)


def _load_ids(value: Any) -> Any:
    return [_load_id(each) for each in value] if isinstance(value, list) else _load_id(value)


ITEMS_OR_IDS: Codec[Any] = Codec(
    _dump_ids,
    _load_ids,
    lambda: {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
)


# Words beside it


def _dump_tags(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise QueryError(f"`tags` must be a list of strings, not {short_repr(value)}")
    return _TEXTS.dump(list(value))


_TEXTS = list_of(TEXT)
TAGS: Codec[Any] = Codec(_dump_tags, _TEXTS.load, _TEXTS.schema)
CONTENT: Codec[Any] = Codec(
    lambda value: dump_content(TEXT.dump(value)), TEXT.load, TEXT.schema, is_text=True
)


# What a fact says, and where it comes from


def _dump_value(value: Any) -> Any:
    from orbiter.memory.model.facts import MAX_VALUE  # noqa: PLC0415 - few calls need it

    try:
        return check_json(_with_lists(value, MAX_DEPTH), max_bytes=MAX_VALUE)
    except ValueError as exc:
        raise QueryError(f"`value`: {exc}") from None


VALUE: Codec[Any] = Codec(_dump_value, JSON.load, JSON.schema)


def _dump_source(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, MemoryItem):
        return dump_item(value)
    items = list(value) if isinstance(value, Sequence) else [value]
    for item in items:
        if not isinstance(item, MemoryItem):
            raise QueryError(f"`source` must be memories or a label, not {item!r}")
    return [dump_item(item) for item in items]


def _load_source(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return [_load_kept(each) for each in value]
    return _load_kept(value)


def _source_schema() -> dict[str, Any]:
    items = _item_schema()
    return {"anyOf": [{"type": "string", "minLength": 1}, items, {"type": "array", "items": items}]}


def _load_sources(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("must be memories, as an object or a list of them")  # noqa: TRY004 - one family
    return _load_source(value)


SOURCE: Codec[Any] = Codec(_dump_source, _load_source, _source_schema)
SOURCES: Codec[Any] = Codec(
    _dump_source, _load_sources, lambda: {"anyOf": _source_schema()["anyOf"][1:]}
)


def _load_page(value: Any) -> "Page":
    from orbiter.memory.agent.results import Page  # noqa: PLC0415 - only a client needs it

    page = must_be_object(value)
    ended = map_of(TEXT).load(page.get("ended", {}))  # an older server has none
    items = list_of(ITEM).load(page["items"])
    return Page(items, next=optional(TEXT).load(page.get("next")), ended=ended)


def _page_schema() -> dict[str, Any]:
    properties = {
        "items": list_of(ITEM).schema(),
        "next": {"type": ["string", "null"]},
        "ended": map_of(TEXT).schema(),
    }
    required = ["items", "next"]
    return {"type": "object", "title": "Page", "required": required, "properties": properties}


PAGE: Codec["Page"] = Codec(
    lambda page: {"items": list_of(ITEM).dump(page), "next": page.next, "ended": page.ended},
    _load_page,
    _page_schema,
)
