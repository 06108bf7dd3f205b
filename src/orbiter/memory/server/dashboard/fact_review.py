"""Decisions about facts on the page of review: contradictions and drafts.

A proposal that was turned down leaves a row with a way back, where the store keeps versions.
"""

from orbiter.memory.agent import Facts
from orbiter.memory.errors import ItemNotFoundError, QueryError, UnsupportedError
from orbiter.memory.model.facts import (
    FactConflict,
    FactMemory,
    conflicts_in,
    dated,
    holding,
)
from orbiter.memory.model.facts.assertion import assertion_text
from orbiter.memory.server.dashboard.facts_page import read_facts
from orbiter.memory.server.dashboard.memory_page import _page_data as memory_data
from orbiter.memory.server.dashboard.page import Ask, Data, Pages, Toast, scope_of

__all__ = ["conflicts_among", "draft_of", "pages", "sides_of"]

pages = Pages()


def conflicts_among(facts: list[FactMemory]) -> list[FactConflict]:
    """Return the contradictions of every scope among *facts*."""
    scopes: dict[tuple[tuple[str, str], ...], list[FactMemory]] = {}
    for fact in facts:
        scopes.setdefault(tuple(scope_of(fact.metadata).items()), []).append(fact)
    return [conflict for of_scope in scopes.values() for conflict in conflicts_in(of_scope)]


def sides_of(conflict: FactConflict) -> Data:
    """Return both sides of a contradiction, in words."""
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
    return "Ended" if fact.is_end else assertion_text(fact)


async def draft_of(ask: Ask, fact: FactMemory, facts: list[FactMemory]) -> Data:
    """Return a draft with the current value and the memories that it is taken from."""
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
        raise ItemNotFoundError(fact_id, way="it may have been decided in the meantime")
    return ask.handle_for(scope_of(fact.metadata)).facts


@pages.part("POST", "/ui/review/accept", "parts/decided.html", role="write")
async def accept(ask: Ask) -> Data:
    """Take a proposal for true."""
    fact_id = ask.text("id")
    fact = await (await _facts_of(ask, fact_id)).accept(fact_id)
    return await _decided(ask, fact, "Accepted")


@pages.part("POST", "/ui/review/discard", "parts/decided.html", role="write")
async def discard(ask: Ask) -> Data:
    """Turn a proposal down."""
    fact_id = ask.text("id")
    fact = await (await _facts_of(ask, fact_id)).discard(fact_id)
    return await _decided(ask, fact, "Discarded")


@pages.part("POST", "/ui/review/reopen", "parts/reopened.html", role="write")
async def reopen(ask: Ask) -> Data:
    """Make a proposal of what was discarded again."""
    fact_id = ask.text("id")
    before = await _before(ask, fact_id)
    if before is None:
        raise QueryError(f"`{fact_id}` cannot be a draft again: it is no longer discarded")
    fact = await ask.handle.restore(fact_id, version=before)
    assert isinstance(fact, FactMemory)  # noqa: S101 - it was one, and is it again
    facts, _ = await read_facts(ask.handle, exactly=False)
    draft = await draft_of(ask, fact, facts)
    return {"each": draft, "can_undo": True}


@pages.part("POST", "/ui/review/decide", "parts/memory_main.html", role="write")
async def decide(ask: Ask) -> Toast:
    """Accept or discard a proposal on its own page."""
    fact_id, facts = ask.text("id"), await _facts_of(ask, ask.text("id"))
    if ask.text("to") == "accepted":
        fact = await facts.accept(fact_id)
        message = f"Accepted: {fact.key}. Retract it on the page of facts if it was wrong."
    else:
        fact = await facts.discard(fact_id)
        message = f"Discarded: {fact.key}. Restore the previous version to make it a draft again."
    return Toast(await memory_data(ask), message)


async def _decided(ask: Ask, fact: FactMemory, how: str) -> Data:
    """Return what stays where a proposal was."""
    can_undo = how == "Discarded" and await _before(ask, fact.id) is not None
    data = {"fact": fact, "value": _words(fact), "how": how, "whose": scope_of(fact.metadata)}
    return {**data, "can_undo": can_undo}


async def _before(ask: Ask, fact_id: str) -> int | None:
    """Return the version in which a discarded proposal last was one; `None` if that is gone."""
    try:
        past = await ask.handle.history(fact_id)
    except UnsupportedError:  # this store keeps no versions
        return None
    if not past or past[-1].item.status != "discard":
        return None
    drafts = [each.item.version for each in past if each.item.status == "draft"]
    return drafts[-1] if drafts else None


@pages.part("POST", "/ui/review/retract", "parts/settled.html", role="write")
async def retract(ask: Ask) -> Data:
    """Settle a contradiction: one side was wrong."""
    fact_id = ask.text("id")
    fact = await (await _facts_of(ask, fact_id)).retract(fact_id)
    return {"fact": fact, "value": _words(fact), "whose": scope_of(fact.metadata)}
