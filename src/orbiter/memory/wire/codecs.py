"""`Codec`: values of one type as JSON, from JSON, and their JSON Schema, by pydantic.

What a codec refuses is a `ValueError` whose words follow the name of the argument, as in "must be a
valid integer, not 'x'"; `calls.py` puts the name before it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, singledispatch
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.serialization import dump_item
from orbiter.memory.model.validation import to_utc
from orbiter.memory.wire.plain_values import must_be_object, short_repr
from orbiter.memory.wire.results import getters_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Codec", "to_json"]


@singledispatch
def to_json(value: Any) -> Any:
    """Return *value* as plain JSON values; `ValueError` if it cannot be said in JSON."""
    if (getters := getters_of(value.__class__)) is not None:
        return {name: to_json(getter(value)) for name, getter in getters.items()}
    if isinstance(value, Mapping):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"must be JSON, and the key {short_repr(odd[0])} is not a string")
        return {name: to_json(inner) for name, inner in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [to_json(inner) for inner in value]
    raise ValueError(f"must be JSON, and a `{type(value).__name__}` is not: {short_repr(value)}")


@to_json.register(str)
@to_json.register(int)
@to_json.register(type(None))
def _(value: Any) -> Any:
    return value


@to_json.register
def _(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"must be JSON, and {value} is not")
    return value


@to_json.register
def _(value: datetime) -> str:
    return to_utc(value).isoformat(timespec="microseconds")


@to_json.register
def _(value: MemoryMetadata) -> dict[str, Any]:
    return value.model_dump(mode="json")


to_json.register(MemoryItem, dump_item)
to_json.register(timedelta, timedelta.total_seconds)


@dataclass(frozen=True)
class Codec:
    """A type of values that cross the wire."""

    type: Any
    """As pydantic reads it."""
    field: str = ""
    """The field of an object that has the value, so that more can be added to it; or none."""
    dump_value: Callable[[Any], Any] = to_json
    load_value: Callable[[Any], Any] | None = None
    """What reads it instead of pydantic, where other errors than pydantic's are promised."""

    def or_none(self) -> "Codec":
        """Return the codec of the same, or of `None`."""
        dump, load = self.dump_value, self.load_value
        return replace(
            self,
            type=self.type | None,
            dump_value=lambda value: None if value is None else dump(value),
            load_value=load and (lambda value: None if value is None else load(value)),
        )

    def dump(self, value: Any) -> Any:
        """Return *value* as JSON."""
        dumped = self.dump_value(value)
        return {self.field: dumped} if self.field else dumped

    def load(self, value: Any) -> Any:
        """Return what JSON says; `ValueError` if that is no such value."""
        if self.field:
            value = must_be_object(value)[self.field]
        if self.load_value is not None:
            return self.load_value(value)
        try:
            return self._adapter.validate_python(value)
        except ValidationError as exc:
            raise _refusal(exc) from None

    def schema(self, refs: str = "#/$defs/{model}") -> dict[str, Any]:
        """Return the JSON Schema; what is used in several places is in its `$defs`."""
        from orbiter.memory.wire.json_schema import WireSchema  # noqa: PLC0415 - few need it

        schema = self._adapter.json_schema(
            mode="serialization", schema_generator=WireSchema, ref_template=refs
        )
        if not self.field:
            return schema
        parts = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        fields = {self.field: schema}
        return {"type": "object", "required": [self.field], "properties": fields, **parts}

    @cached_property
    def is_text(self) -> bool:
        """Whether a query parameter carries it as it is; else it carries JSON, such as `true`."""
        kinds = self.schema()
        return all(kind.get("type") in ("string", "null") for kind in kinds.get("anyOf", (kinds,)))

    @cached_property
    def _adapter(self) -> "TypeAdapter[Any]":
        from pydantic import TypeAdapter  # noqa: PLC0415 - made for the first value

        return TypeAdapter(self.type)


_WORDS = {"missing": "is missing", "extra_forbidden": "is unknown"}


def _refusal(error: ValidationError) -> ValueError:
    """Return the error for what pydantic found first, in the words that errors have here."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, MemoryError):
        return cause  # type: ignore[return-value]  # those that pydantic keeps are `ValueError`s
    words = str(cause) if cause else _WORDS.get(first["type"], "")
    if not words:
        words = first["msg"].replace("Input should", "must", 1)
        words = f"{words}, not {short_repr(first['input'])}"
    place = ".".join(map(str, first["loc"]))
    return ValueError(f"is wrong at `{place}`: it {words}" if place else words)
