"""Memories: one search box, the newest memories, and the facets that narrow them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.dashboard.client_snippets import snippets_for
from orbiter.memory.server.dashboard.facets import (
    Counts,
    Facet,
    Filters,
    facets,
    read_counts,
    read_filters,
)
from orbiter.memory.server.dashboard.live_feed import strip
from orbiter.memory.server.dashboard.page import Answer, Ask, Data, Pages, Toast, scope_of
from orbiter.memory.server.dashboard.scope_cache import ScopeCache
from orbiter.memory.server.dashboard.store_health import health_of
from orbiter.memory.text.ranking import ANSWERED

__all__ = ["pages", "read_tags"]


pages = Pages()
pages.routes.append(strip)

_PAGE = 20
_IMPATIENT = 0.3
"""Seconds that the page waits for counts; then it comes without, and asks for them."""

_SHARE = 0.1
"""An answer is at least so relevant as this share of the best one."""

_HITS = (20, 50, 100)
"""How many hits a search shows, and how many if more are asked for."""


@dataclass(frozen=True, slots=True)
class Row:
    """A memory in the list; after a search, how well it answers, and why."""

    item: MemoryItem
    why: str = ""
    relevance: float | None = None
    is_answer: bool = True
    """Whether it may answer what is searched for, rather than only be near it."""


@pages.page("/memories", "memories.html", title="Memories")
async def memories_page(ask: Ask) -> Data:
    """Return the list with its facets."""
    health = await health_of(ask)
    return {
        **await _listed(ask, _filters(ask)),
        "facets": await _facets(ask, is_patient=ask.request.url.path.endswith(".json")),
        "health": health,
        "is_empty": not health.memories and not health.forgotten,
        "asks_whose": not scope_of(ask.principal.scope),
        "connect": await snippets_for(ask),
    }


@pages.part("GET", "/ui/facets", "parts/facets.html")
async def counted_facets(ask: Ask) -> Data:
    """Return the facets, once everything is counted."""
    return {"facets": await _facets(ask, is_patient=True), "filters": _filters(ask)}


_counts: ScopeCache[Counts] = ScopeCache(seconds=5, most=100)


async def _facets(ask: Ask, *, is_patient: bool) -> list[Facet] | None:
    """Return the facets; `None` for the impatient, if counting takes long."""
    filters, held = _filters(ask), scope_of(ask.principal.scope)

    async def count() -> Counts:
        return await read_counts(ask.handle, filters, held)

    counting = asyncio.ensure_future(_counts.get(ask, count, filters.query()))
    await asyncio.wait({counting}, timeout=None if is_patient else _IMPATIENT)
    if not counting.done():
        counting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return None
    return facets(filters, counting.result(), held=held)


@pages.part("GET", "/ui/memories", "parts/memories.html")
async def memories(ask: Ask) -> Answer:
    """Return the list alone: while somebody types, and for what comes after it."""
    filters = _filters(ask)
    listed = await _listed(ask, filters)
    if listed["is_rest"]:
        return Answer(listed)
    return Answer(listed, headers={"HX-Replace-Url": f"/memories{filters.query()}"})


@pages.part("POST", "/ui/memories", "parts/memories.html", role="write")
async def remember(ask: Ask) -> Toast:
    """Store what somebody typed, and return the list with it."""
    form = await ask.form()
    named = {str(name): form[name].strip() for name in SCOPE_FIELDS if name in form}
    scope = {**ask.scope, **named}
    if not scope and not scope_of(ask.principal.scope):
        raise QueryError("name a user or an agent")
    item = await ask.handle_for(scope).remember(
        form.get("content", ""), tags=read_tags(form.get("tags", "")) or None
    )
    # The page sends along what its list is narrowed to, as box and address still say so.
    filters = read_filters(lambda name: form.get(name, ""), ask.scope)
    listed = await _listed(ask, filters)
    is_seen = any(row.item.id == item.id for row in listed["rows"])  # type: ignore[attr-defined]
    said = "Saved." if is_seen else "Saved. The current filters hide it."
    return Toast(listed, said, f"/ui/memories/undo{filters.query(id=item.id)}", "#results")


@pages.part("POST", "/ui/memories/undo", "parts/memories.html", role="write")
async def take_back(ask: Ask) -> Toast:
    """Forget what was added a moment ago, and return the list without it."""
    await ask.handle.forget(ask.text("id"))
    return Toast(await _listed(ask, _filters(ask)), "Not kept: it is forgotten again.")


def read_tags(text: str) -> list[str]:
    """Return the tags that a field lists, with commas between them."""
    return list(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))


def _filters(ask: Ask) -> Filters:
    return read_filters(ask.text, ask.scope)


async def _listed(ask: Ask, filters: Filters) -> Data:
    """Return the rows of the list, and in `more` what the address of the rest ends with."""
    rows: Sequence[Row]
    if filters.is_search:
        rows, considered, more = await _searched(ask, filters)
        return _list_data(filters, rows, more, considered=considered)
    cursor = ask.text("cursor")
    page = await ask.handle.list(
        query=filters.q.strip(),
        where=filters.where,
        memory_type=filters.type or None,
        status=filters.stored_status,
        since=filters.since,
        forgotten=filters.is_forgotten,
        limit=_PAGE,
        cursor=cursor or None,
    )
    more = filters.query(cursor=page.next) if page.next else None
    return _list_data(filters, [Row(item) for item in page], more, is_rest=bool(cursor))


def _list_data(
    filters: Filters,
    rows: Sequence[Row],
    more: str | None,
    *,
    considered: int | None = None,
    is_rest: bool = False,
) -> Data:
    return {
        "filters": filters,
        "rows": rows,
        "more": more,
        "considered": considered,
        "is_rest": is_rest,
    }


async def _searched(ask: Ask, filters: Filters) -> tuple[list[Row], int, str | None]:
    """Return the hits, most relevant first, how many were considered, and the address of more."""
    k = ask.number("k", _HITS[0], least=1, most=_HITS[-1])
    # What does not answer stands below a line, and is not left out.
    hits = await ask.handle.recall(
        filters.q,
        k=k,
        min_relevance=0,
        memory_type=filters.type or None,
        since=filters.since,
        where=filters.where,
    )
    least = max(ANSWERED, _SHARE * max((hit.relevance for hit in hits), default=0.0))
    rows = [
        Row(hit.item, str(hit.why), hit.relevance, hit.relevance >= least)
        for hit in sorted(hits, key=lambda hit: -hit.relevance)  # equal ones as recall ranks them
    ]
    larger = next((each for each in _HITS if each > k), None)
    is_more = larger is not None and len(rows) == k and hits.considered > k
    return rows, hits.considered, filters.query(k=str(larger)) if is_more else None
