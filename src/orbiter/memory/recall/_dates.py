"""A time that a question speaks of, and how close to it what was said is.

What names no year means any year, because a question is often asked long after what it asks about.
What a statement tells of a time is read here, too: whether it is for once, and whether its number
is a time or a value. "Three weeks after the wedding" is an `Offset`, which becomes a time where
somebody finds out when that was.
"""

import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.text import words

__all__ = [
    "FIRST",
    "MONTHS",
    "TELLS_NUMBER",
    "TIME_WORDS",
    "Offset",
    "Span",
    "closeness",
    "coming",
    "has_one_date",
    "is_for_once",
    "is_real",
    "is_within",
    "labels_in",
    "midnight",
    "number_of",
    "past_month",
    "shifted",
    "three_months",
    "weekend",
]

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_DATE_WORDS = frozenset(MONTHS) | frozenset(
    """
    monday tuesday wednesday thursday friday saturday sunday today tomorrow tonight am pm o'clock
    """.split()  # noqa: SIM905 - read by people
)
"""What tells that a number is a time: two appointments may both be true."""
TIME_WORDS = _DATE_WORDS | frozenset(
    """
    day evening hour last minute moment month morning next night noon spring summer autumn winter
    time week weekend year yesterday yearly monthly weekly daily
    """.split()  # noqa: SIM905 - read by people
)
FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


_PARTS_OF_DAY = "morning|noon|lunchtime|afternoon|evening|night|bedtime"
_WEEKDAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_LABEL = lazy_pattern(
    r"(?:\A\W*|(?:\b(?:an?|the|my|our|your|his|her|its|their|each|every)|'s) )"
    rf"(?=(?:{_WEEKDAYS}|{'|'.join(MONTHS)}|{_PARTS_OF_DAY})\b)"
    rf"(?:(?P<weekday>{_WEEKDAYS})(?:'s)? )?(?:(?P<month>{'|'.join(MONTHS)})(?:'s)? )?"
    rf"(?:(?P<part>{_PARTS_OF_DAY})(?:'s)? )?(?P<noun>[a-z]{{3,}})",
    re.IGNORECASE,
)
"""What stands before a noun and tells things of that kind apart: "the Friday call"."""
_LETTER = lazy_pattern(r"\b(?P<noun>[A-Za-z]{3,}) (?P<letter>[A-HJ-Z])\b(?!')")
_OF_ONE_DAY = (
    r"(?<!from )(?<!since )(?<!starting )(?:today|tonight|tomorrow|this (?:time|morning|afternoon"
    rf"|evening|week)|(?:this|next|last) (?:week|{_WEEKDAYS}))"
)
_ONCE = lazy_pattern(
    rf"\b(?:{_OF_ONE_DAY}|yesterday|last night)'s\b|\b(?:this|for) once\b"
    rf"|\b(?:{_OF_ONE_DAY}|yesterday|last night)\b.*\binstead\b"
    rf"|\binstead\b.*\b(?:{_OF_ONE_DAY}|yesterday|last night)\b"
    rf"|\b{_OF_ONE_DAY}\b.*\b(?:is|are) (?:cancell?ed|called off)\b"
    rf"|(?:\b(?:is|are)|'s) (?:cancell?ed|called off)\b.*\b{_OF_ONE_DAY}\b"
)
"""What is so on one day and leaves what is so on others."""
_FOR_A_TIME = lazy_pattern(
    r"\bfor (?:(?:about|another|just|only) )?(?:the|an?|one|two|three|four|five|six|several|\d+)"
    r" (?:(?:few|whole) )?(?:days?|weeks?|months?|years?|semesters?|summer|winter|weekend)\b"
    r"(?! now)"
)
_SO_FAR = lazy_pattern(
    r"\b(?:have|has|been|since|costs?|pays?|euros?|dollars?)\b|n't\b|'ve\b|[€$£]"
)
"""What makes of "for a year" the time that it has been so, or for which a price is paid."""
_ONE_DATE = lazy_pattern(
    rf"\b(?:today|tonight|tomorrow|yesterday|this|next|\d+\.? (?:{'|'.join(MONTHS)})"
    rf"|(?:{'|'.join(MONTHS)}) \d+)\b"
)
_IN_YEAR = lazy_pattern(
    rf"(?:\A(?:\W|did\b|i\b|we\b)*|\A\W*did\b.*|\b(?:in|during|(?P<month>{'|'.join(MONTHS)}),?) )"
    r"(?P<year>(?:19|20)\d\d)\b(?! ?(?:[€$£%]|euros?\b|dollars?\b|pounds?\b|k[gm]\b))"
)
"""A year in which something happened; in statements of other languages, "did" stands before."""
_SINCE_THEN = lazy_pattern(
    r"\b(?:now|nowadays|no longer|any ?more|since|as of|currently|today|yesterday|this|last)\b"
)


TELLS_NUMBER = (
    r"(?:are|costs?|earns?|employs?|has|have|holds?|is|lasts?|needs?|pays?|takes?|weighs?)"
)
_OWN_VALUE = lazy_pattern(
    r"\W*(?:(?:my|our) (?:\w+ ){1,4}?(?:is|costs?)"
    r"|(?:i|we)(?:'m| am| are| weigh| earn| make| pay| take)"
    r"|(?P<others>(?!(?:an?|another|any|each|every|he|how|i|if|it|my|one|our|she|some|that|there"
    r"|these|they|this|those|we|what|which|you)\b)(?:[^\W\d][\w'-]* ){1,4}?"
    rf"{TELLS_NUMBER})) (?:(?!(?:after|at|before|by|for|from|in|of|on|since|to|until)\b)[a-z]+ )"
    r"{0,3}?[^\w\s]*\d[\d .,/-]*(?:(?! and )[^\d,;])*\Z"
)
"""A sentence in small letters that tells one number of somebody or something, and no other."""
_RATES = frozenset(
    "annually daily day hour month monthly per week weekly year yearly".split()  # noqa: SIM905
)


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


def is_for_once(clause: str) -> bool:
    """Tell whether a clause in small letters tells of one day, or of what is so for a time."""
    if _FOR_A_TIME.search(clause) and not _SO_FAR.search(clause):
        return True
    return _ONCE.search(clause) is not None


def has_one_date(text: str) -> bool:
    """Tell whether a text in small letters names a day that comes only once."""
    return _ONE_DATE.search(text) is not None


def past_month(text: str) -> tuple[int, int] | None:
    """Return the last year and month in which a text says that something happened, if it does."""
    if _SINCE_THEN.search(text):
        return None
    return max(
        (
            (int(each["year"]), 1 + MONTHS.index(each["month"]) if each["month"] else len(MONTHS))
            for each in _IN_YEAR.finditer(text)
        ),
        default=None,
    )


def labels_in(sentence: str) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return by what a sentence tells things apart, by the noun and by weekday, month and so on."""
    labels = dict[tuple[str, str], frozenset[str]]()
    for match in (*_LABEL.finditer(sentence), *_LETTER.finditer(sentence)):
        kinds = {kind: word.lower() for kind, word in match.groupdict().items() if word}
        noun = kinds.pop("noun")
        if noun in words.COMMON or noun in TIME_WORDS:
            continue
        for kind, word in kinds.items():
            key = (noun.removesuffix("s"), kind)
            labels[key] = labels.get(key, frozenset()) | {word}
    return labels


def number_of(text: str) -> frozenset[str]:
    """Return the words of which a sentence in small letters tells a single number, without that.

    Who says the same with another number later has told a new value, without a word of change.
    """
    match = _OWN_VALUE.match(text)
    if match is None:
        return frozenset()
    split = [word for word in words.tokens(text) if word not in words.COMMON]
    of_what = frozenset(word for word in split if not word[0].isdigit())
    dated = _DATE_WORDS if match["others"] is None else TIME_WORDS - _RATES
    return frozenset() if of_what & dated else of_what - _RATES
