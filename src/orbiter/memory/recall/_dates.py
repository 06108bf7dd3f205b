"""A time that a question speaks of, and how close to it what was said is.

What names no year means any year, because a question is often asked long after what it asks about.
"Three weeks after the wedding" is an `Offset`, which becomes a time where somebody finds out when
that was.
"""

from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

__all__ = [
    "FIRST",
    "MONTHS",
    "Offset",
    "Span",
    "closeness",
    "coming",
    "is_real",
    "is_within",
    "midnight",
    "shifted",
    "three_months",
    "weekend",
]

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


class Span(NamedTuple):
    """A day, a month or a year, each perhaps of any year; or the time from `start` to `end`."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    start: datetime | None = None
    end: datetime | None = None
    last: int | None = None
    """The last day of a part of a month, of which `day` is the first."""
    core: tuple[datetime, datetime] | None = None
    """The time itself, where `start` to `end` is wider, as people are not that exact."""

    def __str__(self) -> str:
        """Return it as a person writes it: `8 May 2023`, `May`, `1 June 2024 to 15 June 2024`."""
        if self.start is not None and self.end is not None:
            begin, end = self.core or (self.start, self.end)
            if begin == FIRST:
                return f"before {_written(end)}"
            first, last = _written(begin), _written(max(begin, shifted(end, -_MOMENT)))
            return first if first == last else f"{first} to {last}"
        month = None if self.month is None else MONTHS[self.month - 1].capitalize()
        day = str(self.day or "")
        if self.month is not None and self.last is not None:
            _, longest = monthrange(self.year or 2024, self.month)
            day = f"{self.day} to {min(self.last, longest)}"
        return " ".join(str(part) for part in (day, month, self.year) if part)

    def bounds(self) -> tuple[datetime, datetime] | None:
        """Return from when to when what was said may speak of it; `None` for any year."""
        if self.start is not None and self.end is not None:
            return self.start, self.end
        if self.year is None:
            return None
        first = datetime(self.year, self.month or 1, self.day or 1, tzinfo=UTC)
        if self.day is not None:
            days = (self.last or self.day) - self.day
            return first - timedelta(days=1), first + timedelta(days=days + 8)
        if self.month is not None:
            return first, first + timedelta(days=45)
        return first, first + timedelta(days=366)

    def latest(self, now: datetime) -> "Span":
        """Return that of the last year in which it has begun by *now*, if it is of any year."""
        if self.year is not None or self.month is None:
            return self
        has_begun = (self.month, self.day or 1) <= (now.month, now.day)
        year = now.year if has_begun else now.year - 1
        if (self.month, self.day) == (2, 29):
            year -= year % 4
        return self._replace(year=year)

    def whole(self) -> tuple[datetime, datetime]:
        """Return when it begins and when it is over; it has a year, or is from `start` to `end`."""
        if self.start is not None and self.end is not None:
            return self.start, self.end
        assert self.year is not None  # noqa: S101 - or nobody could say
        first = datetime(self.year, self.month or 1, self.day or 1, tzinfo=UTC)
        if self.day is not None:
            return first, shifted(first, 1 + (self.last or self.day) - self.day)
        months = 12 * self.year + (self.month or 12)
        is_last = months // 12 >= _LAST.year
        return first, _LAST if is_last else datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)


class Offset(NamedTuple):
    """So many days from something that is named: "three weeks after the wedding"."""

    anchor: str
    """What is named, in lower case."""
    days: float
    slack: float
    weekday: int | None = None
    """The day of the week that is meant, next to the anchor."""

    def from_day(self, day: datetime) -> Span:
        """Return the time that is meant if what is named was on *day*, and the days after it."""
        middle = shifted(day, self.days)
        if self.weekday is not None:
            gap = (self.weekday - day.weekday()) % 7 or 7
            middle = shifted(day, gap if self.days > 0 else gap - 7 or -7)
        return Span(
            start=shifted(middle, -self.slack), end=shifted(middle, max(self.slack, _DAYS_AFTER))
        )


_MOMENT = 1e-9
"""In days: the day on which a time ends that is over at midnight is the one before."""
_DAYS_AFTER = 8.0
"""Days within which people speak of what happened."""


def shifted(moment: datetime, days: float) -> datetime:
    """Return the time so many days later, or the first or last there is."""
    try:
        return moment + timedelta(days=days)
    except OverflowError:
        return FIRST if days < 0 else _LAST


def midnight(moment: datetime) -> datetime:
    """Return when the day of a moment begins."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def weekend(now: datetime, *, is_over: bool) -> Span:
    """Return the last weekend that has begun by *now*, or only one that is over."""
    monday = shifted(midnight(now), -now.weekday())
    end = shifted(monday, 7) if now.weekday() >= _SATURDAY and not is_over else monday
    return Span(start=shifted(end, -3), end=now, core=(shifted(end, -2), end))


def coming(unit: str, now: datetime) -> Span:
    """Return the next week, month or year of the calendar."""
    if unit == "year":
        return Span(now.year + 1)
    if unit == "month":
        return Span(now.year + now.month // 12, now.month % 12 + 1)
    monday = shifted(midnight(now), 7 - now.weekday())
    return Span(start=monday, end=shifted(monday, 7))


_SATURDAY = 5


def is_real(span: Span) -> bool:
    """Tell whether there is such a time: there is no 31 February."""
    try:
        span.bounds()
        datetime(span.year or 2024, span.month or 1, span.day or 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return False
    return True


def three_months(first: Span) -> Span:
    """Return the season or quarter that begins with a month; what is no month, as it is."""
    if not is_real(first) or first.year is None or first.month is None:
        return first
    year, month = divmod(12 * first.year + first.month + 1, 12)
    last = Span(year, month + 1)
    return Span(start=first.whole()[0], end=last.whole()[1]) if is_real(last) else first


def closeness(moment: datetime, times: Sequence[Span]) -> float:
    """Return 1 if what was said at *moment* is likely about one of the times, 0 if not.

    People speak of a day on that day and in the week after it, of a month also early in the next.
    """
    return max((_closeness(moment, span) for span in times), default=0.0)


def is_within(moment: datetime, times: Sequence[Span]) -> bool:
    """Tell whether *moment* is in the very time that is named, and not only near it."""
    return any(_is_within(moment, span) for span in times)


def _is_within(moment: datetime, span: Span) -> bool:
    if span.start is None and span.year is None:
        month = span.month in (None, moment.month)
        first = span.day or 1
        return month and (span.day is None or first <= moment.day <= (span.last or first))
    begin, end = span.core or span.whole()
    return begin <= moment < end


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
    length = (span.last or span.day) - span.day
    is_near = -3 <= days <= 31 or (span.last and (moment.year, moment.month) == (year, span.month))
    return 1.0 if -1 <= days <= length + 8 else 0.5 if is_near else 0.0


def _written(moment: datetime) -> str:
    return f"{moment.day} {MONTHS[moment.month - 1].capitalize()} {moment.year}"
