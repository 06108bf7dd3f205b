"""Facts as drawings: spans of values on one axis of time that all keys share.

Pure functions. Places are percent of the width, so that a drawing fits wherever it stands.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from orbiter.memory.model.facts import (
    ALWAYS,
    FactConflict,
    FactMemory,
    conflicts_in,
    dated,
    entries,
    holding,
    show_value,
    span_of,
    timeline,
)

__all__ = ["Axis", "Row", "Shape", "axis_of", "row_of", "ticks_of"]


Kind = Literal["now", "past", "future"]

_LEAST = 0.6
"""How wide a span is at least, in percent, so that it can be seen."""
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_AHEAD = timedelta(days=365 * 30)
_SHORTEST = timedelta(hours=1)
_DAY = timedelta(days=1)


_TICKS = (10.0, 30.0, 50.0, 70.0, 90.0)


class Tick(NamedTuple):
    """One mark: where it is, in percent, and what it says."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """From when to when a drawing is, and what stands along it."""

    start: datetime
    end: datetime
    ticks: tuple[Tick, ...]
    now: float
    """Where now is, in percent."""
    as_of: float | None
    """Where the moment is that was asked for, if one was."""

    def at(self, moment: datetime) -> float:
        """Return where *moment* is, in percent; what is outside is at the edge."""
        share = (moment - self.start) / (self.end - self.start)
        return round(100 * min(1.0, max(0.0, share)), 3)

    @property
    def step(self) -> timedelta:
        """How far one step of the slider along the axis goes: an hour or a day."""
        return timedelta(hours=1) if self.end - self.start <= timedelta(days=4) else _DAY


class Shape(NamedTuple):
    """One value on the axis."""

    kind: Kind
    left: float
    width: float
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """One key: what holds, and the drawing of what held."""

    key: str
    holds: FactMemory | None
    value: str
    """What holds, in words; empty if nothing does."""
    when: str
    shapes: tuple[Shape, ...]
    assertions: int
    conflicts: tuple[FactConflict, ...]


def axis_of(
    facts: Iterable[FactMemory],
    *,
    now: datetime,
    as_of: datetime | None = None,
    days: int | None = None,
) -> Axis:
    """Return the axis that shows all *facts*, or the last *days* only."""
    marks = [now]
    if days is None:
        for fact in facts:
            marks += [fact.valid_from, *([fact.valid_to] if fact.valid_to else [])]
    else:
        marks.append(now - timedelta(days=days))
    visible_marks = [mark for mark in marks if _EARLIEST <= mark <= now + _AHEAD] or [now]
    axis = _around(visible_marks)
    # A moment on the axis leaves it as it is, so that a slider along it stays where it is.
    if as_of is not None and not axis.start <= as_of <= axis.end:
        axis = _around([*visible_marks, *([as_of] if _EARLIEST <= as_of <= now + _AHEAD else [])])
    return Axis(
        axis.start,
        axis.end,
        tuple(ticks_of(axis.start, axis.end)),
        axis.at(now),
        None if as_of is None else axis.at(as_of),
    )


def _around(marks: Sequence[datetime]) -> Axis:
    """Return an axis with room at both ends, and nothing along it."""
    start, end = min(marks), max(marks)
    if end - start < _SHORTEST:
        start = end - _SHORTEST
    pad = (end - start) / 16
    return Axis(start - pad, end + pad, (), 0, None)


def row_of(
    key: str, facts: Sequence[FactMemory], *, axis: Axis, as_of: datetime, known_at: datetime
) -> Row:
    """Return the row of one key, as it was at *as_of* and known at *known_at*."""
    spans = timeline(facts, known_at=known_at)
    holds = holding(facts, as_of=as_of, known_at=known_at)
    conflicts = tuple(conflicts_in(facts, known_at=known_at))
    shapes: list[Shape] = []
    for span in spans:
        kind: Kind = "past"
        if span.start > as_of:
            kind = "future"
        elif span.end is None or as_of < span.end:
            kind = "now"
        value = show_value(span.fact.value)
        shapes += _shape(axis, kind, span.start, span.end, value, dated(span, now=as_of))
    holding_span = span_of(holds, facts, as_of=as_of, known_at=known_at) if holds else None
    return Row(
        key=key,
        holds=holds,
        value="" if holds is None else show_value(holds.value),
        when="" if holding_span is None else dated(holding_span, now=as_of),
        shapes=tuple(shapes),
        assertions=len(entries(facts, known_at=known_at)),
        conflicts=conflicts,
    )


def _shape(
    axis: Axis,
    kind: Kind,
    start: datetime,
    end: datetime | None,
    value: str,
    when: str,
) -> list[Shape]:
    """Return the shape of a span; nothing if it is not on the axis."""
    if start >= axis.end or (end is not None and end <= axis.start):
        return []
    left = 0.0 if start == ALWAYS else axis.at(start)
    right = 100.0 if end is None else axis.at(end)
    width = max(_LEAST, round(right - left, 3))
    title = f"{value}: {when}" if when else value
    return [Shape(kind, min(left, 100 - width), width, value[:120], title[:400])]


def ticks_of(start: datetime, end: datetime) -> list[Tick]:
    """Return marks at even distances, each with the date or the time there."""
    days = (end - start) / timedelta(days=1)
    form = "%-d %b %H:%M" if days <= 4 else "%-d %b" if days <= 150 else "%b %Y"
    return [Tick(at, (start + (end - start) * at / 100).strftime(form)) for at in _TICKS]
