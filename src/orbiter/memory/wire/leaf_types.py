"""Types that have no fields on the wire, as pydantic reads and describes them: texts, times, items.

Numbers, texts and flags are taken for what they are, and for nothing else: `"2"` is no number.
"""

from base64 import b64decode
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, WithJsonSchema, WrapValidator
from typing_extensions import TypedDict

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.serialization import load_item
from orbiter.memory.model.validation import check_text, to_utc
from orbiter.memory.wire.plain_values import must_be_object, short_repr

if TYPE_CHECKING:
    from orbiter.memory.model.facts import FactMemory

__all__ = [
    "LEAVES",
    "Base64",
    "Fact",
    "Flag",
    "Instant",
    "Memory",
    "Number",
    "Text",
    "Whole",
    "read_by",
]


def read_by(load: Callable[[Any], Any]) -> WrapValidator:
    """Have *load* read a type, which is described as it stands."""
    return WrapValidator(lambda value, _: load(value))


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


def _load_status(value: Any) -> MemoryStatus:
    try:
        return MemoryStatus(value)
    except ValueError:
        raise QueryError(
            f"unknown status `{value}`; use `draft`, `accepted` or `discard`"
        ) from None


def _load_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"must be base64, not {short_repr(value)}")  # noqa: TRY004 - see codecs
    try:
        return b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"must be base64, not {short_repr(value)}") from None


Text = Annotated[str, Field(strict=True), AfterValidator(partial(check_text, max_bytes=2**24))]
Whole = Annotated[int, Field(strict=True, gt=-(2**53), lt=2**53)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Instant = Annotated[
    datetime,
    read_by(_load_instant),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Base64 = Annotated[
    bytes, read_by(_load_bytes), WithJsonSchema({"type": "string", "contentEncoding": "base64"})
]
_Status = Annotated[
    MemoryStatus,
    read_by(_load_status),
    WithJsonSchema({"type": "string", "enum": [each.value for each in MemoryStatus]}),
]


class Scope(TypedDict, total=False):
    """Whose memory it is."""

    user_id: str | None
    session_id: str | None
    task_id: str | None
    agent_id: str | None
    extra: dict[str, object]


class Memory(TypedDict):
    """A memory; kinds of memories may have more fields."""

    id: str
    content: str
    memory_type: str
    status: _Status
    metadata: Scope
    created_at: Instant
    native: NotRequired[dict[str, object]]
    updated_at: NotRequired[Instant]
    version: NotRequired[Annotated[int, Field(ge=1)]]
    expires_at: NotRequired[Instant]


class Fact(Memory):
    """A memory that asserts a value."""

    key: str
    value: object


def _load_item(value: Any) -> MemoryItem:
    """Read an item that a server sends: of a kind or a version that is not known here, too."""
    return load_item(must_be_object(value))


def _load_fact(value: Any) -> "FactMemory":
    from orbiter.memory.model.facts import FactMemory  # noqa: PLC0415 - few calls need it

    return FactMemory.model_validate(must_be_object(value))


def _load_scope(value: Any) -> MemoryMetadata:
    return MemoryMetadata.model_validate(must_be_object(value))


LEAVES: dict[str, Any] = {
    "str": Text,
    "int": Whole,
    "float": Number,
    "bool": Flag,
    "bytes": Base64,
    "datetime": Instant,
    "object": object,
    "MemoryItem": Annotated[Memory, read_by(_load_item)],
    "FactMemory": Annotated[Fact, read_by(_load_fact)],
    "MemoryStatus": _Status,
    "MemoryMetadata": Annotated[Scope, read_by(_load_scope)],
}
"""By the name of a class."""
