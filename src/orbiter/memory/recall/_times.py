"""The times a question names, beside the times for which facts held. Pure functions.

What was said of a day is said in the week after it, too; what held is held to the day.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from orbiter.memory.model.facts import FactSpan
from orbiter.memory.recall._dates import Span

__all__ = ["asked_about", "overlap", "told_of"]

_END = datetime.max.replace(tzinfo=UTC)


def asked_about(times: Iterable[Span]) -> list[tuple[datetime, datetime]]:
    """Return from when to when each time lasts that a question names, if it names the year."""
    found: list[tuple[datetime, datetime]] = []
    for each in times:
        if each.start is not None and each.end is not None:
            found.append((each.start, each.end))
        elif each.year is not None:
            first = datetime(each.year, each.month or 1, each.day or 1, tzinfo=UTC)
            found.append((first, _after(first, each)))
    return found


def _after(first: datetime, span: Span) -> datetime:
    if first.year == _END.year:
        return _END
    if span.day is not None:
        return first + timedelta(days=1)
    if span.month is None or span.month == 12:
        return datetime(first.year + 1, 1, 1, tzinfo=UTC)
    return first.replace(month=span.month + 1)


def overlap(span: FactSpan, times: Sequence[tuple[datetime, datetime]]) -> float:
    """Return for how many seconds of these times a fact held."""
    return sum(_seconds(span, start, end) for start, end in times)


def _seconds(span: FactSpan, start: datetime, end: datetime) -> float:
    both = min(span.end or _END, end) - max(span.start, start)
    return max(0.0, both.total_seconds())


def told_of(
    spans: Sequence[FactSpan], times: Sequence[tuple[datetime, datetime]], now: datetime
) -> FactSpan:
    """Return which span of a fact that held more than once is to be told of.

    The one asked about; else that of now, the last one before, or the next.
    """
    best = max(spans, key=lambda span: overlap(span, times))
    if overlap(best, times):
        return best
    begun = [span for span in spans if span.start <= now]
    return begun[-1] if begun else spans[0]
