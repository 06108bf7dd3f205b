"""What colours a map: for each facet its values, and which of them each memory has."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.server.dashboard.templating import environment, visible

__all__ = ["FACETS", "facet"]

_NAMED = 7
"""Values of a facet with a colour of their own; what remains shares one."""

_TOLD = ("type", "user")
"""What the card of a point tells, also of values that share a colour with others."""

_AGES = (
    (timedelta(hours=1), "last hour"),
    (timedelta(days=1), "last day"),
    (timedelta(days=7), "last week"),
    (timedelta(days=30), "last month"),
    (timedelta(days=365), "last year"),
    (timedelta.max, "older"),
)


def _first_tag(item: MemoryItem) -> str | None:
    tags = item.metadata.extra.get("tags")
    first = tags[0] if isinstance(tags, list) and tags else None
    return first if isinstance(first, str) else None


FACETS: Mapping[str, Callable[[MemoryItem], str | None]] = {
    "type": lambda item: item.memory_type,
    "user": lambda item: item.metadata.user_id,
    "agent": lambda item: item.metadata.agent_id,
    "session": lambda item: item.metadata.session_id,
    "tag": _first_tag,
    "age": lambda item: _age(datetime.now(UTC) - item.created_at),
}


def facet(name: str, items: Sequence[MemoryItem]) -> dict[str, object]:
    """Return the values, their counts and tints, and of each item which value it has."""
    values = [FACETS[name](item) or "" for item in items]
    counts = Counter(values)
    if name == "age":
        order = [each for _, each in _AGES if each in counts]
        tints = [f"a{at}" for at in range(len(order))]
    else:
        ranked = [value for value, _ in counts.most_common()]
        order = ranked if len(ranked) <= _NAMED + 1 else ranked[:_NAMED]
        tints = [_tint(name, value, at) for at, value in enumerate(order)]
    index = {value: at for at, value in enumerate(order)}
    told = [_said(name, value) for value in order]
    numbers = [counts[value] for value in order]
    if len(order) < len(counts):
        told.append(f"{len(counts) - len(order)} others")
        tints.append("c7")
        numbers.append(len(items) - sum(numbers))
    return {
        **(_each(name, values) if name in _TOLD else {}),
        "values": told,
        "counts": numbers,
        "tints": tints,
        "of": [index.get(value, len(order)) for value in values],
    }


def _each(name: str, values: Sequence[str]) -> dict[str, object]:
    """Return what each item itself is, and no `others`."""
    places = {value: at for at, value in enumerate(dict.fromkeys(values))}
    named = [_said(name, value) for value in places]
    return {"named": named, "is": [places[value] for value in values]}


def _said(name: str, value: str) -> str:
    told = str(environment().filters["kind"](value)) if name == "type" else value
    return visible(told[:60]) or f"no {name}"


def _tint(name: str, value: str, at: int) -> str:
    # A type has the colour that it has everywhere; others get theirs in turn, so that no two of
    # the frequent ones share it.
    if name == "type":
        return str(environment().filters["colour"](value))
    return f"c{at % 8}" if value else "c7"


def _age(age: timedelta) -> str:
    return next(name for most, name in _AGES if age < most)
