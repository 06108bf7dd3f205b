"""The page of what waits for a word: copies, contradictions, proposals, and what is hidden.

Each tab looks at the newest part of a scope and says how far it looked; only a button looks
through everything.
"""

import json

from starlette.responses import Response

from orbiter.memory.agent import Facts, ScopedMemory
from orbiter.memory.errors import ItemNotFoundError, QueryError
from orbiter.memory.facts import (
    FactConflict,
    FactMemory,
    conflicts_in,
    dated,
    holding,
    show_value,
)
from orbiter.memory.items import MemoryItem
from orbiter.memory.recall._likeness import Likeness
from orbiter.memory.server.dashboard._facts import MOST, read_facts, scope_of
from orbiter.memory.server.dashboard._hidden import SAMPLE as HIDDEN_SAMPLE
from orbiter.memory.server.dashboard._hidden import hidden_in, sources_of
from orbiter.memory.server.dashboard._lengthy import lengthy
from orbiter.memory.server.dashboard._pages import Ask, Data, Pages, Said

__all__ = ["pages"]

pages = Pages()

TABS = ("duplicates", "contradictions", "drafts", "quarantined")
SAMPLE = 1_000
"""Memories that are compared with each other unless all are asked for."""
_MOST_SHOWN = 50


@pages.page("/review", "review.html", title="Review")
async def review(ask: Ask) -> Data:
    """Show what waits for a word, by tab."""
    handle = ask.handle
    found, is_all = await read_facts(handle, exactly=False)
    drafts = [fact for fact in found if fact.status == "draft"]
    conflicts = _conflicts(found)
    groups, compared = await _alike(handle)
    hidden = await hidden_in(handle)
    counts = {
        "duplicates": len(groups),
        "contradictions": len(conflicts),
        "drafts": len(drafts),
        "quarantined": sum(len(items) for items in (hidden or {}).values()),
    }
    tab = ask.text("tab")
    if tab not in TABS:
        tab = next((name for name in TABS if counts[name]), TABS[0])
    data: Data = {
        "tab": tab,
        "tabs": TABS,
        "counts": counts,
        "facts_read": len(found),
        "facts_all": is_all,
        "most_facts": MOST,
    }
    if tab == "duplicates":
        data |= {"groups": groups[:_MOST_SHOWN], "compared": compared, "sample": SAMPLE}
    elif tab == "contradictions":
        data["conflicts"] = [_sides(each) for each in conflicts[:_MOST_SHOWN]]
    elif tab == "drafts":
        drafts.sort(key=lambda fact: (fact.created_at, fact.id))
        data["drafts"] = [await _draft(ask, fact, found) for fact in drafts[:_MOST_SHOWN]]
    else:
        data |= {
            "hidden": hidden,
            "hidden_sample": HIDDEN_SAMPLE,
            "sources": await sources_of(handle),
        }
    return data


# Copies


async def _alike(handle: ScopedMemory) -> tuple[list[list[MemoryItem]], int]:
    """Return groups of the newest memories that say the same, and how many were compared."""
    page = await handle.list(limit=SAMPLE, where={"memory_type": {"$nin": ["fact", "summary"]}})
    alike = Likeness()
    for item in page:
        alike.add(item)
    by_id = {item.id: item for item in page}
    groups = [
        sorted((by_id[each] for each in ids), key=lambda item: (item.created_at, item.id))
        for ids in alike.groups()
    ]
    return sorted(groups, key=lambda group: (-len(group), group[0].created_at)), len(page)


@pages.part("POST", "/ui/review/all", role="read")
async def look_through(ask: Ask) -> Response:
    """Compare all memories of the scope."""

    async def work() -> Data:
        groups = await ask.handle.duplicates()
        return {"groups": groups[:_MOST_SHOWN], "compared": None, "found": len(groups)}

    return lengthy(ask, "parts/duplicates.html", work)


@pages.part("POST", "/ui/review/keep", "parts/kept.html", role="write")
async def keep(ask: Ask) -> Data:
    """Keep one of a group, and forget the others."""
    kept = await ask.handle.get(ask.text("keep"))
    if kept is None:
        raise ItemNotFoundError(ask.text("keep"))
    others = [each for each in await _ids(ask) if each != kept.id]
    gone = [item_id for item_id in others if len(await ask.handle.forget(item_id))]
    return {"kept": kept, "gone": gone}


@pages.part("POST", "/ui/review/restore", "parts/restored.html", role="write")
async def restore(ask: Ask) -> Data:
    """Bring back what was just forgotten."""
    return {"items": [await ask.handle.restore(each) for each in await _ids(ask)]}


async def _ids(ask: Ask) -> list[str]:
    """Return the ids that a form names; as JSON, since an id may hold anything."""
    try:
        found = json.loads((await ask.form()).get("ids", ""))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise QueryError("the form names no memories; send it from the page")
    return found


@pages.part("POST", "/ui/review/copies", role="write")
async def copies(ask: Ask) -> Response:
    """Count exact copies, or forget all but the first of each."""
    is_meant = (await ask.form()).get("sure") == "yes"

    async def work() -> Data:
        found = await ask.handle.evict(duplicates=True, dry_run=not is_meant)
        return {"evicted": found, "done": is_meant, "shown": found.items[:10]}

    return lengthy(ask, "parts/copies.html", work)


# Contradictions and proposals


def _conflicts(facts: list[FactMemory]) -> list[FactConflict]:
    """Return the contradictions of every scope among *facts*."""
    scopes: dict[tuple[tuple[str, str], ...], list[FactMemory]] = {}
    for fact in facts:
        scopes.setdefault(tuple(scope_of(fact.metadata).items()), []).append(fact)
    return [conflict for of_scope in scopes.values() for conflict in conflicts_in(of_scope)]


def _sides(conflict: FactConflict) -> Data:
    sides = (("Said first", conflict.earlier), ("Said later", conflict.later))
    return {
        "key": conflict.key,
        "reason": conflict.reason,
        "scope": scope_of(conflict.later.metadata),
        "sides": [
            {"name": name, "fact": fact, "value": _words(fact), "when": dated(fact) or "always"}
            for name, fact in sides
        ],
    }


def _words(fact: FactMemory) -> str:
    return "Ended" if fact.is_end else show_value(fact.value)


async def _draft(ask: Ask, fact: FactMemory, facts: list[FactMemory]) -> Data:
    own = scope_of(fact.metadata)
    same = [each for each in facts if each.key == fact.key and scope_of(each.metadata) == own]
    known = max(each.recorded_at for each in same)
    sources = [await ask.handle.get(each) for each in fact.source_ids[:2]]
    holds = holding(same, as_of=max(known, fact.valid_from), known_at=known)
    return {
        "fact": fact,
        "value": _words(fact),
        "holds": None if holds is None else _words(holds),
        "sources": [item for item in sources if item is not None],
        "confidence": fact.metadata.extra.get("confidence"),
    }


async def _facts_of(ask: Ask, fact_id: str) -> Facts:
    """Return the facts that the one of that id is among: those of exactly its scope."""
    fact = await ask.handle.get(fact_id)
    if not isinstance(fact, FactMemory):
        raise ItemNotFoundError(fact_id, way="it may have been decided meanwhile")
    return ask.handle_for(scope_of(fact.metadata)).facts


@pages.part("POST", "/ui/review/accept", "parts/decided.html", role="write")
async def accept(ask: Ask) -> Said:
    """Take a proposal for true."""
    fact_id = ask.text("id")
    fact = await (await _facts_of(ask, fact_id)).accept(fact_id)
    return Said({}, f"Accepted: {fact.key}. Retract it on the page of facts if it was wrong.")


@pages.part("POST", "/ui/review/discard", "parts/decided.html", role="write")
async def discard(ask: Ask) -> Said:
    """Turn a proposal down."""
    fact_id = ask.text("id")
    fact = await (await _facts_of(ask, fact_id)).discard(fact_id)
    return Said({}, f"Discarded: {fact.key}. The same messages do not propose it again.")


@pages.part("POST", "/ui/review/retract", "parts/settled.html", role="write")
async def retract(ask: Ask) -> Data:
    """Settle a contradiction: one side was wrong."""
    fact_id = ask.text("id")
    fact = await (await _facts_of(ask, fact_id)).retract(fact_id)
    return {"fact": fact, "value": _words(fact), "whose": scope_of(fact.metadata)}


# Doubted sources


@pages.part("POST", "/ui/review/doubt", role="write")
async def doubt(ask: Ask) -> Response:
    """Count what came from a source, hide it, or take back all that it did."""
    form = await ask.form()
    source, way = form.get("source", "").strip(), form.get("way", "hide")
    is_meant = form.get("sure") == "yes"
    if not source:
        raise QueryError("name a source, such as `web:example.com`, or `web` for all of the kind")

    async def work() -> Data:
        act = ask.handle.undo if way == "undo" else ask.handle.quarantine
        found = await act(source, dry_run=not is_meant)
        told = {"source": source, "way": way, "done": is_meant, "count": len(found)}
        return {**told, "shown": found.items[:5]}

    return lengthy(ask, "parts/doubt.html", work)


@pages.part("POST", "/ui/review/release", role="write")
async def release(ask: Ask) -> Response:
    """Bring back what is hidden of a source."""
    source = ask.text("source")

    async def work() -> Data:
        return {"source": source, "count": await ask.handle.release(source)}

    return lengthy(ask, "parts/released.html", work)
