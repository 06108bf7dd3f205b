"""Marks along an axis of time: few, and at round moments."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

__all__ = ["Tick", "ticks_of"]

_MOST = 6
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MINUTES = (10, 30, 60, 180, 360, 720, 1_440, 2_880, 5_760, 11_520)
_IN_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)
_MONTH = timedelta(days=30.44)


class Tick(NamedTuple):
    """One mark: where it is, in percent, and what it says."""

    at: float
    label: str


def ticks_of(start: datetime, end: datetime) -> list[Tick]:
    """Return the marks between two moments, at most six."""
    whole = end - start
    found = _by_minutes(start, end) if whole < _MOST * _MONTH / 2 else _by_months(start, end)
    return [Tick(round(100 * ((moment - start) / whole), 3), label) for moment, label in found]


def _by_minutes(start: datetime, end: datetime) -> Iterator[tuple[datetime, str]]:
    minutes = next(m for m in _MINUTES if (end - start) / timedelta(minutes=m) <= _MOST + 0.5)
    step = timedelta(minutes=minutes)
    moment = start.replace(hour=0, minute=0, second=0, microsecond=0)
    while moment <= end:
        if moment >= start:
            is_day = (moment.hour, moment.minute) == (0, 0)
            label = f"{moment.day} {_MONTHS[moment.month - 1]}" if is_day else f"{moment:%H:%M}"
            yield moment, label
        moment += step


def _by_months(start: datetime, end: datetime) -> Iterator[tuple[datetime, str]]:
    shown = (end - start) / _MONTH
    step = next((m for m in _IN_MONTHS if shown / m <= _MOST), _IN_MONTHS[-1])
    month = start.year * 12 + start.month - 1
    month -= month % step
    while True:
        moment = start.replace(
            year=month // 12, month=month % 12 + 1, day=1, hour=0, minute=0, second=0, microsecond=0
        )
        if moment > end:
            return
        if moment >= start:
            is_year = step % 12 == 0 or moment.month == 1
            yield moment, str(moment.year) if is_year else _MONTHS[moment.month - 1]
        month += step
