"""Two recalls of one question as one answer."""

from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbiter.memory.recall import RecallResult

__all__ = ["with_more"]


def with_more(hits: "RecallResult", more: "RecallResult") -> "RecallResult":
    """Return *hits* with those of *more*, which were found where less competes.

    What is in both is as relevant as in *more*. Hits over time are those of *more*, in its order,
    before the others.
    """
    both = copy(more)
    if more.spread:
        known = {hit.item.id for hit in more}
        both[:] = [*more, *(hit for hit in hits if hit.item.id not in known)]
    else:
        again = {hit.item.id: hit for hit in more}
        both[:] = [again.pop(hit.item.id, hit) for hit in hits]
        both += again.values()
    return both
