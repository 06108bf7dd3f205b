"""The times a question speaks of: dates, months and years by name, and "two weeks ago".

English, ISO 8601, and what `_foreign_times` puts into English. What names no year means any year,
because a question is often asked long after what it asks about. "Three weeks after the wedding" is
an `Offset`, which becomes a time where somebody finds out when that was.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.recall import _foreign_times
from orbiter.memory.tasks.offload import search

__all__ = ["Offset", "Span", "closeness", "has_time", "named_day", "offsets", "spans"]

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

_ORDINALS = {
    word: number
    for number, word in enumerate(
        (
            *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"),
            *("ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth"),
            *("sixteenth", "seventeenth", "eighteenth", "nineteenth", "twentieth"),
            *("twenty-first", "twenty-second", "twenty-third", "twenty-fourth", "twenty-fifth"),
            *("twenty-sixth", "twenty-seventh", "twenty-eighth", "twenty-ninth", "thirtieth"),
            "thirty-first",
        ),
        1,
    )
}
_ORDINAL = "|".join(sorted(_ORDINALS, key=len, reverse=True))
_NAMED = lazy_pattern(
    rf"\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+|(?P<ordinal>{_ORDINAL})\s+of\s+)?"
    rf"(?P<month>{'|'.join(_MONTHS)})\b"
    rf"(?:\s+(?P<after>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)|\s+(?:the\s+)?(?P<later>{_ORDINAL})\b)?"
    rf"(?:(?:,\s*|\s+)(?P<year>\d{{4}})\b)?"
)
_PART = lazy_pattern(
    r"\b(?:(?P<which>first|second|third|fourth|last|1st|2nd|3rd|4th)\s+(?P<unit>week|weekend|half)"
    r"\s+(?:of|in)|(?P<vague>early|mid|late)|(?P<end>beginning|start|middle|end)\s+of)[\s-]{1,4}\Z"
)
_WHICH = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4}
_VAGUE = {
    **dict.fromkeys(("early", "beginning", "start"), (1, 10)),
    **dict.fromkeys(("mid", "middle"), (11, 20)),
    **dict.fromkeys(("late", "end"), (21, 31)),
}
_BEFORE = 32
"""Characters before a month that say which part of it is meant."""
_NUMERIC = (
    lazy_pattern(r"\b(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b"),
    lazy_pattern(r"\b(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})\b"),
)
_YEAR = lazy_pattern(r"\b(?:in|of|during|since|year)\s+(?P<year>(?:19|20)\d{2})\b")
_AGO = lazy_pattern(
    rf"\b(?P<count>\d{{1,3}}|a couple of|a few|{'|'.join(_NUMBERS)})\s+"
    r"(?P<unit>day|week|month|year)s?\s+ago\b"
)
_PAST = lazy_pattern(
    r"\b(?P<which>last|past|previous|this)\s+"
    rf"(?:(?P<count>\d{{1,3}}|couple of|few|{'|'.join(_NUMBERS)})\s+)?"
    r"(?P<unit>day|week|month|year|weekend)s?\b(?!\s+of\b)"
)
_COUNT = rf"\d{{1,3}}|a couple of|a few|{'|'.join(_NUMBERS)}"
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = lazy_pattern(
    rf"\b(?:last|this|past|on)\s+(?P<day>{'|'.join(_DAYS)})\b(?!\s+(?:before|after|following)\b)"
)
_OFFSET = lazy_pattern(
    rf"\b(?:(?P<count>{_COUNT})\s+(?P<unit>day|week|month|year)s?"
    rf"|the\s+(?:very\s+)?(?P<whole>day|morning|evening|night|week|month|year|weekend)"
    rf"|(?:the|on)\s+(?P<weekday>{'|'.join(_DAYS)}))"
    r"\s+(?P<side>before|after|following|prior\s+to)\s+(?P<anchor>[^?!;,]{2,80}(?:,\s*\d{4})?)"
)
# "may" and "march" are words of their own unless something makes them a month.
_MAKES_MONTH = lazy_pattern(
    r"\b(?:in|of|during|since|until|by|last|this|next|early|late|mid)[\s-]{1,4}\Z"
)

_TIME = lazy_pattern(
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
    last: int | None = None
    """The last day of a part of a month, of which `day` is the first."""

    def __str__(self) -> str:
        """Return it as a person writes it: `8 May 2023`, `May`, `1 June 2024 to 15 June 2024`."""
        if self.start is not None and self.end is not None:
            return f"{_written(self.start)} to {_written(self.end)}"
        month = None if self.month is None else _MONTHS[self.month - 1].capitalize()
        day = self.day if self.last is None else f"{self.day} to {self.last}"
        return " ".join(str(part) for part in (day, month, self.year) if part is not None)

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


def spans(text: str, *, now: datetime) -> tuple[Span, ...]:
    """Return the times that *text* names, as seen from *now*."""
    in_english = _foreign_times.in_english(text)
    lowered = (text if in_english is None else in_english).casefold()
    times: list[Span] = []
    # A pattern is used only where a word is that it needs: most questions name no time.
    for match in _NAMED.finditer(lowered) if _has_any(lowered, _MONTHS) else ():
        name = match["month"]
        word = match["ordinal"] or match["later"]
        day = int(match["before"] or match["after"] or _ORDINALS.get(word or "", 0)) or None
        year = int(match["year"]) if match["year"] else None
        is_plain = name not in ("may", "march") or (day and not match["later"]) or year
        before = lowered[max(0, match.start("month") - _BEFORE) : match.start("month")]
        if is_plain or _MAKES_MONTH.search(before):
            part = (day, None) if day else _part_of_month(before)
            times.append(Span(year, _MONTHS.index(name) + 1, part[0], last=part[1]))
    has_digits = any(map(str.isdigit, lowered))
    times += [
        Span(int(match["year"]), int(match["month"]), int(match["day"]))
        for form in (_NUMERIC if has_digits else ())
        for match in form.finditer(lowered)
    ]
    if has_digits and not times:
        times += [Span(int(match["year"])) for match in _YEAR.finditer(lowered)]
    days = {span for span in times if span.year and span.month and span.day and not span.last}
    # "Last week, as mentioned on 6 November 2023" is the week before that day.
    base = next(iter(days)) if len(days) == 1 else None
    times += _relative(lowered, _noon(base, now) if base and _is_real(base) else now)
    for offset in _offset_matches(lowered):
        if len(offset["anchor"]) < len(lowered) and (
            base_day := named_day(offset["anchor"], now=now)
        ):
            times.append(_offset(offset).from_day(base_day))
    return tuple(span for span in dict.fromkeys(times) if _is_real(span))


def _has_any(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def _part_of_month(before: str) -> tuple[int | None, int | None]:
    """Return the first and the last day of the part of a month that the text before it names."""
    match = _PART.search(before)
    if match is None:
        return None, None
    if match["unit"] is None:
        return _VAGUE[match["vague"] or match["end"]]
    which = _WHICH.get(match["which"])
    if match["unit"] == "half":
        return (1, 15) if which == 1 else (16, 31)
    return (7 * which - 6, 7 * which) if which else (22, 31)


def _noon(span: Span, now: datetime) -> datetime:
    assert span.year is not None  # noqa: S101 - a whole date
    return datetime(span.year, span.month or 1, span.day or 1, 12, tzinfo=now.tzinfo)


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
        middle = _shifted(day, self.days)
        if self.weekday is not None:
            gap = (self.weekday - day.weekday()) % 7 or 7
            middle = _shifted(day, gap if self.days > 0 else gap - 7 or -7)
        return Span(
            start=_shifted(middle, -self.slack), end=_shifted(middle, max(self.slack, _TOLD))
        )


def offsets(text: str) -> tuple[Offset, ...]:
    """Return the times of *text* that are told by something whose own time it does not tell."""
    every = map(_offset, _offset_matches(text.casefold()))
    unknown = (each for each in every if named_day(each.anchor, now=_SOME_DAY) is None)
    return tuple(each for each in unknown if not each.anchor.startswith(_NO_EVENTS))


_SIDES = ("before", "after", "following", "prior")
"""One of these is in every match of `_OFFSET`, as a month is in every one of `_NAMED`,"""
_ENDS = ("last", "past", "previous", "this")
"""and one of these in every match of `_PAST`."""
_TOLD = 8.0
"""Days within which people speak of what happened."""
_NO_EVENTS = ("today", "tomorrow", "tonight", "now")
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def _offset_matches(lowered: str) -> Iterable[re.Match[str]]:
    return _OFFSET.finditer(lowered) if _has_any(lowered, _SIDES) else ()


def _offset(match: re.Match[str]) -> Offset:
    sign = -1.0 if match["side"].startswith(("before", "prior")) else 1.0
    if match["weekday"] is not None or match["whole"] == "weekend":
        weekday = _DAYS.index(match["weekday"] or "saturday")
        return Offset(match["anchor"], sign, 1.0, weekday)
    if match["whole"] is not None:
        days = _UNITS.get(match["whole"], 1.0)
        # A day is the next one; "the week after" begins at once.
        return Offset(match["anchor"], sign * max(1.0, days / 2), max(1.0, days / 2))
    written = match["count"].removeprefix("a ") if " " in match["count"] else match["count"]
    count = int(written) if written.isdigit() else _NUMBERS[written]
    days = _UNITS[match["unit"]]
    return Offset(match["anchor"], sign * count * days, max(1.0, days / 2))


def named_day(text: str, *, now: datetime) -> datetime | None:
    """Return the one day that *text* tells, said at *now*; `None` if it tells none, or several."""
    bounds = [span.bounds() for span in spans(text, now=now) if span.day or span.start]
    days = [each for each in bounds if each is not None and each[1] - each[0] <= _ABOUT_A_DAY]
    if len(days) != 1:
        return None
    begin, end = days[0]
    # The bounds of a day reach from the day before it to a week after it.
    return begin + (timedelta(days=1) if end - begin > timedelta(days=8) else (end - begin) / 2)


_ABOUT_A_DAY = timedelta(days=9)


def _relative(lowered: str, now: datetime) -> list[Span]:
    found = []
    for match in _AGO.finditer(lowered) if "ago" in lowered else ():
        written = match["count"].removeprefix("a ") if " " in match["count"] else match["count"]
        count = int(written) if written.isdigit() else _NUMBERS[written]
        found.append(_from(now, count, _UNITS[match["unit"]]))
    if _has_any(lowered, _ENDS):
        found += [_past(match, now) for match in _PAST.finditer(lowered)]
    for match in _WEEKDAY.finditer(lowered) if "day" in lowered else ():
        back = (now.weekday() - _DAYS.index(match["day"])) % 7 or 7
        day = _shifted(now, -back)
        found.append(Span(day.year, day.month, day.day))
    if "yesterday" in lowered and re.search(r"\byesterday\b", lowered):
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
    length = (span.last or span.day) - span.day
    is_near = -3 <= days <= 31 or (span.last and (moment.year, moment.month) == (year, span.month))
    return 1.0 if -1 <= days <= length + 8 else 0.5 if is_near else 0.0


def has_time(text: str) -> bool:
    """Tell whether *text* says when something was."""
    return search(_TIME, text.lower(), reach=_REACH) is not None or _foreign_times.has_time(text)
