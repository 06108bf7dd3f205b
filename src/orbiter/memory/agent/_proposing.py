"""What a proposed fact is: a draft whose id follows from what it says and who says it."""

import json

from orbiter.memory.agent._reading import derived_id
from orbiter.memory.errors import QueryError
from orbiter.memory.facts import FactMemory
from orbiter.memory.items import MemoryMetadata

__all__ = ["proposal"]


def proposal(fact: FactMemory, scope: MemoryMetadata, confidence: float | None) -> FactMemory:
    """Return *fact*, which nobody has seen yet, as the proposal that its sources make.

    The id is the same each time, so that proposing again finds what became of it.
    """
    value = json.dumps(fact.value, sort_keys=True)
    sources = json.dumps(sorted(fact.source_ids))
    extra = dict(fact.metadata.extra)
    if confidence is not None:
        if isinstance(confidence, bool) or not isinstance(confidence, int | float):
            raise QueryError(f"`confidence` must be a number from 0 to 1, not {confidence!r}")
        if not 0 <= confidence <= 1:
            raise QueryError(f"`confidence` must be from 0 to 1, not {confidence}")
        extra["confidence"] = confidence
    whose = {**fact.metadata.__dict__, "extra": extra}
    fact.__dict__["metadata"] = MemoryMetadata(**whose)
    fact.__dict__["id"] = derived_id(scope, "proposal", fact.key, value, sources)
    return fact
