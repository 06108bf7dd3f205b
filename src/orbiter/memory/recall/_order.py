"""The order of the candidates: all by what was measured, the best of them by a closer look."""

from collections.abc import Mapping, Sequence

from orbiter.memory.model.protocols import DetailStore, MemoryStore
from orbiter.memory.recall._features import FeatureTable
from orbiter.memory.recall._late_interaction import add_details
from orbiter.memory.recall._pool import Pool
from orbiter.memory.recall._scoring import Scored, score
from orbiter.memory.recall._weights import kind_of
from orbiter.memory.tasks.offload import MANY, apart

__all__ = ["LOOKED_AT", "order"]

LOOKED_AT = 80
"""How many of the best candidates are looked at word by word."""

_MANY_WORDS = 4_096
"""Bytes of the vectors of a question's words from which a closer look takes long."""


async def order(
    store: MemoryStore, pool: Pool, table: FeatureTable, extra: Mapping[str, float], *, most: int
) -> list[Scored]:
    """Return the eligible items, best first; *extra* are weights beside those of relevance.

    The best *most* are looked at word by word where the model and the store can do that.
    """
    kind = kind_of(table.items)
    is_long = len(table.items) > MANY
    if pool.similarity is None:
        return await apart(is_long, score, table, {**kind.words, **extra}, pool.eligible)
    scored = await apart(is_long, score, table, {**kind.meaning, **extra}, pool.eligible)
    best, rest = scored[:most], scored[most:]
    if not pool.asked or not isinstance(store, DetailStore):
        return scored
    await _look_closer(store, pool, table, [one.place for one in best])
    ids = frozenset(one.item.id for one in best)
    return [*await apart(is_long, score, table, {**kind.details, **extra}, ids), *rest]


async def _look_closer(
    store: DetailStore, pool: Pool, table: FeatureTable, places: Sequence[int]
) -> None:
    near = {
        at
        for place in places
        for at in (place, table.before[place], table.after[place])
        if at is not None
    }
    kept = await store.details([table.items[at].id for at in sorted(near)])
    is_long = len(places) > LOOKED_AT or len(pool.asked) > _MANY_WORDS
    await apart(
        is_long,
        add_details,
        table,
        places,
        asked=pool.asked,
        kept=kept,
        dimension=pool.asked_dimension,
    )
