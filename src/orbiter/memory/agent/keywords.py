"""Arguments as people write them: ISO texts for times, hits for ids, tables for rows.

Applied before an engine sees a call, so a store in this process and a server get the same.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, get_args, overload
from uuid import UUID

from pydantic import ValidationError

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.agent.hints import nearest, too_many_values, unknown_keyword
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, check_instant, require_text
from orbiter.memory.model.validation import is_missing, plain_json, plain_time, plain_value
from orbiter.memory.model.written_times import parse_iso, read_span

__all__ = [
    "ArgumentReader",
    "ItemRef",
    "Keywords",
    "ScopeId",
    "Time",
    "as_bound",
    "as_id",
    "as_name",
    "check_keywords_of",
    "checked_keywords",
    "question_pairs",
    "read_time",
    "row_as_item",
    "rows_as_items",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")

ScopeId = str | int | UUID
"""What names a user, a session, a task or an agent; numbers and UUIDs are kept as their text."""

Time = datetime | date | str
"""A time, a day, or its ISO 8601 text such as `2026-11-16` or `2026-11-16T09:30+01:00`.

Of a year or a month, `2020` or `2020-03`, it is the beginning. `expires` takes a time from now,
too, such as `30d`.
`since` and `until` take phrases, too, such as `yesterday`, `last week` or `3d`; a day or a phrase
is included by both.
"""


class _Hit(Protocol):
    """What recall returns for a memory."""

    @property
    def item(self) -> MemoryItem:
        """The memory."""
        ...


ItemRef = str | MemoryItem | _Hit
"""What names a memory: its id, itself, or a hit of recall."""


_DATETIME = lazy_pattern(r"(?<!\w)datetime(?![.\w])")
"""In an annotation as text: the class, not its module, as in `datetime.timedelta`."""

_REST = inspect.Parameter.VAR_KEYWORD
_ITEMS = frozenset(("fact_id", "item", "item_id"))
_ROWS = "things"
_LABELS = "extra"
_NEVER = "never"
_BOUNDS = ("since", "until")
_END = "expires"
_SPANS = "`30d`, "


def as_name(value: object) -> object:
    """Return the id of a user or another scope as text; what is no id comes back as it is."""
    value = plain_value(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number or isinstance(value, UUID) else value


def as_id(value: ItemRef) -> str:
    """Return the id of what names a memory; what is no such thing comes back as it is."""
    item = getattr(value, "item", value)  # of a hit
    return item.id if isinstance(item, MemoryItem) else value  # type: ignore[return-value]  # a string


@overload
def read_time(name: str, value: None) -> None: ...


@overload
def read_time(name: str, value: Time) -> datetime: ...


def read_time(name: str, value: Time | None) -> datetime | None:
    """Return *value* as a datetime, or that of its ISO 8601 text; without a zone it is UTC.

    What is no time comes back as it is.
    """
    if not isinstance(value, str):
        moment: datetime | None = plain_time(value)
        return moment
    try:
        return parse_iso(value)
    except ValueError:
        raise QueryError(
            f"`{name}` must be a datetime, or a text such as {_SPANS if name == _END else ''}"
            f"`2026-11-16` or `2026-11-16T09:30+01:00`, not {value!r}"
        ) from None


def as_bound(name: str, value: Time | None) -> datetime | None:
    """Return the instant that `since` or `until` means; what is no time comes back as it is."""
    if value is None or isinstance(value, datetime):
        return read_time(name, value)
    from orbiter.memory.recall.time_bounds import read_bound  # noqa: PLC0415 - few name a time

    return read_bound(name, value)


def _rows_of(table: Any) -> Any:
    """Return a table or a column of pandas, polars or numpy, or an iterator, as a list."""
    if isinstance(table, Sequence | Mapping):
        return table
    if hasattr(table, "columns") and hasattr(table, "to_dict"):
        return table.to_dict("records")
    if hasattr(table, "columns") and hasattr(table, "to_dicts"):
        return table.to_dicts()
    if hasattr(table, "tolist"):
        return table.tolist()
    if hasattr(table, "to_list"):
        return table.to_list()
    return list(table) if isinstance(table, Iterator) else table


def question_pairs(questions: Any) -> list[Any]:
    """Return questions with their answers as pairs; of a table, two of its columns."""
    rows = list(questions.items() if isinstance(questions, Mapping) else _rows_of(questions))
    if not rows or not all(isinstance(row, Mapping) and len(row) >= 2 for row in rows):
        return rows
    names = [*rows[0]]
    named = ("question", "expected") if {"question", "expected"} <= {*names} else names[:2]
    return [tuple(row.get(name) for name in named) for row in rows]


def _plain_row(place: int, row: Any) -> Any:
    """Return the fields of a row as JSON has them, and nothing for a missing value."""
    if not isinstance(row, Mapping):
        return row
    present = {name: None if is_missing(cell) else cell for name, cell in row.items()}
    try:
        return plain_json(present)
    except ValueError as exc:
        raise QueryError(f"row {place} cannot be stored: {exc}") from None


def _with_named_times(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with the column that `created_at` names as `created_at`."""
    column = kwargs.get("created_at")
    if not isinstance(column, str):
        return args, kwargs
    rows = _rows_of(args[0] if args else kwargs.get(_ROWS))
    names = [*rows[0]] if isinstance(rows, list) and rows and isinstance(rows[0], Mapping) else []
    if column not in names:
        if names and not _is_time(column):
            raise QueryError(
                f"`created_at` is neither a time nor a column of the rows: {column!r}; they have "
                f"`{'`, `'.join(map(str, names))}`"
            )
        return args, kwargs
    if column != "created_at":
        if "created_at" in names:
            raise QueryError(
                f"rows have a column `created_at` beside `{column}`; rename or remove one of them"
            )
        rows = [
            {"created_at" if name == column else name: cell for name, cell in row.items()}
            if isinstance(row, Mapping)
            else row
            for row in rows
        ]
    others = {name: value for name, value in kwargs.items() if name not in ("created_at", _ROWS)}
    return (rows, *args[1:]), others


def _is_time(text: str) -> bool:
    try:
        parse_iso(text)
    except ValueError:
        return False
    return True


def _plain_labels(extra: Any) -> Any:
    if not isinstance(extra, Mapping):
        return extra
    try:
        return plain_json(extra)
    except ValueError as exc:
        raise QueryError(f"`extra` cannot be stored: {exc}") from None


def rows_as_items(things: Iterable[Any], text: str | None) -> Sequence[Any]:
    """Return rows as items: the field *text*, with the others as labels; without it, as is."""
    if text is None:
        return things  # type: ignore[return-value]  # a list, as the reader made it
    require_text("text", text)
    return [row_as_item(f"row {place}", row, text) for place, row in enumerate(things)]


def row_as_item(place: str, row: Any, field: str) -> MemoryItem:
    """Return one row as an item; *place* is how an error calls the row."""
    if not isinstance(row, Mapping):
        raise QueryError(f"{place} must be a dict, as `text` names one of its fields: {row!r}")
    if field not in row:
        meant = nearest(field, [name for name in row if isinstance(name, str)])
        way = f"did you mean `{meant}`?" if meant else f"it has `{'`, `'.join(map(str, row))}`"
        raise QueryError(f"{place} has no field `{field}`; {way}")
    content = row[field]
    if content is None or (isinstance(content, str) and not content.strip()):
        raise QueryError(f"{place} has no text in `{field}`; leave such rows out")
    if not isinstance(content, str):
        raise QueryError(f"`{field}` of {place} must be a text, not {content!r}")
    extra = {
        name: cell
        for name, cell in row.items()
        if name not in (field, "created_at") and cell is not None
    }
    when: dict[str, Any] = {}
    if (moment := row.get("created_at")) is not None and field != "created_at":
        moment = check_instant("created_at", _moment_of(place, moment))
        when = {"created_at": moment, "updated_at": moment}
    try:
        return MemoryItem(content=content, metadata=MemoryMetadata(extra=extra), **when)
    except ValueError as exc:
        said = exc.errors()[0]["msg"] if isinstance(exc, ValidationError) else exc
        raise QueryError(f"{place} cannot be stored: {said}") from None


def _moment_of(place: str, value: Any) -> datetime:
    try:
        return read_time("created_at", value)  # type: ignore[no-any-return]
    except QueryError as exc:
        raise QueryError(f"{place}: {exc}") from None


def _as_time(name: str, value: Any) -> Any:
    """Return the time that an argument means; `expires` may be one from now, or never."""
    if name in _BOUNDS:
        return as_bound(name, value)
    span = read_span(value) if name == _END and isinstance(value, str) else None
    return (value if value == _NEVER else read_time(name, value)) if span is None else span


class Keywords:
    """What a call takes by name; anything else is refused, with the nearest of these."""

    def __init__(self, call: str, method: Callable[..., object]) -> None:
        parameters = inspect.signature(method).parameters.values()
        self.own = [each for each in parameters if each.name != "self"]
        rest = self.own.pop() if self.own and self.own[-1].kind is _REST else None
        typed = get_args(rest.annotation) if rest else ()  # `Unpack` of a `TypedDict`
        others = typed[0].__annotations__ if typed else ()
        self._takes_any = rest is not None and not typed  # as a subclass of a program may
        self._call = call
        self._names: list[str] = list(dict.fromkeys([*(each.name for each in self.own), *others]))
        self._known = frozenset(self._names)

    def check(self, kwargs: Mapping[str, object]) -> None:
        """Raise `TypeError` if one of *kwargs* is not taken."""
        if not self._takes_any and not kwargs.keys() <= self._known:
            wrong = next(name for name in kwargs if name not in self._known)
            raise unknown_keyword(self._call, wrong, self._names)


class ArgumentReader:
    """Turns the arguments of one method into those that it takes."""

    def __init__(self, method: Callable[..., object], name: str) -> None:
        self._name = name
        self._keywords = Keywords(name, method)
        parameters = self._keywords.own
        self._order = [each.name for each in parameters]
        self._names = frozenset(self._order)
        self._unnamed = sum(each.kind is not inspect.Parameter.KEYWORD_ONLY for each in parameters)
        """How many values it takes without their names."""
        self._times = frozenset(
            each.name for each in parameters if _DATETIME.search(str(each.annotation))
        )
        self._special = self._times | _ITEMS.union(SCOPE_FIELDS, (_ROWS, _LABELS)) & self._names

    def read(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of a call as the method takes them."""
        self._keywords.check(kwargs)
        if len(args) > self._unnamed:
            raise too_many_values(self._name, args, self._order, most=self._unnamed)
        args = tuple(map(plain_value, args))
        kwargs = {name: plain_value(value) for name, value in kwargs.items()}
        if self._order[:1] == [_ROWS] and kwargs.get("text") is not None:
            args, kwargs = _with_named_times(args, kwargs)
        if not self._special.isdisjoint(kwargs):
            kwargs = {name: self._value(name, value) for name, value in kwargs.items()}
        if args and not self._special.isdisjoint(self._order[: len(args)]):
            named = zip(self._order, args, strict=False)
            args = (*(self._value(*each) for each in named), *args[len(self._order) :])
        if kwargs.get("text") is not None and self._order[0] == _ROWS:
            args, kwargs = self._with_plain_rows(args, kwargs)
        return args, kwargs

    def _with_plain_rows(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        rows = args[0] if args else kwargs.get(_ROWS)
        if isinstance(rows, list | tuple):
            rows = [_plain_row(*each) for each in enumerate(rows)]
        return ((rows, *args[1:]), kwargs) if args else (args, {**kwargs, _ROWS: rows})

    def _value(self, name: str, value: Any) -> Any:
        if name not in self._special:
            return value
        if name in self._times:
            return _as_time(name, value)
        if name in SCOPE_FIELDS:
            return as_name(value)
        if name in (_ROWS, _LABELS):
            return _rows_of(value) if name == _ROWS else _plain_labels(value)
        if name == "item" and (isinstance(value, list | tuple) or getattr(value, "repeats", None)):
            hits = value if isinstance(value, list | tuple) else [value]
            return [one for each in hits for one in self._items(each)]
        return value if name == "item" and isinstance(value, MemoryItem) else as_id(value)

    def _items(self, value: Any) -> list[Any]:
        """Return what is forgotten with *value*: with a hit, what says the same of the same user.

        Else what somebody saw and forgot would be recalled again from one of these.
        """
        item, repeats = getattr(value, "item", None), getattr(value, "repeats", ())
        first = value if isinstance(value, MemoryItem) else as_id(value)
        if not repeats or not isinstance(item, MemoryItem):
            return [first]
        from orbiter.memory.recall.near_duplicates import said_again  # noqa: PLC0415 - few need it

        return [first, *(each.id for each in said_again(item, repeats))]


def checked_keywords(
    call: str, *, needs: str = ""
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Have unknown keywords of the decorated function refused, as those of *call*.

    Handles have that done by their class, and operations do it themselves. *needs* says what is
    missing where the first argument of a method is.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        keywords: list[Keywords] = []  # made when it is needed: importing is to cost nothing

        def check(args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
            if kwargs:
                if not keywords:
                    keywords.append(Keywords(call, function))
                keywords[0].check(kwargs)
            elif needs and len(args) == 1:  # the handle alone
                raise TypeError(f"`{call}` needs {needs}")

        @wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            check(args, kwargs)
            return function(*args, **kwargs)

        @wraps(function)
        async def awaited(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            check(args, kwargs)
            return await function(*args, **kwargs)  # type: ignore[misc]  # a coroutine

        if inspect.iscoroutinefunction(function):  # as the blocking forms ask, too
            return awaited  # type: ignore[return-value]  # which returns the same
        return checked

    return decorate


def check_keywords_of(handle: type) -> None:
    """Have unknown keywords of the methods of a class refused; those that are decorated do it."""
    for name, method in list(vars(handle).items()):
        is_plain = inspect.isfunction(method) and not hasattr(method, "__wrapped__")
        if is_plain and not name.startswith("_"):
            setattr(handle, name, checked_keywords(name)(method))
