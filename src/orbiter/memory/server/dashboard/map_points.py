"""A map of one scope as it was at one moment: the places, and what is said of each of them.

What was placed once keeps its place: a new memory stands among those it is like, and one that is
forgotten leaves a gap. Places outlive a restart in a file that has no id, no name and no text.
"""

import asyncio
import hashlib
import json
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.protocols import DetailStore, VectorStore
from orbiter.memory.model.query import Query
from orbiter.memory.server.dashboard.templating import environment, visible
from orbiter.memory.text.words import COMMON, tokens

if TYPE_CHECKING:
    from orbiter.memory.server.dashboard.projection import Floats, Layout

__all__ = ["MAX_POINTS", "NUMBERS", "Drawn", "Group", "Places", "draw", "facet", "has_vectors"]


MAX_POINTS = 10_000
"""Points on a map: the newest memories of its scope."""

_CHUNK = 1_000
_MAX_MAPS = 8
_MAX_BYTES = 16 * 2**20
_GROWTH = 2
"""A map that has grown by this factor since its layout was computed gets a new one."""
_TYPICAL, _MAX_EXAMPLES = 60, 3
"""Members of a group that are looked through for a few that tell what it is about."""
_TEXT = 160
"""Letters of each memory that a map tells; a click opens the whole."""


_NAMED = 7
"""Values of a facet with a colour of their own; what remains shares one."""

_CARD_FACETS = ("type", "user")
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


@dataclass
class Placed:
    """The places of one map: what a point is known by, to its x, y and group."""

    points: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    base: int = 0
    """How many points there were when the layout was computed."""
    names: dict[int, list[str]] = field(default_factory=dict)
    """By group, what the words that name it are known by."""
    is_current: bool = True
    """Whether it was drawn since it was loaded, and since somebody was erased; the file keeps no
    other, as it may know somebody who was erased while no server was there."""


class Places:
    """The places of all maps of one memory; the file at *path*, if there is one, keeps them.

    The file knows a memory and a scope by a salted hash alone, and a word by 16 bits of one: enough
    to find it again among the words of its group, and shared by many others.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._salt = secrets.token_hex(16)
        self._maps: dict[str, Placed] = {}
        self.erasures = 0
        """How often somebody was erased: what was read before is not written after."""
        self.lock = threading.Lock()
        self._file: tuple[int, int] | None = None
        """Which file was read or written last, by this process."""
        self._load()

    def known_by(self, text: str) -> str:
        """Return what the file calls *text*."""
        return hashlib.blake2b(f"{self._salt}{text}".encode(), digest_size=9).hexdigest()

    def word(self, text: str) -> str:
        """Return what the file calls a word."""
        return self.known_by(text)[:4]

    def of(self, name: str) -> Placed:
        """Return the places of the map of *name*, which has none the first time."""
        placed = self._maps.pop(self.known_by(name), None) or Placed()
        self._maps[self.known_by(name)] = placed
        while len(self._maps) > _MAX_MAPS:
            del self._maps[next(iter(self._maps))]
        return placed

    def _load(self) -> None:
        if self._path is None:
            return
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # A file that is damaged is one that is not there: the layout is computed again.
            with self._path.open("rb") as file:
                loaded = _identity(os.fstat(file.fileno()))
                read = json.loads(file.read(_MAX_BYTES))
            maps = {
                str(name): Placed(
                    {
                        str(key): (int(x), int(y), int(group))
                        for key, (x, y, group) in each["points"].items()
                    },
                    int(each["base"]),
                    {
                        int(group): [str(word) for word in name]
                        for group, name in each["names"].items()
                    },
                    is_current=False,
                )
                for name, each in read["maps"].items()
            }
            self._salt, self._maps, self._file = str(read["salt"]), maps, loaded

    def save(self) -> None:
        """Write the file; a disk that takes none costs places after a restart, and nothing else."""
        if self._path is None:
            return
        maps = {
            name: {"base": each.base, "points": each.points, "names": each.names}
            for name, each in self._maps.items()
            if each.is_current
        }
        fresh = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}.new")
        with suppress(OSError):
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "wb") as file:  # noqa: PTH123 - of a file that is open
                file.write(json.dumps({"salt": self._salt, "maps": maps}).encode())
            written = _identity(fresh.stat())
            fresh.replace(self._path)
            self._file = written
        with suppress(OSError):
            fresh.unlink(missing_ok=True)  # half a file, of a disk that is full

    def note_erasure(self) -> None:
        """Remove the file: nothing of somebody who is erased stays in it, not even a hash.

        Places stay known until the server ends, and are written again as maps are drawn again.
        """
        with self.lock:
            self._expire()
            if self._path is not None:
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)

    def notice_erasure(self) -> None:
        """Do the same if another process removed the file, or replaced it; with the lock held.

        A new file may be of a worker that has seen the erasure: what this one knows is older.
        """
        if self._file is None or self._path is None:
            return
        try:
            is_ours = _identity(self._path.stat()) == self._file
        except OSError:
            is_ours = False
        if not is_ours:
            self._expire()

    def _expire(self) -> None:
        self.erasures += 1
        self._file = None
        for each in self._maps.values():
            each.is_current = False


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_ino, info.st_mtime_ns


async def draw(handle: ScopedMemory, *, total: int, places: Places | None = None) -> Drawn:
    """Return the map of what *handle* reaches, which has *total* memories."""
    places = Places(None) if places is None else places
    await asyncio.to_thread(_notice_erasure, places)
    erasures = places.erasures
    items = await _newest(handle)
    vectors, dimension = await _vectors(handle, [item.id for item in items])
    placed_items = [item for item in items if item.id in vectors] if vectors else items
    raw = [vectors[item.id] for item in placed_items] if vectors else []
    name = repr((*Query(metadata=handle.scope).wanted.items(), dimension))
    return await asyncio.to_thread(
        _compute,
        placed_items,
        raw,
        dimension,
        total=total,
        waiting=len(items) - len(placed_items),
        places=places,
        erasures=erasures,
        name=name,
    )


def _notice_erasure(places: Places) -> None:
    with places.lock:
        places.notice_erasure()


async def has_vectors(handle: ScopedMemory) -> bool:
    """Tell whether memories here are placed by what they mean, rather than by their words."""
    store = await handle._store()  # noqa: SLF001 - as it is held to this scope
    if not isinstance(store, DetailStore) or not isinstance(store, VectorStore):
        return False
    return store.embeddings is not None


async def _newest(handle: ScopedMemory) -> list[MemoryItem]:
    items: list[MemoryItem] = []
    cursor: str | None = None
    while len(items) < MAX_POINTS:
        page = await handle.list(limit=min(_CHUNK, MAX_POINTS - len(items)), cursor=cursor)
        items += page
        cursor = page.next
        if cursor is None:
            break
    return items


async def _vectors(handle: ScopedMemory, item_ids: list[str]) -> tuple[dict[str, bytes], int]:
    """Return the vectors that there are, and how many numbers one has; none if 0."""
    store = await handle._store()  # noqa: SLF001 - as it is held to this scope
    if not isinstance(store, DetailStore) or not isinstance(store, VectorStore):
        return {}, 0
    vectors: dict[str, bytes] = {}
    for at in range(0, len(item_ids), _CHUNK):
        vectors |= await store.vectors(item_ids[at : at + _CHUNK])
    return vectors, store.embeddings.dimension if store.embeddings else 0


def _compute(
    items: list[MemoryItem],
    raw: list[bytes],
    dimension: int,
    *,
    total: int,
    waiting: int,
    places: Places,
    erasures: int,
    name: str,
) -> Drawn:
    """Place the memories; for many, this takes a second, and so runs in a thread."""
    from orbiter.memory.server.dashboard import projection  # noqa: PLC0415

    if not items:
        return Drawn(total=total, waiting=waiting)
    if raw:
        rows = _mean_directions(raw, dimension)
    else:
        rows = projection.directions_of_words([item.content for item in items])
    with places.lock:  # maps of several scopes may be drawn at once
        placed = places.of(name)
        before = (placed.points, dict(placed.names), placed.is_current)
        layout = _layout(rows, [places.known_by(item.id) for item in items], placed)
        groups = _named_groups(items, layout, placed, places.word)
        places.notice_erasure()  # last, as a layout takes a while
        placed.is_current = places.erasures == erasures
        if placed.is_current and (placed.points, placed.names, True) != before:
            places.save()
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
    return Drawn(total, by, waiting, points, groups)


def _layout(rows: "Floats", keys: Sequence[str], placed: Placed) -> "Layout":
    """Return where *rows* stand: where they stood before, as long as the map is about as large."""
    import numpy as np  # noqa: PLC0415 - it is there, or nobody comes here

    from orbiter.memory.server.dashboard import projection  # noqa: PLC0415

    before = [placed.points.get(key) for key in keys]
    count_known = sum(each is not None for each in before)
    if count_known * _GROWTH < len(keys) or len(keys) > placed.base * _GROWTH:
        layout = projection.lay_out(rows)
        placed.base, placed.names = len(keys), {}
    else:
        known = np.array([each or (0, 0, -1) for each in before])
        at = (known[:, :2] / 1_000).astype(np.float32)
        layout = projection.place_among(rows, at, known[:, 2].astype(np.intp))
    whole = (layout.places * 1_000).round().astype(int).tolist()
    groups = layout.groups.tolist()
    placed.points = {
        key: (x, y, group) for key, (x, y), group in zip(keys, whole, groups, strict=True)
    }
    return layout


def _beginning(item: MemoryItem) -> str:
    text = item.content[:_TEXT]
    return visible(f"{text}…" if len(item.content) > _TEXT else text) or "(empty)"


def _mean_directions(raw: Sequence[bytes], dimension: int) -> "Floats":
    """Return one vector for each memory: what its passages mean on the whole."""
    import numpy as np  # noqa: PLC0415 - it is there, or nobody comes here

    rows = np.stack([np.frombuffer(each, "<f4").reshape(-1, dimension).mean(0) for each in raw])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _named_groups(
    items: Sequence[MemoryItem], layout: "Layout", placed: Placed, known_by: Callable[[str], str]
) -> tuple[Group, ...]:
    """Return the groups, the largest first; one keeps its name as long as its words are in it."""
    import numpy as np  # noqa: PLC0415

    words = [{word for word in tokens(item.content[:400]) if _is_label(word)} for item in items]
    everywhere = Counter(word for each in words for word in each)
    groups = []
    for number in np.unique(layout.groups).tolist():
        members = np.flatnonzero(layout.groups == number)
        middle = layout.places[members].mean(axis=0)
        typical = members[layout.odd[members].argsort(kind="stable")]
        inside = Counter(word for each in members for word in words[each])
        ranked = _telling(inside, everywhere, len(items))
        hashes = {known_by(word): word for word in reversed(ranked)}
        kept = placed.names.get(number, [])
        if not kept or not all(each in hashes for each in kept):
            kept = placed.names[number] = [known_by(word) for word in ranked[:3]]
        name = [hashes[each] for each in kept]
        x, y = (middle * 1_000).round().astype(int).tolist()
        groups.append(
            Group(
                name=", ".join(visible(word[:24]) for word in name) or "without words",
                count=len(members),
                x=x,
                y=y,
                nearest=_unlike([items[each] for each in typical[:_TYPICAL]]),
            )
        )
    return tuple(sorted(groups, key=lambda group: -group.count))


def _unlike(items: Sequence[MemoryItem]) -> tuple[tuple[str, str], ...]:
    """Return some of *items* that do not begin with the same words."""
    examples: dict[str, tuple[str, str]] = {}
    for item in items:
        text = _beginning(item)
        examples.setdefault(text[:20].casefold(), (item.id, text))
    return tuple(examples.values())[:_MAX_EXAMPLES]


NUMBERS = frozenset(
    """
    one two three four five six seven eight nine ten eleven twelve first second third
    """.split()  # noqa: SIM905 - read by people
)
"""Words that are in many texts and tell nothing of a group."""


def _is_label(word: str) -> bool:
    return (
        word not in COMMON
        and word not in NUMBERS
        and not word.isdigit()
        and (len(word) > 2 or not word.isascii())
    )


def _telling(inside: Counter[str], everywhere: Counter[str], count: int) -> list[str]:
    """Return the words of a group: first those that are often in it and seldom elsewhere.

    A word that a single memory has tells nothing of a group, unless there is no other.
    """
    return sorted(
        inside,
        key=lambda word: (
            inside[word] < 2,
            -inside[word] * log(1 + count / everywhere[word]) * inside[word] / everywhere[word],
            word,
        ),
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
    labels = [_said(name, value) for value in order]
    numbers = [counts[value] for value in order]
    if len(order) < len(counts):
        labels.append(f"{len(counts) - len(order)} others")
        tints.append("c7")
        numbers.append(len(items) - sum(numbers))
    return {
        **(_each(name, values) if name in _CARD_FACETS else {}),
        "values": labels,
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
    label = str(environment().filters["kind"](value)) if name == "type" else value
    return visible(label[:60]) or f"no {name}"


def _tint(name: str, value: str, at: int) -> str:
    # A type has the colour that it has everywhere; others get theirs in turn, so that no two of
    # the frequent ones share it.
    if name == "type":
        return str(environment().filters["colour"](value))
    return f"c{at % 8}" if value else "c7"


def _age(age: timedelta) -> str:
    return next(name for most, name in _AGES if age < most)
