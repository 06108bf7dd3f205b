"""Facts as drawings: spans of values on one axis of time that all keys share.

Pure functions. Places are percent of the width, so that a drawing fits wherever it stands.
"""

from collections.abc import Iterable, Iterator, Sequence
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

__all__ = ["Axis", "Row", "Scrub", "Shape", "axis_of", "row_of", "scrub_of", "ticks_of"]


Kind = Literal["now", "past", "future", "rival", "retracted"]

LANE = 26
"""How high a lane is, in pixels."""
_MAX_LANES = 6
_LEAST = 0.6
"""How wide a span is at least, in percent, so that it can be seen."""
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_AHEAD = timedelta(days=365 * 30)
_SHORTEST = timedelta(hours=1)


_MAX_TICKS = 6
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MINUTES = (10, 30, 60, 180, 360, 720, 1_440, 2_880, 5_760, 11_520)
_IN_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)
_MONTH = timedelta(days=30.44)


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


class Shape(NamedTuple):
    """One value on the axis."""

    kind: Kind
    left: float
    width: float
    lane: int
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
    height: int
    """Of the drawing, in pixels."""
    undrawn: int
    """How many claims found no lane; the history has them."""
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


class Scrub(NamedTuple):
    """A slider along an axis: each step is an hour, a day or a month, as suits its length."""

    unit: Literal["hour", "day", "month"]
    seconds: int
    """How long a step is; a month is as long as the mean of them."""
    most: int
    page: int
    """Steps that a page is: a day, a month, a year."""
    value: int
    """Where it stands."""


def scrub_of(axis: Axis, *, as_of: datetime) -> Scrub:
    """Return the slider along *axis*, at *as_of*."""
    whole = axis.end - axis.start
    unit: Literal["hour", "day", "month"]
    if whole <= timedelta(days=4):
        unit, seconds, page = "hour", 3_600, 24
    elif whole <= timedelta(days=4 * 366):
        unit, seconds, page = "day", 86_400, 30
    else:
        unit, seconds, page = "month", 2_629_746, 12
    step = timedelta(seconds=seconds)
    most = max(1, whole // step)
    return Scrub(unit, seconds, most, page, min(most, max(0, round((as_of - axis.start) / step))))


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
        shapes += _shape(axis, kind, span.start, span.end, 0, value, dated(span, now=as_of))
    ends = [-1.0]  # where the last shape of each lane ends; the first lane is what held
    undrawn = 0
    for fact, kind, why in _beside(facts, conflicts, known_at):
        text = show_value(fact.value)
        for shape in _shape(axis, kind, fact.valid_from, fact.valid_to, 0, text, why):
            free = (lane for lane, last in enumerate(ends) if lane and last <= shape.left)
            lane = next(free, len(ends))
            if lane >= _MAX_LANES:
                undrawn += 1
                continue
            ends[lane:] = [shape.left + shape.width, *ends[lane + 1 :]]
            shapes.append(shape._replace(lane=lane))
    holding_span = span_of(holds, facts, as_of=as_of, known_at=known_at) if holds else None
    return Row(
        key=key,
        holds=holds,
        value="" if holds is None else show_value(holds.value),
        when="" if holding_span is None else dated(holding_span, now=as_of),
        shapes=tuple(shapes),
        height=LANE * len(ends),
        undrawn=undrawn,
        assertions=len(entries(facts, known_at=known_at)),
        conflicts=conflicts,
    )


def _beside(
    facts: Sequence[FactMemory], conflicts: Sequence[FactConflict], known_at: datetime
) -> Iterable[tuple[FactMemory, Kind, str]]:
    """Yield what is drawn below what held: claims that contradict it, and retracted ones."""
    rivals: dict[str, FactMemory] = {}
    for conflict in conflicts:
        sides = (conflict.earlier, conflict.later)
        # Of both, the one that holds where they begin to differ is drawn as such already.
        turn = max(side.valid_from for side in sides)
        holds = holding(facts, as_of=turn, known_at=known_at)
        rivals |= {side.id: side for side in sides if side != holds and not side.is_end}
    for fact in sorted(rivals.values(), key=lambda fact: fact.valid_from):
        yield fact, "rival", f"in conflict, {dated(fact) or 'always'}"
    for entry in entries(facts, known_at=known_at):
        fact = entry.fact
        if fact.retracted_at is not None and fact.retracted_at <= known_at and not fact.is_end:
            yield fact, "retracted", f"retracted {fact.retracted_at:%Y-%m-%d}"


def _shape(
    axis: Axis,
    kind: Kind,
    start: datetime,
    end: datetime | None,
    lane: int,
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
    return [Shape(kind, min(left, 100 - width), width, lane, value[:120], title[:400])]


def ticks_of(start: datetime, end: datetime) -> list[Tick]:
    """Return the marks between two moments, at most six."""
    whole = end - start
    moments = _by_minutes(start, end) if whole < _MAX_TICKS * _MONTH / 2 else _by_months(start, end)
    return [Tick(round(100 * ((moment - start) / whole), 3), label) for moment, label in moments]


def _by_minutes(start: datetime, end: datetime) -> Iterator[tuple[datetime, str]]:
    minutes = next(m for m in _MINUTES if (end - start) / timedelta(minutes=m) <= _MAX_TICKS + 0.5)
    step = timedelta(minutes=minutes)
    moment = start.replace(hour=0, minute=0, second=0, microsecond=0)
    while moment <= end:
        if moment >= start:
            is_day = (moment.hour, moment.minute) == (0, 0)
            label = f"{moment.day} {_MONTHS[moment.month - 1]}" if is_day else f"{moment:%H:%M}"
            yield moment, label
        moment += step


def _by_months(start: datetime, end: datetime) -> Iterator[tuple[datetime, str]]:
    months = (end - start) / _MONTH
    step = next((m for m in _IN_MONTHS if months / m <= _MAX_TICKS), _IN_MONTHS[-1])
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
