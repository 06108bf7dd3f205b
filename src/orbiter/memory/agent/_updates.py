"""Changing what a store holds of a scope: each function sees to it that nothing else is touched."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from orbiter.memory.agent.inputs import belongs
from orbiter.memory.agent.runtime import Store, must_find, versioned
from orbiter.memory.errors import ItemNotFoundError, VersionConflict
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query
from orbiter.memory.model.reports import ItemVersion

__all__ = ["change", "pages", "restore", "versions"]

_PAGE = 1_000
_TRIES = 100
"""How often a change is made anew when others were faster; so many may change one item at once."""


async def change(
    store: Store,
    scope: MemoryMetadata,
    item_id: str,
    edit: Callable[[MemoryItem], None],
    *,
    expected_version: int | None,
) -> MemoryItem:
    """Have *edit* change an item, again if another was faster; return it as stored."""
    for attempt in range(1, _TRIES + 1):
        item = copy_item(await must_find(store, item_id, scope))
        edit(item)
        try:
            expected = item.version if expected_version is None else expected_version
            await store.add(item, expected_version=expected)
            break
        except VersionConflict:
            if expected_version is not None or attempt == _TRIES:
                raise
    return await must_find(store, item_id, scope)


async def pages(
    store: Store, asked: Query, *, are_removed: bool
) -> AsyncIterator[list[MemoryItem]]:
    """Yield all that is asked for, page by page; *are_removed* says that each is gone by then."""
    cursor: MemoryItem | None = None
    while True:
        page = await store.search(
            query=asked.text,
            metadata=asked.metadata,
            memory_type=asked.memory_type,
            since=asked.since,
            until=asked.until,
            where=asked.where,
            limit=_PAGE,
            before=cursor,
        )
        if page:
            yield page
        if len(page) < _PAGE:
            return
        cursor = None if are_removed else page[-1]


async def versions(
    store: Store, scope: MemoryMetadata, item_id: str, what: str
) -> list[ItemVersion]:
    """Return the versions of an item of *scope*, oldest first; none of another's."""
    found = await versioned(store, what).history(item_id)
    if not found or not belongs(found[-1].item, scope):
        return []
    return [each for each in found if belongs(each.item, scope)]


async def restore(
    store: Store, scope: MemoryMetadata, item_id: str, version: int | None
) -> MemoryItem:
    """Bring an item back, or what it was in an earlier *version*; return it as stored."""
    past = await versions(store, scope, item_id, "undoing")
    if not past:
        raise ItemNotFoundError(item_id, way="history() shows what was")
    chosen = next((each.item for each in past if each.item.version == version), None)
    if version is not None and chosen is None:
        known = ", ".join(str(each.item.version) for each in past)
        raise ItemNotFoundError(item_id, version=version, way=f"there are {known}")
    if past[-1].change == "deleted":
        await versioned(store, "undoing").restore(item_id)
    if chosen is not None:
        again = copy_item(chosen)
        again.updated_at = datetime.now(UTC)
        await store.add(again)
    return await must_find(store, item_id, scope)
