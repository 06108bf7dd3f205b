"""`WhereCompiler`: the conditions of a filter as SQL, shared by both databases.

Every test is wrapped so that it is true or false and never NULL: `NOT` then means what it means
in Python. `Condition.matches` says what must come out.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbiter.memory.model.filters import (
    TIMES,
    AllOf,
    Among,
    AnyOf,
    Condition,
    Contains,
    Exists,
    Not,
    Ordered,
    Prefix,
    Scalar,
    prefix_end,
)

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.dialect import Args

__all__ = ["Test", "WhereCompiler", "is_equality"]

_MAX_VERSION = 2**62
"""No version is as high, and no database takes much higher numbers."""


class WhereCompiler(ABC):
    """How one database says a condition; values are bound to *args*."""

    def __init__(self, args: "Args") -> None:
        self.args = args

    def compile(self, condition: Condition) -> str:
        """Return *condition* as SQL that is never NULL."""
        match condition:
            case AllOf():
                return self.all_of(condition)
            case AnyOf():
                said = " OR ".join(map(self.compile, condition.parts))
                return f"({said})" if said else "false"
            case Not():
                return f"NOT {self.compile(condition.part)}"
            case Among() | Ordered() | Exists() | Contains() | Prefix():
                name = condition.place.name
                is_extra = condition.place.is_extra
                said = self.of_extra(condition) if is_extra else self._field(name, condition)
                return f"coalesce({said}, false)"
        raise AssertionError(condition)  # pragma: no cover - there are no others

    def all_of(self, condition: AllOf) -> str:
        """Return that every part holds."""
        said = " AND ".join(map(self.compile, condition.parts))
        return f"({said})" if said else "true"

    def _field(self, name: str, test: "Test") -> str:
        column = self.column(name)
        match test:
            case Among():
                return self._among(name, column, test.values)
            case Ordered():
                return f"{self.ordered(column, name)} {test.sign} {self._bind(name, test.value)}"
            case Exists():
                return f"{column} IS NOT NULL"
            case Contains():
                return f"{self.position(column, self._bind(name, test.value))} > 0"
            case Prefix():  # a range, which an index can serve
                ordered, end = self.ordered(column, name), prefix_end(test.value)
                start = f"{ordered} >= {self._bind(name, test.value)}"
                return start if end is None else f"{start} AND {ordered} < {self._bind(name, end)}"

    def _among(self, name: str, column: str, values: Sequence[Scalar]) -> str:
        bound = [
            self._value(name, value)
            for value in values
            if value is not None and not (isinstance(value, int) and abs(value) >= _MAX_VERSION)
        ]
        said = [f"{column} IS NULL"] if None in values else []
        if len(bound) == 1:
            said.append(f"{column} = {self.bound(name, bound[0])}")
        elif bound:
            said.append(self.one_of(column, name, bound))
        return f"({' OR '.join(said)})" if said else "false"

    def _bind(self, name: str, value: Scalar) -> str:
        return self.bound(name, self._value(name, value))

    def _value(self, name: str, value: Scalar) -> object:
        is_time = name in TIMES
        return self.args.dialect.instant(value) if is_time else value  # type: ignore[arg-type]  # checked when it was asked

    # What a database says

    @abstractmethod
    def column(self, name: str) -> str:
        """Return how a field is read."""

    @abstractmethod
    def ordered(self, column: str, name: str) -> str:
        """Return a field as it is ordered: text by code point."""

    @abstractmethod
    def bound(self, name: str, value: object) -> str:
        """Bind what a field is compared with."""

    @abstractmethod
    def one_of(self, column: str, name: str, values: Sequence[object]) -> str:
        """Return that a field is one of several values."""

    @abstractmethod
    def position(self, column: str, text: str) -> str:
        """Return where *text* stands in a text, from 1 on, 0 if it does not."""

    @abstractmethod
    def of_extra(self, test: "Test") -> str:
        """Return the test of a key of `metadata.extra`, perhaps NULL for false."""


Test = Among | Ordered | Exists | Contains | Prefix


def is_equality(part: Condition) -> bool:
    """Tell whether a key of `metadata.extra` must be equal to one value that is not null.

    A list that has the value is equal to it, too.
    """
    return (
        isinstance(part, Among)
        and part.place.is_extra
        and len(part.values) == 1
        and part.values[0] is not None
    )
