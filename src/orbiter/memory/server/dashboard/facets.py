"""What narrows the list of memories: read from the address, counted, and linked.

The scope is part of it: a page that is narrowed to a user reads that user's memories only. Counts
are of everything that there is, by the store; what is forgotten is read page by page, to a limit.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.dashboard.templating import environment

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory

__all__ = [
    "AGES",
    "MAX_FORGOTTEN",
    "Facet",
    "Filters",
    "Value",
    "counts_in",
    "facets",
    "read_counts",
    "read_filters",
    "read_forgotten_counts",
]

AGES = {
    "hour": ("Last hour", timedelta(hours=1)),
    "day": ("Last day", timedelta(days=1)),
    "week": ("Last week", timedelta(days=7)),
    "month": ("Last 30 days", timedelta(days=30)),
    "year": ("Last year", timedelta(days=365)),
}
"""How old a memory may be at most."""

FORGOTTEN = "forgotten"
_STATUSES = {"accepted": "Accepted", "draft": "Draft", "discard": "Discarded"}
MAX_FORGOTTEN = 20_000
"""Forgotten memories that are counted, the newest: no store counts these by value."""
_CHUNK = 1_000
_MAX_VALUES = 7
"""Values of a facet that are listed: the most frequent ones."""
_MAX_TAGS = 50
"""Tags of one memory that are counted: nothing stops a client from writing very many."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What the list is narrowed to; empty means not at all."""

    q: str = ""
    type: str = ""
    tag: str = ""
    status: str = ""
    age: str = ""
    scope: dict[str, str] = field(default_factory=dict)

    @property
    def is_forgotten(self) -> bool:
        """Whether what was forgotten is listed, in place of what is remembered."""
        return self.status == FORGOTTEN

    @property
    def by_letters(self) -> bool:
        """Whether recall cannot find it, as it knows what is accepted only."""
        return bool(self.status) and self.status != MemoryStatus.ACCEPTED

    @property
    def since(self) -> datetime | None:
        """From when on memories are wanted."""
        return datetime.now(UTC) - AGES[self.age][1] if self.age else None

    @property
    def where(self) -> Where | None:
        """The filter of the tag."""
        return {"tags": self.tag} if self.tag else None

    @property
    def stored_status(self) -> MemoryStatus | None:
        """The status as a store knows it."""
        return MemoryStatus(self.status) if self.status in _STATUSES else None

    @property
    def is_narrowed(self) -> bool:
        """Whether anything but the scope narrows the list."""
        return any(getattr(self, each.name) for each in fields(self) if each.name != "scope")

    def query(self, **changed: str) -> str:
        """Return these filters for an address, with some of them changed or, if empty, left out."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        del plain["scope"]
        said = {**plain, **self.scope, **changed}
        kept = {name: value for name, value in said.items() if value}
        return f"?{urlencode(kept)}" if kept else ""

    def narrowed(self, *, but: str) -> dict[str, Any]:
        """Return the arguments of `count_by` for these filters, the one of the name *but* aside."""
        where: dict[str, Any] = {}
        if self.tag and but != "tag":
            where["tags"] = self.tag
        if self.status in _STATUSES and but != "status":
            where["status"] = self.status
        arguments: dict[str, Any] = {"where": where} if where else {}
        if self.type and but != "type":
            arguments["memory_type"] = self.type
        if self.age and but != "age":
            arguments["since"] = self.since
        return arguments

    def accepts(self, item: MemoryItem, *, but: str) -> bool:
        """Tell whether *item* passes all of these filters, the one of the name *but* aside."""
        since = self.since if but != "age" else None
        return (
            (but == "type" or self.type in ("", item.memory_type))
            and (but == "tag" or not self.tag or self.tag in _first_tags(item))
            and (but == "status" or self.status in ("", FORGOTTEN, item.status.value))
            and (since is None or item.created_at >= since)
        )


@dataclass(frozen=True, slots=True)
class Value:
    """One line of a facet."""

    value: str
    label: str
    count: int | None
    """How many there are; `None` if it is chosen, and nothing has it."""
    is_on: bool
    link: str
    """What choosing it adds to the address; for what is chosen, what takes it away."""


@dataclass(frozen=True, slots=True)
class Facet:
    """One way to narrow the list."""

    name: str
    title: str
    values: tuple[Value, ...]


def read_filters(param: Callable[[str], str], scope: dict[str, str]) -> Filters:
    """Return what an address asks for, or raise `QueryError`; *param* gives what it says."""
    status, age = param("status"), param("age")
    if status and status not in (*_STATUSES, FORGOTTEN):
        raise QueryError(f"`status` is one of `{'`, `'.join((*_STATUSES, FORGOTTEN))}`")
    if age and age not in AGES:
        raise QueryError(f"`age` is one of `{'`, `'.join(AGES)}`")
    return Filters(param("q"), param("type"), param("tag"), status, age, scope)


def tags_of(item: MemoryItem) -> list[str]:
    """Return the tags of a memory, whatever somebody has put in their place."""
    tags = item.metadata.extra.get("tags")
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def _first_tags(item: MemoryItem) -> dict[str, None]:
    tags = item.metadata.extra.get("tags")
    first = islice(tags, _MAX_TAGS) if isinstance(tags, list) else ()
    return dict.fromkeys(tag for tag in first if isinstance(tag, str))


Counts = Mapping[str, Mapping[str, int]]
"""By the name of a facet, how many memories have each value."""


async def read_counts(handle: "ScopedMemory", filters: Filters, held: Iterable[str]) -> Counts:
    """Return the counts of everything that passes; of each facet, the filters of all others."""
    counts: dict[str, Mapping[str, int]] = {}
    for name, place in _FIELDS.items():
        if name not in held and name not in filters.scope:
            counted = await handle.count_by(place, limit=_READ, **filters.narrowed(but=name))
            counts[name] = {str(each.value): each.items for each in counted}
        elif name in filters.scope:
            counts[name] = {}
    now, ages = datetime.now(UTC), {}
    for name, (_, span) in AGES.items():
        arguments = {**filters.narrowed(but="age"), "since": now - span}
        ages[name] = sum(each.items for each in await handle.count_by("memory_type", **arguments))
    return {**counts, "age": ages}


async def read_forgotten_counts(handle: "ScopedMemory", filters: Filters) -> Counts:
    """Return the counts of forgotten memories, as many as are read."""
    counts: dict[str, Counter[str]] = {}
    cursor, count_read = None, 0
    while count_read < MAX_FORGOTTEN:
        page = await handle.list(limit=_CHUNK, forgotten=True, cursor=cursor)
        for name, some in (await asyncio.to_thread(counts_in, filters, page)).items():
            counts.setdefault(name, Counter()).update(some)
        cursor, count_read = page.next, count_read + len(page)
        if cursor is None:
            break
    return counts


def counts_in(filters: Filters, sample: Sequence[MemoryItem]) -> Counts:
    """Return the counts of *sample* alone."""
    kept = {name: [item for item in sample if filters.accepts(item, but=name)] for name in _OWN}
    everywhere = [item for item in sample if filters.accepts(item, but="")]
    now = datetime.now(UTC)
    scopes = {
        name: Counter(getattr(item.metadata, name) for item in everywhere) for name in _SCOPES
    }
    for each in scopes.values():
        del each[None]
    return {
        **scopes,
        "type": Counter(item.memory_type for item in kept["type"]),
        "tag": Counter(tag for item in kept["tag"] for tag in _first_tags(item)),
        "status": Counter(item.status.value for item in kept["status"]),
        "age": {
            name: sum(item.created_at >= now - span for item in kept["age"])
            for name, (_, span) in AGES.items()
        },
    }


def facets(
    filters: Filters, counts: Counts, *, forgotten: int | None, held: Iterable[str]
) -> list[Facet]:
    """Return the ways to narrow the list; those with nothing to choose are left out.

    *forgotten* is how many there are of these, and *held* are the fields of the scope that the
    reader's key decides.
    """
    all_facets: list[Facet] = []
    for name, title in _SCOPES.items():
        if name not in held:
            chosen = filters.scope.get(name, "")
            all_facets.append(_counted(filters, name, title, counts.get(name, {}), chosen))
    all_facets.append(_counted(filters, "type", "Type", counts["type"], filters.type))
    all_facets.append(_counted(filters, "tag", "Tag", counts["tag"], filters.tag))
    all_facets += [_status(filters, counts["status"], forgotten), _age(filters, counts["age"])]
    return [each for each in all_facets if _is_choice(each)]


_OWN = ("type", "tag", "status", "age")
_SCOPES = {"user_id": "User", "agent_id": "Agent", "session_id": "Session"}
_FIELDS = {
    **{name: name for name in _SCOPES},
    "type": "memory_type",
    "tag": "tags",
    "status": "status",
}
_READ = 100
"""Values of a facet that are read, the most frequent."""


def _is_choice(facet: Facet) -> bool:
    is_chosen = any(value.is_on for value in facet.values)
    least = 1 if facet.name == "tag" else 2
    return is_chosen or len(facet.values) >= least


def _counted(
    filters: Filters, name: str, title: str, counts: Mapping[str, int], chosen: str
) -> Facet:
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    listed = [value for value, _ in ordered[:_MAX_VALUES]]
    if chosen and chosen not in listed:
        listed = [chosen, *listed[: _MAX_VALUES - 1]]
    if name in SCOPE_FIELDS and chosen:
        listed = [chosen]  # others are out of sight: this page is of this one alone
    return Facet(
        name,
        title,
        tuple(
            _value(filters, name, each, _label(name, each), counts.get(each), chosen)
            for each in listed
        ),
    )


def _label(name: str, value: str) -> str:
    return str(environment().filters["kind"](value)) if name == "type" else value


def _status(filters: Filters, counted: Mapping[str, int], forgotten: int | None) -> Facet:
    counts: Counter[str] = Counter()
    if not filters.is_forgotten:
        counts.update(counted)
    labels = {**_STATUSES, FORGOTTEN: "Forgotten"}
    if forgotten:
        counts[FORGOTTEN] = forgotten
    statuses = [each for each in labels if counts[each] or each == filters.status]
    return Facet(
        "status",
        "Status",
        tuple(
            _value(filters, "status", each, labels[each], counts[each] or None, filters.status)
            for each in statuses
        ),
    )


def _age(filters: Filters, counts: Mapping[str, int]) -> Facet:
    values: list[Value] = []
    for name, (label, _) in AGES.items():
        count = counts.get(name, 0)
        is_told = count and (not values or count != values[-1].count)
        if is_told or name == filters.age:
            values.append(_value(filters, "age", name, label, count or None, filters.age))
    return Facet("age", "Age", tuple(values))


def _value(
    filters: Filters, name: str, value: str, label: str, count: int | None, chosen: str
) -> Value:
    is_on = value == chosen
    return Value(
        value, label, count, is_on, f"/memories{filters.query(**{name: '' if is_on else value})}"
    )
