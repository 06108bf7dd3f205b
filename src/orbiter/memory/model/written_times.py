"""Times as texts: the beginning of a year, a month or a day, an instant, and how long from now."""

import re
from datetime import datetime, timedelta

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.errors import QueryError

__all__ = ["SPAN", "parse_iso", "read_span"]

SPAN = lazy_pattern(r"(\d{1,12}(?:\.\d{1,6})?)([smhdw])", re.ASCII)
"""How long from now, as in `30d`."""
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MONTH = lazy_pattern(r"\d{4}(?:-\d{2})?", re.ASCII)
"""A year or a month, as facts tell when they hold."""
_BEGINS = {4: "-01-01", 7: "-01"}
"""What makes such a text a day, by its length."""


def parse_iso(text: str) -> datetime:
    """Return the time that an ISO 8601 text names, of a day, a month or a year the beginning.

    `ValueError` if it names none.
    """
    begin = _BEGINS.get(len(text), "") if _MONTH.fullmatch(text) else ""
    return datetime.fromisoformat(f"{text}{begin}")


def read_span(text: str) -> timedelta | None:
    """Return the time from now that a text such as `30d` names; `None` if it names none."""
    span = SPAN.fullmatch(text.strip().lower())
    if span is None:
        return None
    try:
        return timedelta(**{_UNITS[span[2]]: float(span[1])})
    except OverflowError:
        raise QueryError(f"`expires` is out of range: {text!r}") from None
