"""Filters: what `where=` means, in MongoDB's manner, checked once and turned into conditions.

What a filter means is what `Condition.matches` tells; a store may ask its database instead, as
long as that finds exactly the same items.
"""

import math
import operator
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.validation import check_text, plain_time, plain_value, to_utc

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
    "Prefix",
    "Read",
    "Scalar",
    "Sign",
    "Where",
    "parse_where",
    "prefix_end",
    "read_place",
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


class Place(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class Prefix(_Test):
    """The value is a text that begins with *value* to the letter, or a list that has one."""

    value: str

    def holds(self, read: Read) -> bool:
        """Tell whether it, or an element of it, begins so."""
        value = read(self.place)
        values = value if isinstance(value, list) else [value]
        return any(isinstance(each, str) and each.startswith(self.value) for each in values)


def _key(value: object) -> tuple[bool, object]:
    return isinstance(value, bool), value


Where = Mapping[str, object]
"""Names, and what must hold of them: `{"lang": "en", "stars": {"$gte": 4}}`."""

MAX_DEPTH = 16
"""How deep filters may nest."""

MAX_CONDITIONS = 256
"""How many conditions a filter may have."""

MAX_ORDERED = 2**53
"""From here on databases round numbers differently, so that they cannot be ordered alike."""

_SIGNS: dict[str, Sign] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_OPERATORS = ("$eq", "$ne", *_SIGNS, "$in", "$nin", "$exists", "$contains", "$prefix", "$not")
_OPERATOR_NAMES = "`, `".join(_OPERATORS)
_OF_EXTRA = ("metadata.extra.", "extra.")


def parse_where(where: object) -> Condition | None:
    """Return the condition that *where* states, `None` if it asks nothing.

    What cannot be asked is a `QueryError`, which says how to ask.
    """
    if not isinstance(where, Mapping):
        raise QueryError(
            f'`where` must be a dict of names and values, such as {{"lang": "en"}}, not {where!r}'
        )
    return _Parser().filter(where, 0) if where else None


class _Parser:
    """One pass over a filter: checks it, counts its conditions, and turns it into a tree."""

    def __init__(self) -> None:
        self._conditions = 0

    def filter(self, where: object, depth: int) -> Condition:
        if not isinstance(where, Mapping):
            raise QueryError(f"`where` has {where!r} in place of a filter; use a dict")
        if depth > MAX_DEPTH:
            raise QueryError(f"`where` is nested deeper than {MAX_DEPTH} levels; flatten it")
        if not where:
            self._count()
        parts: list[Condition] = []
        for name, operand in where.items():
            if not isinstance(name, str):
                raise QueryError(f"`where` names {name!r}; a name must be a string")
            if name in ("$and", "$or"):
                parts.append(self._several(name, operand, depth))
            elif name == "$not":
                parts.append(Not(self.filter(operand, depth + 1)))
            elif name.startswith("$"):
                raise QueryError(
                    f"unknown operator `{name}` in `where`; use `$and`, `$or` or `$not` around "
                    f"filters, and `{_OPERATOR_NAMES}` after a name"
                )
            else:
                place = read_place(name)
                parts += self._field(place, operand, depth)
        return _all_of(parts)

    def _several(self, name: str, filters: object, depth: int) -> Condition:
        if not isinstance(filters, list | tuple) or not filters:
            raise QueryError(f"`{name}` takes a list of filters, not {filters!r}")
        parts = [self.filter(each, depth + 1) for each in filters]
        return _all_of(parts) if name == "$and" else AnyOf(tuple(parts))

    def _field(self, place: Place, value: object, depth: int) -> list[Condition]:
        if not isinstance(value, Mapping):
            return [self._test(place, "$eq", value, depth)]
        if not value:
            raise QueryError(f"`{place.name}` is compared with {{}}; use `{_OPERATOR_NAMES}`")
        return [self._test(place, sign, operand, depth) for sign, operand in value.items()]

    def _test(self, place: Place, sign: object, operand: object, depth: int) -> Condition:
        if sign == "$not":
            if not isinstance(operand, Mapping):
                raise QueryError(
                    f"`$not` after `{place.name}` takes operators, such as "
                    f'{{"$gt": 5}}, not {operand!r}; for a value use `$ne`'
                )
            if depth >= MAX_DEPTH:
                raise QueryError(f"`where` is nested deeper than {MAX_DEPTH} levels; flatten it")
            return Not(_all_of(self._field(place, operand, depth + 1)))
        self._count()
        if sign in ("$eq", "$ne"):
            among = _among(place, [_scalar(place, operand)])
            return among if sign == "$eq" else Not(among)
        if sign in ("$in", "$nin"):
            if not isinstance(operand, list | tuple | set | frozenset):
                raise QueryError(f"`{sign}` takes a list of values, not {operand!r}")
            among = _among(place, [_scalar(place, each) for each in operand])
            return among if sign == "$in" else Not(among)
        if sign == "$exists":
            if not isinstance(operand, bool):
                raise QueryError(f"`$exists` takes True or False, not {operand!r}")
            return Exists(place) if operand else Not(Exists(place))
        if sign in ("$contains", "$prefix"):
            return (_contains if sign == "$contains" else _prefix)(place, operand)
        if isinstance(sign, str) and sign in _SIGNS:
            return _ordered(place, sign, operand)
        raise QueryError(f"unknown operator `{sign}` after `{place.name}`; use `{_OPERATOR_NAMES}`")

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise QueryError(
                f"`where` has more than {MAX_CONDITIONS} conditions; use `$in` for many values"
            )


def read_place(name: str) -> Place:
    """Return what *name* means in `where`; `QueryError` for a name that no item can have."""
    try:
        check_text(name, max_bytes=MemoryItem.max_content_bytes)
    except ValueError as exc:
        raise QueryError(f"`where` names {name!r}, which no item can have: {exc}") from None
    if name in FIELDS:
        return Place(name, is_extra=False)
    start = next(filter(name.startswith, _OF_EXTRA), "")
    return Place(name.removeprefix(start), is_extra=True)


def _all_of(parts: list[Condition]) -> Condition:
    flat = [each for p in parts for each in (p.parts if isinstance(p, AllOf) else (p,))]
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def _scalar(place: Place, value: object) -> Scalar:
    """Return what a value may be equal to, of a plain type."""
    value = plain_value(value)
    if place.name in TIMES and not place.is_extra:
        return None if value is None else _time(place, plain_time(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return check_text(str.__str__(value), max_bytes=MemoryItem.max_content_bytes)
        except ValueError as exc:
            raise QueryError(f"`where` cannot compare `{place.name}`: {exc}") from None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list | tuple):
        raise QueryError(
            f"`where` cannot compare `{place.name}` with {value!r}; for any of them, write "
            f'`{{"{place.name}": {{"$in": {value!r}}}}}`'
        )
    raise QueryError(
        f"`where` cannot compare `{place.name}` with {value!r}; use text, a finite number, True, "
        "False or None, and times with `created_at` and `updated_at` only"
    )


def _time(place: Place, value: object) -> datetime:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return to_utc(value)
    except ValueError as exc:
        raise QueryError(f"`where` cannot compare `{place.name}`: {exc}") from None
    raise QueryError(f"`{place.name}` is a time; compare it with a datetime, not {value!r}")


def _among(place: Place, values: list[Scalar]) -> Condition:
    if not place.is_extra and place.name not in TIMES:
        # Nothing else can be equal, and a database might think otherwise.
        if place.name == "version":
            numbers = (v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
            values = [int(number) for number in numbers if number == int(number)]
        else:
            values = [value for value in values if value is None or isinstance(value, str)]
    return Among(place, tuple(values)) if values else AnyOf(())


def _ordered(place: Place, sign: str, operand: object) -> Condition:
    value = _scalar(place, operand)
    if value is None or isinstance(value, bool):
        raise QueryError(
            f"`{sign}` compares `{place.name}` with a number, a text or a time, not {value!r}"
        )
    if isinstance(value, int | float) and abs(value) >= MAX_ORDERED:
        raise QueryError(
            f"`{sign}` cannot compare `{place.name}` with {value}: from 2**53 on stores would "
            "round differently; keep such numbers as text of one width"
        )
    if not place.is_extra and place.name not in TIMES:
        is_number = not isinstance(value, str)
        if is_number is not (place.name == "version"):
            return AnyOf(())
    return Ordered(place, _SIGNS[sign], value)


def _contains(place: Place, operand: object) -> Condition:
    if place.name in TIMES and not place.is_extra:
        raise QueryError(f"`{place.name}` is a time, and contains no text; use `$gte` and `$lt`")
    value = _scalar(place, operand)
    assert not isinstance(value, datetime)  # noqa: S101 - only times are compared with times
    if not place.is_extra and (place.name == "version" or not isinstance(value, str)):
        return AnyOf(())
    return Contains(place, value)


def _prefix(place: Place, operand: object) -> Condition:
    if place.name in TIMES and not place.is_extra:
        raise QueryError(f"`{place.name}` is a time, and begins with no text; use `$gte` and `$lt`")
    value = _scalar(place, operand)
    if not isinstance(value, str):
        raise QueryError(f"`$prefix` compares `{place.name}` with a text, not {operand!r}")
    is_number = place.name == "version" and not place.is_extra
    return AnyOf(()) if is_number else Prefix(place, value)


def prefix_end(text: str) -> str | None:
    """Return the first text by code point that comes after all that begin with *text*, if any."""
    for length in range(len(text), 0, -1):
        code = ord(text[length - 1])
        if code < sys.maxunicode:
            following = 0xE000 if code == 0xD7FF else code + 1  # surrogates are no text
            return text[: length - 1] + chr(following)
    return None
