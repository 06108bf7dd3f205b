"""Memories as a model is shown them: bounded, dated, labelled, and fenced where they are text.

A memory's text is data that anybody may have written. As structure it stands in a field of its
own; as text it goes through `orbiter.memory.context.prompt_fence` and nowhere else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel

from orbiter.memory.agent.short_ids import short_id
from orbiter.memory.context.entries import default_trust, memory_entry, with_id
from orbiter.memory.context.prompt_fence import (
    Entry,
    common_year,
    enclose,
    entry_line,
    new_mark,
)
from orbiter.memory.context.prompt_fence import render as fence
from orbiter.memory.conversation.tokens import estimate_tokens
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.trust import source_of

if TYPE_CHECKING:
    from orbiter.memory.recall import Hit

__all__ = ["Memory", "cut", "entry_of", "fenced", "known", "share", "to_memory", "within_budget"]

MAX_SHOWN = 20_000
"""Characters of memories in one answer; a model's window is for more than this."""
_LEAST_EACH = 200
_LONG = 2_000
_LETTERS = 10
"""More letters than any token has."""
_LONGEST_LABEL = 80


class Memory(BaseModel):
    """A memory, for a program or a model."""

    id: str
    text: str
    type: str
    created_at: datetime
    version: int
    source: str
    tags: list[str] = []
    importance: float | None = None
    status: str | None = None
    is_cut: bool | None = None
    """Whether `text` is a part only; `memory_get` has the rest."""


def to_memory(item: MemoryItem, *, text: str | None = None, most: int = MAX_SHOWN) -> Memory:
    """Return *item* with at most *most* characters of its text, or of *text* in its place."""
    whole = item.content
    part = cut(whole if text is None else text, most)
    extra = item.metadata.extra
    tags, importance = extra.get("tags"), extra.get("importance")
    is_number = isinstance(importance, int | float) and not isinstance(importance, bool)
    return Memory(
        id=item.id,
        text=part,
        type=item.memory_type,
        created_at=item.created_at,
        version=item.version,
        source=cut(source_of(item), _LONGEST_LABEL),
        tags=[cut(str(tag), _LONGEST_LABEL) for tag in tags] if isinstance(tags, list) else [],
        importance=float(importance) if is_number else None,  # type: ignore[arg-type]  # told above
        status=None if item.status == "accepted" else str(item.status),
        is_cut=True if text is None and part != whole else None,
    )


def share(count: int) -> int:
    """Return how many characters each of *count* memories may have in one answer."""
    return max(_LEAST_EACH, MAX_SHOWN // max(count, 10))


def cut(text: str, most: int) -> str:
    """Return *text*, or its beginning with a sign that it goes on."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def entry_of(item: MemoryItem, *, text: str | None = None, names_id: bool = True) -> Entry:
    """Return *item* as an entry for the fence, with its id where a model may need it."""
    entry = memory_entry(item, default_trust)
    if text is not None:
        entry = replace(entry, content=text)
    return with_id(entry, short_id(item.id)) if names_id else entry


def known(hit: "Hit", *, names_id: bool = True) -> Entry:
    """Return what was recalled as an entry; of a long memory, the passage that was meant."""
    is_long = len(hit.item.content) > _LONG and hit.passage
    return entry_of(hit.shown, text=hit.passage if is_long else None, names_id=names_id)


def fenced(entries: Iterable[Entry]) -> str:
    """Return *entries* as a block of data."""
    return fence(entries, mark=new_mark())


def within_budget(entries: Sequence[Entry], budget: int) -> tuple[str, int, list[int]]:
    """Return a fenced text of at most *budget* tokens, its size, and which entries are in it.

    They are taken in order; one that does not fit is left out, and a shorter one may still come.
    Nothing is returned where no entry fits.
    """
    mark, year = new_mark(), common_year(entry.time for entry in entries)
    lines, kept = [], []
    left = budget - estimate_tokens(enclose([], mark=mark, year=year))
    for place, entry in enumerate(entries):
        if len(entry.content) > left * _LETTERS:  # spares counting what cannot fit
            continue
        line = entry_line(entry, marks=(mark,), year=year)
        cost = estimate_tokens(f"\n{line}")  # no token goes over the end of a line
        if cost <= left:
            left -= cost
            lines.append(line)
            kept.append(place)
    if not kept:
        return "", 0, []
    text = enclose(lines, mark=mark, year=year)
    return text, estimate_tokens(text), kept
