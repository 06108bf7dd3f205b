"""The history of one key: every assertion, who made it, from what, and when it held."""

from datetime import UTC, datetime

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.model.facts import FactEntry, dated, show_value
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.server.dashboard.datetimes import as_moment
from orbiter.memory.server.dashboard.page import Ask, Data, Pages

__all__ = ["history_of", "pages"]

pages = Pages()

_QUOTED = 3
_AT_ONCE = 20
"""Assertions that are told at a time."""


@pages.part("GET", "/ui/facts/history", "parts/fact_history.html")
async def history(ask: Ask) -> Data:
    """Show every assertion of a key."""
    known_at = as_moment("known_at", ask.text("known_at"))
    earlier = ask.number("earlier", 0, most=10**9)
    found = await history_of(ask, ask.text("key"), known_at=known_at, earlier=earlier)
    view = {name: ask.text(name) for name in ("as_of", "known_at", "span", "q")}
    return {**found, "key": ask.text("key"), "view": view}


async def history_of(ask: Ask, key: str, *, known_at: datetime | None, earlier: int = 0) -> Data:
    """Return assertions of a key, the newest first, with who said so and from what.

    Those are told that are *earlier* than so many newer ones.
    """
    view = ask.handle.facts if known_at is None else ask.handle.as_of(known_at).facts
    told: list[Data] = []
    newest = (await view.history(key))[::-1]
    for entry in newest[earlier : earlier + _AT_ONCE]:
        fact = entry.fact
        sources = [await ask.handle.get(each) for each in fact.source_ids[:_QUOTED]]
        told.append(
            {
                "fact": fact,
                "value": "Ended" if fact.is_end else show_value(fact.value),
                "when": _held(entry),
                "by": await _who(ask.handle, fact.id),
                "is_retracted": fact.retracted_at is not None,
                "sources": [item for item in sources if isinstance(item, MemoryItem)],
                "more_sources": max(0, len(fact.source_ids) - _QUOTED),
            }
        )
    left = max(0, len(newest) - earlier - _AT_ONCE)
    return {"history": told, "earlier": earlier, "left": left, "at_once": _AT_ONCE}


async def _who(handle: ScopedMemory, fact_id: str) -> str | None:
    """Return who said so; a store that keeps no versions does not know."""
    try:
        return (await handle.history(fact_id))[0].by
    except (UnsupportedError, IndexError):
        return None


def _held(entry: FactEntry) -> str:
    """Return for which time an assertion held, in words."""
    if entry.fact.retracted_at is not None and not entry.spans:
        return "retracted: it holds at no time"
    if entry.fact.is_end:
        return f"nothing holds {dated(entry.fact)}"
    if not entry.spans:
        return "never held: others cover all of its time"
    now, told = datetime.now(UTC), ""
    for span in entry.spans:
        verb = "held" if span.end is not None and span.end <= now else "holds"
        verb = "will hold" if span.start > now else verb
        joined = f" and {verb}" if told and not told.startswith(verb) else " and"
        told += (joined if told else verb) + f" {dated(span, now=now) or 'always'}"
    return told
