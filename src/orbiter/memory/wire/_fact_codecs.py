"""From when to when a fact held, beside the fact itself."""

from typing import TYPE_CHECKING, Any

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.wire._record_codecs import object_schema
from orbiter.memory.wire.codecs import INSTANT, must_be_object, optional

if TYPE_CHECKING:
    from orbiter.memory.model.facts import FactSpan

__all__ = ["dump_span", "load_span", "span_schema"]


def dump_span(span: "FactSpan") -> dict[str, Any]:
    """Return a span as JSON; the fact stands beside it."""
    return {"start": INSTANT.dump(span.start), "end": optional(INSTANT).dump(span.end)}


def load_span(value: Any, fact: MemoryItem) -> "FactSpan":
    """Return the span of *fact*."""
    from orbiter.memory.model.facts import FactSpan  # noqa: PLC0415 - few calls need it

    given = must_be_object(value)
    end = optional(INSTANT).load(given.get("end"))
    return FactSpan(fact, INSTANT.load(given["start"]), end)  # type: ignore[arg-type]  # the caller's


def span_schema() -> dict[str, Any]:
    """Return its JSON Schema."""
    return object_schema("FactSpan", start=INSTANT.schema(), end=optional(INSTANT).schema())
