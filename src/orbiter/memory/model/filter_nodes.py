"""What a filter consists of: conditions on an item's fields and on keys of `metadata.extra`.

`Condition.matches` is the reference for every store; nothing here depends on how one would say it.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from orbiter.memory.model.items import MemoryItem

__all__ = [
    "FIELDS",
    "MISSING",
    "TIMES",
    "AllOf",
    "Among",
    "AnyOf",
    "Condition",
    "Contains",
    "Exists",
    "Not",
    "Ordered",
    "Place",
    "Read",
    "Scalar",
    "Sign",
]

Scalar = str | int | float | bool | datetime | None
"""What a value is compared with; times only with `created_at` and `updated_at`."""

Sign = Literal["<", "<=", ">", ">="]

_SCOPE = frozenset(("user_id", "session_id", "task_id", "agent_id"))
_OWN_FIELDS = frozenset(
    ("id", "content", "memory_type", "status", "created_at", "updated_at", "version")
)
FIELDS = _OWN_FIELDS | _SCOPE
"""The names that mean a field of the item, and not a key of `metadata.extra`."""

TIMES = frozenset(("created_at", "updated_at"))
"""The fields that hold times."""

_COMPARE: dict[Sign, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

MISSING: Final = object()
"""What is read where there is no such key."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is: a field of the item, or a key of `metadata.extra`."""

    name: str
    is_extra: bool

    def read(self, item: MemoryItem) -> object:
        """Return the value, or `MISSING`."""
        if self.is_extra:
            return item.metadata.extra.get(self.name, MISSING)
        return getattr(item.metadata if self.name in _SCOPE else item, self.name)


Read = Callable[[Place], object]
"""Returns the value at a place, or `MISSING`."""


class Condition(ABC):
    """What must hold of an item."""

    __slots__ = ()

    def matches(self, item: MemoryItem) -> bool:
        """Tell whether it holds of *item*."""
        return self.holds(lambda place: place.read(item))

    @abstractmethod
    def holds(self, read: Read) -> bool:
        """Tell whether it holds of what *read* returns."""

    @abstractmethod
    def places(self) -> Iterator[Place]:
        """Yield what is read; some perhaps twice."""


@dataclass(frozen=True, slots=True)
class AllOf(Condition):
    """Every part holds."""

    parts: tuple[Condition, ...]

    def holds(self, read: Read) -> bool:
        """Tell whether no part fails."""
        return all(part.holds(read) for part in self.parts)

    def places(self) -> Iterator[Place]:
        """Yield what the parts read."""
        for part in self.parts:
            yield from part.places()


@dataclass(frozen=True, slots=True)
class AnyOf(Condition):
    """Some part holds; without parts, nothing does."""

    parts: tuple[Condition, ...]

    def holds(self, read: Read) -> bool:
        """Tell whether a part holds."""
        return any(part.holds(read) for part in self.parts)

    def places(self) -> Iterator[Place]:
        """Yield what the parts read."""
        for part in self.parts:
            yield from part.places()


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """The part does not hold."""

    part: Condition

    def holds(self, read: Read) -> bool:
        """Tell whether the part fails."""
        return not self.part.holds(read)

    def places(self) -> Iterator[Place]:
        """Yield what the part reads."""
        return self.part.places()


@dataclass(frozen=True, slots=True)
class _Test(Condition):
    place: Place

    def places(self) -> Iterator[Place]:
        """Yield the one place."""
        yield self.place


@dataclass(frozen=True, slots=True)
class Among(_Test):
    """The value, or an element of it where it is a list, is one of *values*.

    `None` stands for null and for what is not there.
    """

    values: tuple[Scalar, ...]
    _keys: frozenset[object] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keys", frozenset(map(_key, self.values)))

    def holds(self, read: Read) -> bool:
        """Tell whether the value is among them: `True` is not 1, and 1 is 1.0."""
        value = read(self.place)
        if isinstance(value, list):  # as in MongoDB; what is nested deeper is equal to nothing
            return any(map(self._has, value))
        return self._has(None if value is MISSING else value)

    def _has(self, value: object) -> bool:
        return not isinstance(value, dict | list) and _key(value) in self._keys


@dataclass(frozen=True, slots=True)
class Ordered(_Test):
    """The value comes before or after *value*, and is of its kind."""

    sign: Sign
    value: str | int | float | datetime

    def holds(self, read: Read) -> bool:
        """Tell whether number compares so with number, or text with text by code point."""
        value = read(self.place)
        if isinstance(value, bool) or value is MISSING or value is None:
            return False
        kind = (int, float) if isinstance(self.value, int | float) else type(self.value)
        return isinstance(value, kind) and _COMPARE[self.sign](value, self.value)


@dataclass(frozen=True, slots=True)
class Exists(_Test):
    """The key is there, be it null; a field has a value."""

    def holds(self, read: Read) -> bool:
        """Tell whether there is something."""
        value = read(self.place)
        return value is not MISSING and (self.place.is_extra or value is not None)


@dataclass(frozen=True, slots=True)
class Contains(_Test):
    """The value is a text that holds *value* to the letter, or a list that has it."""

    value: str | int | float | bool | None

    def holds(self, read: Read) -> bool:
        """Tell whether it is inside."""
        value = read(self.place)
        if isinstance(value, str):
            return isinstance(self.value, str) and self.value in value
        return isinstance(value, list) and any(
            not isinstance(each, dict | list) and _key(each) == _key(self.value) for each in value
        )


def _key(value: object) -> tuple[bool, object]:
    return isinstance(value, bool), value
