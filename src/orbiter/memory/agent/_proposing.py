"""What a proposed fact is: a draft whose id follows from what it says, of when, and who says it."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.errors import QueryError
from orbiter.memory.model.facts import FactMemory, holding, same_value, span_of
from orbiter.memory.model.items import MemoryMetadata

__all__ = ["Given", "is_alike", "is_known", "proposal"]


class Given(NamedTuple):
    """Which of its times a proposal was given; the others follow from when it was said."""

    start: bool
    end: bool


def is_known(made: FactMemory, facts: Sequence[FactMemory], given: Given, *, now: datetime) -> bool:
    """Tell whether *facts* of its key say already what *made* does: the value, and until when."""
    held = holding(facts, as_of=made.valid_from, known_at=now)
    if held is None or not same_value(held.value, made.value):
        return False
    span = span_of(held, facts, as_of=made.valid_from, known_at=now)
    return not any(given) or made.valid_to in (held.valid_to, span.end)


def is_alike(fact: FactMemory, made: FactMemory, given: Given) -> bool:
    """Tell whether *fact* says of its time what *made* proposes, as far as that was given."""
    if fact.is_end or not same_value(fact.value, made.value):
        return False
    if not any(given):
        return fact.valid_to is None or fact.covers(made.valid_from)
    if given.start:
        return (fact.valid_from, fact.valid_to) == (made.valid_from, made.valid_to)
    return fact.valid_to == made.valid_to


def proposal(fact: FactMemory, scope: MemoryMetadata, confidence: float | None) -> FactMemory:
    """Return *fact*, which nobody has seen yet, as the proposal that its sources make.

    The id is the same each time, so that proposing again finds what became of it.
    """
    value = json.dumps(fact.value, sort_keys=True)
    sources = json.dumps(sorted(fact.source_ids))
    span = [None if at is None else at.isoformat() for at in (fact.valid_from, fact.valid_to)]
    extra = dict(fact.metadata.extra)
    if confidence is not None:
        if isinstance(confidence, bool) or not isinstance(confidence, int | float):
            raise QueryError(f"`confidence` must be a number from 0 to 1, not {confidence!r}")
        if not 0 <= confidence <= 1:
            raise QueryError(f"`confidence` must be from 0 to 1, not {confidence}")
        extra["confidence"] = confidence
    whose = {**fact.metadata.__dict__, "extra": extra}
    fact.__dict__["metadata"] = MemoryMetadata(**whose)
    fact.__dict__["id"] = derived_id(scope, "proposal", fact.key, value, sources, json.dumps(span))
    return fact
