"""The overview: how much there is, how it grows, who uses it, and what needs a person.

Every figure is of the reader's scope. What takes a walk through the store is counted by the
database, in one statement each, and kept for a while; no visit counts it again.
"""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.messages.costs import sent_tokens
from orbiter.memory.model.query import Query
from orbiter.memory.server.dashboard.chat_address import Conversation, as_seen_by
from orbiter.memory.server.dashboard.chats_page import covered_by, summary_of
from orbiter.memory.server.dashboard.page import Ask, Data, Pages
from orbiter.memory.server.dashboard.review_page import review_counts
from orbiter.memory.server.dashboard.scope_cache import ScopeCache
from orbiter.memory.server.dashboard.store_health import health_of
from orbiter.memory.server.dashboard.templating import environment

__all__ = ["pages"]

pages = Pages()

_DAYS = 30
_TOP = 6
_CHATS = 12
_MESSAGES = 200
"""Messages of a chat whose tokens are counted, the newest."""
_WINDOW = 8_000
"""Tokens of a window, as `wrap` and the integrations have it by default."""


@dataclass(frozen=True, slots=True)
class Day:
    """One day of growth."""

    at: datetime
    added: int
    total: int


@dataclass(frozen=True, slots=True)
class Slice:
    """One value with its count, and where it leads."""

    value: str
    label: str
    count: int
    link: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    """What the next turns of some chats would cost, with all messages and as they are sent."""

    chats: int
    whole: int
    sent: int


_days: ScopeCache[int] = ScopeCache(seconds=600, most=2_000)
_today: ScopeCache[int] = ScopeCache(seconds=15)
_slices: ScopeCache[list[Slice]] = ScopeCache(seconds=60, most=200)
_saved: ScopeCache[Saved] = ScopeCache(seconds=60)
_review: ScopeCache[dict[str, int]] = ScopeCache(seconds=60)


@pages.page("/", "overview.html", title="Overview")
async def overview(ask: Ask) -> Data:
    """Show the figures of the reader's scope."""
    health = await health_of(ask)
    wanted = {str(name): value for name, value in Query(metadata=ask.handle.scope).wanted.items()}
    activity = ask.server.metrics.activity
    is_everyone = not wanted
    periods = activity.periods(wanted)
    data: Data = {
        "health": health,
        "is_everyone": is_everyone,
        "activity": periods,
        "writes": sum(each.writes for each in periods),
        "recalls": sum(each.recalls for each in periods),
        "latency": {
            what: activity.latency(what) if is_everyone else None for what in ("recalls", "writes")
        },
        "is_empty": not health.memories and not health.forgotten,
    }
    if ask.request.url.path.endswith(".json"):
        data |= await _counted(ask, health.memories)
    return data


@pages.part("GET", "/ui/overview", "parts/overview.html")
async def counted(ask: Ask) -> Data:
    """Show what has to be counted, which the page asks for once it is there."""
    return await _counted(ask, (await ask.handle.stats()).items)


async def _counted(ask: Ask, total: int) -> Data:
    held = Query(metadata=ask.handle.scope).wanted
    names = [name for name in ("user_id", "agent_id") if name not in held]
    result = await asyncio.gather(*(_top(ask, name) for name in (*names, "memory_type", "source")))
    parts = dict(zip((*names, "memory_type", "source"), result, strict=True))
    growth = await _growth(ask, total)
    return {
        "growth": growth,
        "users": parts.get("user_id", []),
        "agents": parts.get("agent_id", []),
        "types": parts["memory_type"],
        "sources": parts["source"],
        "saved": await _saved.get(ask, lambda: _tokens(ask)),
        "review": await _review.get(ask, lambda: review_counts(ask.handle)),
    }


async def _growth(ask: Ask, total: int) -> list[Day]:
    """Return what was added on each of the last days, and how many there were after it."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    handle = ask.handle

    async def added(start: datetime) -> int:
        is_today = start == today
        kept = _today if is_today else _days
        end = None if is_today else start + timedelta(days=1)
        return await kept.get(ask, lambda: _count(handle, start, end), start)

    starts = [today - timedelta(days=ago) for ago in range(_DAYS - 1, -1, -1)]
    counts = [await added(start) for start in starts]
    result, after = [], total
    for start, count in zip(reversed(starts), reversed(counts), strict=True):
        result.append(Day(start, count, max(0, after)))
        after -= count
    return result[::-1]


async def _count(handle: ScopedMemory, since: datetime, until: datetime | None) -> int:
    counted = await handle.count_by("memory_type", since=since, until=until, limit=1_000)
    return sum(each.items for each in counted)


_NAMES = {"user_id": "user_id", "agent_id": "agent_id", "memory_type": "type"}
"""What an address calls a field, if it can be narrowed to one value of it."""


async def _top(ask: Ask, name: str) -> list[Slice]:
    slices = await _slices.get(ask, lambda: _read_top(ask, name), name)
    if name not in _NAMES:
        return slices
    # Not kept: of one scope, a key says a part to one reader and the address says it to another.
    return [replace(each, link={**ask.scope, _NAMES[name]: each.value}) for each in slices]


async def _read_top(ask: Ask, name: str) -> list[Slice]:
    kind = environment().filters["kind"] if name == "memory_type" else str
    counted = await ask.handle.count_by(name, limit=_TOP)
    return [Slice(str(each.value), str(kind(each.value)), each.items) for each in counted]


async def _tokens(ask: Ask) -> Saved:
    """Return what windows and summaries save on the next turn of the newest chats."""
    try:
        result = await ask.handle.chats(limit=_CHATS)
    except UnsupportedError:  # a store without conversations saves nothing by them
        return Saved(0, 0, 0)
    whole = sent = 0
    for info in result:
        talk = as_seen_by(ask, info.metadata)
        own, rest = await _cost(talk)
        whole, sent = whole + own, sent + min(rest, own, _WINDOW)
    return Saved(len(result), whole, sent)


async def _cost(talk: Conversation) -> tuple[int, int]:
    """Return the tokens of a chat with all of its messages, and with its summary in their place."""
    items = (await talk.page(limit=_MESSAGES))[::-1]
    kept = await summary_of(talk)
    covered = await covered_by(talk, items, kept) or set()
    rest = [item for item in items if item.id not in covered]

    def count() -> tuple[int, int]:
        whole = sent_tokens(items, "openai", counter=talk.counter)
        summary = 0 if kept is None else sent_tokens([kept], "openai", counter=talk.counter)
        return whole, summary + sent_tokens(rest, "openai", counter=talk.counter)

    return await asyncio.to_thread(count)
