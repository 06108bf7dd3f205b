"""The times that a text names: dates, "from March to June", "since Monday", "two weeks ago".

English, ISO 8601, and what `_foreign_times` puts into English. Seasons are those of the northern
half of the world.
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.recall import _foreign_times
from orbiter.memory.recall._dates import (
    FIRST,
    MONTHS,
    Offset,
    Span,
    coming,
    is_real,
    midnight,
    shifted,
    three_months,
    weekend,
)
from orbiter.memory.tasks.offload import search

__all__ = ["has_time", "named_day", "named_time", "offsets", "spans"]

_SHORT_MONTHS = tuple(month[:3] for month in MONTHS)
"""Each is in the full name of its month, too."""
_WORDS = frozenset(("may", "march", *_SHORT_MONTHS, "sept"))
"""Months that are words of their own, or names, unless something makes them a month."""
_NUMBERS = {
    word: number
    for number, word in enumerate(
        (
            *("zero", "one", "two", "three", "four", "five", "six"),
            *("seven", "eight", "nine", "ten", "eleven", "twelve"),
        )
    )
} | {"a": 1, "an": 1, "couple of": 2, "few": 3}
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
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_TO = r"\s{0,4}(?:-|–|\b(?:to|and|until|till|through)\b)\s{0,4}(?:the\s+)?"
_NAMED = lazy_pattern(
    rf"\b(?:(?:(?P<first>{_DAY})(?P<to>{_TO}))?(?P<before>{_DAY})(?:\s+of)?\s+"
    rf"|(?P<ordinal>{_ORDINAL})\s+of\s+)?"
    rf"(?P<month>{'|'.join(MONTHS)}|(?:{'|'.join(_SHORT_MONTHS)}|sept)(?!\w|['’]))\b\.?"
    rf"(?:\s+(?:(?P<after>{_DAY})\b(?!\d)"
    rf"(?:(?P<until>{_TO})(?P<last>{_DAY})\b(?!\s+(?:of\s+)?[^\W\d]|[\d/.-]))?"
    rf"|(?:the\s+)?(?P<later>{_ORDINAL})\b))?"
    rf"(?:(?:,\s*|\s+(?:of\s+)?)(?P<year>\d{{4}})\b)?"
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
"""Characters before a time that say which part of it is meant, or that it is a beginning."""
_NUMERIC = (
    lazy_pattern(r"\b(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b"),
    lazy_pattern(r"\b(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})\b"),
    lazy_pattern(r"(?<![\d/])(?P<day>\d{1,2})/(?P<month>\d{1,2})/(?P<year>\d{4})\b"),
    lazy_pattern(r"(?<![\d/])(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})\b"),
    lazy_pattern(r"(?<![\d/-])(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)(?![\d-])"),
    lazy_pattern(r"(?<![\d/-])(?P<month>\d{1,2})/(?P<year>(?:19|20)\d\d)(?![\d/])"),
)
"""Some write the day first and some the month: what may be either is both."""
_YEAR = lazy_pattern(r"\b(?:in|of|during|since|year)\s+(?P<year>(?:19|20)\d{2})\b")
_HALF_YEAR = "half a year ago"
_AGO = lazy_pattern(
    rf"\b(?P<count>\d{{1,3}}|a couple of|a few|{'|'.join(_NUMBERS)})\s+"
    r"(?P<unit>day|week|month|year)s?\s+ago\b"
)
_PAST = lazy_pattern(
    r"\b(?P<which>last|past|previous|this)\s+"
    rf"(?:(?P<count>\d{{1,3}}|couple of|few|{'|'.join(_NUMBERS)})\s+)?"
    r"(?P<unit>day|week|month|year|weekend)s?\b(?!\s+of\b)"
)
_NEXT = lazy_pattern(r"\bnext\s+(?P<unit>week|month|year)\b")
_WEEKEND = lazy_pattern(
    r"\b(?:at|on|over|during)\s+(?:the\s+)?weekend\b(?!\s+(?:of|before|after|following|prior)\b)"
)
_COUNT = rf"\d{{1,3}}|a couple of|a few|{'|'.join(_NUMBERS)}"
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = lazy_pattern(
    r"\b(?P<lead>last|this|past|on|since|from|to|until|between|and)\s+(?:last\s+)?"
    rf"(?P<day>{'|'.join(_DAYS)})\b(?!\s+(?:before|after|following)\b)"
    r"(?P<before>,?\s+(?:of\s+)?last\s+week\b)?"
)
_OFFSET = lazy_pattern(
    rf"\b(?:(?P<count>{_COUNT})\s+(?P<unit>day|week|month|year)s?"
    rf"|the\s+(?:very\s+)?(?P<whole>day|morning|evening|night|week|month|year|weekend)"
    rf"|(?:the|on)\s+(?P<weekday>{'|'.join(_DAYS)}))"
    r"\s+(?P<side>before|after|following|prior\s+to)\s+(?P<anchor>[^?!;,]{2,80}(?:,\s*\d{4})?)"
)
_MAKES_MONTH = lazy_pattern(
    r"\b(?:in|of|during|since|until|by|last|this|next|early|late|mid|from|between|after|before)"
    r"[\s-]{1,4}\Z"
)
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_QUARTERS = {"q1": 1, "q2": 4, "q3": 7, "q4": 10} | {
    "first quarter": 1, "second quarter": 4, "third quarter": 7, "fourth quarter": 10,
}  # fmt: skip
_QUARTER = lazy_pattern(
    r"\b(?P<lead>in|during|last|this|since|after|before|from|between|until|to|of)\s+(?:the\s+)?"
    rf"(?P<name>{'|'.join((*_SEASONS, *_QUARTERS))})\b"
    r"(?:\s+(?:(?:of|in)\s+)?(?P<year>\d{4})\b)?"
)
_HOLIDAYS = {
    "christmas": (12, 24, 26),
    "new year's eve": (12, 31, None),
    "new year's day": (1, 1, None),
    "halloween": (10, 31, None),
    "valentine's day": (2, 14, None),
}
_HOLIDAY = lazy_pattern(rf"\b(?P<name>{'|'.join(_HOLIDAYS)})\b(?:\s+(?P<year>\d{{4}})\b)?")
_TODAY = lazy_pattern(r"\b(?:today|tonight|this\s+(?:morning|afternoon|evening))\b")
_ON_THE = lazy_pattern(r"\bon\s+the\s+(?P<day>\d{1,2})(?:st|nd|rd|th)\s*(?:[?.!,;]|\Z)")
_HAPPENED = lazy_pattern(
    r"\b(?:did|didn't|was|wasn't|were|weren't|had|happened|last|spent|went"
    r"|(?:have|has)\s+(?:i|we|you|they|he|she|it)|(?:i|we)\s+(?:said|told|discussed|wrote|talked))\b"
)
"""What asks about the past. Otherwise today and Christmas are often those to come."""
_RANGE = {"between": ("and",), "from": ("to", "until", "till", "through", "and", "-", "–")}
_JOINS = ("to", "until", "till", "through", "-", "–")
"""What makes one time of two, also without "from" before them."""
_FILLS = frozenset(("the", "in", "last", "on"))
"""Words that stand before a time, and change nothing."""
_OPEN = lazy_pattern(
    rf"\b(?P<unit>(?:{'|'.join((*_UNITS, *_DAYS))}|weekend)s?\s+)?"
    r"(?P<side>since|after|before|until|till)\s+(?:(?:the|last|in)\s+)?"
    r"(?:(?:beginning|start)\s+of\s+)?\Z"
)

_TIME = lazy_pattern(
    rf"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|recently|weekend|since|just|week|month"
    rf"|year|morning|{'|'.join(m for m in MONTHS if m not in ('may', 'march'))}"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|spring|summer|autumn|winter|(?:19|20)\d{2})s?\b"
)
_REACH = 16
"""Characters that `_TIME` looks at, at most."""


class _Mention(NamedTuple):
    """A time, and where a text names it."""

    begin: int
    end: int
    span: Span
    is_range: bool = False
    """Whether it is from one day to another."""


def spans(text: str, *, now: datetime) -> tuple[Span, ...]:
    """Return the times that *text* names, as seen from *now*."""
    in_english = _foreign_times.in_english(text)
    lowered = (text if in_english is None else in_english).casefold()
    # A pattern is used only where a word is that it needs: most questions name no time.
    mentions = [*_calendar_dates(lowered), *_named_times(lowered, now)]
    if not mentions and any(map(str.isdigit, lowered)):
        years = _YEAR.finditer(lowered)
        mentions = [_Mention(*year.span("year"), Span(int(year["year"]))) for year in years]
    mentions = [mention for mention in mentions if is_real(mention.span)]
    dates = {mention.span for mention in mentions}
    # "Last week, as mentioned on 6 November 2023" is the week before that day.
    days = {span for span in dates if span.year and span.month and span.day and not span.last}
    base = now if len(days) != 1 else _noon(next(iter(days)), now)
    mentions += [each for each in _weekdays(lowered, base) if is_real(each.span)]
    offset_matches = list(_offset_matches(lowered))
    mentions.sort(key=itemgetter(0, 1))
    times = _joined(lowered, mentions, offset_matches, now)
    times += _relative(lowered, base)
    for offset in offset_matches:
        anchor = offset["anchor"]
        if len(anchor) >= len(lowered) or anchor.startswith("yesterday"):
            continue
        if base_day := named_day(anchor, now=now):
            times.append(_offset(offset).from_day(base_day))
    return tuple(span for span in dict.fromkeys(times) if is_real(span))


def _has_any(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def _calendar_dates(lowered: str) -> Iterator[_Mention]:
    """Yield days, parts of months, months and years that are named by the calendar."""
    end = 0
    for match in _NAMED.finditer(lowered) if _has_any(lowered, _SHORT_MONTHS) else ():
        name, word = match["month"], match["ordinal"] or match["later"]
        day = _number(match["before"] or match["after"]) or _ORDINALS.get(word or "")
        year = int(match["year"]) if match["year"] else None
        is_plain = name not in _WORDS or (day and not match["later"]) or year
        before = lowered[max(0, match.start("month") - _BEFORE) : match.start("month")]
        follows = end > 0 and lowered[end : match.start()].strip() in (*_JOINS, "and", "or")
        if not is_plain and not follows and _MAKES_MONTH.search(before) is None:
            continue
        end = match.end()
        part = (day, None) if day else _part_of_month(before)
        begin = match.start("before") if match["first"] else match.start()
        first, last = _number(match["first"]) or day, _number(match["last"]) or day
        is_range = bool(first and last and first < last) and _joins(lowered, match)
        if is_range:
            part, begin = (first, last), match.start()
        span = Span(year, _SHORT_MONTHS.index(name[:3]) + 1, part[0], last=part[1])
        yield _Mention(begin, match.end(), span, is_range)
    for form in _NUMERIC if any(map(str.isdigit, lowered)) else ():
        for match in form.finditer(lowered):
            parts = {name: int(number) for name, number in match.groupdict().items()}
            span = Span(parts["year"], parts["month"], parts.get("day"))
            yield _Mention(*match.span(), span)


def _number(day: str | None) -> int | None:
    return int(day.rstrip("stndrh")) if day else None


def _joins(lowered: str, match: re.Match[str]) -> bool:
    """Tell whether two days of a month are the ends of a time, as with "between" before "and"."""
    word = (match["to"] or match["until"] or "").removesuffix("the ").strip()
    before = lowered[max(0, match.start() - _BEFORE) : match.start()].rstrip()
    return bool(word) and (word != "and" or before.endswith(("between", "between the")))


def _named_times(lowered: str, now: datetime) -> Iterator[_Mention]:
    """Yield seasons, quarters, holidays and days of this month."""
    for match in _QUARTER.finditer(lowered) if _has_any(lowered, (*_SEASONS, *_QUARTERS)) else ():
        month = (_SEASONS | _QUARTERS)[match["name"]]
        first = Span(int(match["year"]) if match["year"] else None, month).latest(now)
        span = three_months(first)
        if match["lead"] == "last" and span.end and span.end > now and first.year:
            span = three_months(first._replace(year=first.year - 1))
        yield _Mention(match.start("name"), match.end(), span)
    if _HAPPENED.search(lowered) is None:
        return
    for match in _HOLIDAY.finditer(lowered.replace("’", "'")):
        month, day, last = _HOLIDAYS[match["name"]]
        span = Span(int(match["year"]) if match["year"] else None, month, day, last=last)
        is_last = lowered[: match.start()].rstrip().endswith("last")
        yield _Mention(*match.span(), span.latest(now) if is_last else span)
    for match in _ON_THE.finditer(lowered) if "on the" in lowered else ():
        day = int(match["day"])
        then = shifted(now.replace(day=1), -1) if day > now.day else now
        yield _Mention(*match.span("day"), Span(then.year, then.month, day))
    for match in _TODAY.finditer(lowered):
        yield _Mention(*match.span(), Span(start=midnight(now), end=shifted(midnight(now), 1)))
    for match in _WEEKEND.finditer(lowered) if "weekend" in lowered else ():
        yield _Mention(*match.span(), weekend(now, is_over=False))


def _weekdays(lowered: str, now: datetime) -> Iterator[_Mention]:
    for match in _WEEKDAY.finditer(lowered) if "day" in lowered else ():
        back = (now.weekday() - _DAYS.index(match["day"])) % 7 or 7
        if match["before"] is not None and back <= now.weekday():  # it has been in this week
            back += 7
        day = shifted(now, -back)
        yield _Mention(match.start("day"), match.end(), Span(day.year, day.month, day.day))


def _joined(
    lowered: str, mentions: list[_Mention], offset_matches: list[re.Match[str]], now: datetime
) -> list[Span]:
    """Return the times that are mentioned; two that are the ends of one are that one."""
    times: list[Span] = []
    at = 0
    while at < len(mentions):
        mention = mentions[at]
        following = mentions[at + 1 : at + 2]
        if following and _are_ends(lowered, mention, following[0]):
            times += _range(mention.span, following[0].span)
            at += 2
            continue
        is_anchor = any(match.start() <= mention.begin < match.end() for match in offset_matches)
        times.append(mention.span if is_anchor else _open_range(lowered, mention, now))
        at += 1
    return times


def _are_ends(lowered: str, first: _Mention, last: _Mention) -> bool:
    """Tell whether two times are the first and the last of one: "from May to June"."""
    if last.begin < first.end:
        return False
    between = lowered[first.end : last.begin].split()
    before = lowered[max(0, first.begin - _BEFORE) : first.begin].split()
    lead = [word for word in before[-2:] if word not in _FILLS]
    joins = (*_JOINS, *(_RANGE.get(lead[-1], ()) if lead else ()))
    return " ".join(word for word in between if word not in _FILLS) in joins


def _range(first: Span, last: Span) -> list[Span]:
    """Return all the time from one to another; of any year if neither has one."""
    if first.start is None and last.start is None and first.month and last.month:
        is_later = (first.month, first.day or 1) > (last.month, last.last or last.day or 31)
        if first.year is None and last.year is not None:
            first = first._replace(year=last.year - is_later)
        elif last.year is None and first.year is not None:
            last = last._replace(year=first.year + is_later)
        elif first.year is None:
            return _months_between(first, last)
        if first[:2] == last[:2] and first.day and last.day and first.day < last.day:
            return [first._replace(last=last.day)]
    if (first.start or first.year) is None or (last.start or last.year) is None:
        return [first, last]
    (begin, _), (_, end) = first.whole(), last.whole()
    return [Span(start=begin, end=end)] if begin < end else [first, last]


def _months_between(first: Span, last: Span) -> list[Span]:
    """Return what is from one day or month to another, month by month."""
    assert first.month is not None  # noqa: S101 - each has one
    assert last.month is not None  # noqa: S101
    if first.month == last.month and first.day and last.day:
        return [first._replace(last=last.day)] if first.day < last.day else [first, last]
    count = (last.month - first.month) % len(MONTHS)
    months = [(first.month - 1 + step) % len(MONTHS) + 1 for step in range(1, count)]
    begins = first._replace(last=monthrange(2024, first.month)[1]) if first.day else first
    ends = Span(None, last.month, 1, last=last.last or last.day) if last.day else last
    return [begins, *(Span(None, month) for month in months), ends]


def _open_range(lowered: str, mention: _Mention, now: datetime) -> Span:
    """Return all the time since, after or before a time, if that is asked for; else the time."""
    span = mention.span
    match = _OPEN.search(lowered[max(0, mention.begin - _BEFORE) : mention.begin])
    # "The last weekend before" it is near to it.
    if match is None or match["unit"] or mention.is_range:
        return span
    if match["side"] == "since":
        begin, _ = span.latest(now).whole()
        return Span(start=begin, end=now) if begin < now else span
    if (span.start or span.year) is None:  # perhaps one to come
        return span
    begin, end = span.whole()
    if match["side"] == "after":
        return Span(start=end, end=now) if end < now else span
    return Span(start=FIRST, end=begin if match["side"] == "before" else end)


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


def offsets(text: str) -> tuple[Offset, ...]:
    """Return the times of *text* that are told by something whose own time it does not tell."""
    every = map(_offset, _offset_matches(text.casefold()))
    unknown = (each for each in every if named_day(each.anchor, now=_SOME_DAY) is None)
    return tuple(each for each in unknown if not each.anchor.startswith(_NO_EVENTS))


_SIDES = ("before", "after", "following", "prior")
"""One of these is in every match of `_OFFSET`, as a month is in every one of `_NAMED`,"""
_ENDS = ("last", "past", "previous", "this")
"""and one of these in every match of `_PAST`."""
_NO_EVENTS = ("today", "tomorrow", "tonight", "now", "yesterday")
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
    days = _UNITS[match["unit"]]
    return Offset(match["anchor"], sign * _counted(match["count"]) * days, max(1.0, days / 2))


def _counted(written: str) -> int:
    """Return the number that "two", "a few" or "12" is."""
    bare = written.removeprefix("a ") if " " in written else written
    return int(bare) if bare.isdigit() else _NUMBERS[bare]


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

_THIS = lazy_pattern(r"this\s+(?P<unit>month|year)")
_LEADS = ("", "did ", "did on ", "did in ")
"""What a question has before a time that is read only there: "Monday", "March", "today"."""
_BESIDE = frozenset(
    """
    after ago and at beginning before between during early end evening following from half
    in last late mid middle morning next of on over past previous prior since start the this till
    through tonight to today until weekend yesterday s eve christmas halloween new valentine couple
    afternoon did
    """.split()  # noqa: SIM905 - read by people
)
_WORD = lazy_pattern(r"[^\W_]+")


def named_time(text: str, *, now: datetime) -> tuple[datetime, datetime] | None:
    """Return when the time that is all of *text* begins and is over; `None` for any other text.

    What may be of any year is the last there has been. Several times are none, and so is
    "01/02/2026", as some write the day first and some the month.
    """
    in_english = _foreign_times.in_english(text)
    lowered = (text if in_english is None else in_english).casefold().replace("’", "'").strip()
    words = _WORD.findall(lowered)
    if not words or not all(word in _time_words() or word[0].isdigit() for word in words):
        return None
    if ago := _AGO.fullmatch(lowered):  # a question allows for some days more
        day = midnight(shifted(now, -_counted(ago["count"]) * _UNITS[ago["unit"]]))
        return day, shifted(day, 1)
    if this := _THIS.fullmatch(lowered):
        return Span(now.year, now.month if this["unit"] == "month" else None).whole()
    for lead in _LEADS:
        found = {span.latest(now) for span in spans(f"{lead}{lowered}", now=now)}
        if len(found) == 1:
            (span,) = found
            return span.core or (span.whole() if span.year or span.start else None)
        if found:
            return None
    return None


@cache
def _time_words() -> frozenset[str]:
    units = (f"{unit}{end}" for unit in _UNITS for end in ("", "s"))
    numbers = " ".join((*_NUMBERS, *_ORDINALS, *_QUARTERS, *_WHICH)).replace("-", " ").split()
    names = (*MONTHS, *_SHORT_MONTHS, "sept", *_DAYS, *_SEASONS)
    return _BESIDE.union(units, numbers, names)


def _relative(lowered: str, now: datetime) -> list[Span]:
    """Return the times that are told by how long ago they were."""
    times = []
    if _HALF_YEAR in lowered:
        times.append(_from(now, 6, _UNITS["month"]))
        lowered = lowered.replace(_HALF_YEAR, "")
    if "ago" in lowered:
        agos = _AGO.finditer(lowered)
        times += [_from(now, _counted(each["count"]), _UNITS[each["unit"]]) for each in agos]
    if _has_any(lowered, _ENDS):
        times += [_past(match, now) for match in _PAST.finditer(lowered) if not _is_days(match)]
    if "next" in lowered:
        times += [coming(match["unit"], now) for match in _NEXT.finditer(lowered)]
    if "yesterday" in lowered and (match := re.search(r"\byesterday\b", lowered)):
        is_before = lowered[: match.start()].endswith("the day before ")
        times.append(_from(now, 2 if is_before else 1, 1.0))
    return times


def _is_days(week: re.Match[str]) -> bool:
    """Tell whether "last week" says which day is meant: "Tuesday of last week"."""
    before = week.string[: week.start()].removesuffix("of ").rstrip(" ,")
    return week["unit"] == "week" and before.endswith(_DAYS)


def _past(match: re.Match[str], now: datetime) -> Span:
    """Return what "last week", "this year" or "the past three days" means."""
    which = "last" if match["which"] == "previous" else match["which"]
    days, today = _UNITS.get(match["unit"], 7.0), midnight(now)
    if match["count"] is not None:
        count = _counted(match["count"])
        core = (shifted(today, -count * days), shifted(today, 1))
        return Span(start=shifted(now, -(count + 1) * days), end=now, core=core)
    if which == "last" and match["unit"] == "year":
        return Span(max(1, now.year - 1))
    if which == "last" and match["unit"] == "month":
        before = shifted(now.replace(day=1), -1)
        return Span(before.year, before.month)
    if match["unit"] == "weekend":
        return weekend(now, is_over=which == "last")
    # Last week may be the last seven days, or the week before this one.
    times = 2 if which == "last" else 1
    around = Span(start=shifted(now, -times * days), end=now)
    if match["unit"] != "week":
        return around
    monday = shifted(today, -now.weekday())
    core = (shifted(monday, -7), monday) if times == 2 else (monday, shifted(monday, 7))
    return around._replace(core=core)


def _from(now: datetime, count: int, days: float) -> Span:
    # "Two weeks ago" is seldom meant to the day.
    middle, slack = shifted(now, -count * days), max(1.0, days / 2)
    day = midnight(middle)
    core = (day, shifted(day, 1)) if days <= 1 else None
    return Span(start=shifted(middle, -slack), end=shifted(middle, slack), core=core)


def has_time(text: str) -> bool:
    """Tell whether *text* says when something was."""
    return search(_TIME, text.lower(), reach=_REACH) is not None or _foreign_times.has_time(text)
