"""What the tools of the profile `memory` take and return, as their schemas say it."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from orbiter.memory.mcp._rendering import Memory

__all__ = [
    "Added",
    "ContextText",
    "Deleted",
    "Hit",
    "Hits",
    "Importance",
    "Kind",
    "Listed",
    "Part",
    "Since",
    "Tags",
    "Texts",
]

_MOST = 50


class Added(BaseModel):
    """What `memory_add` stored, or had stored before."""

    ids: list[str]


class Hit(Memory):
    """A memory that answers a question."""

    score: float
    why: str


class Hits(BaseModel):
    """What `memory_search` found, best first."""

    results: list[Hit]


class Part(Memory):
    """A memory, or a part of a long one."""

    next_offset: int | None = None


class Deleted(BaseModel):
    """What `memory_delete` removed."""

    id: str
    restore: str


class Listed(BaseModel):
    """A page of memories, newest first."""

    memories: list[Memory]
    next: str | None = None


class ContextText(BaseModel):
    """What is known for a task."""

    text: str
    tokens: int
    ids: list[str]
    left_out: int


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_instant(value: object) -> object:
    """Read a day as its beginning, and a time without a zone as UTC."""
    if not isinstance(value, str):
        return value
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("use a date such as 2026-11-01 or 2026-11-01T10:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


Texts = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1, max_length=_MOST)]
Tags = Annotated[list[str] | None, BeforeValidator(_as_list)]
Importance = Annotated[float | None, Field(ge=0, le=1)]
Since = Annotated[datetime | None, BeforeValidator(_as_instant), WithJsonSchema({"type": "string"})]
# Plain texts with no default but "": the SDK reads a text that may be `null` as JSON first.
Kind = Annotated[str, Field(description="item, human, ai, tool, fact, summary")]
