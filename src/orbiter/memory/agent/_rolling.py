"""One step of a rolling summary: what goes into it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.protocols import Summarizer
from orbiter.memory.summary import SummaryConfig, check_trigger, roll_summary

__all__ = ["Rolled", "sum_up"]

_PIECES = 4
"""How many times what triggers a summary is given to a summarizer at once: whatever its limit is,
one chat that was never summed up must not exceed it."""


@dataclass(frozen=True, slots=True)
class Rolled:
    """Summaries by template, and the messages that are in them."""

    summaries: dict[str, str]
    done: list[MemoryItem]
    covers_id: str
    """The last message that is in them."""
    covers_to: datetime
    """When that one says it was written."""


async def sum_up(
    before: Mapping[str, str],
    items: Sequence[MemoryItem],
    config: SummaryConfig,
    summarizer: Summarizer,
) -> Rolled | None:
    """Sum up all but the newest *items* with the summaries *before* them; `None` for nothing new.

    What is too much at once is summed up piece by piece.
    """
    rest, summaries = list(items), dict(before)
    while (size := _piece(rest, config)) < len(rest) - config.keep_recent:
        result = await roll_summary(
            summaries, rest[:size], replace(config, keep_recent=0), summarizer
        )
        taken = size - len(result.compressed_items)
        if not taken:  # one tool group fills the piece
            break
        summaries, rest = result.summaries, rest[taken:]
    result = await roll_summary(summaries, rest, config, summarizer)
    done = list(items[: len(items) - len(result.compressed_items)])
    if not done or not result.summaries:
        return None
    return Rolled(result.summaries, done, done[-1].id, done[-1].created_at)


def _piece(items: Sequence[MemoryItem], config: SummaryConfig) -> int:
    """Return how many of *items*, from the first on, are summed up at once."""
    most = max(_PIECES * config.message_threshold, 1)
    size = min(len(items), most)
    room = _PIECES * config.token_threshold
    while size > 1 and check_trigger(items[:size], config).estimated_tokens > room:
        size //= 2
    return size
