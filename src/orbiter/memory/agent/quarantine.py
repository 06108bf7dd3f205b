"""Quarantine of a source: hide all that came from it, release it, or undo all that it did.

A source is matched by the label that items carry, and by their type where they carry none. Each
function works on one scope only, and on stores that keep what items were.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from orbiter.memory.agent._updates import versions
from orbiter.memory.agent.extraction_jobs import NO_JOB
from orbiter.memory.agent.inputs import EDITED
from orbiter.memory.agent.quotations import strike_forgotten, texts_of
from orbiter.memory.agent.results import ForgetResult
from orbiter.memory.agent.runtime import versioned
from orbiter.memory.errors import QueryError, VersionConflict
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.filters import Condition, Where, parse_where
from orbiter.memory.model.items import RESERVED, MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query, check_instant
from orbiter.memory.model.reports import ItemVersion
from orbiter.memory.model.trust import SOURCE_KINDS, from_source, read_source, source_of
from orbiter.memory.tasks.progress import advance

if TYPE_CHECKING:
    from orbiter.memory.agent.chat_service import Chats
    from orbiter.memory.agent.interface import ScopeSession
    from orbiter.memory.backends.sql.store import SQLMemoryStore

__all__ = ["QUARANTINE", "RELEASE", "UNDO", "quarantine", "release", "undo"]

QUARANTINE, RELEASE, UNDO = (f"{RESERVED}{name}" for name in ("quarantine", "release", "undo"))
"""Who signs in the history of an item what is done here: a name that nobody else may take."""

_PAGE = 500
_MAX_SOURCES = 20
_TRIES = 100
"""How often an item is looked at again that others change meanwhile."""
_OURS = frozenset((QUARANTINE, RELEASE))


async def quarantine(
    session: "ScopeSession", source: str, *, dry_run: bool = False
) -> ForgetResult:
    """Hide everything of a scope that came from *source*; return what.

    A kind such as `web` is all of the kind, `web:example.com` that alone. What comes from there
    later is not hidden by itself.
    """
    where = from_source(read_source(source))
    store = versioned(await session.store(), "quarantine")
    scope, chats = session.scope, session.chats
    items: list[MemoryItem] = []
    async for page in _pages(store, scope, where):
        if not dry_run:
            await chats.changed(store, page)
            await store.delete_many([item.id for item in page], by=QUARANTINE)
            await chats.changed(store, page)
        items += page
        advance(len(items))
    if not items:
        await _check_known(store, scope, source)
    if items and not dry_run:
        texts = await texts_of(store, items)
        await strike_forgotten(store, chats.changed, session.filter, texts)
        session.core.events.emit_items("forgotten", items)
    return ForgetResult(tuple(items), dry_run)


async def release(session: "ScopeSession", source: str) -> int:
    """Bring back what `quarantine` has hidden of *source*, and nothing that others forgot."""
    where = from_source(read_source(source))
    store = versioned(await session.store(), "quarantine")
    scope, chats = session.scope, session.chats
    items: list[MemoryItem] = []
    async for page in _pages(store, scope, where, deleted=True):
        hidden = []
        for item in page:
            past = await versions(store, scope, item.id, "quarantine")
            if past and past[-1].change == "deleted" and past[-1].by == QUARANTINE:
                await store.restore(item.id, by=RELEASE)
                hidden.append(item)
        await chats.changed(store, hidden)
        items += hidden
        advance(len(items))
    if not items:
        await _check_known(store, scope, source)
    else:
        session.core.events.emit_items("restored", items)
    return len(items)


async def undo(
    session: "ScopeSession",
    source: str,
    *,
    since: datetime | None = None,
    dry_run: bool = False,
) -> ForgetResult:
    """Take back what *source* added or changed, at *since* or later; return what it was.

    What is left is what there would be if it had said nothing: what it added is forgotten, and
    what it changed is again as it was before. What others forgot stays forgotten.
    """
    start = None if since is None else check_instant("since", since)
    where = from_source(read_source(source))
    condition = parse_where(where)
    assert condition is not None  # noqa: S101 - a source is always asked for
    store = versioned(await session.store(), "undoing")
    scope, chats = session.scope, session.chats
    items: list[MemoryItem] = []
    for is_deleted in (False, True):
        async for page in _pages(store, scope, where, deleted=is_deleted):
            undone = []
            for item in page:
                way = partial(_without, is_of_source=condition, since=start)
                was = await _undo_one(store, chats, scope, item.id, way, dry_run=dry_run)
                if was is not None:
                    undone.append(was)
            if not dry_run:
                await chats.changed(store, undone)
            items += undone
            advance(len(items))
    if not items:
        await _check_known(store, scope, source)
    if items and not dry_run:
        texts = [item.content for item in items]  # what they were before is true again
        await strike_forgotten(store, chats.changed, session.filter, texts)
        session.core.events.emit_items("forgotten", items)
    return ForgetResult(tuple(items), dry_run)


async def _undo_one(
    store: "SQLMemoryStore",
    chats: "Chats",
    scope: MemoryMetadata,
    item_id: str,
    without: "Callable[[Sequence[ItemVersion]], _Target]",
    *,
    dry_run: bool,
) -> MemoryItem | None:
    """Make an item what it would be *without* a source; return what it was, `None` if just that.

    Whoever changes it meanwhile is heard: it is then looked at again, with what they wrote.
    """
    for attempt in range(1, _TRIES + 1):
        past = await versions(store, scope, item_id, "undoing")
        if not past:
            return None
        item, is_deleted = past[-1].item, past[-1].change == "deleted"
        target = without(past)
        if target.is_as(item, is_deleted=is_deleted):
            return None
        if dry_run:
            return item
        await chats.changed(store, [item])
        try:
            await _put(store, scope, item, target, is_deleted=is_deleted)
        except VersionConflict:
            if attempt == _TRIES:
                raise
            continue
        return item
    return None


class _Target(NamedTuple):
    """What an item would be without a source."""

    item: MemoryItem | None
    is_there: bool

    def is_as(self, item: MemoryItem, *, is_deleted: bool) -> bool:
        """Tell whether it is that already; of what stays forgotten, the text is let be."""
        if is_deleted or not self.is_there:
            return self.is_there is not is_deleted
        return self.item is not None and _said(self.item) == _said(item)


def _without(
    past: Sequence[ItemVersion], is_of_source: Condition, since: datetime | None
) -> _Target:
    """Return what an item would be if a source had said nothing since then."""
    said: MemoryItem | None = None
    is_there, before = False, None
    for each in past:
        is_news = before is None or _said(each.item) != _said(before)
        before = each.item
        if each.change == "deleted":
            is_there = is_there and each.by == QUARANTINE
        elif is_news:
            is_own = is_of_source.matches(each.item) and not each.item.metadata.extra.get(EDITED)
            if is_own and (since is None or each.at >= since):
                continue
            said, is_there = each.item, True
        elif each.change == "restored" and each.by not in _OURS:
            is_there = said is not None
    return _Target(said, is_there)


def _said(item: MemoryItem) -> dict[str, object]:
    """Return all of an item but what a store counts."""
    return item.model_dump(exclude={"version", "updated_at"})


async def _put(
    store: "SQLMemoryStore",
    scope: MemoryMetadata,
    item: MemoryItem,
    target: _Target,
    *,
    is_deleted: bool,
) -> None:
    """Write a target over the version that was looked at, or raise `VersionConflict`."""
    if target.item is None or not target.is_there:
        await store.delete(item.id, by=UNDO, expected_version=item.version)
        return
    within = scope if Query(metadata=scope).wanted else None
    again, expected = copy_item(target.item), 0 if is_deleted else item.version
    await store.add(again, by=UNDO, within=within, expected_version=expected)


async def _check_known(store: "SQLMemoryStore", scope: MemoryMetadata, source: str) -> None:
    """Raise `QueryError` for a source that nothing ever came from, if its kind is none of ours.

    Then it is most likely misspelt, and whoever doubts it believes that it is hidden.
    """
    label = read_source(source)
    if label.partition(":")[0] in SOURCE_KINDS:
        return
    for is_deleted in (False, True):
        async for _ in _pages(store, scope, from_source(label), deleted=is_deleted):
            return
    known: set[str] = set()
    async for page in _pages(store, scope, {}):
        known.update(map(source_of, page))
    names = "`, `".join(sorted(known)[:_MAX_SOURCES])
    there = f"there are `{names}`" if known else "there are no memories here"
    more = f" and {len(known) - _MAX_SOURCES} more" if len(known) > _MAX_SOURCES else ""
    raise QueryError(f"nothing came from the source `{source}`; {there}{more}")


async def _pages(
    store: "SQLMemoryStore", scope: MemoryMetadata, where: Where, *, deleted: bool = False
) -> AsyncIterator[list[MemoryItem]]:
    """Yield all of a scope that comes from a source, page by page, whatever becomes of it."""
    search = partial(
        store.search,
        metadata=scope if Query(metadata=scope).wanted else None,
        where={"$and": [where, NO_JOB]},
        limit=_PAGE,
        deleted=deleted,
    )
    page = await search()
    while page:
        yield page
        if len(page) < _PAGE:
            return
        page = await search(before=page[-1])
