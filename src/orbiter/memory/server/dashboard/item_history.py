"""What the page of a memory tells: its versions and what changed, and where it came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import RESERVED, AIMemory, MemoryItem, ToolMemory
from orbiter.memory.model.reports import ItemVersion
from orbiter.memory.model.trust import source_of, trust_of
from orbiter.memory.text.word_diff import Piece, word_diff

__all__ = ["Change", "Labelled", "Origin", "changes", "origin_of", "tool_group"]

MOST_VERSIONS = 30
"""Versions that are shown, the newest; all of them are in the history that REST gives."""

_MOST_SOURCES = 12
_GROUP = timedelta(hours=1)
_NEAR = 200
"""Messages around a call among which its answers are looked for."""

_OWN = ("tags", "importance", "source", "trust", "edited", "fact", "forked_from")
"""Keys of `metadata.extra` that have a place of their own on the page."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """Something beside the text that is not what it was."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Change:
    """One version, and what it changed."""

    version: int
    change: str
    at: datetime
    by: str
    pieces: Sequence[Piece]
    labels: Sequence[Labelled]
    is_now: bool
    may_return: bool
    """Whether making the memory this again would change anything."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a memory came from, and what it is worth."""

    source: str
    trust: str
    is_edited: bool
    sources: Sequence[MemoryItem]
    """The memories that a fact was taken from, as far as they are still there."""
    more_sources: int
    forked_from: str
    extra: dict[str, object]


def changes(versions: Sequence[ItemVersion]) -> list[Change]:
    """Return the newest versions, newest first, each with what it changed in the one before."""
    found: list[Change] = []
    now = versions[-1].item if versions else None
    for place in range(len(versions) - 1, max(-1, len(versions) - 1 - MOST_VERSIONS), -1):
        each = versions[place]
        before = versions[place - 1].item if place else None
        is_now = place == len(versions) - 1
        is_same = now is not None and _is_same(each.item, now)
        has_text = before is not None and each.change == "updated"
        found.append(
            Change(
                version=each.item.version,
                change=each.change,
                at=each.at,
                by=(each.by or "").removeprefix(RESERVED),
                pieces=word_diff(before.content, each.item.content)
                if has_text and before is not None and before.content != each.item.content
                else [],
                labels=_labels(before, each.item) if has_text and before is not None else [],
                is_now=is_now,
                may_return=not is_now and not is_same and each.change != "deleted",
            )
        )
    return found


def _is_same(one: MemoryItem, other: MemoryItem) -> bool:
    return one.content == other.content and not _labels(one, other)


def _labels(before: MemoryItem, after: MemoryItem) -> list[Labelled]:
    """Return what differs beside the text."""
    was, now = before.metadata.extra, after.metadata.extra
    names = sorted({*was, *now} - {"trust"})
    pairs = [(name, was.get(name), now.get(name)) for name in names]
    pairs += [
        ("status", before.status.value, after.status.value),
        ("expires", before.expires_at, after.expires_at),
    ]
    return [Labelled(name, _said(old), _said(new)) for name, old, new in pairs if old != new]


def _said(value: object) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


async def origin_of(handle: ScopedMemory, item: MemoryItem) -> Origin:
    """Return where *item* came from."""
    ids = list(getattr(item, "source_ids", []))
    there = [await handle.get(each) for each in ids[:_MOST_SOURCES] if isinstance(each, str)]
    extra = item.metadata.extra
    forked = extra.get("forked_from")
    return Origin(
        source=source_of(item),
        trust=trust_of(item).name.lower(),
        is_edited=bool(extra.get("edited")),
        sources=[each for each in there if each is not None],
        more_sources=max(0, len(ids) - _MOST_SOURCES),
        forked_from=forked if isinstance(forked, str) else "",
        extra={name: value for name, value in extra.items() if name not in _OWN},
    )


async def tool_group(handle: ScopedMemory, item: MemoryItem) -> list[MemoryItem]:
    """Return the rest of the tool group that *item* is part of: its call, or the answers to it."""
    own = item.metadata
    where = {"session_id": own.session_id, "user_id": own.user_id, "task_id": own.task_id}
    at = item.created_at
    if isinstance(item, ToolMemory) and item.tool_call_id:
        near = await handle.list(where=where, since=at - _GROUP, until=at, limit=_NEAR)
        asked = (each for each in near if isinstance(each, AIMemory))
        call = next((a for a in asked if any(c.id == item.tool_call_id for c in a.calls)), None)
        return [] if call is None else [call]
    if isinstance(item, AIMemory) and item.tool_calls:
        ids = {call.id for call in item.calls}
        near = await handle.list(where=where, since=at, until=at + _GROUP, limit=_NEAR)
        answers = [each for each in near if isinstance(each, ToolMemory)]
        return [each for each in answers[::-1] if each.tool_call_id in ids]
    return []
