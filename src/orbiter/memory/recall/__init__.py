"""Recall: the memories that answer a question, best first, each with the reasons why.

Candidates come from words, from meaning and from time; what was said around them, who said it and
in which session is weighed with them. Nothing here knows a store or a model but by the protocols
they fulfil, and the same store and question always give the same answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from orbiter.memory.errors import QueryError
from orbiter.memory.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.protocols import MemoryStore, VectorStore
from orbiter.memory.query import SCOPE_FIELDS, Query, check_instant, check_size
from orbiter.memory.ranking import recency
from orbiter.memory.recall._candidates import gather
from orbiter.memory.recall._features import has_evidence, measure, terms_of
from orbiter.memory.recall._notices import say_once
from orbiter.memory.recall._order import LOOKED_AT, order
from orbiter.memory.recall._ranking import Scored, without_repeats
from orbiter.memory.recall._why import Hit, Reason, passage_of, reasons
from orbiter.memory.words import tokens

__all__ = ["BoundRecall", "Hit", "Reason", "recall"]

_NO_MODEL = (
    "recall goes by words and structure only: the store has no `embeddings`; "
    "pip install 'orbiter-memory[local]' and give it `LocalEmbeddings()`"
)


async def recall(  # noqa: PLR0913 - the filters of a search, and what may weigh beside relevance
    store: MemoryStore,
    query: str,
    *,
    scope: MemoryMetadata | None,
    k: int = 10,
    memory_type: str | None = None,
    status: MemoryStatus | None = MemoryStatus.ACCEPTED,
    since: datetime | None = None,
    until: datetime | None = None,
    where: Mapping[str, str | int | float | bool] | None = None,
    recency_weight: float = 0.0,
    half_life_hours: float = 24.0 * 30,
    importance_weight: float = 0.0,
    now: datetime | None = None,
) -> list[Hit]:
    """Return at most *k* items of *store* that answer *query*, best first, with reasons.

    *scope* says whose memories: what it names must be equal; `None` is the whole store. The other
    filters are those of `search`; *where* compares keys of `metadata.extra`. With
    *recency_weight*, new memories gain so many points, half as many after *half_life_hours*; with
    *importance_weight*, `metadata.extra["importance"]` from 0 to 1 earns its share. *now* is when
    the question is asked, for "last week".

    What shares no word with the question, has none around it and means less than most candidates
    is left out, so that there may be fewer than *k*, or none. A question of nothing but names is
    answered by what these people said and what names them; one of nothing but common words, by
    meaning alone.

    Without an embedding model, or while it fails, it goes by words and structure, and says so
    once. Of a very long query, the beginning and the end count.
    """
    check_size("k", k)
    _check_scope(scope)
    _check_weights(
        recency_weight=recency_weight,
        half_life_hours=half_life_hours,
        importance_weight=importance_weight,
    )
    asked = Query("", scope, memory_type, status, k, since=since, until=until, where=where)
    if not isinstance(query, str):
        raise QueryError(f"`query` must be text, not {query!r}")
    Query(query)
    moment = datetime.now(UTC) if now is None else check_instant("now", now)
    if not asked.limit or not tokens(query):
        return []
    question, pool = await gather(store, query, asked, now=moment)
    if not isinstance(store, VectorStore) or store.embeddings is None:
        say_once("no model", _NO_MODEL)
    table = measure(question, pool)
    extra: dict[str, float] = {}
    if recency_weight:
        extra["recency"] = recency_weight
        table.columns["recency"] = [
            recency(item.created_at, now=moment, half_life_hours=half_life_hours)
            for item in table.items
        ]
    if importance_weight:
        extra["importance"] = importance_weight
        table.columns["importance"] = [_importance(item) for item in table.items]
    scored = await order(store, pool, table, extra, most=max(LOOKED_AT, 2 * k))
    chosen = _chosen([one for one in scored if has_evidence(question, table, one.place)], k)
    return [
        Hit(
            one.item,
            one.score,
            reasons(question, pool, table, one),
            tuple(repeats),
            passage_of(question, one.item),
        )
        for one, repeats in chosen
    ]


@dataclass(frozen=True)
class BoundRecall:
    """Recall for one user, as `ContextManager.assemble(long_term=...)` takes it."""

    store: MemoryStore
    scope: MemoryMetadata

    async def recall(self, query: str, *, limit: int) -> list[MemoryItem]:
        """Return at most *limit* items that answer *query*, best first."""
        hits = await recall(self.store, query, scope=self.scope, k=limit)
        return [hit.item for hit in hits]


def _chosen(scored: list[Scored], k: int) -> list[tuple[Scored, list[MemoryItem]]]:
    """Return the best *k* that say different things."""
    looked_at = 4 * k
    while True:
        best = scored[:looked_at]
        chosen = without_repeats(best, {one.item.id: terms_of(one.item) for one in best}, limit=k)
        if len(chosen) == k or len(best) == len(scored):
            return chosen
        looked_at *= 4


def _check_scope(scope: object) -> None:
    if scope is None:
        return
    if not isinstance(scope, MemoryMetadata):
        raise QueryError(
            f'`scope` must be like `MemoryMetadata(user_id="…")`, or None, not {scope!r}'
        )
    if not Query(metadata=scope).wanted:
        names = "`, `".join(SCOPE_FIELDS)
        raise QueryError(
            f"`scope` names none of `{names}`; set one of them, or pass `scope=None` to recall "
            "from everyone's memories"
        )
    if scope.extra:
        raise QueryError(
            f"`scope` does not filter by `extra`; pass `where={scope.extra!r}` for that"
        )


def _check_weights(**weights: object) -> None:
    for name, value in weights.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise QueryError(f"`{name}` must be a number, not {value!r}")


def _importance(item: MemoryItem) -> float:
    value = item.metadata.extra.get("importance", 0.0)
    return min(1.0, max(0.0, float(value))) if isinstance(value, int | float) else 0.0
