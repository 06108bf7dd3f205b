"""Filters of LangGraph's stores, and those that MongoDB has besides.

A key may be a path with dots. A value means equality, a dict of operators what they say, and any
other dict the same for what is nested.
"""

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from orbiter.memory.errors import QueryError

__all__ = ["matches", "texts_within"]

_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_KNOWN = ("$eq", "$ne", *_ORDERED, "$in", "$nin", "$exists", "$and", "$or", "$not")
_MISSING = object()


def matches(value: object, wanted: Mapping[str, Any]) -> bool:
    """Tell whether a value is as *wanted*; an unknown operator is a `QueryError`."""
    return all(_holds(value, name, operand) for name, operand in wanted.items())


def texts_within(wanted: Mapping[str, Any]) -> list[bytes]:
    """Return what stands in the JSON of every value that is as *wanted*.

    To look for it costs a tenth of reading the JSON. Of numbers, only those count that are written
    in one way, but for what follows: 3 may be 3.0.
    """
    texts: list[bytes] = []
    for name, operand in wanted.items():
        is_same = isinstance(operand, Mapping) and operand.keys() == {"$eq"}
        said = operand["$eq"] if is_same else operand
        is_number = type(said) is int and 0 < abs(said) < 10**15
        if not name.startswith("$") and (is_number or isinstance(said, str | bool)):
            # The end of the key, as a name with dots may be a key or a path.
            end = json.dumps(name.rpartition(".")[2])[1:]
            texts.append(f"{end}: {json.dumps(said)}".encode())
    return texts


def _holds(value: object, name: str, operand: Any) -> bool:
    if name in ("$and", "$or"):
        results = (matches(value, each) for each in operand)
        return all(results) if name == "$and" else any(results)
    if name == "$not":
        return not matches(value, operand)
    if name.startswith("$"):
        return _compare(value, name, operand)
    inner = _inner(value, name)
    if isinstance(operand, Mapping):
        return matches(inner, operand)
    return _is_equal(inner, operand)


def _inner(value: object, name: str) -> object:
    """Return what a value has under a key, which may have dots itself, or a path."""
    if not isinstance(value, Mapping):
        return _MISSING
    if name in value:
        return value[name]
    head, dot, rest = name.partition(".")
    return _inner(value.get(head), rest) if dot else _MISSING


def _compare(value: object, name: str, operand: Any) -> bool:
    if name in _ORDERED:
        kinds = [isinstance(each, int | float) for each in (value, operand)]
        is_alike = all(kinds) or (isinstance(value, str) and isinstance(operand, str))
        return is_alike and _ORDERED[name](value, operand)
    if name in ("$in", "$nin"):
        return any(_is_equal(value, each) for each in operand) is (name == "$in")
    if name in ("$eq", "$ne"):
        return _is_equal(value, operand) is (name == "$eq")
    if name == "$exists":
        return (value is not _MISSING) is bool(operand)
    raise QueryError(f"unknown operator `{name}`; use `{'`, `'.join(_KNOWN)}`")


def _is_equal(value: object, operand: object) -> bool:
    """Compare as JSON does: what is missing is null, a tuple a list, and `True` not 1."""
    if value is _MISSING:
        return operand is None
    if isinstance(value, bool) != isinstance(operand, bool):
        return False
    return value == (list(operand) if isinstance(operand, tuple) else operand)
