"""Codecs of results: pages, versions, facts and their past, reports.

On the other side each is the same object again, with the methods and the texts that it has here.
"""

import types
from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.serialization import dump_item, load_item
from orbiter.memory.wire._item_codecs import FACT, ITEM, METADATA, PAGE
from orbiter.memory.wire.codecs import (
    FLAG,
    INSTANT,
    JSON,
    NUMBER,
    TEXT,
    WHOLE,
    Codec,
    choice,
    enveloped,
    list_of,
    map_of,
    must_be_object,
    optional,
    tuple_of,
)

if TYPE_CHECKING:
    from orbiter.memory.agent.results import UserPage
    from orbiter.memory.context import Context
    from orbiter.memory.messages import ProviderMessages
    from orbiter.memory.model.facts import FactEntry, FactSpan
    from orbiter.memory.recall import Excluded, Hit, RecallResult

__all__ = [
    "AUDIT_ENTRY",
    "AUDIT_VERIFICATION",
    "CONFLICTS",
    "CONTEXT",
    "CONVERSATIONS",
    "COUNT",
    "DUPLICATES",
    "ENTRIES",
    "ERASURE",
    "EVENT",
    "EVICTED",
    "FACTS",
    "FACTS_BY_KEY",
    "FORGOTTEN",
    "ITEM_LIST",
    "KEYS",
    "MESSAGES",
    "PAGE",
    "RECALLED",
    "SCOPE_STATS",
    "STORE_STATS",
    "USERS",
    "VALUE_COUNTS",
    "VERIFICATION",
    "VERSIONS",
]


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


def record(module: str, name: str, *, title: str | None = None) -> Codec[Any]:
    """Return the codec of the dataclass *name* of the module `orbiter.memory.` *module*.

    Its schema is called *title*, where that is not the name: clients know it by the old one.
    """

    def dataclass_type() -> type[Any]:
        kind: type[Any] = getattr(import_module(f"orbiter.memory.{module}"), name)
        return kind

    return _lazy(lambda: _of_dataclass(dataclass_type(), title))


def _lazy(make: Callable[[], Codec[Any]]) -> Codec[Any]:
    made = cache(make)
    return Codec(
        lambda value: made().dump(value),
        lambda value: made().load(value),
        lambda: made().schema(),
    )


def _of_dataclass(kind: type[Any], title: str | None = None) -> Codec[Any]:
    """Return the codec of a dataclass: an object with all its fields."""
    module = import_module(kind.__module__)
    hints = get_type_hints(kind, vars(module))
    codecs = {each.name: _codec_of(hints[each.name]) for each in fields(kind)}
    computed: tuple[str, ...] = getattr(kind, "computed", ())  # booleans, for who has no class
    known = [
        each.name
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    ]

    def dump(value: Any) -> dict[str, Any]:
        fields_ = {name: codec.dump(getattr(value, name)) for name, codec in codecs.items()}
        return fields_ | {name: getattr(value, name) for name in computed}

    def load(value: Any) -> Any:
        values = must_be_object(value)
        if missing := [name for name in known if name not in values]:
            raise ValueError(f"lacks `{missing[0]}`")
        # What a newer version sends beside is not known here, and left alone.
        return kind(**{n: codec.load(values[n]) for n, codec in codecs.items() if n in values})

    def schema() -> dict[str, Any]:
        properties = {name: codec.schema() for name, codec in codecs.items()}
        properties |= {name: FLAG.schema() for name in computed}
        return {
            "type": "object",
            "title": title or kind.__name__,
            "required": list(properties),
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


def dump_span(span: "FactSpan") -> dict[str, Any]:
    """Return a span as JSON; the fact stands beside it."""
    return {"start": INSTANT.dump(span.start), "end": optional(INSTANT).dump(span.end)}


def load_span(value: Any, fact: MemoryItem) -> "FactSpan":
    """Return the span of *fact*."""
    from orbiter.memory.model.facts import FactSpan  # noqa: PLC0415 - few calls need it

    fields = must_be_object(value)
    end = optional(INSTANT).load(fields.get("end"))
    return FactSpan(fact, INSTANT.load(fields["start"]), end)  # type: ignore[arg-type]  # the caller's


def span_schema() -> dict[str, Any]:
    """Return its JSON Schema."""
    return object_schema("FactSpan", start=INSTANT.schema(), end=optional(INSTANT).schema())


def _table(kind: str, name: str, inner: Codec[Any]) -> Codec[Any]:
    """Return the codec of a class of results, which is made of what *inner* reads."""
    plain = enveloped(name, inner)

    def load(value: Any) -> Any:
        return getattr(import_module("orbiter.memory.agent.results"), kind)(plain.load(value))

    return Codec(plain.dump, load, plain.schema)


_ITEMS = list_of(ITEM)
ITEM_LIST = _table("ItemList", "items", _ITEMS)
FACTS = enveloped("facts", list_of(FACT))
FACTS_BY_KEY = _table("FactDict", "facts", map_of(FACT))
KEYS = enveloped("keys", list_of(TEXT))
COUNT = enveloped("count", WHOLE)
DUPLICATES = enveloped("groups", list_of(tuple_of(ITEM)))
VERSIONS = _table("VersionList", "versions", list_of(record("model.reports", "ItemVersion")))
CONVERSATIONS = _table("ChatList", "chats", list_of(record("model.reports", "ConversationInfo")))
STORE_STATS = record("model.reports", "StoreStats")
VALUE_COUNTS = enveloped("counts", list_of(record("model.value_counts", "ValueCount")))
VERIFICATION = record("model.reports", "Verification")
SCOPE_STATS = record("agent.results", "ScopeStats")
EVENT = record("agent.results", "MemoryEvent")
FORGOTTEN = record("agent.results", "ForgetResult", title="Forgotten")
EVICTED = record("agent.eviction", "EvictionResult", title="Evicted")
ERASURE = record("model.reports", "Erasure")
AUDIT_ENTRY = record("model.audit", "AuditEntry")
AUDIT_VERIFICATION = record("model.audit", "AuditVerification")
CONFLICTS = enveloped("conflicts", list_of(record("model.facts", "FactConflict")))


# Messages of a provider

_RAW_MESSAGES: Codec[Any] = list_of(map_of(JSON))


def _load_messages(value: Any) -> "ProviderMessages":
    from orbiter.memory.messages import FORMATS, ProviderMessages  # noqa: PLC0415 - on first use

    fields = must_be_object(value)
    return ProviderMessages(
        choice(*FORMATS).load(fields["format"]),
        _RAW_MESSAGES.load(fields["messages"]),
        TEXT.load(fields.get("system", "")),
    )


def _messages_schema() -> dict[str, Any]:
    from orbiter.memory.messages import FORMATS  # noqa: PLC0415 - on first use

    formats, text = choice(*FORMATS).schema(), TEXT.schema()
    return object_schema(
        "ProviderMessages", format=formats, messages=_RAW_MESSAGES.schema(), system=text
    )


MESSAGES: Codec["ProviderMessages"] = Codec(
    lambda messages: {
        "format": messages.format,
        "messages": _RAW_MESSAGES.dump(list(messages)),
        "system": messages.system,
    },
    _load_messages,
    _messages_schema,
)


# Pages, and what was forgotten


def _load_users(value: Any) -> "UserPage":
    from orbiter.memory.agent.results import UserPage  # noqa: PLC0415 - few calls need it

    fields = must_be_object(value)
    return UserPage(_USERS.load(fields["users"]), next=optional(TEXT).load(fields.get("next")))


def _users_schema() -> dict[str, Any]:
    return object_schema("UserPage", users=_USERS.schema(), next=optional(TEXT).schema())


_USERS: Codec[Any] = list_of(record("model.value_counts", "UserInfo"))
USERS: Codec["UserPage"] = Codec(
    lambda page: {"users": _USERS.dump(page), "next": page.next}, _load_users, _users_schema
)


# Facts over time


def _dump_entry(entry: "FactEntry") -> dict[str, Any]:
    return {"fact": FACT.dump(entry.fact), "spans": [dump_span(span) for span in entry.spans]}


def _load_entry(value: Any) -> "FactEntry":
    from orbiter.memory.model.facts import FactEntry  # noqa: PLC0415 - few calls need it

    fields = must_be_object(value)
    fact = FACT.load(fields["fact"])
    return FactEntry(fact, tuple(load_span(span, fact) for span in fields["spans"]))


def _entry_schema() -> dict[str, Any]:
    spans = {"type": "array", "items": span_schema()}
    return object_schema("FactEntry", fact=FACT.schema(), spans=spans)


_ENTRIES = list_of(Codec(_dump_entry, _load_entry, _entry_schema))
ENTRIES = _table("FactHistory", "entries", _ENTRIES)


# What was recalled

_REASONS = list_of(record("recall", "Reason"))
_RERANKING = optional(record("recall", "Reranking"))


def _dump_hit(hit: "Hit") -> dict[str, Any]:
    return {
        "item": ITEM.dump(hit.item),
        "score": hit.score,
        "relevance": hit.relevance,
        "why": _REASONS.dump(list(hit.why)),
        "told": str(hit.why),
        "repeats": [ITEM.dump(each) for each in hit.repeats],
        "passage": hit.passage,
        "span": None if hit.span is None else dump_span(hit.span),
        "replaced_by": hit.replaced_by,
    }


def _load_hit(value: Any) -> "Hit":
    from orbiter.memory.recall import Explanation, Hit  # noqa: PLC0415 - as writing needs none of it

    fields = must_be_object(value)
    item = ITEM.load(fields["item"])
    span = fields.get("span")
    return Hit(
        item,
        fields["score"],
        Explanation(_REASONS.load(fields["why"])),
        tuple(_ITEMS.load(fields["repeats"])),
        fields["passage"],
        None if span is None else load_span(span, item),
        fields.get("replaced_by"),
        fields.get("relevance", 0.0),  # a server of before says nothing of it
    )


def _hit_schema() -> dict[str, Any]:
    return object_schema(
        "Hit",
        item=ITEM.schema(),
        score=NUMBER.schema(),
        relevance=NUMBER.schema(),
        why=_REASONS.schema(),
        told=TEXT.schema(),
        repeats=_ITEMS.schema(),
        passage=TEXT.schema(),
        span={"anyOf": [span_schema(), {"type": "null"}]},
        replaced_by=optional(TEXT).schema(),
    )


def _dump_left_out(one: "Excluded") -> dict[str, Any]:
    return {
        "item": ITEM.dump(one.item),
        "score": one.score,
        "relevance": one.relevance,
        "reason": one.reason,
        "why": _REASONS.dump(list(one.why)),
        "told": one.told,
    }


def _load_left_out(value: Any) -> "Excluded":
    from orbiter.memory.recall import Excluded, Explanation  # noqa: PLC0415 - as above

    fields = must_be_object(value)
    why = Explanation(_REASONS.load(fields["why"]))
    likely = fields.get("relevance", 0.0)  # as above
    return Excluded(ITEM.load(fields["item"]), fields["score"], fields["reason"], why, likely)


def _left_out_schema() -> dict[str, Any]:
    return object_schema(
        "LeftOut",
        item=ITEM.schema(),
        score=NUMBER.schema(),
        relevance=NUMBER.schema(),
        reason=choice("rank", "no evidence", "repeat", "relevance").schema(),
        why=_REASONS.schema(),
        told=TEXT.schema(),
    )


def _dump_recalled(result: "RecallResult") -> dict[str, Any]:
    return {
        "hits": [_dump_hit(hit) for hit in result],
        "mode": result.mode,
        "considered": result.considered,
        "left_out": [_dump_left_out(one) for one in result.left_out],
        "question": result.question,
        "spread": result.spread,
        "reranking": _RERANKING.dump(result.reranking),
    }


def _load_recalled(value: Any) -> "RecallResult":
    from orbiter.memory.recall import RecallResult  # noqa: PLC0415 - as above

    fields = must_be_object(value)
    return RecallResult(
        [_load_hit(hit) for hit in fields["hits"]],
        mode=fields["mode"],
        considered=fields["considered"],
        left_out=tuple(_load_left_out(one) for one in fields["left_out"]),
        question=fields["question"],
        spread=fields.get("spread", False),
        reranking=_RERANKING.load(fields.get("reranking")),  # an older server has none
    )


def _recalled_schema() -> dict[str, Any]:
    return object_schema(
        "Recalled",
        hits={"type": "array", "items": _hit_schema()},
        mode=choice("hybrid", "words", "meaning", "recent").schema(),
        considered=WHOLE.schema(),
        left_out={"type": "array", "items": _left_out_schema()},
        question=TEXT.schema(),
        spread=FLAG.schema(),
        reranking=_RERANKING.schema(),
    )


RECALLED: Codec["RecallResult"] = Codec(_dump_recalled, _load_recalled, _recalled_schema)


# What a model is shown

_SECTIONS = tuple_of(record("context", "Section"))
_DROPPED = tuple_of(record("context", "Dropped"))


def _dump_context(context: "Context") -> dict[str, Any]:
    return {
        "text": context.text,
        "messages": MESSAGES.dump(context.messages()),
        "sections": _SECTIONS.dump(context.sections),
        "tokens": context.tokens,
        "budget": context.budget,
        "dropped": _DROPPED.dump(context.dropped),
        "prefix": context.prefix,
        "prefix_tokens": context.prefix_tokens,
        "marks": list(context.marks),
        "format": context.format,
        "items": [dump_item(item) for item in context._items],  # noqa: SLF001 - to be told again
    }


def _load_context(value: Any) -> "Context":
    from orbiter.memory.context import Context  # noqa: PLC0415 - on first use

    fields = must_be_object(value)
    stable, volatile = fields["marks"]
    return Context(
        text=fields["text"],
        sections=_SECTIONS.load(fields["sections"]),
        tokens=fields["tokens"],
        budget=fields["budget"],
        dropped=_DROPPED.load(fields["dropped"]),
        prefix=fields["prefix"],
        prefix_tokens=fields["prefix_tokens"],
        marks=(stable, volatile),
        format=fields["format"],
        _items=tuple(_load_sent(item) for item in fields["items"]),
    )


def _load_sent(value: Any) -> MemoryItem:
    """Read an item of a context, which may be longer than any that a store holds."""
    sent = must_be_object(value)
    try:
        return load_item(sent)
    except ValidationError:
        item = load_item({**sent, "content": ""})
        item.__dict__["content"] = TEXT.load(sent["content"])  # past the check of its length
        return item


def _context_schema() -> dict[str, Any]:
    return object_schema(
        "Context",
        text=TEXT.schema(),
        messages=MESSAGES.schema(),
        sections=_SECTIONS.schema(),
        tokens=WHOLE.schema(),
        budget=optional(WHOLE).schema(),
        dropped=_DROPPED.schema(),
        prefix=TEXT.schema(),
        prefix_tokens=WHOLE.schema(),
        marks={"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
        format=TEXT.schema(),
        items=_ITEMS.schema(),
    )


CONTEXT: Codec["Context"] = Codec(_dump_context, _load_context, _context_schema)
