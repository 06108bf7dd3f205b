"""Several memories under one key: stored together, once, however often it is tried."""

from collections.abc import Sequence

from orbiter.memory.agent._core import Store, keeps_versions
from orbiter.memory.agent._reading import belongs, check_given, derived_id
from orbiter.memory.errors import QueryError, VersionConflict
from orbiter.memory.items import MemoryItem, MemoryMetadata
from orbiter.memory.query import Query

__all__ = ["check_count", "keep_once", "places_of"]


async def keep_once(
    store: Store, scope: MemoryMetadata, items: Sequence[MemoryItem], key: str
) -> tuple[list[MemoryItem], bool]:
    """Store items unless *key* stands for some already; return those, and whether they are new."""
    check_given("idempotency_key", key)
    places = await places_of(store, scope, "many", key)
    if places or not items:
        check_count(key, places, items)
        return _there(places, scope), False
    for place, item in enumerate(items):
        item.__dict__["id"] = derived_id(scope, "many", key, place)  # nobody has seen it yet
    within = scope if Query(metadata=scope).wanted else None
    is_new = True
    try:
        if len(items) > 1:
            await store.add_many(items, within=within)
        else:
            await store.add(items[0], expected_version=0, within=within)
    except VersionConflict:  # another has just done it
        is_new = False
    places = await places_of(store, scope, "many", key)
    if not is_new:
        check_count(key, places, items)
    return _there(places, scope), is_new


async def places_of(
    store: Store, scope: MemoryMetadata, kind: str, key: str
) -> list[MemoryItem | None]:
    """Return what is there of what was stored under *key*; `None` for what was forgotten since."""
    found: list[MemoryItem | None] = []
    while True:
        item_id = derived_id(scope, kind, key, len(found))
        there = await store.get(item_id)
        if there is None:
            if not keeps_versions(store) or not await store.history(item_id):
                return found
            there = await store.get(item_id)  # it may just have come
        found.append(there)


def check_count(key: str, places: Sequence[MemoryItem | None], items: Sequence[MemoryItem]) -> None:
    """Raise `QueryError` for more than *key* stands for: the rest would be lost without a word."""
    if len(items) > len(places):
        raise QueryError(
            f"the `idempotency_key` `{key}` stands for {len(places)} already, and here are "
            f"{len(items)}; nothing was stored: use a new key for these"
        )


def _there(places: Sequence[MemoryItem | None], scope: MemoryMetadata) -> list[MemoryItem]:
    return [item for item in places if item is not None and belongs(item, scope)]
