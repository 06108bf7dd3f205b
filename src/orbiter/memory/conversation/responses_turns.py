"""Which messages of the model are one turn of it, though they came one by one.

OpenAI's Responses give a turn as several entries: reasoning, a text, calls. Added one at a time,
each is an item; a provider wants them back together, before all outputs.
"""

from collections.abc import Mapping
from typing import Any

from orbiter.memory.model.items import AIMemory, MemoryItem, calls_of

__all__ = ["RESPONSES", "is_one_turn", "is_thought", "may_follow", "speaks"]

RESPONSES = "openai-responses"


def may_follow(item: MemoryItem) -> bool:
    """Tell whether *item* could go on with a turn that an older one began."""
    return isinstance(item, AIMemory) and isinstance(item.native.get(RESPONSES), list)


def is_thought(item: MemoryItem) -> bool:
    """Tell whether the model neither says nor calls anything in *item*."""
    return not item.content and not calls_of(item)


def is_one_turn(older: MemoryItem, newer: MemoryItem) -> bool:
    """Tell whether *newer*, which stands directly behind *older*, goes on with its turn.

    Within one turn the model thinks, speaks at most once, then calls.
    """
    if not may_follow(older) or not may_follow(newer):
        return False
    last, first = _kind(older, -1), _kind(newer, 0)
    if last == first == "reasoning":  # it led nowhere: what followed it was never kept
        return False
    if speaks(older) and speaks(newer):
        return False
    if calls_of(older):
        return bool(calls_of(newer)) or is_thought(newer)
    return not speaks(older) or first.endswith("_call")


def speaks(item: MemoryItem) -> bool:
    """Tell whether the model says something in a part of a turn, be it an empty text."""
    entries: Any = item.native[RESPONSES]
    kinds = [entry.get("type") for entry in entries if isinstance(entry, Mapping)]
    return bool(item.content) or None in kinds or "message" in kinds


def _kind(item: MemoryItem, place: int) -> str:
    entries: Any = item.native[RESPONSES]
    entry = entries[place] if entries else None
    kind = entry.get("type") if isinstance(entry, Mapping) else None
    return kind if isinstance(kind, str) else ""
