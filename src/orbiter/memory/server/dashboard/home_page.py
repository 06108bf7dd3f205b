"""Memories: one search box, the newest memories, what narrows them, and what happens right now."""

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from orbiter.memory.agent.interface import session_of
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.server.dashboard.facets import (
    MAX_FORGOTTEN,
    Counts,
    Facet,
    Filters,
    facets,
    read_counts,
    read_filters,
    read_forgotten_counts,
)
from orbiter.memory.server.dashboard.live_feed import strip
from orbiter.memory.server.dashboard.page import Answer, Ask, Data, Pages, Toast
from orbiter.memory.server.dashboard.scope_cache import ScopeCache
from orbiter.memory.text.ranking import ANSWERED

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.recall import Hit

__all__ = ["health_of", "pages", "read_tags", "snippets"]


pages = Pages()
pages.routes.append(strip)

_PAGE = 20
_IMPATIENT = 0.3
"""Seconds that the page waits for counts; then it comes without, and asks for them."""

_SHARE = 0.1
"""An answer is at least so relevant as this share of the best one."""

_HITS = (20, 50, 100)
"""How many hits a search shows, and how many if more are asked for."""

_BACKENDS = {"memory": "In memory", "sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis"}


@dataclass(frozen=True, slots=True)
class Row:
    """A memory in the list; after a search, how well it answers, and why."""

    item: MemoryItem
    score: float | None = None
    why: str = ""
    relevance: float | None = None
    is_answer: bool = True
    """Whether it may answer what is searched for, rather than only be near it."""


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """What the list shows."""

    rows: Sequence[Row]
    more: str | None = None
    """What the address of the rest ends with."""
    considered: int | None = None
    """How many candidates a search has weighed."""
    is_rest: bool = False
    """Whether it goes on where another list ends."""


@dataclass(frozen=True, slots=True)
class Health:
    """How much there is, where, and whether anything waits."""

    memories: int
    forgotten: int | None
    bytes: int | None
    backend: str
    model: str | None
    unembedded: int = 0
    unindexed: int = 0
    embedding_error: str | None = None


@pages.page("/memories", "home.html", title="Memories")
async def home(ask: Ask) -> Data:
    """Return the list, with what narrows it."""
    filters = _filters(ask)
    health = await health_of(ask)
    server = ask.server
    needs_key = await server.needs_key()
    held = Query(metadata=ask.principal.scope).wanted
    return {
        **await _listed(ask, filters),
        "facets": await _facets(ask, filters, is_patient=ask.request.url.path.endswith(".json")),
        "counted": _counted(filters, health.forgotten),
        "health": health,
        "is_empty": not health.memories and not health.forgotten,
        "asks_whose": not held,
        "connect": snippets(
            str(ask.request.base_url).rstrip("/"),
            needs_key=needs_key,
            with_mcp=server.settings.with_mcp,
            store=None if needs_key else _store_here(ask),
            scope={**ask.scope, **{str(name): value for name, value in held.items()}},
            **({} if ask.principal.is_bound else {"key_command": server.key_command()}),
        ),
    }


@pages.part("GET", "/ui/facets", "parts/facets.html")
async def narrowing(ask: Ask) -> Data:
    """Return what narrows the list, once everything is counted."""
    filters = _filters(ask)
    counted = await _facets(ask, filters, is_patient=True)
    forgotten = (await ask.handle.stats()).forgotten
    return {
        "facets": counted,
        "filters": filters,
        "is_search": _is_search(filters),
        "counted": _counted(filters, forgotten),
    }


def _counted(filters: Filters, forgotten: int | None) -> int | None:
    """Return of how many of the newest the facets count; `None` if it is of all."""
    is_some = filters.is_forgotten and (forgotten or 0) > MAX_FORGOTTEN
    return MAX_FORGOTTEN if is_some else None


_counts: ScopeCache[Counts] = ScopeCache(seconds=5, most=100)


async def _facets(ask: Ask, filters: Filters, *, is_patient: bool) -> list[Facet] | None:
    """Return what narrows the list; `None` for the impatient, if counting takes long."""
    held = Query(metadata=ask.principal.scope).wanted
    forgotten = (await ask.handle.stats()).forgotten

    async def count() -> Counts:
        if filters.is_forgotten:
            return await read_forgotten_counts(ask.handle, filters)
        return await read_counts(ask.handle, filters, held)

    counting = asyncio.ensure_future(_counts.get(ask, count, filters.query()))
    await asyncio.wait({counting}, timeout=None if is_patient else _IMPATIENT)
    if not counting.done():
        counting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return None
    return facets(filters, counting.result(), forgotten=forgotten, held=held)


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
    """Keep what somebody typed, and return the list with it."""
    form = await ask.form()
    named = {str(name): form[name].strip() for name in SCOPE_FIELDS if name in form}
    scope = {**ask.scope, **named}
    if not scope and not Query(metadata=ask.principal.scope).wanted:
        raise QueryError("name a user or an agent")
    item = await ask.handle_for(scope).remember(
        form.get("content", ""), tags=read_tags(form.get("tags", "")) or None
    )
    # The page sends along what its list is narrowed to, as box and address still say so.
    filters = read_filters(lambda name: form.get(name, ""), ask.scope)
    listed = await _search(ask, filters)
    is_seen = any(row.item.id == item.id for row in listed.rows)
    said = "Saved." if is_seen else "Saved. The current filters hide it."
    undo = f"/ui/memories/undo{filters.query(id=item.id)}"
    return Toast(_as_data(filters, listed), said, undo, "#results")


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
    return _as_data(filters, await _search(ask, filters, cursor=ask.text("cursor")))


async def _search(ask: Ask, filters: Filters, *, cursor: str = "") -> MemoryRows:
    hits = ask.number("k", _HITS[0], least=1, most=_HITS[-1])
    if _is_search(filters):
        return await _searched(ask.handle, filters, hits)
    return await _newest(ask.handle, filters, cursor)


def _is_search(filters: Filters) -> bool:
    return bool(filters.q.strip()) and not filters.by_letters


def _as_data(filters: Filters, listed: MemoryRows) -> Data:
    return {
        "filters": filters,
        "rows": listed.rows,
        "more": listed.more,
        "considered": listed.considered,
        "is_search": _is_search(filters),
        "is_rest": listed.is_rest,
    }


async def _searched(handle: "ScopedMemory", filters: Filters, hits: int) -> MemoryRows:
    # What does not answer stands below a line, and is not left out.
    recalled = await handle.recall(
        filters.q,
        k=hits,
        min_relevance=0,
        memory_type=filters.type or None,
        since=filters.since,
        where=filters.where,
    )
    best = max((hit.relevance for hit in recalled), default=0.0)
    least = max(ANSWERED, best * _SHARE)
    rows = [_row(hit, is_answer=hit.relevance >= least) for hit in recalled]
    rows.sort(key=lambda row: -(row.relevance or 0.0))  # as told; equal ones as recall ranks them
    larger = next((each for each in _HITS if each > hits), None)
    is_more = larger is not None and len(rows) == hits and recalled.considered > hits
    more = f"{filters.query(k=str(larger))}" if is_more else None
    return MemoryRows(rows, more, recalled.considered)


def _row(hit: "Hit", *, is_answer: bool) -> Row:
    return Row(hit.item, round(hit.score, 4), str(hit.why), hit.relevance, is_answer)


async def _newest(handle: "ScopedMemory", filters: Filters, cursor: str) -> MemoryRows:
    page = await handle.list(
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
    return MemoryRows([Row(item) for item in page], more, is_rest=bool(cursor))


def _store_here(ask: Ask) -> str | None:
    """Return the file that is served, for who is on this computer: there are no keys then."""
    path = getattr(ask.server.memory.store, "db_path", ":memory:")
    if str(path) == ":memory:":
        return None
    return str(Path(path).absolute())


async def health_of(ask: Ask) -> Health:
    """Return what a reader may know of the store: all of it only who may see everyone's."""
    session = session_of(ask.handle)
    core, scope = session.core, session.scope
    scheme = ask.server.memory.url.partition("://")[0] if "://" in ask.server.memory.url else ""
    backend = next(
        (name for start, name in _BACKENDS.items() if scheme.startswith(start)), "SQLite"
    )
    model = core.embeddings.name if core.embeddings is not None else None
    if not Query(metadata=scope).wanted:
        try:
            stats = await ask.server.memory.stats()
        except UnsupportedError:
            pass  # this store counts no bytes; what follows holds of every store
        else:
            return Health(
                stats.items,
                stats.deleted,
                stats.bytes,
                backend,
                model,
                stats.unembedded,
                stats.unindexed,
                stats.embedding_error,
            )
    counted = await ask.handle.stats()
    return Health(counted.items, counted.forgotten, None, backend, model)


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines for one kind of client."""

    id: str
    title: str
    text: str
    note: str


def snippets(
    url: str,
    *,
    needs_key: bool,
    with_mcp: bool,
    store: str | None = None,
    scope: Mapping[str, str] | None = None,
    key_command: str = "orbiter-memory keys create --url STORE",
) -> list[Snippet]:
    """Return what to copy for the server at *url*; with keys, each shows where the key goes.

    Who is on the same computer may go to the *store* itself, and needs no server for it. *scope*
    is the one that the reader's key, or the page, names; *key_command* makes a key.
    """
    named = dict(scope or {"user_id": "alice"})
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in named.items())
    where = ["--url", url if needs_key or store is None else store]
    for name, value in (scope or {}).items():
        where += [f"--{name.removesuffix('_id')}", value]
    variable = "ORBITER_MEMORY_TOKEN=om_… " if needs_key else ""
    token = ', token="om_…"' if needs_key else ""
    header = "  -H 'Authorization: Bearer om_…' \\\n" if needs_key else ""
    key = f" To create a key, run on the server: {key_command}." if needs_key else ""
    all_snippets = [
        Snippet(
            "connect-python",
            "Python",
            "from orbiter.memory.sync import AgentMemory\n"
            f'memory = AgentMemory("{url}"{token})\n'
            f'memory.scope({arguments}).remember("Mia loves trams")',
            f"Import it from orbiter.memory to use it with await.{key}",
        ),
        Snippet(
            "connect-curl",
            "curl",
            f'curl --json \'{{"what": "Mia loves trams"}}\' \\\n{header}'
            f"  {shlex.quote(f'{url}/v1/memories?{urlencode(named)}')}",
            f"Every call is described at {url}/v1/openapi.json.",
        ),
    ]
    if with_mcp:
        all_snippets += [
            Snippet(
                "connect-claude",
                "Claude Code, Cursor, VS Code, Codex",
                f"{variable}orbiter-memory install claude-code {shlex.join(where)}",
                "Or cursor, vscode, codex, claude-desktop; --dry-run shows what it would write. "
                "--user sets the user of the memories, by default your name on that computer.",
            ),
            Snippet(
                "connect-mcp",
                "Any MCP client",
                f"{url}/mcp",
                "Streamable HTTP" + ("; send the key as a bearer token." if needs_key else "."),
            ),
        ]
    return all_snippets
