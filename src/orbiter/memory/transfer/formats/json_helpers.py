"""Reading values out of foreign JSON and tables: each function takes anything."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pydantic import ValidationError

from orbiter.memory.model.validation import to_utc
from orbiter.memory.transfer.formats.importer import ReportProblem

__all__ = [
    "NUMERIC_DATE",
    "UNREADABLE",
    "as_object",
    "compact",
    "first_text",
    "instant",
    "later",
    "plain_text",
    "reason",
    "safely",
    "spreadsheet_time",
]

_T = TypeVar("_T")

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What making an item of a foreign value may raise: some file has a shape nobody thought of."""

_MILLISECONDS = 1e11
"""As seconds this is the year 5138, so a larger number counts milliseconds."""


def as_object(value: object) -> Mapping[str, object]:
    """Return *value* if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def instant(value: object) -> datetime | None:
    """Return the time that a number of seconds, or an ISO text, stands for; `None` if it is none.

    SQLite's `CURRENT_TIMESTAMP`, without a zone, is UTC.
    """
    try:
        if isinstance(value, bool):
            return None
        if isinstance(value, int | float) and value > 0:
            seconds = value / 1000 if value > _MILLISECONDS else value
            return datetime.fromtimestamp(seconds, UTC)
        if isinstance(value, datetime):
            return to_utc(value)
        if isinstance(value, str) and value:
            return to_utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError, OSError):
        return None
    return None


NUMERIC_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})")
_YEAR_FIRST = re.compile(r"(\d{4})[./](\d{1,2})[./](\d{1,2})")
_CLOCK = re.compile(r"[ ,T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?\s*(?:([AaPp])\.?[Mm]\.?)?$")
_NAMED_MONTHS = ("%d-%b-%y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
_PLAIN_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_COMPACT_DATE = re.compile(r"(?:19|20)\d{6}")
_FIRST_DAY = datetime(1899, 12, 30, tzinfo=UTC)
"""Day 0 of spreadsheets."""
_DAYS = (20_000, 80_000)
"""Numbers that are days of a spreadsheet, from 1954 to 2119; seconds since 1970 are larger."""


def spreadsheet_time(value: object, *, day_first: bool | None = None) -> datetime | None:
    """Return the time that a cell stands for, in UTC if it has no zone; `None` if it is none.

    That is ISO, a date as spreadsheets write it, a month by its English name, seconds since 1970,
    or a spreadsheet's number of days.
    """
    if not isinstance(value, str):
        return instant(value)
    text = " ".join(value.split())
    if _PLAIN_NUMBER.fullmatch(text) and not _COMPACT_DATE.fullmatch(text):
        number = float(text)
        if _DAYS[0] <= number < _DAYS[1]:
            return _FIRST_DAY + timedelta(seconds=round(number * 86_400))
        return instant(number) if number >= 1e8 else None
    if (iso := instant(text)) is not None:
        return iso
    clock = _CLOCK.search(text)
    day = _day(text[: clock.start()] if clock else text, day_first=day_first)
    return day if day is None or clock is None else _at(day, clock)


def _day(text: str, *, day_first: bool | None) -> datetime | None:
    match = NUMERIC_DATE.fullmatch(text)
    try:
        if match is not None:
            first, mark, second, year = match.groups()
            is_day = mark == "." or day_first is True
            day, month = (first, second) if is_day else (second, first)
            full = int(year) if len(year) > 2 else int(year) + (2000 if int(year) < 69 else 1900)
            return datetime(full, int(month), int(day), tzinfo=UTC)
        if (match := _YEAR_FIRST.fullmatch(text)) is not None:
            return datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]  # three numbers
    except ValueError:
        return None
    for form in _NAMED_MONTHS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


def _at(day: datetime, clock: "re.Match[str]") -> datetime | None:
    hour, minute, second, half = clock.groups()
    hours = int(hour)
    if half:
        hours = hours % 12 + (12 if half in "Pp" else 0)
    try:
        return day.replace(hour=hours, minute=int(minute), second=int(second or 0))
    except ValueError:
        return None


def later(at: datetime, microseconds: int) -> datetime:
    """Return the time that is so much later, or the last there is."""
    try:
        return at + timedelta(microseconds=microseconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def first_text(record: Mapping[str, object], *names: str) -> str:
    """Return the first of the named fields that is a text with something in it."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def plain_text(content: object) -> str:
    """Return the text of a message's content: a text, or parts that hold some."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return first_text(content, "text", "content", "value")
    if isinstance(content, Sequence):
        return "\n\n".join(text for part in content if (text := plain_text(part)))
    return ""


def safely(make: Callable[[], _T], complain: ReportProblem, place: str) -> _T | None:
    """Return what *make* makes; complain of what no store can hold, as a too long text."""
    try:
        return make()
    except UNREADABLE as exc:
        complain(place, f"it cannot be stored: {reason(exc)}")
        return None


def reason(error: Exception) -> str:
    """Return why something cannot be made an item, in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, ValueError):
        return f"it has an unknown structure ({type(error).__name__}: {error})"
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    names = ".".join(map(str, first["loc"]))
    return f"`{names}`: {first['msg'].removeprefix('Value error, ')}"


def compact(value: object) -> str:
    """Return *value* as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), sort_keys=True)
