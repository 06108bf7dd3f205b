"""What was recalled, with its reasons, and what a model is shown, as they cross the wire.

On the other side a hit tells the same, and a context makes the messages of any provider.
"""

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.serialization import dump_item, load_item
from orbiter.memory.wire._fact_codecs import dump_span, load_span, span_schema
from orbiter.memory.wire._item_codecs import ITEM
from orbiter.memory.wire._record_codecs import object_schema, record
from orbiter.memory.wire.codecs import (
    NUMBER,
    TEXT,
    WHOLE,
    Codec,
    choice,
    list_of,
    must_be_object,
    optional,
    tuple_of,
)
from orbiter.memory.wire.result_codecs import MESSAGES

if TYPE_CHECKING:
    from orbiter.memory.context import Context
    from orbiter.memory.recall import Hit, LeftOut, Recalled

__all__ = ["CONTEXT", "RECALLED"]

_ITEMS = list_of(ITEM)

# What was recalled

_REASONS = list_of(record("recall._explanation", "Reason"))


def _dump_hit(hit: "Hit") -> dict[str, Any]:
    return {
        "item": ITEM.dump(hit.item),
        "score": hit.score,
        "why": _REASONS.dump(list(hit.why)),
        "told": str(hit.why),
        "repeats": [ITEM.dump(each) for each in hit.repeats],
        "passage": hit.passage,
        "span": None if hit.span is None else dump_span(hit.span),
    }


def _load_hit(value: Any) -> "Hit":
    from orbiter.memory.recall import Hit, Why  # noqa: PLC0415 - as writing needs none of it

    given = must_be_object(value)
    item = ITEM.load(given["item"])
    span = given.get("span")
    return Hit(
        item,
        given["score"],
        Why(_REASONS.load(given["why"])),
        tuple(_ITEMS.load(given["repeats"])),
        given["passage"],
        None if span is None else load_span(span, item),
    )


def _hit_schema() -> dict[str, Any]:
    return object_schema(
        "Hit",
        item=ITEM.schema(),
        score=NUMBER.schema(),
        why=_REASONS.schema(),
        told=TEXT.schema(),
        repeats=_ITEMS.schema(),
        passage=TEXT.schema(),
        span={"anyOf": [span_schema(), {"type": "null"}]},
    )


def _dump_left_out(one: "LeftOut") -> dict[str, Any]:
    return {
        "item": ITEM.dump(one.item),
        "score": one.score,
        "reason": one.reason,
        "why": _REASONS.dump(list(one.why)),
        "told": one.told,
    }


def _load_left_out(value: Any) -> "LeftOut":
    from orbiter.memory.recall import LeftOut, Why  # noqa: PLC0415 - as above

    given = must_be_object(value)
    why = Why(_REASONS.load(given["why"]))
    return LeftOut(ITEM.load(given["item"]), given["score"], given["reason"], why)


def _left_out_schema() -> dict[str, Any]:
    return object_schema(
        "LeftOut",
        item=ITEM.schema(),
        score=NUMBER.schema(),
        reason=choice("rank", "no evidence", "repeat").schema(),
        why=_REASONS.schema(),
        told=TEXT.schema(),
    )


def _dump_recalled(found: "Recalled") -> dict[str, Any]:
    return {
        "hits": [_dump_hit(hit) for hit in found],
        "mode": found.mode,
        "considered": found.considered,
        "left_out": [_dump_left_out(one) for one in found.left_out],
        "question": found.question,
    }


def _load_recalled(value: Any) -> "Recalled":
    from orbiter.memory.recall import Recalled  # noqa: PLC0415 - as above

    given = must_be_object(value)
    return Recalled(
        [_load_hit(hit) for hit in given["hits"]],
        mode=given["mode"],
        considered=given["considered"],
        left_out=tuple(_load_left_out(one) for one in given["left_out"]),
        question=given["question"],
    )


def _recalled_schema() -> dict[str, Any]:
    return object_schema(
        "Recalled",
        hits={"type": "array", "items": _hit_schema()},
        mode=choice("hybrid", "words", "meaning", "recent").schema(),
        considered=WHOLE.schema(),
        left_out={"type": "array", "items": _left_out_schema()},
        question=TEXT.schema(),
    )


RECALLED: Codec["Recalled"] = Codec(_dump_recalled, _load_recalled, _recalled_schema)


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

    given = must_be_object(value)
    stable, volatile = given["marks"]
    return Context(
        text=given["text"],
        sections=_SECTIONS.load(given["sections"]),
        tokens=given["tokens"],
        budget=given["budget"],
        dropped=_DROPPED.load(given["dropped"]),
        prefix=given["prefix"],
        prefix_tokens=given["prefix_tokens"],
        marks=(stable, volatile),
        format=given["format"],
        _items=tuple(_load_sent(item) for item in given["items"]),
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
