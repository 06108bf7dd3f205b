"""The times a question speaks of: dates, months and years by name, and "two weeks ago".

English and ISO 8601. What names no year means any year, because a question is often asked long
after what it asks about.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from orbiter.memory.tasks.offload import search

__all__ = ["Span", "closeness", "has_time", "spans"]

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_NUMBERS = {
    word: number
    for number, word in enumerate(
        (
            *("zero", "one", "two", "three", "four", "five", "six"),
            *("seven", "eight", "nine", "ten", "eleven", "twelve"),
        )
    )
} | {"a": 1, "an": 1, "couple of": 2, "few": 3}
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
_UNITS = {"day": 1.0, "week": 7.0, "month": 30.44, "year": 365.25}

_NAMED = re.compile(
    rf"\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+)?"
    rf"(?P<month>{'|'.join(_MONTHS)})\b"
    rf"(?:\s+(?P<after>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d))?(?:,?\s+(?P<year>\d{{4}})\b)?"
)
_NUMERIC = (
    re.compile(r"\b(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b"),
    re.compile(r"\b(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})\b"),
)
_YEAR = re.compile(r"\b(?:in|of|during|since|year)\s+(?P<year>(?:19|20)\d{2})\b")
_AGO = re.compile(
    rf"\b(?P<count>\d{{1,3}}|a couple of|a few|{'|'.join(_NUMBERS)})\s+"
    r"(?P<unit>day|week|month|year)s?\s+ago\b"
)
_PAST = re.compile(
    r"\b(?P<which>last|past|previous|this)\s+"
    rf"(?:(?P<count>\d{{1,3}}|couple of|few|{'|'.join(_NUMBERS)})\s+)?"
    r"(?P<unit>day|week|month|year|weekend)s?\b"
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = re.compile(rf"\b(?:last|this|past|on)\s+(?P<day>{'|'.join(_DAYS)})\b")
# "may" and "march" are words of their own unless something makes them a month.
_MAKES_MONTH = re.compile(
    r"\b(?:in|of|during|since|until|by|last|this|next|early|late|mid)[\s-]{1,4}\Z"
)

_TIME = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|recently|weekend|since|just|week|month"
    rf"|year|morning|{'|'.join(m for m in _MONTHS if m not in ('may', 'march'))}"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|spring|summer|autumn|winter|(?:19|20)\d{2})s?\b"
)
_REACH = 16
"""Characters that `_TIME` looks at, at most."""


class Span(NamedTuple):
    """A day, a month or a year, each perhaps of any year; or the time from `start` to `end`."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    start: datetime | None = None
    end: datetime | None = None

    def __str__(self) -> str:
        """Return it as a person writes it: `8 May 2023`, `May`, `1 June 2024 to 15 June 2024`."""
        if self.start is not None and self.end is not None:
            return f"{_written(self.start)} to {_written(self.end)}"
        month = None if self.month is None else _MONTHS[self.month - 1].capitalize()
        return " ".join(str(part) for part in (self.day, month, self.year) if part is not None)

    def bounds(self) -> tuple[datetime, datetime] | None:
        """Return from when to when what was said may speak of it; `None` for any year."""
        if self.start is not None and self.end is not None:
            return self.start, self.end
        if self.year is None:
            return None
        first = datetime(self.year, self.month or 1, self.day or 1, tzinfo=UTC)
        if self.day is not None:
            return first - timedelta(days=1), first + timedelta(days=8)
        if self.month is not None:
            return first, first + timedelta(days=45)
        return first, first + timedelta(days=366)


def spans(text: str, *, now: datetime) -> tuple[Span, ...]:
    """Return the times that *text* names, as seen from *now*."""
    lowered = text.casefold()
    found: list[Span] = []
    for match in _NAMED.finditer(lowered):
        name = match["month"]
        day = int(match["before"] or match["after"] or 0) or None
        year = int(match["year"]) if match["year"] else None
        is_plain = name not in ("may", "march") or day or year
        before = lowered[max(0, match.start("month") - 12) : match.start("month")]
        if is_plain or _MAKES_MONTH.search(before):
            found.append(Span(year, _MONTHS.index(name) + 1, day))
    found += [
        Span(int(match["year"]), int(match["month"]), int(match["day"]))
        for form in _NUMERIC
        for match in form.finditer(lowered)
    ]
    if not found:
        found += [Span(int(match["year"])) for match in _YEAR.finditer(lowered)]
    found += _relative(lowered, now)
    return tuple(span for span in dict.fromkeys(found) if _is_real(span))


def _relative(lowered: str, now: datetime) -> list[Span]:
    found = []
    for match in _AGO.finditer(lowered):
        written = match["count"].removeprefix("a ") if " " in match["count"] else match["count"]
        count = int(written) if written.isdigit() else _NUMBERS[written]
        found.append(_from(now, count, _UNITS[match["unit"]]))
    found += [_past(match, now) for match in _PAST.finditer(lowered)]
    for match in _WEEKDAY.finditer(lowered):
        back = (now.weekday() - _DAYS.index(match["day"])) % 7 or 7
        day = _shifted(now, -back)
        found.append(Span(day.year, day.month, day.day))
    if re.search(r"\byesterday\b", lowered):
        found.append(_from(now, 1, 1.0))
    return found


def _past(match: re.Match[str], now: datetime) -> Span:
    """Return what "last week", "this year" or "the past three days" means."""
    days = _UNITS.get(match["unit"], 7.0)
    if match["count"] is not None:
        count = int(match["count"]) if match["count"].isdigit() else _NUMBERS[match["count"]]
        return Span(start=_shifted(now, -(count + 1) * days), end=now)
    if match["which"] in ("last", "previous") and match["unit"] == "year":
        return Span(max(1, now.year - 1))
    if match["which"] in ("last", "previous") and match["unit"] == "month":
        before = _shifted(now.replace(day=1), -1)
        return Span(before.year, before.month)
    # Last week may be the last seven days, or the week before this one.
    times = 2 if match["which"] in ("last", "previous") else 1
    return Span(start=_shifted(now, -times * days), end=now)


def _from(now: datetime, count: int, days: float) -> Span:
    # "Two weeks ago" is seldom meant to the day.
    middle, slack = _shifted(now, -count * days), max(1.0, days / 2)
    return Span(start=_shifted(middle, -slack), end=_shifted(middle, slack))


def _written(moment: datetime) -> str:
    return f"{moment.day} {_MONTHS[moment.month - 1].capitalize()} {moment.year}"


def _shifted(moment: datetime, days: float) -> datetime:
    """Return the time so many days later, or the first or last there is."""
    try:
        return moment + timedelta(days=days)
    except OverflowError:
        return _FIRST if days < 0 else _LAST


def _is_real(span: Span) -> bool:
    try:
        span.bounds()
        datetime(span.year or 2024, span.month or 1, span.day or 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return False
    return True


def closeness(moment: datetime, asked: Sequence[Span]) -> float:
    """Return 1 if what was said at *moment* is likely about one of the times, 0 if not.

    People speak of a day on that day and in the week after it, of a month also early in the next.
    """
    return max((_closeness(moment, span) for span in asked), default=0.0)


def _closeness(moment: datetime, span: Span) -> float:
    if span.start is not None and span.end is not None:
        return 1.0 if span.start <= moment <= span.end else 0.0
    if span.year is not None:
        return _closeness_in(span.year, moment, span)
    # In January one speaks of a day of December, and that was last year.
    years = (moment.year - 1, moment.year, moment.year + 1)
    return max(_closeness_in(year, moment, span) for year in years)


def _closeness_in(year: int, moment: datetime, span: Span) -> float:
    if span.month is None:
        return 0.6 if moment.year == year else 0.0
    if span.day is None:
        months = (moment.year - year) * 12 + moment.month - span.month
        return 1.0 if months == 0 else 0.5 if months == 1 and moment.day <= 14 else 0.0
    try:
        day = datetime(year, span.month, span.day, tzinfo=UTC)
    except ValueError:  # 29 February of another year, or a year that is none
        return 0.0
    days = (moment - day) / timedelta(days=1)
    return 1.0 if -1 <= days <= 8 else 0.5 if -3 <= days <= 31 else 0.0


def has_time(text: str) -> bool:
    """Tell whether *text* says when something was."""
    return search(_TIME, text.lower(), reach=_REACH) is not None
