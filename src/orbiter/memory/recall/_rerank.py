"""Reranking: all candidates by fitted weights, the best of them again by late interaction.

The weights are fitted on conversations by `benchmarks/recall_fit.py`. Two kinds of talk differ too
much for one set: people who call each other by name and say little at a time, and a person with an
assistant who answers at length. Which one a pool is of shows in who speaks in it.

Late interaction is how well each word of the question is met by the words of a candidate. It is
only for the best, whose word vectors the store keeps; numpy is at hand where there is a model. A
word of the question may also be met by what was said just before or after, which is how people
talk: "Did you go hiking?" – "Yes, with my sister."

Last, a `Reranker` of the caller's may read the very best beside the question.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from orbiter.memory.errors import RerankError
from orbiter.memory.model.items import AIMemory, MemoryItem
from orbiter.memory.model.protocols import DetailStore, MemoryStore, Reranker
from orbiter.memory.recall._candidate_pool import Pool, are_many, speaker_of
from orbiter.memory.recall._explanation import RERANKER, Explanation, Reason, passage_of
from orbiter.memory.recall._features import EVIDENCE, FeatureTable, standardise
from orbiter.memory.recall._hits import Reranking
from orbiter.memory.recall._modes import warn_once
from orbiter.memory.recall._scoring import Scored, score
from orbiter.memory.recall._select import Candidates
from orbiter.memory.recall._signals import SIGNALS, Signal, SignalError, check_columns, names
from orbiter.memory.tasks.offload import apart

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]


__all__ = [
    "ASSISTANT",
    "ASSISTANT_OVER_TIME",
    "MAX_RERANKED",
    "PEOPLE",
    "Kind",
    "add_details",
    "blend",
    "check_weights",
    "kind_of",
    "order",
    "rerank",
    "weighed_columns",
]


Weights = Mapping[str, float]

_ECHO = -4.5
"""Not fitted: a question that was stored must not come before what answers it."""


class Kind(NamedTuple):
    """The weights for one kind of talk, by what is at hand."""

    words: Weights
    """Without a model."""
    meaning: Weights
    """With vectors of whole texts."""
    details: Weights
    """With vectors of words, too, for the best candidates."""


def _weights(**values: float) -> Weights:
    return MappingProxyType({**values, "echo": _ECHO})


PEOPLE = Kind(
    words=_weights(words=0.16, prev_turn=0.31, neighbours=0.89, speaker=2.85, date=5.56, when=2.61),
    meaning=_weights(
        meaning=1.09, neighbour_meaning=0.52, words=0.05, prev_turn=0.15, neighbours=0.62,
        speaker=2.84, date=5.02, when=2.03,
    ),
    details=_weights(
        meaning=0.77, neighbour_meaning=0.33, words=0.05, prev_turn=0.11, neighbours=0.57,
        neighbour_detail=0.54, speaker=2.73, date=4.80, when=1.97,
    ),
)  # fmt: skip
# Without a model they are fitted, but for the user's, which is held below what the fit gives: in
# the one data set at hand, nearly all that is asked for was said by the user. Those of meaning and
# details are not, as the model has seen these questions: they weigh a fifth more than with the
# model before, as meaning does for people, and words a tenth less among the best. Who spoke and
# when weigh more than before, as they do in the fit without a model, where they say the same.
ASSISTANT = Kind(
    words=_weights(words=1.32, user=3.20, assistant=3.83, date=4.08),
    meaning=_weights(words=0.80, meaning=0.95, user=3.30, assistant=3.30, date=3.40),
    details=_weights(words=0.50, meaning=0.33, detail=1.00, user=2.50, assistant=2.80, date=3.40),
)


def _with_neighbours(assistant: Weights, people: Weights) -> Weights:
    neighbours = {name: people[name] for name in people if name.startswith("neighbour")}
    return MappingProxyType({**assistant, **neighbours})


# Not fitted: no data at hand has such questions. What goes on for months is seldom called by its
# name in each message, but in what was said around it; there it counts as much as among people.
ASSISTANT_OVER_TIME = Kind(
    words=ASSISTANT.words,  # where it found no more
    meaning=_with_neighbours(ASSISTANT.meaning, PEOPLE.meaning),
    details=_with_neighbours(ASSISTANT.details, PEOPLE.details),
)
"""For questions over time: in which order, or in sum."""

_SHARE = 0.1


def check_weights(kinds: Sequence[Kind], *, signals: Sequence[Signal] = SIGNALS) -> None:
    """Raise `SignalError` for a weight without a signal, or a signal without a weight."""
    repeated = [name for name, count in Counter(each.name for each in signals).items() if count > 1]
    if repeated:
        raise SignalError(f"`SIGNALS` has `{'`, `'.join(repeated)}` twice")
    text = names("text", signals=signals)
    with_vectors = text + names("vectors", signals=signals)
    every = with_vectors + names("word_vectors", signals=signals)
    candidates: set[str] = set()
    for kind in kinds:
        for weights, known in (
            (kind.words, text),
            (kind.meaning, with_vectors),
            (kind.details, every),
        ):
            candidates.update(weights)
            if unknown := sorted(set(weights).difference(known)):
                raise SignalError(
                    f"`_rerank` weighs `{'`, `'.join(unknown)}`, which `SIGNALS` does not measure "
                    "there"
                )
    if lacking := [name for name in every if name not in candidates]:
        raise SignalError(f"`_rerank` has no weight for the signals `{'`, `'.join(lacking)}`")


check_weights((PEOPLE, ASSISTANT, ASSISTANT_OVER_TIME))


def kind_of(
    items: Sequence[MemoryItem], names: frozenset[str] = frozenset(), *, spread: bool = False
) -> Kind:
    """Return the weights for a pool of *items*; who has a name of their own is no assistant.

    With *spread*, those for a question about all of a long matter.
    """
    most, from_assistant = _SHARE * len(items), 0
    for item in items:
        if isinstance(item, AIMemory) and speaker_of(item, names) is None:
            from_assistant += 1
            if from_assistant > most:
                return ASSISTANT_OVER_TIME if spread else ASSISTANT
    return PEOPLE


def blend(words: Weights, meaning: Weights, coverage: float) -> Weights:
    """Return weights between those without a model and those with one that knows the language.

    A model that knows little of a question's language must not outweigh its words.
    """
    if coverage >= 1:
        return meaning
    return {
        name: (1 - coverage) * words.get(name, 0.0) + coverage * meaning.get(name, 0.0)
        for name in {**meaning, **words}
    }


def weighed_columns(pool: Pool, *, spread: bool = False) -> frozenset[str]:
    """Return the columns that count for a pool: those with a weight, and those of evidence."""
    kind = kind_of(pool.items, pool.names, spread=spread)
    used = kind.words if pool.similarity is None else {**kind.words, **kind.meaning, **kind.details}
    return EVIDENCE.union(used)


MAX_RERANKED = 80
"""How many of the best candidates are looked at word by word."""

_MANY_WORDS = 4_096
"""Bytes of the vectors of a question's words from which a closer look takes long."""


async def order(
    store: MemoryStore,
    pool: Pool,
    table: FeatureTable,
    *,
    max_reranked: int,
    spread: bool = False,
) -> list[Scored]:
    """Return the eligible items, best first.

    The best *max_reranked* are looked at word by word where the model and the store can do that.
    With *spread*, the question is about all of a long matter.
    """
    kind = kind_of(table.items, pool.names, spread=spread)
    is_long = are_many(table.items)
    eligible = [at for at, item in enumerate(table.items) if item.id in pool.eligible]
    if pool.similarity is None:
        return await apart(is_long, score, table, kind.words, eligible)
    by_meaning = blend(kind.words, kind.meaning, pool.coverage)
    scored = await apart(is_long, score, table, by_meaning, eligible)
    best, rest = scored[:max_reranked], scored[max_reranked:]
    if not pool.query_token_vectors or not isinstance(store, DetailStore):
        return scored
    places = [one.place for one in best]
    near = {
        at
        for place in places
        for at in (place, table.before[place], table.after[place])
        if at is not None
    }
    kept = await store.details([table.items[at].id for at in sorted(near)])
    table.details.update(kept)

    def look_closer() -> list[Scored]:
        add_details(
            table,
            places,
            query_token_vectors=pool.query_token_vectors,
            kept=kept,
            dimension=pool.token_dimension,
        )
        return score(table, blend(kind.words, kind.details, pool.coverage), places)

    is_long |= len(places) > MAX_RERANKED or len(pool.query_token_vectors) > _MANY_WORDS
    return [*await apart(is_long, look_closer), *rest]


_ALONE, _TOGETHER = "detail", "neighbour_detail"
check_columns("word_vectors", (_ALONE, _TOGETHER))

_UNRELATED = 0.3
"""How near the nearest of a dozen words is that has nothing to do with a word, roughly."""
_APART = 0.1
"""Added to how far apart they are, as differences smaller than that mean nothing."""


def add_details(
    table: FeatureTable,
    places: Sequence[int],
    *,
    query_token_vectors: bytes,
    kept: Mapping[str, Sequence[bytes]],
    dimension: int,
) -> None:
    """Add the columns `detail` and `neighbour_detail` to *table*, measured at *places*.

    *query_token_vectors* and *kept* are word vectors as `Embeddings.aembed_details` gives them.
    What has none is average, and so is every other row. How near the candidates come to a word is
    divided by how far they are apart in it: what half of them say would outweigh what one says.
    """
    import numpy as np  # noqa: PLC0415 - where there is a model there is numpy, and only there

    question = _unpacked(query_token_vectors, dimension)
    met = _met(question, kept, dimension) if len(question) else {}
    known = [place for place in places if table.items[place].id in met]

    def meeting(beside: "Sequence[int | None]") -> "Floats":
        """Return what is met at places, or where there are none at those they stand for."""
        ids = [None if place is None else table.items[place].id for place in beside]
        own = [table.items[place].id for place in known]
        return np.array(
            [met.get(one or other, met[other]) for one, other in zip(ids, own, strict=True)]
        )

    alone, together = dict[int, float](), dict[int, float]()
    if known:
        own = meeting(known)
        before = meeting([table.before[place] for place in known])
        after = meeting([table.after[place] for place in known])
        near = np.maximum(np.maximum(before, own), after)
        shares = 1 / (own.std(axis=0) + _APART)
        shares /= shares.sum()
        alone = dict(zip(known, (own * shares).sum(axis=1).tolist(), strict=True))
        together = dict(zip(known, (near * shares).sum(axis=1).tolist(), strict=True))
    for name, nearness in ((_ALONE, alone), (_TOGETHER, together)):
        values = [nearness.get(place) for place in places]
        column = [0.0] * len(table.items)
        for place, value in zip(places, standardise(values, absent=_UNRELATED), strict=True):
            column[place] = value
        table.columns[name] = column


_MULTIPLICATIONS = 2**18
"""How many one product may take. A larger one is shared out among threads by numpy's library, which
for matrices as small as these takes up to forty times as long."""
_BYTES = 2**20
"""Bytes of word vectors that are unpacked at once, about: they take four times as much."""


def _met(
    question: "Floats", kept: Mapping[str, Sequence[bytes]], dimension: int
) -> "dict[str, Floats]":
    """Return how near the nearest word of each item's best passage is to each word asked."""
    import numpy as np  # noqa: PLC0415

    listed = [(item_id, each) for item_id, passages in kept.items() for each in passages if each]
    best: dict[str, Floats] = {}
    best_mean: dict[str, float] = {}
    start = 0
    while start < len(listed):
        end, size = start, 0
        while end < len(listed) and (end == start or size < _BYTES):
            size += len(listed[end][1])
            end += 1
        words = _unpacked(b"".join(each for _, each in listed[start:end]), dimension)
        lengths = [len(each) // dimension for _, each in listed[start:end]]
        firsts = np.cumsum([0, *lengths[:-1]])
        near = np.maximum.reduceat(_products(words, question), firsts, axis=0)
        for (item_id, _), row, mean in zip(
            listed[start:end], near, near.mean(axis=1).tolist(), strict=True
        ):
            if item_id not in best or mean > best_mean[item_id]:
                best[item_id], best_mean[item_id] = row, mean
        start = end
    return best


def _products(words: "Floats", question: "Floats") -> "Floats":
    """Return how near each of *words* is to each word asked."""
    import numpy as np  # noqa: PLC0415

    rows = max(_MULTIPLICATIONS // question.size, 1)
    parts = [words[start : start + rows] @ question.T for start in range(0, len(words), rows)]
    # Whole numbers so far, and so none is rounded, in whatever order they are added up.
    near: Floats = np.concatenate(parts)
    near /= np.float32(_UNIT**2)
    return near


_UNIT = 127
"""The length of a word's vector."""


def _unpacked(rows: bytes, dimension: int) -> "Floats":
    import numpy as np  # noqa: PLC0415

    return np.frombuffer(rows, np.int8).reshape(-1, dimension).astype(np.float32)


_MAX_READ = 50
"""How many different texts a reranker reads."""
_SHARE_OF_READER = 1.1
"""How far apart its points are, beside those of all else together.

Of 0.5 to 3, tried on LoCoMo with scores made up of the evidence and noise, 0.75 to 1.1 harm with no
reader, however weak, and are within a point of the best with a good one. More than 1, so that of
two candidates the reader's comes first.
"""
_LEAST_APART = 0.5
"""Deviation of its log-odds below which it sees no difference that counts."""
_LONGEST_WAIT = 15.0
"""Seconds that a reranker may take before the order without it has to do."""
_PAUSE = 30.0
"""Seconds for which one that failed is not asked again: most fail by taking their time."""
_failed: dict[int, tuple[float, Reranker]] = {}
"""Until when, by the id of the reranker, which need not be hashable."""


async def rerank(candidates: Candidates, reranker: Reranker) -> Candidates:
    """Return the candidates with the best of them in the order that *reranker* gives them.

    Its scores are one more part of theirs, so what else speaks for a candidate still counts.
    """
    best = await apart(are_many(one.item for one in candidates.scored), _best_texts, candidates)
    texts = list(dict.fromkeys(best.values()))
    if not texts:
        return candidates
    scores, reranking = await _scores(reranker, candidates.question.text, texts)
    if not scores:
        return candidates._replace(reranking=reranking)
    read = [one for one in candidates.scored if one.item.id in best]
    by_text = dict(zip(texts, _points(scores, read), strict=True))
    said = dict(zip(texts, scores, strict=True))
    reread = [
        Scored(one.item, one.place, {**one.points, RERANKER: by_text[best[one.item.id]]})
        for one in read
    ]
    reread.sort(key=lambda one: -one.score)  # of equals, the better one without it

    def why(one: Scored) -> Explanation:
        if RERANKER not in one.points:
            return candidates.why(one)
        others = {part: points for part, points in one.points.items() if part != RERANKER}
        text = f"the reranker says {said[best[one.item.id]]:.2f}"
        reasons = (
            *candidates.why(Scored(one.item, one.place, others)),
            Reason(RERANKER, one.points[RERANKER], text),
        )
        return Explanation(sorted(reasons, key=lambda reason: -abs(reason.points)))

    others = [one for one in candidates.scored if one.item.id not in best]
    return candidates._replace(
        scored=[*reread, *others], why=why, reranking=reranking, by_relevance=False
    )


def _best_texts(candidates: Candidates) -> dict[str, str]:
    """Return what of each of the best is read, by id: who said it, and the passage that fits."""
    best: dict[str, str] = {}
    texts: set[str] = set()
    for one in filter(candidates.has_evidence, candidates.scored):
        passage, name = passage_of(candidates.question, one.item), speaker_of(one.item)
        is_named = name is None or passage.startswith(f"{name}:")
        text = passage if is_named else f"{name}: {passage}"
        if len(texts) == _MAX_READ and text not in texts:
            break
        texts.add(text)
        best[one.item.id] = text
    return best


async def _scores(
    reranker: Reranker, question: str, texts: Sequence[str]
) -> tuple[list[float], Reranking]:
    """Return the score of each text, or none if there are none; and what became of it."""
    name = repr(reranker)
    until, _ = _failed.get(id(reranker), (0.0, None))
    began = time.monotonic()
    if began < until:
        error = f"{name} failed a moment ago, and is not asked again for half a minute"
        return [], Reranking(name, 0, 0.0, error)
    try:
        async with asyncio.timeout(_LONGEST_WAIT):
            scores = [float(each) for each in await reranker.rerank(question, texts)]
        if len(scores) != len(texts) or not all(map(math.isfinite, scores)):
            raise RerankError(f"no finite score for each of {len(texts)} texts")  # noqa: TRY301
    except Exception as exc:  # noqa: BLE001 - of any reranker; the order without it still answers
        now = time.monotonic()
        for key in [key for key, (end, _) in _failed.items() if end <= now]:
            del _failed[key]
        _failed[id(reranker)] = now + _PAUSE, reranker
        error = f"{name} failed ({type(exc).__name__}: {exc})"
        warn_once("not reranked", f"recall answers without its reranker: {error}")
        return [], Reranking(name, len(texts), now - began, error)
    return scores, Reranking(name, len(texts), time.monotonic() - began)


def _points(scores: Sequence[float], read: Sequence[Scored]) -> list[float]:
    """Return the points of each score: 0 for the lowest, and as far apart as the others' are.

    So none that was read falls behind what was not.
    """
    are_shares = all(0 <= each <= 1 for each in scores)
    measures = [_log_odds(each) for each in scores] if are_shares else list(scores)
    apart_by = max(_deviation(measures), _LEAST_APART if are_shares else 0.0)
    lowest = min(measures)
    if not apart_by:
        return [0.0] * len(scores)
    scale = _SHARE_OF_READER * max(1.0, _deviation([one.score for one in read])) / apart_by
    return [scale * (each - lowest) for each in measures]


def _log_odds(share: float) -> float:
    # Beyond this, a sigmoid in single precision tells nothing apart.
    bounded = min(max(share, 1e-6), 1 - 1e-6)
    return math.log(bounded / (1 - bounded))


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((each - mean) ** 2 for each in values) / len(values))
