"""Why a memory ranks where it does for a question, or is left out."""

from collections.abc import Sequence
from dataclasses import dataclass

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.recall import Reason

__all__ = ["Rank", "Weight", "rank_of", "related_to"]

_HITS = 10
_RELATED = 6
_ASKED = 600
"""Letters of a memory that are asked with to find what is like it."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One part of a score, and how long its bar is."""

    text: str
    points: float
    share: float
    """Of the strongest part, from -1 to 1."""


@dataclass(frozen=True, slots=True)
class Rank:
    """How a memory does for one question."""

    query: str
    verdict: str
    is_hit: bool
    place: int | None
    score: float | None
    weights: Sequence[Weight]
    considered: int
    question: str


async def rank_of(handle: ScopedMemory, item: MemoryItem, query: str) -> Rank:
    """Ask *query*, and return what becomes of *item*."""
    found = await handle.recall(query, k=_HITS, explain=True)
    place: int | None = None
    score: float | None = None
    reasons: tuple[Reason, ...] = ()
    verdict = ""
    for number, hit in enumerate(found, 1):
        if hit.item.id == item.id:
            place, score, reasons = number, hit.score, tuple(hit.why)
            verdict = f"Number {number} of {found.considered:,} candidates"
        elif any(each.id == item.id for each in hit.repeats):
            verdict = f"Left out: number {number} says the same"
    if place is None:
        out = next((each for each in found.left_out if each.item.id == item.id), None)
        if out is not None:
            score, reasons = out.score, tuple(out.why)
            verdict = verdict or f"Left out: {out.told}"
    return Rank(
        query,
        verdict or _unfound(item, found.considered),
        place is not None,
        place,
        score,
        _weights(reasons),
        found.considered,
        found.question,
    )


def _unfound(item: MemoryItem, considered: int) -> str:
    if item.status is not MemoryStatus.ACCEPTED:
        return f"Never recalled: its status is {item.status.value}, and only accepted ones are"
    return f"Not among the best of {considered:,} candidates: nothing in it answers that"


def _weights(reasons: Sequence[Reason]) -> list[Weight]:
    strongest = max((abs(each.points) for each in reasons), default=0.0) or 1.0
    shown = [each for each in reasons if abs(each.points) >= 0.005][:12]
    return [Weight(each.text, round(each.points, 3), each.points / strongest) for each in shown]


async def related_to(handle: ScopedMemory, item: MemoryItem) -> list[MemoryItem]:
    """Return a few memories that are about the same, best first."""
    query = item.content[:_ASKED].strip()
    if not query:
        return []
    found = await handle.recall(query, k=_RELATED + 1)
    return [hit.item for hit in found if hit.item.id != item.id][:_RELATED]
