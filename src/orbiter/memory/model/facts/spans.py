"""For how long facts held, and how people read that."""

from dataclasses import dataclass
from datetime import datetime

from orbiter.memory.model.facts.assertion import ALWAYS, FactMemory, show_value, told

__all__ = ["FactEntry", "FactSpan", "dated"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class FactSpan:
    """From when to when a fact held, as far as others let it."""

    fact: FactMemory
    start: datetime
    end: datetime | None
    """`None` if it holds until further notice."""

    def __str__(self) -> str:
        return f"{show_value(self.fact.value)}, {dated(self)}".removesuffix(", ")


@dataclass(frozen=True, slots=True)
class FactEntry:
    """One assertion in the history of a key, and the time for which it held."""

    fact: FactMemory
    spans: tuple[FactSpan, ...]
    """None if it never held: it was retracted, or others cover all of it."""

    def __str__(self) -> str:
        if self.fact.retracted_at is not None and not self.spans:
            return f"{told(self.fact)}, retracted {_date(self.fact.retracted_at)}"
        if self.fact.is_end:
            return f"ended, {dated(self.fact)}"
        held = " and ".join(dated(span) for span in self.spans) if self.spans else "never held"
        return f"{told(self.fact)}, {held}".removesuffix(", ")


def dated(what: FactMemory | FactSpan, *, now: datetime | None = None) -> str:
    """Return when a fact holds: `since 1 Mar 2024`, `2020 to 2024`, `until 2024`, or nothing.

    As seen from *now*, what is to come is `from 1 Jan 2029`.
    """
    if isinstance(what, FactMemory):
        what = FactSpan(what, what.valid_from, what.valid_to)
    start, end = what.start, what.end
    if start == ALWAYS:
        return "" if end is None else f"until {_day(end)}"
    if end is None and now is not None and start > now:
        return f"from {_date(start)}"
    if end is None:
        return f"since {_day(start)}"
    if start.date() == end.date():
        return f"{_date(start)}, {start:%H:%M} to {end:%H:%M} UTC"
    return f"{_day(start)} to {_day(end)}"


def _day(moment: datetime) -> str:
    """Return the day; only the year of what is said of a year."""
    is_year = (moment.month, moment.day) == (1, 1) and moment.time() == datetime.min.time()
    return str(moment.year) if is_year else _date(moment)


def _date(moment: datetime) -> str:
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"
