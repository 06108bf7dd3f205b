"""`recall`: a question is checked, candidates are weighed in the mode asked for, the best kept."""

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypedDict, TypeVar

from orbiter.memory._lazy import install_command, installed_from
from orbiter.memory.errors import QueryError
from orbiter.memory.model.items import (
    INDEXED_BY,
    MemoryMetadata,
    MemoryStatus,
    index_texts,
    is_indexed,
)
from orbiter.memory.model.protocols import MemoryStore, Reranker, VectorStore
from orbiter.memory.model.query import SCOPE_FIELDS, Query, check_instant, check_size, require_text
from orbiter.memory.model.trust import Trust, read_trust, trusted
from orbiter.memory.recall._candidate_pool import are_many
from orbiter.memory.recall._candidates import FirstLook, embed_question, look
from orbiter.memory.recall._dedupe_query import and_where
from orbiter.memory.recall._hits import RecallResult
from orbiter.memory.recall._mode_search import RecallRequest, by_all, by_meaning, by_time
from orbiter.memory.recall._modes import RecallMode, check_mode, check_store, warn_once
from orbiter.memory.recall._newer import prefer_newer
from orbiter.memory.recall._query_analysis import Question, asks_history, matter_of, shortened
from orbiter.memory.recall._reading import QuestionVector
from orbiter.memory.recall._rerank import rerank
from orbiter.memory.recall._select import Candidates, choose
from orbiter.memory.tasks.offload import apart
from orbiter.memory.text.ranking import MIN_RELEVANCE, check_relevance
from orbiter.memory.text.words import passages, terms, tokens

__all__ = ["RecallOptions", "check_scope", "recall"]

_T = TypeVar("_T")

_VALUES, _PAST_VALUES = 5, 10
"""Values of one fact that are weighed, of those that match as well the newest. If the past is asked
about, or a time, they are more, and at least as many as the hits."""


def _no_model() -> str:
    here = "" if installed_from()[0] is None else f"; here: {install_command('local')}"
    return (
        "recall uses words and structure only: the store has no `embeddings`; pip install "
        f"'orbiter-memory[local]' and give it `LocalEmbeddings()`{here}"
    )


class RecallOptions(TypedDict, total=False):
    """What may be asked of `recall` beside the question and whose memories it is about."""

    k: int
    mode: RecallMode
    explain: bool
    memory_type: str | None
    status: MemoryStatus | None
    since: datetime | None
    until: datetime | None
    where: Mapping[str, object] | None
    recency_weight: float
    half_life_hours: float
    importance_weight: float
    now: datetime | None
    min_trust: Trust | str | int | None
    spread: bool | None
    reranker: Reranker | None
    min_relevance: float
    user_name: str | None


async def recall(  # noqa: PLR0913 - the filters of a search, and what may weigh beside relevance
    store: MemoryStore,
    query: str,
    *,
    scope: MemoryMetadata | None,
    k: int = 10,
    mode: RecallMode = "hybrid",
    explain: bool = False,
    memory_type: str | None = None,
    status: MemoryStatus | None = MemoryStatus.ACCEPTED,
    since: datetime | None = None,
    until: datetime | None = None,
    where: Mapping[str, object] | None = None,
    recency_weight: float = 0.0,
    half_life_hours: float = 24.0 * 30,
    importance_weight: float = 0.0,
    now: datetime | None = None,
    min_trust: Trust | str | int | None = None,
    spread: bool | None = None,
    reranker: Reranker | None = None,
    min_relevance: float = MIN_RELEVANCE,
    user_name: str | None = None,
) -> RecallResult:
    """Return at most *k* items of *store* that answer *query*, best first, with reasons.

    *scope* says whose memories: what it names must be equal; `None` is the whole store. The other
    filters are those of `search`; *where* compares keys of `metadata.extra`. With
    *recency_weight*, new memories gain so many points, half as many after *half_life_hours*; with
    *importance_weight*, `metadata.extra["importance"]` from 0 to 1 earns its share. *now* is when
    the question is asked, for "last week". With *min_trust*, such as `"agent"`, what comes from a
    source that is worth less is not there at all: see `orbiter.memory.model.trust`.

    What hardly answers is left out, so that there may be fewer than *k*, or none; without a model,
    what shares no word with the question, nor has one around it. A question of nothing but names is
    answered by what these people said and what names them; one of nothing but common words, by
    meaning alone. Of a very long query, the beginning and the end count. Facts are judged as of
    *now*: what holds comes before what held, and what was retracted never comes.

    A question for a sequence or a summary ("in which order …", "summarise how …") is answered by
    hits that cover the matter over time, oldest first; *spread* asks for that whatever the question
    is, or never.

    *mode* `hybrid` goes by all of that; without an embedding model, or while it fails, by words
    and structure, and says so once. `words` does so at once and asks no model. `meaning` goes by
    vectors alone: a store without a model is an `UnsupportedError`, one that fails an
    `EmbeddingError`. `recent` is the newest items, newest first, whatever else they weigh; if
    *query* has words to look for, those that hold any of them. What says the same, and a flood of
    copies all the more, has one place in every mode.

    Hits have a relevance of *min_relevance* or more, from 0 to 1: a question that nothing answers
    has none. By default this leaves out nothing of what covers a matter over time. With *explain*,
    `left_out` of the answer holds the next best candidates.

    Questions and memories that call the user of *scope* by name, or "the user", are read in the
    first person. Their name is *user_name*, and the one in their id, such as `alice`.

    With *reranker*, the modes `hybrid` and `words` have it read the best 50 beside the question.
    `reranking` of the answer has what it cost; if it fails, that says so, and the order is the one
    without it.
    """
    check_size("k", k)
    check_mode(mode)
    check_scope(scope)
    min_relevance = check_relevance(min_relevance)
    _check_weights(
        recency_weight=recency_weight,
        half_life_hours=half_life_hours,
        importance_weight=importance_weight,
    )
    trust = None if min_trust is None else trusted(read_trust(min_trust))
    filters = Query("", scope, memory_type, status, k, since=since, until=until, where=where)
    filters = replace(filters, where=and_where(filters.where, trust))
    if not isinstance(query, str):
        raise QueryError(f"`query` must be a string, not {query!r}")
    Query(query)
    if spread is not None and not isinstance(spread, bool):
        raise QueryError(f"`spread` must be True, False or None, not {spread!r}")
    moment = datetime.now(UTC) if now is None else check_instant("now", now)
    if not k or not (tokens(shortened(query)) or mode == "recent"):
        return RecallResult(mode=mode, question="asks for nothing")
    check_store(store, mode)
    matter = None if spread is False or mode == "recent" else matter_of(shortened(query))
    is_spread = matter is not None or (spread is True and mode != "recent")
    if is_spread and min_relevance <= MIN_RELEVANCE:
        min_relevance = 0.0  # each part of a long matter says little of it
    # Every value counts if they are told over time, reviewed, or listed as the newest.
    if filters.status is MemoryStatus.ACCEPTED and mode != "recent" and not is_spread:
        is_past = asks_history(shortened(query), now=moment)
        filters = replace(filters, max_per_fact=max(k, _PAST_VALUES) if is_past else _VALUES)
    request = RecallRequest(
        matter or query,
        filters,
        now=moment,
        recency_weight=recency_weight,
        half_life_hours=half_life_hours,
        importance_weight=importance_weight,
        explain=explain,
        trusted=trust,
        min_relevance=min_relevance,
        names=() if user_name is None else (require_text("user_name", user_name),),
        spread=is_spread,
    )
    has_model = isinstance(store, VectorStore) and store.embeddings is not None
    if mode == "hybrid" and not has_model:
        warn_once("no model", _no_model)
    seen = vector = None
    # A model has threads of its own, so what is read before it and after it are two steps.
    if mode in ("hybrid", "meaning") and has_model:
        seen = await _offload(store, lambda: _look(store, request, mode))
        vector = await embed_question(store, seen, is_all=mode == "meaning")
    if reranker is None or mode not in ("hybrid", "words"):
        return await _offload(store, lambda: _answer(store, request, mode, seen, vector))
    candidates = await _offload(store, lambda: _find_candidates(store, request, mode, seen, vector))
    reranked = await rerank(candidates, reranker)
    return await _offload(store, lambda: _choose(store, request, mode, reranked, vector))


async def _offload(store: MemoryStore, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Do *work* on a thread of the store's if it has any, else here."""
    offload: Callable[..., Awaitable[_T]] | None = getattr(store, "offload", None)
    return await (work() if offload is None else offload(work))


async def _look(store: MemoryStore, request: RecallRequest, mode: RecallMode) -> FirstLook:
    return await look(
        store,
        request.text,
        request.filters,
        now=request.now,
        names=request.names,
        by_words=mode != "meaning",
    )


async def _answer(
    store: MemoryStore,
    request: RecallRequest,
    mode: RecallMode,
    seen: FirstLook | None,
    vector: QuestionVector | None,
) -> RecallResult:
    candidates = await _find_candidates(store, request, mode, seen, vector)
    return await _choose(store, request, mode, candidates, vector)


async def _choose(
    store: MemoryStore,
    request: RecallRequest,
    mode: RecallMode,
    candidates: Candidates,
    vector: QuestionVector | None,
) -> RecallResult:
    reading = None if vector is None or candidates.question.asks_past else vector.reading
    if reading is not None and candidates.likely is not None:
        candidates = await prefer_newer(store, candidates, reading)
    if any(one.item.memory_type == "fact" for one in candidates.scored):
        from orbiter.memory.recall._current_facts import judged  # noqa: PLC0415 - few are facts

        candidates = await judged(store, candidates, request, is_ordered=mode == "recent")
    is_long = are_many(one.item for one in candidates.scored)
    result = await apart(
        is_long,
        choose,
        candidates,
        k=request.filters.limit,
        mode=mode,
        explain=request.explain,
        min_relevance=request.min_relevance,
        spread=request.spread,
    )
    result.unembedded = None if vector is None else vector.waiting
    await _name_texts(store, result, candidates.question, vector, by_words=mode != "meaning")
    return result


async def _name_texts(
    store: MemoryStore,
    result: RecallResult,
    question: Question,
    vector: QuestionVector | None,
    *,
    by_words: bool,
) -> None:
    """Have `passage` of hits that are indexed by several texts be the one that answers best."""
    places = [at for at, hit in enumerate(result) if INDEXED_BY in hit.item.metadata.extra]
    if not places:
        return
    kept: dict[str, bytes] = {}
    if vector is not None and hasattr(store, "vectors"):
        kept = await store.vectors([result[at].item.id for at in places])
    wanted = frozenset(question.terms) if by_words else frozenset[str]()
    for at in places:
        item = result[at].item
        by = item.metadata.extra[INDEXED_BY]
        if isinstance(by, list) and result[at].span is None:
            cut = [each for text in index_texts(item.content, by) for each in passages(text)]
            near = _cosines(vector, kept.get(item.id, b""), len(cut))
            shares = [len(wanted & frozenset(terms(each))) / (len(wanted) or 1) for each in cut]
            best = max(range(len(cut)), key=lambda place: near[place] + shares[place])
            result[at] = replace(result[at], passage=cut[best])


def _cosines(vector: QuestionVector | None, kept: bytes, count: int) -> Sequence[float]:
    """Return how near each of *count* passages is, or 0 for each if that is not known."""
    if vector is None or len(kept) != 4 * count * len(vector.whole):
        return [0.0] * count
    import numpy as np  # noqa: PLC0415 - where there are vectors, it is there

    whole = np.asarray(vector.whole, np.float32)
    rows = np.frombuffer(kept, "<f4").reshape(count, -1)
    near: list[float] = (rows @ whole / (np.linalg.norm(whole) or 1.0)).tolist()
    return near


async def _find_candidates(
    store: MemoryStore,
    request: RecallRequest,
    mode: RecallMode,
    seen: FirstLook | None,
    vector: QuestionVector | None,
) -> Candidates:
    if mode == "recent":
        candidates = await by_time(store, request)
    else:
        search = by_meaning if mode == "meaning" else by_all
        seen = seen or await _look(store, request, mode)
        candidates = await search(store, request, seen, vector)
    if all(is_indexed(one.item) for one in candidates.scored):
        return candidates
    # Of a store whose indexes do not know of it.
    return candidates._replace(scored=[one for one in candidates.scored if is_indexed(one.item)])


def check_scope(scope: object) -> None:
    """Raise `QueryError` unless *scope* says whose memories are meant, or is `None`."""
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
