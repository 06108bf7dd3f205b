"""A map of one scope as it was at one moment: the places, and what is said of each of them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import log
from typing import TYPE_CHECKING, Literal

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.protocols import VectorReader, VectorStore
from orbiter.memory.server.dashboard.templating import environment, visible
from orbiter.memory.text.words import COMMON, tokens

if TYPE_CHECKING:
    from orbiter.memory.server.dashboard.projection import Floats, Layout

__all__ = ["MOST", "Drawn", "Group", "draw", "facet", "has_vectors"]


MOST = 10_000
"""Points on a map: the newest memories of its scope."""

_CHUNK = 1_000
_TYPICAL, _SHOWN = 60, 3
"""Members of a group that are looked through for a few that tell what it is about."""
_TEXT = 160
"""Letters of each memory that a map tells; a click opens the whole."""


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


@dataclass(frozen=True)
class Group:
    """Memories that stand together, and the words that tell them from others."""

    name: str
    count: int
    x: int
    y: int
    nearest: tuple[tuple[str, str], ...]
    """The id and the beginning of those that are most like the group."""


@dataclass(frozen=True)
class Drawn:
    """A map, with no more of the memories than it tells."""

    total: int = 0
    """All memories of the scope, of which the map shows the newest."""
    by: Literal["meaning", "words"] = "meaning"
    waiting: int = 0
    """Memories among the newest that have no vector, or none yet, and so stand nowhere."""
    points: dict[str, object] = field(default_factory=lambda: {"count": 0})
    """Columns; `x` and `y` are thousandths from the middle."""
    groups: tuple[Group, ...] = ()


async def draw(handle: ScopedMemory, *, total: int) -> Drawn:
    """Return the map of what *handle* reaches, which has *total* memories."""
    items = await _newest(handle)
    vectors, dimension = await _vectors(handle, [item.id for item in items])
    shown = [item for item in items if item.id in vectors] if vectors else items
    raw = [vectors[item.id] for item in shown] if vectors else []
    return await asyncio.to_thread(
        _compute, shown, raw, dimension, total=total, waiting=len(items) - len(shown)
    )


async def has_vectors(handle: ScopedMemory) -> bool:
    """Tell whether memories here are placed by what they mean, rather than by their words."""
    store = await handle._store()  # noqa: SLF001 - as it is held to this scope
    if not isinstance(store, VectorReader) or not isinstance(store, VectorStore):
        return False
    return store.embeddings is not None


async def _newest(handle: ScopedMemory) -> list[MemoryItem]:
    found: list[MemoryItem] = []
    cursor: str | None = None
    while len(found) < MOST:
        page = await handle.list(limit=min(_CHUNK, MOST - len(found)), cursor=cursor)
        found += page
        cursor = page.next
        if cursor is None:
            break
    return found


async def _vectors(handle: ScopedMemory, item_ids: list[str]) -> tuple[dict[str, bytes], int]:
    """Return the vectors that there are, and how many numbers one has; none if 0."""
    store = await handle._store()  # noqa: SLF001 - as it is held to this scope
    if not isinstance(store, VectorReader) or not isinstance(store, VectorStore):
        return {}, 0
    found: dict[str, bytes] = {}
    for at in range(0, len(item_ids), _CHUNK):
        found |= await store.vectors(item_ids[at : at + _CHUNK])
    return found, store.embeddings.dimension if store.embeddings else 0


def _compute(
    items: list[MemoryItem], raw: list[bytes], dimension: int, *, total: int, waiting: int
) -> Drawn:
    """Place the memories; for many, this takes a second, and so runs in a thread."""
    from orbiter.memory.server.dashboard import projection  # noqa: PLC0415

    if not items:
        return Drawn(total=total, waiting=waiting)
    if raw:
        rows = _mean_directions(raw, dimension)
    else:
        rows = projection.directions_of_words([item.content for item in items])
    layout = projection.lay_out(rows)
    xs, ys = (layout.places * 1_000).round().astype(int).T.tolist()
    points: dict[str, object] = {
        "count": len(items),
        "x": xs,
        "y": ys,
        "id": [item.id for item in items],
        "text": [_beginning(item) for item in items],
        "at": [int(item.created_at.timestamp()) for item in items],
        "facets": {name: facet(name, items) for name in FACETS},
    }
    by: Literal["meaning", "words"] = "meaning" if raw else "words"
    return Drawn(total, by, waiting, points, _named_groups(items, layout))


def _beginning(item: MemoryItem) -> str:
    text = item.content[:_TEXT]
    return visible(f"{text}…" if len(item.content) > _TEXT else text) or "(empty)"


def _mean_directions(raw: Sequence[bytes], dimension: int) -> "Floats":
    """Return one vector for each memory: what its passages mean on the whole."""
    import numpy as np  # noqa: PLC0415 - it is there, or nobody comes here

    rows = np.stack([np.frombuffer(each, "<f4").reshape(-1, dimension).mean(0) for each in raw])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _named_groups(items: Sequence[MemoryItem], layout: "Layout") -> tuple[Group, ...]:
    import numpy as np  # noqa: PLC0415

    words = [{word for word in tokens(item.content[:400]) if _is_label(word)} for item in items]
    everywhere = Counter(word for each in words for word in each)
    found = []
    for number in range(int(layout.groups.max()) + 1):
        members = np.flatnonzero(layout.groups == number)
        middle = layout.places[members].mean(axis=0)
        typical = members[layout.odd[members].argsort(kind="stable")]
        inside = Counter(word for each in members for word in words[each])
        x, y = (middle * 1_000).round().astype(int).tolist()
        found.append(
            Group(
                name=_name(inside, everywhere, len(items)),
                count=len(members),
                x=x,
                y=y,
                nearest=_unlike([items[each] for each in typical[:_TYPICAL]]),
            )
        )
    return tuple(found)


def _unlike(items: Sequence[MemoryItem]) -> tuple[tuple[str, str], ...]:
    """Return some of *items* that do not begin with the same words."""
    found: dict[str, tuple[str, str]] = {}
    for item in items:
        text = _beginning(item)
        found.setdefault(text[:20].casefold(), (item.id, text))
    return tuple(found.values())[:_SHOWN]


def _is_label(word: str) -> bool:
    return word not in COMMON and not word.isdigit() and (len(word) > 2 or not word.isascii())


def _name(inside: Counter[str], everywhere: Counter[str], count: int) -> str:
    """Return the words that stand often in a group and seldom elsewhere."""
    ranked = sorted(
        inside, key=lambda word: (-inside[word] * log(1 + count / everywhere[word]), word)
    )
    return ", ".join(visible(word[:24]) for word in ranked[:3]) or "without words"


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
