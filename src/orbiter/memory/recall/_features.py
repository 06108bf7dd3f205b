"""Features of the candidates of one question: the measurements that signals are made of.

Plain functions from a question and a pool to one number per item; no store, no model, no clock.
Numbers that have no natural unit are standardised over the pool, so that one set of weights
serves short dialogues and long chats, small stores and large ones. `_signals` has the table of
which of them count.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orbiter.memory.model.items import HumanMemory, MemoryItem
from orbiter.memory.recall._candidate_pool import Pool, is_spoken, is_talk, speaker_of
from orbiter.memory.recall._dates import has_time
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.text import words
from orbiter.memory.text.text_caches import text_cache

__all__ = [
    "EVIDENCE",
    "UNRELATED",
    "FeatureTable",
    "Measurement",
    "best_passage",
    "centre",
    "has_evidence",
    "is_question",
    "is_users",
    "names_speaker",
    "says_when",
    "standardise",
    "terms_of",
]

_K1, _B = 1.2, 0.4  # of BM25; turns are short, so their length says little
_MAX_BYTES = 32 * 2**20
"""How much is remembered of the texts that one function was asked about."""
_SPAN = 2
_FEW = 20
UNRELATED = 0.1
"""The cosine of texts that have nothing in common, roughly and for most models."""
_ECHO = 0.6
"""Share of terms in common from which a question is the same question."""


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """One row per item of a pool, one column per signal."""

    items: list[MemoryItem]
    columns: dict[str, list[float]]
    before: list[int | None]
    """Where the item said just before stands; `None` at the start of a stretch."""
    after: list[int | None]
    found: list[frozenset[str]]
    """The asked terms that stand in each item."""
    rarity: dict[str, float]


_passages = text_cache(max_bytes=_MAX_BYTES)(words.passages)


@text_cache(max_bytes=_MAX_BYTES)
def _passage_terms(content: str) -> tuple[tuple[Counter[str], int], ...]:
    counted = (Counter(words.terms(passage)) for passage in _passages(content))
    return tuple((terms, terms.total()) for terms in counted)


says_when = text_cache(max_bytes=_MAX_BYTES)(has_time)


def terms_of(item: MemoryItem) -> frozenset[str]:
    """Return the distinct terms of an item."""
    return frozenset(term for counts, _ in _passage_terms(item.content) for term in counts)


def best_passage(content: str, asked: frozenset[str]) -> str:
    """Return the passage of a text that holds most of the *asked* terms, or all of a short text."""
    if len(_passages(content)) == 1:
        return content
    found = zip(_passages(content), _passage_terms(content), strict=True)
    return max(found, key=lambda each: len(asked & each[1][0].keys()))[0]


@dataclass(frozen=True)
class Measurement:
    """A question beside its candidates: what the columns of the signals are computed from."""

    question: Question
    pool: Pool
    items: list[MemoryItem]
    before: list[int | None]
    after: list[int | None]
    passages: list[tuple[tuple[Counter[str], int], ...]]
    """The terms and the length of each passage of each item."""
    found: list[frozenset[str]]
    rarity: dict[str, float]
    echo: list[float]
    """1 for an item that asks what is asked."""

    @classmethod
    def of(cls, question: Question, pool: Pool) -> "Measurement":
        """Return what is needed to measure the candidates of *pool*."""
        items = pool.items
        before, after = _neighbours(pool)
        passages = [_passage_terms(item.content) for item in items]
        found = [_asked_in(each, question.terms) for each in passages]
        every = frozenset(words.terms(question.text))  # with the names
        echo = [_echo(every, item, each) for item, each in zip(items, passages, strict=True)]
        rarity = _rarity(question.terms, pool)
        return cls(question, pool, items, before, after, passages, found, rarity, echo)

    def table(self, columns: dict[str, list[float]]) -> FeatureTable:
        """Return *columns* as a table of these candidates."""
        return FeatureTable(self.items, columns, self.before, self.after, self.found, self.rarity)

    def bm25(self) -> list[float]:
        """Return how well the best passage of each item matches the question's terms."""
        return _bm25(self.passages, self.found, self.rarity)

    def session_bm25(self) -> list[float]:
        """Return how well the whole session of each item matches the question's terms."""
        return _session_words(self._sessions, self.passages, self.found, self.question.terms)

    @functools.cached_property
    def _sessions(self) -> list[object]:
        return [_session(item) for item in self.items]

    @functools.cached_property
    def _mass(self) -> Callable[[frozenset[str]], float]:
        """How much asked terms weigh; the same few sets stand in most items."""
        # In one order, so that equal sets have equal sums.
        return functools.cache(lambda terms: sum(self.rarity[term] for term in sorted(terms)))

    def with_previous(self) -> list[float]:
        """Return the weight of the terms in each item and in the one said just before."""
        return [
            self._mass(self.found[at] | _at(self.found, self.before[at]))
            for at in range(len(self.items))
        ]

    def with_neighbours(self) -> list[float]:
        """Return the weight of the terms in each item and in those said around it."""
        return [
            self._mass(frozenset().union(*(self.found[near] for near in each)))
            for each in (
                _lenders(at, self.before, self.after, self.echo) for at in range(len(self.items))
            )
        ]

    def lengths(self) -> list[float]:
        """Return the logarithm of how many terms each item has."""
        return [math.log(1 + sum(length for _, length in each)) for each in self.passages]

    @functools.cached_property
    def meaning(self) -> list[float]:
        """How near each item is to the question by its vector, standardised."""
        similarity = self.pool.similarity or {}
        return standardise([similarity.get(item.id) for item in self.items], absent=UNRELATED)

    def neighbour_meaning(self) -> list[float]:
        """Return how near those said around each item are, without the item itself."""
        return [
            _mean(self.meaning[near] for near in _near(at, self.before, self.after) if near != at)
            for at in range(len(self.items))
        ]

    def session_meaning(self) -> list[float]:
        """Return how near the best items of each item's session are."""
        return _session_best(self._sessions, self.meaning)


EVIDENCE = frozenset(("echo", "meaning", "date"))
"""Columns that `has_evidence` looks at."""


def has_evidence(question: Question, table: FeatureTable, place: int) -> bool:
    """Tell whether anything but its form speaks for an item."""
    if table.found[place]:  # as most that are asked about have something themselves
        return True
    lenders = _lenders(place, table.before, table.after, table.columns["echo"])
    if any(table.found[at] for at in lenders):
        return True
    if not question.terms and _is_of_those_named(question, table.items[place]):
        return True
    columns = table.columns
    return columns["date"][place] > 0 or ("meaning" in columns and columns["meaning"][place] > 0)


def centre(values: Sequence[float]) -> list[float]:
    """Return how far each value is above the mean, so that what all have is no reason."""
    mean = sum(values) / len(values) if values else 0.0
    return [value - mean for value in values]


def standardise(values: Sequence[float | None], *, absent: float = 0.0) -> list[float]:
    """Return how many deviations each value is above the mean; what is not known is average.

    Few values are compared with what items that have nothing to do with the question would have,
    *absent*: the only candidate must not be average.
    """
    known = [value for value in values if value is not None]
    if not known:
        return [0.0] * len(values)
    known += [absent] * (_FEW - len(known))
    mean = sum(known) / len(known)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / len(known))
    if deviation < 1e-9:
        return [0.0] * len(values)
    return [0.0 if value is None else (value - mean) / deviation for value in values]


def _neighbours(pool: Pool) -> tuple[list[int | None], list[int | None]]:
    before: list[int | None] = []
    after: list[int | None] = []
    for window in pool.windows:
        start, last = len(before), len(before) + len(window) - 1
        before += [None if at == start else at - 1 for at in range(start, last + 1)]
        after += [None if at == last else at + 1 for at in range(start, last + 1)]
    return before, after


def _near(at: int, before: Sequence[int | None], after: Sequence[int | None]) -> list[int]:
    near = [at]
    for direction in (before, after):
        place: int | None = at
        for _ in range(_SPAN):
            place = None if place is None else direction[place]
            if place is not None:
                near.append(place)
    return near


def _lenders(
    at: int,
    before: Sequence[int | None],
    after: Sequence[int | None],
    echo: Sequence[float],
) -> list[int]:
    """Return whose words count for an item: those near it, but not the question asked after it.

    What was talked of before a question says nothing about its answer.
    """
    return [near for near in _near(at, before, after) if near <= at or not echo[near]]


def _is_of_those_named(question: Question, item: MemoryItem) -> bool:
    """Tell whether an item was said by someone the question names, or names them itself."""
    name = speaker_of(item)
    if name is not None and name.casefold() in question.people:
        return True
    return not terms_of(item).isdisjoint(words.terms(question.text))


def _rarity(terms: Iterable[str], pool: Pool) -> dict[str, float]:
    total = max(pool.passages, 1)
    rarity = {}
    for term in terms:
        count = min(pool.frequency.get(term, 0), total)
        rarity[term] = math.log(1 + (total - count + 0.5) / (count + 0.5))
    return rarity


def _at(found: Sequence[frozenset[str]], place: int | None) -> frozenset[str]:
    return frozenset() if place is None else found[place]


def _asked_in(
    passages: tuple[tuple[Counter[str], int], ...], terms: Sequence[str]
) -> frozenset[str]:
    if len(passages) == 1:  # as most items are
        return frozenset(filter(passages[0][0].__contains__, terms))
    return frozenset(term for term in terms if any(term in counts for counts, _ in passages))


def _bm25(
    passages: Sequence[tuple[tuple[Counter[str], int], ...]],
    terms_in: Sequence[frozenset[str]],
    rarity: dict[str, float],
) -> list[float]:
    lengths = [length for each in passages for _, length in each]
    typical = max(sum(lengths) / len(lengths), 1.0) if lengths else 1.0
    scores = []
    for each, own in zip(passages, terms_in, strict=True):
        best = 0.0
        held = [(term, weight) for term, weight in rarity.items() if term in own]
        for counts, length in each if held else ():
            flat = _K1 * (1 - _B + _B * length / typical)
            score = 0.0
            for term, weight in held:
                count = counts.get(term, 0)
                if count:
                    score += weight * count * (_K1 + 1) / (count + flat)
            best = max(best, score)
        scores.append(best)
    return scores


def _session_words(
    sessions: Sequence[object],
    passages: Sequence[tuple[tuple[Counter[str], int], ...]],
    terms_in: Sequence[frozenset[str]],
    terms: Sequence[str],
) -> list[float]:
    """Return how well the whole session of each item fits, as BM25 over sessions."""
    counts: dict[object, Counter[str]] = {}
    lengths: Counter[object] = Counter()
    for session, each, own in zip(sessions, passages, terms_in, strict=True):
        total = counts.setdefault(session, Counter())
        lengths[session] += sum(length for _, length in each)
        for term in own:
            total[term] += sum(held[term] for held, _ in each)
    if not counts:
        return []
    typical = max(lengths.total() / len(counts), 1.0)
    scores = dict.fromkeys(counts, 0.0)
    for term in terms:
        having = [session for session in counts if counts[session][term]]
        rarity = math.log(1 + (len(counts) - len(having) + 0.5) / (len(having) + 0.5))
        for session in having:
            count = counts[session][term]
            flat = _K1 * (0.5 + 0.5 * lengths[session] / typical)
            scores[session] += rarity * count * (_K1 + 1) / (count + flat)
    return [scores[session] for session in sessions]


def _session_best(sessions: Sequence[object], meaning: Sequence[float]) -> list[float]:
    """Return the mean of the three nearest items of each item's session."""
    by_session: dict[object, list[float]] = {}
    for session, value in zip(sessions, meaning, strict=True):
        by_session.setdefault(session, []).append(value)
    best = {
        session: sum(sorted(values, reverse=True)[:3]) / 3 for session, values in by_session.items()
    }
    return [best[session] for session in sessions]


def _session(item: MemoryItem) -> object:
    # Where nobody talks, nothing says that two items belong together.
    return (item.metadata.user_id, item.metadata.session_id if is_talk(item) else (item.id,))


def _echo(
    asked: frozenset[str], item: MemoryItem, passages: tuple[tuple[Counter[str], int], ...]
) -> float:
    """Return 1 if the item asks what is asked, and so does not answer it."""
    if not is_question(item.content):
        return 0.0
    own = {term for counts, _ in passages for term in counts}
    return 1.0 if asked and len(asked & own) >= _ECHO * len(asked | own) else 0.0


def is_users(item: MemoryItem) -> bool:
    """Tell whether the user said it, or nobody did: what is no talk was put here on purpose."""
    return isinstance(item, HumanMemory) or not is_spoken(item)


def is_question(content: str) -> bool:
    return content.rstrip().endswith(("?", "？"))


def names_speaker(question: Question, item: MemoryItem) -> float:
    """Return whether the one who spoke is the one asked about: 0.5, -0.5, or 0 if unknown."""
    name = speaker_of(item)
    if name is None or len(question.people) != 1:
        return 0.0
    return 0.5 if name.casefold() in question.people else -0.5


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / (2 * _SPAN) if known else 0.0
