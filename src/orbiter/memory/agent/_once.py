"""Several memories under one key: stored together, once, however often it is tried."""

from collections.abc import Sequence

from orbiter.memory.agent._core import Store, find, keeps_versions
from orbiter.memory.agent._reading import check_given, derived_id
from orbiter.memory.errors import VersionConflict
from orbiter.memory.items import MemoryItem, MemoryMetadata
from orbiter.memory.query import Query

__all__ = ["keep_once"]


async def keep_once(
    store: Store, scope: MemoryMetadata, items: Sequence[MemoryItem], key: str
) -> tuple[list[MemoryItem], bool]:
    """Store items unless *key* stands for some already; return those, and whether they are new."""
    check_given("idempotency_key", key)
    stored, is_used = await _stored(store, scope, key)
    if is_used or not items:
        return stored, False
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
    return (await _stored(store, scope, key))[0], is_new


async def _stored(store: Store, scope: MemoryMetadata, key: str) -> tuple[list[MemoryItem], bool]:
    """Return what is there of what was stored under *key*, and whether there was any."""
    stored: list[MemoryItem] = []
    place = 0
    while True:
        item_id = derived_id(scope, "many", key, place)
        there = await find(store, item_id, scope)
        if there is None:
            if not keeps_versions(store) or not await store.history(item_id):
                return stored, place > 0
            there = await find(store, item_id, scope)  # it may just have come
        if there is not None:
            stored.append(there)
        place += 1  # also over one that was forgotten
