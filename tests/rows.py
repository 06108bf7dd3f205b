"""Tables of rows as one test, with a subtest for each row.

A case of its own costs pytest more than most rows do, so a table whose rows need no fixture is one
case: `@each_row` takes what `@pytest.mark.parametrize` takes.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

import pytest

__all__ = ["each_row"]

_Test = Callable[..., Any]

LONGEST = 60
"""Characters of a row that name it, where it has no name of its own."""


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Sequence[str] | None = None,
) -> Callable[[_Test], _Test]:
    """Have the decorated test called with each of *rows*, and every one that fails reported."""
    fields = re.split(r"\s*,\s*", names) if isinstance(names, str) else [*names]
    table = [_values(row, len(fields)) for row in rows]
    if not table:
        raise ValueError(f"no row for `{names}`: the test would pass whatever is wrong")

    def decorate(test: _Test) -> _Test:
        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in fields]
        if takes_subtests := "subtests" in signature.parameters:
            others.remove(signature.parameters["subtests"])
        subtests_first = inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)

        def calls(subtests: pytest.Subtests, fixtures: dict[str, Any]) -> Iterator[Any]:
            given = {**fixtures, "subtests": subtests} if takes_subtests else fixtures
            for place, (name, values) in enumerate(table):
                told = name or _name(place, values, ids)
                yield told, {**given, **dict(zip(fields, values, strict=True))}

        @wraps(test)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for told, arguments in calls(subtests, fixtures):
                with subtests.test(told):
                    test(**arguments)

        @wraps(test)
        async def run_async(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for told, arguments in calls(subtests, fixtures):
                with subtests.test(told):
                    await test(**arguments)

        made: Any = run_async if inspect.iscoroutinefunction(test) else run
        made.__signature__ = signature.replace(parameters=[subtests_first, *others])
        return made  # type: ignore[no-any-return]  # a function

    return decorate


def _values(row: Any, count: int) -> tuple[str | None, tuple[Any, ...]]:
    """Return the name of a row, if it has one, and its values."""
    if isinstance(row, type(pytest.param())):
        if row.marks:
            raise ValueError(f"a row of a table has no marks of its own: {row}")
        return (str(row.id) if row.id else None), tuple(row.values)
    return None, ((row,) if count == 1 else tuple(row))


def _name(
    place: int, values: tuple[Any, ...], ids: Callable[[Any], object] | Sequence[str] | None
) -> str:
    if callable(ids):
        return "-".join(str(ids(value)) for value in values)
    if ids is not None:
        return str(ids[place])
    return ", ".join(map(repr, values))[:LONGEST]
