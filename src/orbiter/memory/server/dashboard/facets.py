"""Filters of the list of memories, read from the address, and facets: their values with counts.

The scope is one of them: a page that is narrowed to a user reads that user's memories only. The
store counts, and it counts everything; what is forgotten is not counted by value.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.dashboard.templating import environment

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory

__all__ = ["AGES", "Facet", "Filters", "Value", "facets", "read_counts", "read_filters", "tags_of"]

AGES = {
    "hour": ("Last hour", timedelta(hours=1)),
    "day": ("Last day", timedelta(days=1)),
    "week": ("Last week", timedelta(days=7)),
    "month": ("Last 30 days", timedelta(days=30)),
    "year": ("Last year", timedelta(days=365)),
}
"""How old a memory may be at most."""

FORGOTTEN = "forgotten"
_STATUSES = {
    "accepted": "Accepted",
    "draft": "Draft",
    "discard": "Discarded",
    FORGOTTEN: "Forgotten",
}
_TITLES = {
    "user_id": "User",
    "agent_id": "Agent",
    "session_id": "Session",
    "type": "Type",
    "tag": "Tag",
    "status": "Status",
    "age": "Age",
}
_COUNTED_BY = {"type": "memory_type", "tag": "tags"}
"""What `count_by` calls a facet, where it has another name."""
_READ = 100
"""Values of a facet that are read, the most frequent."""
_SHOWN = 7
"""Values of a facet that are shown."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the list; an empty one does not narrow it."""

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
    def is_search(self) -> bool:
        """Whether recall answers, by words and meaning; it knows what is accepted only."""
        return bool(self.q.strip()) and self.status in ("", MemoryStatus.ACCEPTED)

    @property
    def since(self) -> datetime | None:
        """The time from which on memories are listed."""
        return datetime.now(UTC) - AGES[self.age][1] if self.age else None

    @property
    def where(self) -> Where | None:
        """The filter of the tag."""
        return {"tags": self.tag} if self.tag else None

    @property
    def stored_status(self) -> MemoryStatus | None:
        """The status as a store knows it."""
        return None if self.status in ("", FORGOTTEN) else MemoryStatus(self.status)

    @property
    def is_narrowed(self) -> bool:
        """Whether anything but the scope narrows the list."""
        return any((self.q, self.type, self.tag, self.status, self.age))

    def chosen(self, name: str) -> str:
        """Return the value that is chosen of a facet, if one is."""
        return self.scope.get(name, "") if name in SCOPE_FIELDS else str(getattr(self, name))

    def query(self, **changed: str) -> str:
        """Return these filters for an address, with some of them changed or, if empty, left out."""
        plain = asdict(self)
        said = {**plain, **plain.pop("scope"), **changed}
        kept = {name: value for name, value in said.items() if value and name != "scope"}
        return f"?{urlencode(kept)}" if kept else ""

    def count_arguments(self, *, without: str) -> dict[str, Any]:
        """Return the arguments of `count_by` for all of these filters but one."""
        where = {
            name: value
            for facet, name, value in (
                ("tag", "tags", self.tag),
                ("status", "status", self.stored_status and self.stored_status.value),
            )
            if value and facet != without
        }
        return {
            "where": where or None,
            "memory_type": (self.type if without != "type" else "") or None,
            "since": self.since if without != "age" else None,
        }


@dataclass(frozen=True, slots=True)
class Value:
    """One line of a facet."""

    value: str
    label: str
    count: int | None
    """How many there are; `None` if it is chosen, and nothing has it."""
    is_on: bool
    link: str
    """The address of the list with this value, or without it if it is chosen."""


@dataclass(frozen=True, slots=True)
class Facet:
    """One way to narrow the list."""

    name: str
    title: str
    values: tuple[Value, ...]


def read_filters(param: Callable[[str], str], scope: dict[str, str]) -> Filters:
    """Return what an address asks for, or raise `QueryError`; *param* gives what it says."""
    for name, known in (("status", _STATUSES), ("age", AGES)):
        if param(name) and param(name) not in known:
            raise QueryError(f"`{name}` is one of `{'`, `'.join(known)}`")
    return Filters(param("q"), param("type"), param("tag"), param("status"), param("age"), scope)


def tags_of(item: MemoryItem) -> list[str]:
    """Return the tags of a memory, whatever somebody has put in their place."""
    tags = item.metadata.extra.get("tags")
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


Counts = Mapping[str, Mapping[str, int]]
"""By the name of a facet, how many memories have each value."""


async def read_counts(handle: "ScopedMemory", filters: Filters, held: Iterable[str]) -> Counts:
    """Return the counts of everything that passes; of each facet, the filters of all others.

    A scope that is chosen is not counted, nor one that is among *held*: nobody else is in sight.
    """
    forgotten = {FORGOTTEN: (await handle.stats()).forgotten or 0}
    if filters.is_forgotten:
        return {"status": forgotten}
    counts: dict[str, dict[str, int]] = {}
    for name in (*_TITLES,)[:-1]:
        if name not in held and name not in filters.scope:
            place, arguments = _COUNTED_BY.get(name, name), filters.count_arguments(without=name)
            counted = await handle.count_by(place, limit=_READ, **arguments)
            counts[name] = {str(each.value): each.items for each in counted}
    counts["status"] |= forgotten
    ages: dict[str, int] = {}
    arguments = filters.count_arguments(without="age")
    for name, (_, span) in AGES.items():
        since = datetime.now(UTC) - span
        counted = await handle.count_by("memory_type", **{**arguments, "since": since})
        count = sum(each.items for each in counted)
        if count not in ages.values():  # a wider one that has no more is no choice
            ages[name] = count
    return {**counts, "age": ages}


def facets(filters: Filters, counts: Counts, *, held: Iterable[str]) -> list[Facet]:
    """Return the ways to narrow the list; those with nothing to choose are left out.

    *held* are the fields of the scope that the reader's key decides.
    """
    made = (_facet(filters, name, counts.get(name, {})) for name in _TITLES if name not in held)
    return [
        each
        for each in made
        if len(each.values) > 1 or (each.values and (each.values[0].is_on or each.name == "tag"))
    ]


def _facet(filters: Filters, name: str, counts: Mapping[str, int]) -> Facet:
    chosen = filters.chosen(name)
    if name in ("status", "age"):
        values = [each for each in (*_STATUSES, *AGES) if counts.get(each) or each == chosen]
    else:
        values = sorted(counts, key=lambda each: (-counts[each], each))[:_SHOWN]
        values = values if chosen in (*values, "") else [chosen, *values[: _SHOWN - 1]]
    return Facet(
        name,
        _TITLES[name],
        tuple(
            Value(
                each,
                _label(name, each),
                counts.get(each),
                each == chosen,
                f"/memories{filters.query(**{name: '' if each == chosen else each})}",
            )
            for each in values
        ),
    )


def _label(name: str, value: str) -> str:
    if name == "type":
        return str(environment().filters["kind"](value))
    if name == "age":
        return AGES[value][0]
    return _STATUSES.get(value, value) if name == "status" else value
