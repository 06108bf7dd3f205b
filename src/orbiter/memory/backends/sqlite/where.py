"""`WhereCompiler` of SQLite: filters in SQL, or by a Python function where SQL differs.

Fields are plain columns. Of keys of `metadata.extra` SQLite compares simple values itself, ten
times as fast; it rounds fractions differently, and a text may end for it where there is a NUL.
Into a list that stands in place of a simple value, Python looks.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from orbiter.memory.backends.sql.dialect import Args
from orbiter.memory.backends.sql.where import Test, WhereCompiler, is_equality
from orbiter.memory.backends.sqlite.migrations import field
from orbiter.memory.model.filters import (
    MISSING,
    AllOf,
    Among,
    AnyOf,
    Condition,
    Contains,
    Exists,
    Not,
    Ordered,
    Place,
    Prefix,
)
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = ["PLAIN_KEY", "SQLiteWhereCompiler", "fits"]

PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A key that every version of SQLite finds by its path."""
_HAS_EXTRA = "instr(metadata, '\"extra\"')"


class SQLiteWhereCompiler(WhereCompiler):
    """How SQLite says a condition."""

    def top(self, condition: Condition) -> str:
        """Return a whole filter: rows without `extra` need not be looked into for equal values."""
        parts = condition.parts if isinstance(condition, AllOf) else (condition,)
        said = self.compile(condition)
        return f"({_HAS_EXTRA} AND {said})" if any(map(is_equality, parts)) else said

    def compile(self, condition: Condition) -> str:
        """Return *condition*; a part that is about `extra` alone goes to Python in one piece."""
        if not is_equality(condition) and not isinstance(condition, AllOf):
            places = list(condition.places())
            if places and all(place.is_extra for place in places):
                return _ask_python(condition, self.args)
        return super().compile(condition)

    def all_of(self, condition: AllOf) -> str:
        """Return that every part holds; what Python is asked, it is asked once, and last."""
        said, odd = [], []
        for part in condition.parts:
            plain = _is_equal(part, self.args) if is_equality(part) else None
            if plain is not None:
                said.append(f"coalesce({plain}, false)")
            elif all(place.is_extra for place in part.places()):
                odd.append(part)
            else:
                said.append(self.compile(part))
        if odd:
            said.append(_ask_python(AllOf(tuple(odd)) if len(odd) > 1 else odd[0], self.args))
        return f"({' AND '.join(said)})" if said else "true"

    def of_extra(self, test: Test) -> str:
        """Return a test of one value, where SQLite knows it."""
        return _is_equal(test, self.args) or _ask_python(test, self.args)

    def column(self, name: str) -> str:
        """Return a column, or the expression of a scope field."""
        return field(name) if name in SCOPE_FIELDS else name

    def ordered(self, column: str, name: str) -> str:  # noqa: ARG002
        """Return the column: bytes of UTF-8 are ordered as code points are."""
        return column

    def bound(self, name: str, value: object) -> str:  # noqa: ARG002
        """Bind a value as it is."""
        return self.args.bind(value)

    def one_of(self, column: str, name: str, values: Sequence[object]) -> str:  # noqa: ARG002
        """Return that a column is one of a list, which is bound in one piece."""
        return f"{column} IN (SELECT value FROM json_each({self.args.bind(json.dumps(values))}))"

    def position(self, column: str, text: str) -> str:
        """Return where a text stands, in characters."""
        return f"instr({column}, {text})"


def _is_equal(test: Condition, args: Args) -> str | None:
    """Return a condition in which SQLite agrees with Python, if there is one."""
    if not isinstance(test, Among) or not is_equality(test):
        return None
    key, value = test.place.name, test.values[0]
    is_whole = isinstance(value, int) and abs(value) < 2**53
    is_text = isinstance(value, str) and value.isascii() and value.isprintable()
    if not PLAIN_KEY.fullmatch(key) or not (is_whole or is_text):
        return None
    path = args.bind(f"$.extra.{key}")
    in_python = _ask_python(test, args)
    if isinstance(value, bool):
        known = f"WHEN '{'true' if value else 'false'}' THEN 1"
    elif is_text:  # which may end for SQLite where there is a NUL
        differs = f"json_extract(metadata, {path}) <> {args.bind(value)}"
        # CASE, as AND asks Python about every row.
        known = (
            f"WHEN 'text' THEN CASE WHEN {differs} THEN 0"
            f" WHEN instr(metadata, '\\u0000') = 0 THEN 1 ELSE {in_python} END"
        )
    else:  # a fraction SQLite may round differently
        equals = f"json_extract(metadata, {path}) = {args.bind(value)}"
        known = f"WHEN 'integer' THEN {equals} WHEN 'real' THEN {in_python}"
    return f"CASE json_type(metadata, {path}) {known} WHEN 'array' THEN {in_python} ELSE 0 END"


# Asking Python


def _ask_python(condition: Condition, args: Args) -> str:
    return f"orbiter_where(metadata, {args.bind(json.dumps(_dump(condition)))})"


def fits(metadata: str, condition: str) -> bool:
    """Tell whether a condition about `extra` holds of *metadata*; both are JSON."""
    try:
        extra = json.loads(metadata).get("extra")
    except (ValueError, TypeError, AttributeError):  # a row made by hand
        extra = None
    there: dict[str, Any] = extra if isinstance(extra, dict) else {}
    return _loaded(condition).holds(lambda place: there.get(place.name, MISSING))


@lru_cache(maxsize=64)
def _loaded(condition: str) -> Condition:
    return _load(json.loads(condition))


def _dump(condition: Condition) -> list[Any]:
    """Return a condition about `extra` as JSON values."""
    dumped: list[Any] = []
    match condition:
        case AllOf(parts):
            dumped = ["all", *map(_dump, parts)]
        case AnyOf(parts):
            dumped = ["any", *map(_dump, parts)]
        case Not(part):
            dumped = ["not", _dump(part)]
        case Among(place, values):
            dumped = ["among", place.name, *values]
        case Ordered(place, sign, value):
            dumped = [sign, place.name, value]
        case Contains(place, value):
            dumped = ["contains", place.name, value]
        case Prefix(place, value):
            dumped = ["prefix", place.name, value]
        case Exists(place):
            dumped = ["exists", place.name]
    return dumped


def _load(dumped: list[Any]) -> Condition:
    kind, *rest = dumped
    if kind in ("all", "any"):
        return (AllOf if kind == "all" else AnyOf)(tuple(map(_load, rest)))
    if kind == "not":
        return Not(_load(rest[0]))
    place = Place(rest[0], is_extra=True)
    if kind == "among":
        return Among(place, tuple(rest[1:]))
    if kind == "exists":
        return Exists(place)
    if kind == "prefix":
        return Prefix(place, rest[1])
    return Contains(place, rest[1]) if kind == "contains" else Ordered(place, kind, rest[1])
