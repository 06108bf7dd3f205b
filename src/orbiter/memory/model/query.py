"""Queries to a store. `Query.matches` is the reference meaning of every filter.

A store may answer faster in any way it likes, as long as it finds exactly what `matches` accepts.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Literal, NamedTuple, cast

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.errors import QueryError
from orbiter.memory.model.filters import Condition, Where, parse_where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.validation import check_text, to_utc

__all__ = [
    "SCOPE_FIELDS",
    "CosineQuery",
    "Cursor",
    "Order",
    "Query",
    "ScopeField",
    "WordMatches",
    "check_instant",
    "check_order",
    "check_size",
    "require_text",
]

ScopeField = Literal["user_id", "session_id", "task_id", "agent_id"]
"""The name of a metadata field that can filter."""

SCOPE_FIELDS: tuple[ScopeField, ...] = ("user_id", "session_id", "task_id", "agent_id")
"""The metadata fields that can filter; `extra` never does."""

Order = Literal["time", "insertion"]
"""How items are ordered: by `created_at`, of equals by insertion; or by insertion alone."""

_LISTS = (list, tuple, set, frozenset)


def check_size(name: str, value: int) -> int:
    """Return *value* if it is a whole number of zero or more, else raise `QueryError`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise QueryError(f"`{name}` must be a whole number, not {value!r}")
    if value < 0:
        raise QueryError(f"`{name}` must be 0 or more, not {value}")
    return value


def require_text(name: str, value: object) -> str:
    """Return *value* if it is a string that is not empty, else raise `QueryError`."""
    if not isinstance(value, str) or not value:
        raise QueryError(f"`{name}` must be a string that is not empty, not {value!r}")
    return value


def _check_kind(name: str, value: object, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise QueryError(f"`{name}` must be {wanted}, not {value!r}")


def _check_text(name: str, value: str) -> None:
    try:
        check_text(value, max_bytes=MemoryItem.max_content_bytes)
    except ValueError as exc:
        raise QueryError(f"`{name}` cannot be searched for: {exc}") from None


def check_instant(name: str, value: datetime) -> datetime:
    """Return *value* in UTC if it is a time, else raise `QueryError`."""
    _check_kind(name, value, datetime, "a datetime")
    try:
        return to_utc(value)
    except ValueError as exc:
        raise QueryError(f"`{name}` cannot be asked for: {exc}") from None


def _copied(value: object) -> object:
    """Return a copy of a checked filter that no caller can change."""
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(each) for each in value] if isinstance(value, _LISTS) else value


_FIRST_INSTANT = datetime(1, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CURSOR = lazy_pattern(r"([0-9a-f]{15})([.:]|\+[0-9a-f]{4})(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a walk through items, newest first, stands: behind the item of that id.

    With *created_at* it stands there even when the item is gone. Which items of the very same
    microsecond come next is then told by *neighbour*, the one that was shown before it, or by
    *is_first*; where neither is known, by the order of their ids. If the neighbour is gone, too,
    all items of that microsecond come: rather one twice than one left out.
    """

    item_id: str
    created_at: datetime | None = None
    neighbour: str | None = None
    is_first: bool = False
    """Whether no item of that microsecond was shown before it."""

    @property
    def takes_whole_instant(self) -> bool:
        """Whether all items of its microsecond come next, should it and its neighbour be gone."""
        return self.is_first or self.neighbour is not None

    def to_text(self) -> str:
        """Return it as text, for whoever has to give it back."""
        if self.created_at is None:
            return self.item_id
        instant = f"{(self.created_at - _FIRST_INSTANT) // _MICROSECOND:015x}"
        if self.neighbour is not None:
            return f"{instant}+{len(self.neighbour):04x}{self.neighbour}{self.item_id}"
        return f"{instant}{':' if self.is_first else '.'}{self.item_id}"

    @classmethod
    def from_text(cls, text: str) -> "Cursor":
        """Return what `to_text` wrote; any other text is the id of an item."""
        match = _CURSOR.fullmatch(text)
        if match is None:
            return cls(text)
        digits, mark, rest = match.groups()
        try:
            instant = _FIRST_INSTANT + int(digits, 16) * _MICROSECOND
        except OverflowError:
            return cls(text)
        if mark in ".:":
            return cls(rest, instant, is_first=mark == ":")
        size = int(mark[1:], 16)
        return cls(rest[size:], instant, rest[:size])


@dataclass(frozen=True, slots=True)
class Query:
    """One question to a store: every given part must hold; `None` and `""` ask nothing."""

    text: str = ""
    metadata: MemoryMetadata | None = None
    memory_type: str | None = None
    status: MemoryStatus | None = None
    limit: int = 10
    fields: tuple[ScopeField, ...] = SCOPE_FIELDS
    """Which metadata fields count: all four, except where a store has a narrower scope."""
    since: datetime | None = None
    """Created at this instant or later."""
    until: datetime | None = None
    """Created before this instant."""
    where: Where | None = None
    """What must hold of fields and of keys of `metadata.extra`, as `filters.py` says."""
    needle: str = field(init=False, repr=False, compare=False)
    """The text as it is looked for: case-folded."""
    condition: Condition | None = field(init=False, repr=False, compare=False)
    """What `where` states; `None` if it asks nothing."""
    max_per_fact: int | None = field(default=None, repr=False)
    """At most so many values of one fact are wanted, the best; a store may return more."""

    def __setstate__(self, state: Sequence[object]) -> None:
        """Load what was pickled; a field that it did not have yet is `None`."""
        for name, value in zip_longest(self.__slots__, state):
            object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        check_size("limit", self.limit)
        if self.max_per_fact is not None:
            check_size("max_per_fact", self.max_per_fact)
        _check_kind("query", self.text, str, "a string")
        if self.memory_type is not None:
            _check_kind("memory_type", self.memory_type, str, 'a string, such as "human"')
            _check_text("memory_type", self.memory_type)
        if self.metadata is not None:
            _check_kind("metadata", self.metadata, MemoryMetadata, "a MemoryMetadata")
        _check_text("query", self.text)
        if self.status is not None:
            try:
                object.__setattr__(self, "status", MemoryStatus(self.status))
            except ValueError:
                raise QueryError(
                    f"unknown status `{self.status}`; use `draft`, `accepted` or `discard`"
                ) from None
        condition = None if self.where is None else parse_where(self.where)
        object.__setattr__(self, "condition", condition)
        if self.where is not None:
            object.__setattr__(self, "where", cast("Where", _copied(self.where)))
        for name in ("since", "until"):
            instant = getattr(self, name)
            if instant is not None:
                object.__setattr__(self, name, check_instant(name, instant))
        object.__setattr__(self, "needle", self.text.casefold())

    @property
    def wanted(self) -> dict[ScopeField, str]:
        """The scope fields that count and the values they must have."""
        if self.metadata is None:
            return {}
        values = ((name, getattr(self.metadata, name)) for name in self.fields)
        return {name: value for name, value in values if value is not None}

    @property
    def names_only_ignored_fields(self) -> bool:
        """Whether a scope field is set, but none that counts: it would match everyone's items."""
        set_fields = (
            name for name in SCOPE_FIELDS if getattr(self.metadata, name, None) is not None
        )
        return not self.wanted and any(set_fields)

    def matches(self, item: MemoryItem, *, now: datetime | None = None) -> bool:
        """Tell whether *item* is among what is asked for; with *now*, one that is over is not."""
        if now is not None and item.expires_at is not None and item.expires_at <= now:
            return False
        for name in self.fields if self.metadata is not None else ():
            value = getattr(self.metadata, name)
            if value is not None and getattr(item.metadata, name) != value:
                return False
        return (
            (self.memory_type is None or item.memory_type == self.memory_type)
            and (self.status is None or item.status == self.status)
            and (self.since is None or item.created_at >= self.since)
            and (self.until is None or item.created_at < self.until)
            and self.fits(item)
            and self.has_text(item)
        )

    def fits(self, item: MemoryItem) -> bool:
        """Tell whether what `where` states holds of *item*."""
        return self.condition is None or self.condition.matches(item)

    def has_text(self, item: MemoryItem) -> bool:
        """Tell whether *item* holds the text: a literal substring, by Unicode case folding."""
        return not self.needle or self.needle in item.content.casefold()


def check_order(order: Order, query: Query) -> Order:
    """Return *order* if what is asked for can be had in it, else raise `QueryError`."""
    if order == "insertion":
        if query.wanted.keys().isdisjoint(("session_id", "task_id")):
            raise QueryError(
                "the order of insertion is that of a conversation; "
                "name its `session_id` or `task_id` in `metadata`"
            )
    elif order != "time":
        raise QueryError(f"unknown order `{order}`; use `time` or `insertion`")
    return order


class CosineQuery(NamedTuple):
    """Which cosines are wanted with the neighbours of items: theirs and others', but the known."""

    vector: Sequence[float]
    others: Sequence[str]
    """Ids of items that need not be neighbours."""
    known: Collection[str]
    """Ids of items whose cosine the caller has."""

    def unknown(self, neighbours: Iterable[str]) -> list[str]:
        """Return the ids of the items whose cosines are wanted, each once."""
        every = dict.fromkeys((*self.others, *neighbours))
        return [item_id for item_id in every if item_id not in self.known]


@dataclass(frozen=True, slots=True)
class WordMatches:
    """Items that hold terms of a question, and how telling these terms are.

    The *rarity* of a term is `ln(1 + (passages - f + 0.5) / (f + 0.5))`, where `f` is its
    frequency. An item counts by its best passage: the sum of the rarities of the terms in it.
    """

    items: Sequence[MemoryItem]
    """Best first, of equals the newest."""
    frequency: Mapping[str, int]
    """In how many passages of the user's each asked term stands."""
    passages: int
    """How many passages the user has in all."""
