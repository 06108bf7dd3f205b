"""Which of the known facts an extractor is told: a prompt has no room for all. Pure functions."""

import json
from collections.abc import Iterable, Mapping

from orbiter.memory.model.facts import FactMemory, dated
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.text import words

__all__ = ["MAX_CHARS", "MAX_FACTS", "told_facts"]

MAX_FACTS = 100
"""Most known facts in a prompt."""
MAX_CHARS = 16_000
"""Most characters of them, all together."""
_LONGEST = 400
"""Characters of one value; a longer one is cut."""


def told_facts(
    known: Mapping[str, FactMemory], messages: Iterable[MemoryItem]
) -> list[tuple[FactMemory, str]]:
    """Return facts and how they are told, by key: those the messages speak of, then the newest."""
    if not known:
        return []
    said = frozenset(term for item in messages for term in words.terms(item.content))
    told = {key: _told(key, fact) for key, fact in known.items()}

    def order(key: str) -> tuple[bool, float, str]:
        terms = words.terms(told[key].replace("_", " "))
        return said.isdisjoint(terms), -known[key].recorded_at.timestamp(), key

    chosen: list[str] = []
    room = MAX_CHARS
    for key in sorted(known, key=order)[:MAX_FACTS]:
        room -= len(told[key])
        if room < 0:
            break
        chosen.append(key)
    return [(known[key], told[key]) for key in sorted(chosen)]


def _told(key: str, fact: FactMemory) -> str:
    value = json.dumps(fact.value, ensure_ascii=False)
    shown = value if len(value) <= _LONGEST else f"{value[:_LONGEST]} […]"
    return f"{key} = {shown} {dated(fact)}".rstrip()
