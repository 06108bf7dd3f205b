"""Review, what a person should check: duplicates, contradictions, drafts, quarantined sources.

Each tab looks at the newest part of a scope and says how far it looked; only a button looks
through everything.
"""

import json
from collections import Counter

from starlette.responses import Response

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent.quarantine import QUARANTINE
from orbiter.memory.errors import ItemNotFoundError, QueryError, UnsupportedError
from orbiter.memory.model.items import SPOKEN, MemoryItem
from orbiter.memory.model.trust import source_of
from orbiter.memory.recall.near_duplicates import DuplicateIndex
from orbiter.memory.server.dashboard.fact_review import conflicts_among, draft_of, sides_of
from orbiter.memory.server.dashboard.facts_page import MAX_FACTS, read_facts
from orbiter.memory.server.dashboard.page import Ask, Data, Pages
from orbiter.memory.server.dashboard.slow_parts import slow_part

__all__ = ["pages", "review_counts"]


pages = Pages()

TABS = ("duplicates", "contradictions", "drafts", "quarantined")
SAMPLE = 1_000
"""Memories that are compared with each other unless all are asked for."""
_MAX_SHOWN = 50
_APART = (*SPOKEN, "fact", "summary")
"""What may say the same twice: a turn of a conversation has its place there, a fact its time."""


HIDDEN_SAMPLE = 200
"""Forgotten memories whose history is looked at; each takes a question of its own."""

_MAX_SOURCES = 12


@pages.page("/review", "review.html", title="Review")
async def review(ask: Ask) -> Data:
    """Show what a person should check, by tab."""
    handle = ask.handle
    facts, is_all = await read_facts(handle, exactly=False)
    drafts = [fact for fact in facts if fact.status == "draft"]
    conflicts = conflicts_among(facts)
    groups, compared = await _alike(handle)
    hidden = await hidden_in(handle)
    counts = {
        "duplicates": len(groups),
        "contradictions": len(conflicts),
        "drafts": len(drafts),
        "quarantined": _count_hidden(hidden),
    }
    tab = ask.text("tab")
    if tab not in TABS:
        tab = next((name for name in TABS if counts[name]), TABS[0])
    data: Data = {
        "tab": tab,
        "tabs": TABS,
        "counts": counts,
        "facts_read": len(facts),
        "facts_all": is_all,
        "most_facts": MAX_FACTS,
    }
    if tab == "duplicates":
        data |= {"groups": groups[:_MAX_SHOWN], "compared": compared, "sample": SAMPLE}
    elif tab == "contradictions":
        data["conflicts"] = [sides_of(each) for each in conflicts[:_MAX_SHOWN]]
    elif tab == "drafts":
        drafts.sort(key=lambda fact: (fact.created_at, fact.id))
        data["drafts"] = [await draft_of(ask, fact, facts) for fact in drafts[:_MAX_SHOWN]]
        data["can_undo"] = hidden is not None
    else:
        data |= {
            "hidden": hidden,
            "hidden_sample": HIDDEN_SAMPLE,
            "sources": await sources_of(handle),
        }
    return data


async def review_counts(handle: ScopedMemory) -> dict[str, int]:
    """Return how many there are of each kind, as the tabs say."""
    facts, _ = await read_facts(handle, exactly=False)
    return {
        "duplicates": len((await _alike(handle))[0]),
        "contradictions": len(conflicts_among(facts)),
        "drafts": sum(fact.status == "draft" for fact in facts),
        "quarantined": _count_hidden(await hidden_in(handle)),
    }


@pages.part("GET", "/ui/review/counts", "parts/review_counts.html")
async def counts(ask: Ask) -> Data:
    """Return the counts of the tabs, which a change asks for again."""
    return {"counts": await review_counts(ask.handle)}


# Copies


async def _alike(handle: ScopedMemory) -> tuple[list[list[MemoryItem]], int]:
    """Return groups of the newest memories that say the same, and how many were compared."""
    page = await handle.list(limit=SAMPLE, where={"memory_type": {"$nin": list(_APART)}})
    index = DuplicateIndex()
    for item in page:
        index.add(item)
    by_id = {item.id: item for item in page}
    groups = [
        sorted((by_id[each] for each in ids), key=lambda item: (item.created_at, item.id))
        for ids in index.groups()
    ]
    return sorted(groups, key=lambda group: (-len(group), group[0].created_at)), len(page)


@pages.part("POST", "/ui/review/all", role="read")
async def look_through(ask: Ask) -> Response:
    """Compare all memories of the scope."""

    async def work() -> Data:
        clusters = await ask.handle.duplicates()
        apart = [[item for item in group if item.memory_type not in _APART] for group in clusters]
        groups = [group for group in apart if len(group) > 1]
        return {"groups": groups[:_MAX_SHOWN], "compared": None, "found": len(groups)}

    return await slow_part(ask, "parts/duplicates.html", work)


@pages.part("POST", "/ui/review/keep", "parts/kept.html", role="write")
async def keep(ask: Ask) -> Data:
    """Keep one of a group, and forget the others."""
    kept = await ask.handle.get(ask.text("keep"))
    if kept is None:
        raise ItemNotFoundError(ask.text("keep"))
    others = [each for each in await _ids(ask) if each != kept.id]
    for item in [kept, *[await ask.handle.get(each) for each in others]]:
        if item is not None and item.memory_type in _APART:
            what = "a turn of a conversation" if item.memory_type in SPOKEN else "more than a note"
            raise QueryError(f"`{item.id}` is {what}, not a copy; nothing was forgotten")
    gone = [item_id for item_id in others if len(await ask.handle.forget(item_id))]
    return {"kept": kept, "gone": gone}


@pages.part("POST", "/ui/review/restore", "parts/restored.html", role="write")
async def restore(ask: Ask) -> Data:
    """Bring back what was just forgotten."""
    kept = await ask.handle.get(ask.text("keep"))
    items = [await ask.handle.restore(each) for each in await _ids(ask)]
    group = [*items, *([kept] if kept is not None else [])]
    group.sort(key=lambda item: (item.created_at, item.id))
    return {"groups": [group], "compared": len(group)}


async def _ids(ask: Ask) -> list[str]:
    """Return the ids that a form names; as JSON, since an id may hold anything."""
    try:
        ids = json.loads((await ask.form()).get("ids", ""))
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise QueryError("the form names no memories; send it from the page")
    return ids


@pages.part("POST", "/ui/review/copies", role="write")
async def copies(ask: Ask) -> Response:
    """Count exact copies, or forget all but the first of each."""
    is_meant = (await ask.form()).get("sure") == "yes"

    async def work() -> Data:
        evicted = await ask.handle.evict(duplicates=True, dry_run=not is_meant)
        return {"evicted": evicted, "done": is_meant, "shown": evicted.items[:10]}

    return await slow_part(ask, "parts/copies.html", work)


# Doubted sources


@pages.part("POST", "/ui/review/doubt", role="write")
async def doubt(ask: Ask) -> Response:
    """Count what came from a source, hide it, or take back all that it did."""
    form = await ask.form()
    # What was counted stands in the address, so that what is typed meanwhile changes nothing.
    source = (ask.text("source") or form.get("source", "")).strip()
    way = ask.text("way") or form.get("way", "hide")
    is_meant = form.get("sure") == "yes"
    if way not in ("hide", "undo"):
        raise QueryError(f"choose what to do: `{way[:40]}` is neither `hide` nor `undo`")
    if not source:
        raise QueryError("name a source, such as `web:example.com`, or `web` for all of the kind")

    async def work() -> Data:
        act = ask.handle.undo if way == "undo" else ask.handle.quarantine
        affected = await act(source, dry_run=not is_meant)
        data: Data = {"source": source, "way": way, "done": is_meant, "count": len(affected)}
        data["hidden"] = await hidden_in(ask.handle) if is_meant else None
        return {**data, "shown": affected.items[:5], "hidden_sample": HIDDEN_SAMPLE}

    return await slow_part(ask, "parts/doubt.html", work)


@pages.part("POST", "/ui/review/release", role="write")
async def release(ask: Ask) -> Response:
    """Bring back what is hidden of a source."""
    source = ask.text("source")

    async def work() -> Data:
        return {"source": source, "count": await ask.handle.release(source)}

    return await slow_part(ask, "parts/released.html", work)


def _count_hidden(hidden: dict[str, list[MemoryItem]] | None) -> int:
    return sum(len(items) for items in (hidden or {}).values())


async def hidden_in(handle: ScopedMemory) -> dict[str, list[MemoryItem]] | None:
    """Return what is hidden, by source; `None` where the store keeps nothing that is forgotten."""
    try:
        page = await handle.list(forgotten=True, limit=HIDDEN_SAMPLE)
    except UnsupportedError:
        return None
    by_source: dict[str, list[MemoryItem]] = {}
    for item in page:
        past = await handle.history(item.id)
        if past and past[-1].change == "deleted" and past[-1].by == QUARANTINE:
            by_source.setdefault(source_of(item), []).append(item)
    return by_source


async def sources_of(handle: ScopedMemory) -> list[tuple[str, int]]:
    """Return the sources of the newest memories, the most frequent first, and how many."""
    page = await handle.list(limit=1_000)
    return Counter(map(source_of, page)).most_common(_MAX_SOURCES)
