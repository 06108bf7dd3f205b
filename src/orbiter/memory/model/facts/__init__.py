"""Facts: what was true when, and since when it is known. Pure values and functions.

Each assertion is an item of its own and is never overwritten: a later one covers an earlier one
from its `valid_from` on. What holds at a moment is folded from all of them when it is asked for.
The functions take the facts of one scope; whoever reads them from a store sees to that.
"""

from orbiter.memory.model.facts.assertion import (
    ALWAYS,
    MAX_SOURCES,
    MAX_VALUE,
    FactMemory,
    FactOp,
    check_key,
    same_value,
    show_value,
)
from orbiter.memory.model.facts.spans import (
    FactConflict,
    FactEntry,
    FactSpan,
    by_key,
    conflicts_in,
    current,
    dated,
    entries,
    holding,
    latest,
    said_already,
    said_last,
    span_of,
    timeline,
)

__all__ = [
    "ALWAYS",
    "MAX_SOURCES",
    "MAX_VALUE",
    "FactConflict",
    "FactEntry",
    "FactMemory",
    "FactOp",
    "FactSpan",
    "by_key",
    "check_key",
    "conflicts_in",
    "current",
    "dated",
    "entries",
    "holding",
    "latest",
    "said_already",
    "said_last",
    "same_value",
    "show_value",
    "span_of",
    "timeline",
]
