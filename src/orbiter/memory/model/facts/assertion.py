"""`FactMemory`: one assertion, as it is stored, and its value as people read it."""

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictStr,
    model_validator,
)

from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.validation import MAX_DEPTH, Json, check_json, check_name, to_utc

__all__ = [
    "ALWAYS",
    "FACT_OP",
    "MAX_SOURCES",
    "MAX_VALUE",
    "FactMemory",
    "FactOp",
    "assertion_text",
    "changed_values",
    "check_key",
    "check_source_id",
    "check_value",
    "op_of",
    "same_value",
    "show_value",
    "stored_fields",
]

MAX_KEY = 200
MAX_VALUE = 2**16
"""Most bytes of JSON in a fact's value: a fact is short."""

MAX_SOURCES = 1_000
"""How many memories a fact names that say it; more would prove nothing more."""

ALWAYS = datetime.min.replace(tzinfo=UTC)
"""The `valid_from` of what nobody has said since when it holds."""


FactOp = Literal["set", "add", "remove", "end"]
"""What an assertion does to its key: its value takes the place of the one before, joins others of a
list, is taken out of them, or nothing is true any more."""

FACT_OP = "fact_op"
"""Key of `metadata.extra` that says that an assertion adds or removes. The value of a draft is what
is to be added or removed; that of an accepted one is all that there is then."""


def check_key(value: str) -> str:
    """Return *value* if it can name a fact: one line of text, without blanks around it."""
    check_name(value, max_chars=MAX_KEY)
    if value != value.strip() or len(value.splitlines()) != 1:
        raise ValueError(f"{value!r} is not a valid key; use one line without blanks around it")
    return value


def check_value(value: object) -> Json:
    """Return *value* if it is JSON, and short enough for a fact."""
    return check_json(_with_lists(value, MAX_DEPTH), max_bytes=MAX_VALUE)


def _with_lists(value: object, deep: int) -> object:
    """Return *value* with lists in the place of tuples, which are the same as JSON."""
    if deep and isinstance(value, dict):
        return {key: _with_lists(inner, deep - 1) for key, inner in value.items()}
    if deep and isinstance(value, list | tuple):
        return [_with_lists(inner, deep - 1) for inner in value]
    return value


def check_source_id(value: str) -> str:
    """Return *value* if it can be the id of a memory that says a fact."""
    return check_name(value, max_chars=256)


def _iso(value: datetime) -> str:
    # Fixed width, as all times of items.
    return value.isoformat(timespec="microseconds")


_Instant = Annotated[
    datetime, AfterValidator(to_utc), PlainSerializer(_iso, return_type=str, when_used="json")
]
_Id = Annotated[StrictStr, AfterValidator(check_source_id)]


_TIMES = ("valid_from", "valid_to", "recorded_at", "retracted_at")
_STORED = {"key", "value", *_TIMES, "is_end", "source_ids"}


def stored_fields(fields: dict[str, Any], *, named: object) -> dict[str, Any] | None:
    """Return the own fields of a fact as JSON had them, checked; `None` if anything is unusual.

    It accepts nothing that `FactMemory` would not, in a fraction of the time: whoever asks what is
    true of a key reads all that was ever said of it. *named* is the key by which stores find it.
    """
    is_whole = (
        fields.keys() == _STORED
        and type(fields["key"]) is str
        and named == fields["key"]
        and type(fields["is_end"]) is bool
        and type(fields["source_ids"]) is list
        and all(type(each) is str for each in fields["source_ids"])
        and type(fields["valid_from"]) is str
        and type(fields["recorded_at"]) is str
    )
    if not is_whole:
        return None
    try:
        times = {
            name: None if fields[name] is None else to_utc(datetime.fromisoformat(fields[name]))
            for name in _TIMES
        }
        _check_known_key(fields["key"])
        if type(fields["value"]) is not str or not _is_plain(fields["value"]):
            check_value(fields["value"])
        for source_id in fields["source_ids"]:
            check_source_id(source_id)
    except (ValueError, TypeError):
        return None
    start, end = times["valid_from"], times["valid_to"]
    is_sound = start is not None and (end is None or end > start)
    return {**fields, **times} if is_sound else None


_check_known_key = lru_cache(maxsize=1024)(check_key)


def _is_plain(value: str) -> bool:
    return len(value) <= 1024 and value.isascii() and "\0" not in value


class FactMemory(MemoryItem):
    """One assertion: `key` is `value` from `valid_from` on, as known since `recorded_at`.

    `content` is made of key and value, and `metadata.extra["fact"]` is the key, by which stores
    find it.
    """

    memory_type: str = "fact"
    content: StrictStr = ""
    key: Annotated[StrictStr, AfterValidator(check_key)]
    value: Annotated[Any, BeforeValidator(check_value)] = None
    """Any JSON value."""
    valid_from: _Instant = ALWAYS
    valid_to: _Instant | None = None
    """When it ceased to be true; `None` if it holds until another assertion covers it."""
    recorded_at: _Instant = ALWAYS
    """Since when it is known: put, or accepted if it was a proposal. Else, when it was created."""
    retracted_at: _Instant | None = None
    """Since when it is known to have been wrong."""
    is_end: bool = False
    """Whether it only says that nothing holds from `valid_from` on."""
    source_ids: list[_Id] = Field(default_factory=list)
    """The memories that it was taken from."""

    @model_validator(mode="after")
    def _check_span(self) -> Self:
        if self.valid_to is not None and self.valid_to <= self.valid_from:
            raise ValueError(
                f"`valid_to` ({self.valid_to.isoformat()}) must be after `valid_from` "
                f"({self.valid_from.isoformat()})"
            )
        return self

    def model_post_init(self, context: Any, /) -> None:
        """Fill in what follows from the rest: content, the key for stores, when it was known."""
        super().model_post_init(context)
        fields = self.__dict__  # set past the checks, which an assignment would run again
        if "recorded_at" not in self.model_fields_set:
            fields["recorded_at"] = self.created_at
        if not self.content:
            fields["content"] = f"{self.key.replace('_', ' ')}: {assertion_text(self)}"
        metadata = self.metadata
        if metadata.extra.get("fact") != self.key:
            extra = {**metadata.extra, "fact": self.key}
            fields["metadata"] = MemoryMetadata(**{**metadata.__dict__, "extra": extra})

    def is_known(self, at: datetime) -> bool:
        """Tell whether it was accepted knowledge at that instant: recorded, and not retracted."""
        return (
            self.status is MemoryStatus.ACCEPTED
            and self.recorded_at <= at
            and (self.retracted_at is None or self.retracted_at > at)
        )

    def covers(self, moment: datetime) -> bool:
        """Tell whether it speaks of that moment, whatever else may hold then."""
        return self.valid_from <= moment and (self.valid_to is None or moment < self.valid_to)


def show_value(value: Json) -> str:
    """Return a value for people to read: text as it is, lists with commas, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and not any(isinstance(v, list | dict) for v in value):
        return ", ".join(map(show_value, value))
    return json.dumps(value, ensure_ascii=False)


def op_of(fact: FactMemory) -> FactOp:
    """Return what an assertion does to its key."""
    if fact.is_end:
        return "end"
    op = fact.metadata.extra.get(FACT_OP)
    return op if op in ("add", "remove") else "set"


def assertion_text(fact: FactMemory) -> str:
    """Return what an assertion says; of a draft that adds or removes, with that word."""
    if fact.is_end:
        return "ended"
    op, text = op_of(fact), show_value(fact.value)
    return text if op == "set" or fact.status is not MemoryStatus.DRAFT else f"{op} {text}"


def changed_values(values: Json, op: FactOp, value: Json) -> list[Json]:
    """Return *values* as a list, with *value* added or removed: of a list, each of its values."""
    have = _as_list(values)
    news = _as_list(value)
    if op == "remove":
        return [each for each in have if not any(same_value(each, gone) for gone in news)]
    for new in news:
        if not any(same_value(new, each) for each in have):
            have.append(new)
    return have


def _as_list(value: Json) -> list[Json]:
    if value is None:
        return []
    return [*value] if isinstance(value, list) else [value]


def same_value(one: Json, other: Json) -> bool:
    """Tell whether two values are the same JSON: 1 is 1.0, and is not true."""
    return _plain(one) == _plain(other)


def _plain(value: Json) -> object:
    if isinstance(value, dict):
        return ("object", {key: _plain(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return ("list", [_plain(inner) for inner in value])
    return (isinstance(value, bool), value)
