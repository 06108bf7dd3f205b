"""Memories under an idempotency key: stored together, once, however often it is tried.

The key says which ids they have, and an id that was used once is never used again, also after what
it named was forgotten. So the store decides in one step, and of two who race one is refused.
"""

from collections.abc import Sequence

from orbiter.memory.agent.inputs import belongs, derived_id
from orbiter.memory.agent.runtime import Store, keeps_versions
from orbiter.memory.errors import AccessError, QueryError
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import require_text

__all__ = ["insert_many", "insert_one"]


async def insert_one(
    store: Store, scope: MemoryMetadata, item: MemoryItem, key: str
) -> tuple[MemoryItem, bool]:
    """Store *item* unless *key* stands for one already; return that one, and whether it is new.

    What was forgotten since is returned as it was, if the store knows that, and is not stored.
    """
    item_id = derived_id(scope, "once", require_text("idempotency_key", key))
    _prepare(item, item_id)
    if await store.insert([item]):
        return item, True
    there = await store.get(item_id)
    if there is None and keeps_versions(store):
        past = await store.history(item_id)
        there = past[-1].item if past else None
    return (item if there is None else _checked(there, scope)), False


async def insert_many(
    store: Store, scope: MemoryMetadata, kind: str, items: Sequence[MemoryItem], key: str
) -> tuple[list[MemoryItem], bool]:
    """Store items unless *key* stands for some already; return those, and whether they are new.

    Of what is stored already, that is what is left of it. *kind* keeps the keys of one call apart
    from those of another.
    """
    require_text("idempotency_key", key)
    for place, item in enumerate(items):
        _prepare(item, derived_id(scope, kind, key, place))
    if items and await store.insert(items):
        return list(items), True
    places = await _places(store, scope, kind, key, len(items))
    if len(items) > len(places):  # the rest would be lost without a word
        raise QueryError(
            f"the `idempotency_key` `{key}` stands for {len(places)} already, and here are "
            f"{len(items)}; nothing was stored: use a new key for these"
        )
    return [_checked(item, scope) for item in places if item is not None], False


def _prepare(item: MemoryItem, item_id: str) -> None:
    """Give a copy that nobody has seen yet its id."""
    item.__dict__.update(id=item_id, version=1)


def _checked(item: MemoryItem, scope: MemoryMetadata) -> MemoryItem:
    """Return *item* if it is of *scope*; whoever writes past a handle may take any id."""
    if not belongs(item, scope):
        raise AccessError(f"the id `{item.id}` is taken; use another `idempotency_key`")
    return item


async def _places(
    store: Store, scope: MemoryMetadata, kind: str, key: str, count: int
) -> list[MemoryItem | None]:
    """Return what was stored under *key*, *count* or not; `None` for what was forgotten since."""
    found: list[MemoryItem | None] = []
    while True:
        start = len(found)
        ids = [derived_id(scope, kind, key, n) for n in range(start, start + count + 1)]
        used = await store.used_ids(ids)
        for item_id in ids:
            if item_id not in used:
                return found
            found.append(await store.get(item_id))
