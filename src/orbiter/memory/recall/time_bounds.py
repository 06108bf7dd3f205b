"""Reads `since` and `until`: the bounds of a search, in the words in which questions name times.

`since` is where the named time begins, and `until` where it is over: with both as "yesterday", all
of that day is searched. One function for the library, tools, MCP, REST and the command line.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import overload

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.errors import QueryError
from orbiter.memory.model.validation import plain_time, plain_value
from orbiter.memory.recall._date_phrases import named_time

__all__ = ["UNDERSTOOD", "parse_time", "read_bound"]

UNDERSTOOD = (
    "`2026-11-16`, `2026-11-16T09:30+01:00`, `3d`, `12h`, `yesterday`, `last week`, "
    "`two weeks ago` or `March 2026`"
)
"""What an error shows of the texts that name a time."""

_MAX_LENGTH = 200
_AGE = lazy_pattern(
    r"(?P<count>\d{1,9}(?:\.\d{1,9})?|an?)\s*"
    r"(?:(?P<letter>[smhdw])|(?P<unit>second|minute|hour)s?)(?:\s+ago)?",
    re.IGNORECASE,
)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@overload
def read_bound(name: str, value: None) -> None: ...


@overload
def read_bound(name: str, value: datetime | date | str) -> datetime: ...


def read_bound(name: str, value: datetime | date | str | None) -> datetime | None:
    """Return the instant that the argument *name* means: for `until` the end of a day or a phrase.

    A time without a zone is UTC. A text that names no time is a `QueryError`; what is neither a
    time nor a text comes back as it is.
    """
    is_end = name == "until"
    if not isinstance(value, str):
        plain = plain_value(value)
        moment: datetime | None = plain_time(plain)
        is_day = isinstance(plain, date) and not isinstance(plain, datetime)
        return _next_day(moment) if is_day and is_end and moment is not None else moment
    try:
        return parse_time(value, is_end=is_end)
    except ValueError:
        raise QueryError(
            f"`{name}` must be a datetime, or a text such as {UNDERSTOOD}, not {value!r}"
        ) from None


def parse_time(
    text: str, *, is_end: bool = False, now: datetime | None = None, is_local: bool = False
) -> datetime:
    """Return when the time that *text* names begins, or with *is_end* when it is over.

    `now`, an age such as `3d` and a text with a time of day are one instant. *is_local* means that
    days are those of this computer's time zone, not UTC's. `ValueError` if no time is named.
    """
    now = datetime.now(UTC) if now is None else now
    said = text.strip()
    if said.lower() == "now":
        return now
    if age := _AGE.fullmatch(said):
        return _past(age, now)
    begin, end = _span(said, _wall_clock(now, is_local=is_local))
    moment = end if is_end else begin
    if moment.tzinfo is not None:
        return moment
    return moment.astimezone() if is_local else moment.replace(tzinfo=UTC)


def _past(age: re.Match[str], now: datetime) -> datetime:
    count = 1.0 if age["count"].lower().startswith("a") else float(age["count"])
    unit = _UNITS[(age["letter"] or age["unit"])[0].lower()]
    try:
        return now - timedelta(**{unit: count})
    except OverflowError:
        raise ValueError(f"`{age[0]}` is too far in the past") from None


def _wall_clock(now: datetime, *, is_local: bool) -> datetime:
    """Return *now* as a clock on the wall shows it; phrases are read as if that were UTC."""
    return now.astimezone().replace(tzinfo=UTC) if is_local else now.astimezone(UTC)


def _span(text: str, now: datetime) -> tuple[datetime, datetime]:
    """Return when a named time begins and when it is over, without a zone unless *text* has one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        span = named_time(text, now=now) if len(text) <= _MAX_LENGTH else None
        if span is None:
            raise ValueError(f"`{text[:80]}` is not a valid time; write {UNDERSTOOD}") from None
        begin, end = span
        return begin.replace(tzinfo=None), end.replace(tzinfo=None)
    return moment, _next_day(moment) if _is_day(text) else moment


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _next_day(day: datetime) -> datetime:
    last = datetime.combine(date.max, time.max)
    return day + timedelta(days=1) if day.date() < date.max else last
