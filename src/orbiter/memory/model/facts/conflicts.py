"""Contradiction, which is shown and never settled in silence."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Literal

from orbiter.memory.model.facts.assertion import FactMemory, same_value, told
from orbiter.memory.model.facts.folding import by_key, rank, recording
from orbiter.memory.model.trust import Trust, trust_of

__all__ = ["FactConflict", "conflicts_in"]


@dataclass(frozen=True, slots=True)
class FactConflict:
    """Two assertions that contradict each other; `retract` one of them, and it is settled."""

    key: str
    earlier: FactMemory
    """What was recorded first."""
    later: FactMemory
    """What was recorded after it; of both, the one that began last holds."""
    reason: Literal["same time", "less trusted"]
    """Both claim the same time, or the later one comes from a less trusted source."""

    def __str__(self) -> str:
        return f"{self.key}: {told(self.earlier)} or {told(self.later)} ({self.reason})"


def _agree(one: FactMemory, other: FactMemory) -> bool:
    return one.is_end == other.is_end and (one.is_end or same_value(one.value, other.value))


def conflicts_in(
    facts: Iterable[FactMemory], *, known_at: datetime | None = None
) -> list[FactConflict]:
    """Return the contradictions among accepted facts that are not retracted, by key and time.

    A later one that begins later simply continues an earlier one. It contradicts it where it
    begins at the same time or before, and still speaks of the time when the other began; where it
    begins in a time for which the other was said to be true to its end; and where what it takes
    the place of comes from a more trusted source. An end is about what held then, and contradicts
    nothing that began after it.
    """
    known_at = datetime.max.replace(tzinfo=UTC) if known_at is None else known_at
    found: list[FactConflict] = []
    for of_key in by_key(facts).values():
        live = sorted((fact for fact in of_key if fact.is_known(known_at)), key=recording)
        begun: dict[datetime, FactMemory] = {}  # the last word of each beginning
        ended: list[FactMemory] = []
        for place, later in enumerate(live):
            for start, earlier in begun.items():
                if later.is_end and start > later.valid_from:
                    continue
                if later.covers(start) and not _agree(earlier, later):
                    found.append(FactConflict(later.key, earlier, later, "same time"))
            found += (
                FactConflict(later.key, earlier, later, "same time")
                for earlier in ended
                if _breaks_into(later, earlier) and not _agree(earlier, later)
            )
            begun[later.valid_from] = later
            if later.valid_to is not None:
                ended.append(later)
            better = _more_trusted(islice(live, place), later)
            if better is not None:
                found.append(FactConflict(later.key, better, later, "less trusted"))
    return found


def _breaks_into(later: FactMemory, earlier: FactMemory) -> bool:
    """Tell whether *later* begins while *earlier*, whose end is known, was said to be true.

    What was only foreseen may come otherwise: that is news, and so is that something is over.
    """
    if later.is_end or earlier.valid_to is None:
        return False
    if not earlier.valid_from < later.valid_from < earlier.valid_to:
        return False
    return later.valid_to is not None or later.valid_from < earlier.recorded_at


def _more_trusted(before: Iterable[FactMemory], later: FactMemory) -> FactMemory | None:
    """Return what *later* takes the place of, if that is worth more and says something else."""
    level = trust_of(later)
    if level is Trust.USER:
        return None
    covered = (fact for fact in before if fact.covers(later.valid_from))
    best = max(covered, key=rank, default=None)
    if best is None or trust_of(best) <= level:
        return None
    # One that claims the same time contradicts it anyway.
    is_told = best.valid_from == later.valid_from or _breaks_into(later, best)
    return None if is_told or _agree(best, later) else best
