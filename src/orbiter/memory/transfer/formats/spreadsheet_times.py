"""Times as people and spreadsheets write them in the cells of a table."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from orbiter.memory.errors import TransferError
from orbiter.memory.transfer.formats.foreign_values import instant

__all__ = ["day_comes_first", "spreadsheet_time"]

_NUMERIC_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})")
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
    try:
        day = _day(text[: clock.start()] if clock else text, day_first=day_first)
        return day if day is None or clock is None else _at(day, clock)
    except ValueError:  # a day or an hour that no calendar has
        return None


def _day(text: str, *, day_first: bool | None) -> datetime | None:
    if (match := _NUMERIC_DATE.fullmatch(text)) is not None:
        first, mark, second, year = match.groups()
        is_day = mark == "." or day_first is True
        day, month = (first, second) if is_day else (second, first)
        full = int(year) if len(year) > 2 else int(year) + (2000 if int(year) < 69 else 1900)
        return datetime(full, int(month), int(day), tzinfo=UTC)
    if (match := _YEAR_FIRST.fullmatch(text)) is not None:
        return datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]  # three numbers
    for form in _NAMED_MONTHS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


def _at(day: datetime, clock: "re.Match[str]") -> datetime:
    hour, minute, second, half = clock.groups()
    hours = int(hour) % 12 + (12 if half in "Pp" else 0) if half else int(hour)
    return day.replace(hour=hours, minute=int(minute), second=int(second or 0))


def day_comes_first(
    file: str, column: str, cells: Iterable[object], *, wanted: bool | None
) -> bool | None:
    """Return whether the dates of a column begin with the day; `None` if none has to be told.

    `TransferError` if they leave it open, and nobody has said what is *wanted*.
    """
    first = {True: "", False: ""}
    unclear = ""
    for cell in cells:
        match = _NUMERIC_DATE.match(cell.strip()) if isinstance(cell, str) else None
        if match is None or match[2] == ".":
            continue
        one, two = int(match[1]), int(match[3])
        if one > 12 or two > 12:
            first[one > 12] = first[one > 12] or match[0]
        elif one != two:
            unclear = unclear or match[0]
    if wanted is not None:
        return wanted
    if first[True] and first[False]:
        raise TransferError(
            f"`{file}` has dates such as `{first[True]}` and `{first[False]}` in `{column}`: the "
            "day comes first in one, the month in the other; say what counts with `day_first=…`"
        )
    if unclear and not first[True] and not first[False]:
        raise TransferError(
            f"`{file}` has dates such as `{unclear}` in `{column}`, where the day or the month "
            "may come first; say which with `day_first=…`"
        )
    return bool(first[True]) if first[True] or first[False] else None
