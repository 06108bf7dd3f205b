"""Where candidates come from: words, meaning, time, and the conversation around them.

All that recall asks of a store is here. Every question to it carries the caller's filters, which
the store applies before it cuts, so a filter never loses a row to one that it excludes.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from orbiter.memory import words
from orbiter.memory.errors import QueryError
from orbiter.memory.items import MemoryItem
from orbiter.memory.matches import WordMatches
from orbiter.memory.protocols import (
    ConversationStore,
    Embeddings,
    LexicalStore,
    MemoryStore,
    VectorStore,
)
from orbiter.memory.query import Query
from orbiter.memory.ranking import fuse_ranks
from orbiter.memory.recall._notices import say_once
from orbiter.memory.recall._pool import Pool, speaker_of
from orbiter.memory.recall._question import Question, read, shortened

__all__ = ["Found", "gather"]

_MOST = 200
"""Candidates from words, and as many from meaning."""
_CHOSEN = 120
"""How many of both are weighed, each with what was said around it."""
_NEWEST = 20
_DATED = 50
_SPAN = 2
_FEW = 100
_PATIENCE = 2.0
"""Seconds that recall waits for what is still to be embedded, if that is a few items."""

Found = tuple[Question, Pool]


async def gather(store: MemoryStore, text: str, asked: Query, *, now: datetime) -> Found:
    """Return the question that *text* is, and the items of *store* that may answer it."""
    if not isinstance(store, LexicalStore | VectorStore):
        raise QueryError(
            f"{store!r} can neither find by words nor by meaning; recall from a "
            "`SQLiteMemoryStore` or a `PostgresMemoryStore`"
        )
    text = shortened(text)
    some = replace(asked, limit=max(_MOST, asked.limit))
    matches = WordMatches([], {}, 0)
    if isinstance(store, LexicalStore):
        matches = await store.match_words(list(dict.fromkeys(words.terms(text))), some)
    newest = await _within(store, replace(asked, limit=_NEWEST))
    names = {name for item in (*matches.items, *newest) if (name := speaker_of(item)) is not None}
    question = read(text, speakers=names, now=now)
    meaning = await _meaning(store, question, some)
    best = fuse_ranks(
        {
            "words": [item.id for item in matches.items],
            "meaning": [] if meaning is None else list(meaning.similarity),
            "time": await _dated(store, question, asked),
        }
    )
    chosen = [item_id for item_id, _ in best[: max(_CHOSEN, 2 * asked.limit)]]
    if len(chosen) < _NEWEST:
        chosen = list(dict.fromkeys((*chosen, *(item.id for item in newest))))
    stretches = await _around(store, chosen)
    items = [item for stretch in stretches for item in stretch]
    pool = Pool(
        stretches,
        frozenset(item.id for item in items if asked.matches(item)),
        matches.frequency,
        matches.passages,
    )
    if meaning is None or not isinstance(store, VectorStore):
        return question, pool
    unknown = [item.id for item in items if item.id not in meaning.similarity]
    similarity = meaning.similarity | await store.similarities(meaning.vector, unknown)
    return question, replace(
        pool,
        similarity=similarity,
        asked=meaning.words,
        asked_dimension=0 if store.embeddings is None else store.embeddings.detail_dimension,
    )


class _Meaning(NamedTuple):
    """A question's vector and what is near to it."""

    vector: Sequence[float]
    words: bytes
    similarity: dict[str, float]
    """Nearest first."""


async def _meaning(store: MemoryStore, question: Question, asked: Query) -> _Meaning | None:
    """Return what is near to the question; `None` without a model, or if it fails."""
    if not isinstance(store, VectorStore) or store.embeddings is None or not question.said.strip():
        return None
    vector, asked_words = await _embedded(store.embeddings, question)
    if vector is None:
        return None
    if 0 < await store.catch_up(within=0.0) <= _FEW:
        await store.catch_up(within=_PATIENCE)
    near = await store.nearest(vector, asked)
    return _Meaning(vector, asked_words, {item.id: cosine for item, cosine in near})


async def _embedded(
    embeddings: Embeddings, question: Question
) -> tuple[Sequence[float] | None, bytes]:
    """Return the question's vector and those of its words; `None` if the model fails."""
    try:
        [embedded] = await embeddings.aembed_details([question.said])
    except Exception as exc:  # noqa: BLE001 - of any model; words still answer, and it is told
        say_once(
            "no vector",
            f"recall goes by words and structure only: {embeddings!r} could not embed the "
            f"question ({type(exc).__name__}: {exc})",
        )
        return None, b""
    return embedded


async def _within(store: MemoryStore, asked: Query) -> list[MemoryItem]:
    """Return the newest items that match, or may do so in a store that only has the basics."""
    if not isinstance(store, LexicalStore):
        return await store.search(
            metadata=asked.metadata,
            memory_type=asked.memory_type,
            status=asked.status,
            limit=asked.limit,
        )
    return await store.search(  # type: ignore[call-arg]  # stores that find by words page, too
        metadata=asked.metadata,
        memory_type=asked.memory_type,
        status=asked.status,
        limit=asked.limit,
        since=asked.since,
        until=asked.until,
        where=asked.where,
    )


async def _dated(store: MemoryStore, question: Question, asked: Query) -> list[str]:
    """Return the ids of items of the times that the question names."""
    found: list[str] = []
    for span in question.times:
        bounds = span.bounds()
        if bounds is None:
            continue
        since = bounds[0] if asked.since is None else max(bounds[0], asked.since)
        until = bounds[1] if asked.until is None else min(bounds[1], asked.until)
        items = await _within(store, replace(asked, limit=_DATED, since=since, until=until))
        found += [item.id for item in items if since <= item.created_at < until]
    return found


async def _around(store: MemoryStore, item_ids: Sequence[str]) -> Sequence[Sequence[MemoryItem]]:
    if not isinstance(store, ConversationStore):
        found = [await store.get(item_id) for item_id in item_ids]
        return [[item] for item in found if item is not None]
    asked, stretches = frozenset(item_ids), []
    for stretch in await store.around(item_ids, span=_SPAN):
        if stretch[0].metadata.session_id is None:
            # Nothing says that notes written one after the other belong together.
            stretches += [[item] for item in stretch if item.id in asked]
        else:
            stretches.append(stretch)
    return stretches
