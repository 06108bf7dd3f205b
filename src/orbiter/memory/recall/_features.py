"""Features of the candidates of one question: the measurements that signals are made of.

Plain functions from a question and a pool to one number per item; no store, no model, no clock.
Numbers that have no natural unit are standardised over the pool, so that one set of weights
serves short dialogues and long chats, small stores and large ones. `_signals` has the table of
which of them count.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from operator import mul
from typing import NamedTuple, TypeVar

from orbiter.memory.model.items import HumanMemory, MemoryItem
from orbiter.memory.model.reading import Verdict
from orbiter.memory.recall._candidate_pool import Pool, as_stored, is_spoken, speaker_of
from orbiter.memory.recall._date_phrases import has_time
from orbiter.memory.recall._query_analysis import Question, is_question
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
    "is_users",
    "lenders",
    "names_speaker",
    "says_when",
    "standardise",
    "terms_of",
]

_T = TypeVar("_T")

_K1, _B = 1.2, 0.4  # of BM25; turns are short, so their length says little
_MAX_BYTES = 32 * 2**20
"""How much is remembered of the texts that one function was asked about."""
_SPAN = 2
"""How many before and after an item lend it their words and meaning."""
_FEW = 20
UNRELATED = 0.15
"""The cosine that texts with nothing in common stay below, mostly and for most models."""
_ECHO = 0.5
"""Share of terms in common from which a question is the same question. "Where is my car parked?"
asks what "Where is my car?" asks."""


class FeatureTable(NamedTuple):
    """One row per item of a pool, one column per signal."""

    items: list[MemoryItem]
    columns: dict[str, list[float]]
    before: list[int | None]
    """Where the item said just before stands; `None` at the start of a stretch."""
    after: list[int | None]
    matched: list[frozenset[str]]
    """The asked terms that stand in each item."""
    rarity: dict[str, float]
    verdicts: dict[int, Verdict]
    """What the reader says of those that it has read, by row."""
    details: dict[str, Sequence[bytes]]
    """The words of those that were looked at closer, as the store keeps them, by id."""


class TextFeatures(NamedTuple):
    """What recall knows of a text, whatever is asked."""

    passages: tuple[tuple[Counter[str], int], ...]
    """The terms and the length of each passage."""
    is_question: bool


@text_cache(
    max_bytes=_MAX_BYTES,
    size_of=lambda text: 1_000 + sum(100 * size for _, size in text.passages),
)
def _text_features(content: str) -> TextFeatures:
    passages = tuple(map(_counted, words.passages(content)))
    return TextFeatures(passages, is_question(content))


def _counted(passage: str) -> tuple[Counter[str], int]:
    terms = words.terms(passage)
    return Counter(terms), len(terms)


says_when = text_cache(max_bytes=_MAX_BYTES, size_of=lambda _: 0)(has_time)


def terms_of(item: MemoryItem) -> Set[str]:
    """Return the distinct terms of an item."""
    return _terms_in(_text_features(item.content))


def _terms_in(text: TextFeatures) -> Set[str]:
    if len(text.passages) == 1:  # as most texts have
        return text.passages[0][0].keys()
    return frozenset(term for counts, _ in text.passages for term in counts)


def best_passage(content: str, terms: frozenset[str]) -> str:
    """Return the passage of a text that holds most of the *terms* terms, or all of a short text."""
    counted = _text_features(content).passages
    if len(counted) == 1:
        return content
    passages = zip(words.passages(content), counted, strict=True)
    return max(passages, key=lambda each: len(terms & each[1][0].keys()))[0]


class _AskedTerms:
    """The terms of a question, each a bit: most items hold the same few sets of them."""

    def __init__(self, rarity: dict[str, float]) -> None:
        self._bits = {term: 1 << at for at, term in enumerate(rarity)}
        self.terms = tuple(rarity)
        self._term_set = frozenset(rarity)
        self.sets = _Known(lambda mask: frozenset(t for t, bit in self._bits.items() if mask & bit))
        """The terms of each mask."""
        self.weighed = _Known(
            lambda mask: [(term, rarity[term]) for term, bit in self._bits.items() if mask & bit]
        )
        """The same with their rarity, in the order of the question."""
        # In one order, so that equal sets have equal sums.
        self.mass = _Known(lambda mask: sum(rarity[term] for term in sorted(self.sets[mask])))
        """How much the terms of a mask weigh."""

    def mask(self, text: TextFeatures) -> int:
        """Return which of the terms stand in a text."""
        mask, by_term = 0, self._bits
        for counts, _ in text.passages:
            for term in self._term_set & counts.keys():
                mask |= by_term[term]
        return mask


class _Known(dict[int, _T]):
    """A function of a mask that remembers what it returned."""

    def __init__(self, function: Callable[[int], _T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, mask: int) -> _T:
        value = self[mask] = self._function(mask)
        return value


class Measurement:
    """A question beside its candidates: what the columns of the signals are computed from."""

    def __init__(self, question: Question, pool: Pool) -> None:
        self.question = question
        self.pool = pool
        self.items = pool.items
        self.before, self.after = _neighbours(pool)
        self.texts = _text_features.of_all([item.content for item in self.items])
        """What is known of each item's text."""
        self.rarity = _rarity(question.terms, pool)
        self.terms = _AskedTerms(self.rarity)
        every = frozenset(words.terms(question.text))  # with the names
        self.echo = [
            _echo(every, text) if text.is_question and as_stored(item) is item else 0.0
            for item, text in zip(self.items, self.texts, strict=True)
        ]
        """1 for an item that asks what is asked."""
        self.masks = list(map(self.terms.mask, self.texts))
        """Which of the asked terms stand in each item."""

    def table(self, columns: dict[str, list[float]]) -> FeatureTable:
        """Return *columns* as a table of these candidates."""
        matched = [self.terms.sets[mask] for mask in self.masks]
        return FeatureTable(
            self.items, columns, self.before, self.after, matched, self.rarity, {}, {}
        )

    def bm25(self) -> list[float]:
        """Return how well the best passage of each item matches the question's terms."""
        lengths = [length for text in self.texts for _, length in text.passages]
        typical = max(sum(lengths) / len(lengths), 1.0) if lengths else 1.0
        return [
            _bm25(text, self.terms.weighed[mask], typical) if mask else 0.0
            for text, mask in zip(self.texts, self.masks, strict=True)
        ]

    @functools.cached_property
    def speakers(self) -> list[str | None]:
        """Who spoke, item by item."""
        return [speaker_of(item, self.pool.names) for item in self.items]

    def with_previous(self) -> list[float]:
        """Return the weight of the terms in each item and in the one said just before."""
        masks, mass = self.masks, self.terms.mass
        return [
            mass[mask if before is None else mask | masks[before]]
            for mask, before in zip(masks, self.before, strict=True)
        ]

    def with_neighbours(self) -> list[float]:
        """Return the weight of the terms in each item and in those said around it."""
        mass = self.terms.mass
        # What was talked of before a question says nothing about its answer.
        lent = [0 if echo else mask for mask, echo in zip(self.masks, self.echo, strict=True)]
        none = [0, 0]
        weighed: list[float] = []
        start = 0
        for window in self.pool.windows:
            end = start + len(window)
            if end == start + 1:  # as of notes
                weighed.append(mass[self.masks[start]])
                start = end
                continue
            earlier = [*none, *self.masks[start:end]]
            later = [*lent[start:end], *none]
            every = zip(earlier, earlier[1:], earlier[2:], later[1:], later[2:], strict=False)
            weighed += [mass[a | b | own | c | d] for a, b, own, c, d in every]
            start = end
        return weighed

    @functools.cached_property
    def meaning(self) -> list[float]:
        """How near each item is to the question by its vector, standardised."""
        similarity = self.pool.similarity or {}
        return standardise([similarity.get(item.id) for item in self.items], absent=UNRELATED)

    def neighbour_meaning(self) -> list[float]:
        """Return how near those said around each item are, without the item itself."""
        none = [0.0, 0.0]
        means: list[float] = []
        start = 0
        for window in self.pool.windows:
            end = start + len(window)
            if end == start + 1:  # as of notes
                means.append(0.0)
                start = end
                continue
            near = [*none, *self.meaning[start:end], *none]
            every = zip(near, near[1:], near[3:], near[4:], strict=False)
            means += [(b + a + c + d) / (2 * _SPAN) for a, b, c, d in every]
            start = end
        return means


EVIDENCE = frozenset(("echo", "date"))
"""Columns that `has_evidence` looks at."""


def has_evidence(question: Question, table: FeatureTable, place: int) -> bool:
    """Tell whether its words, those around it or its time connect an item with the question.

    Where there is no model, nothing else could.
    """
    if table.matched[place]:  # as most that are asked about have something themselves
        return True
    lending = lenders(place, table.before, table.after, table.columns["echo"])
    if any(table.matched[at] for at in lending) or table.columns["date"][place] > 0:
        return True
    # Nobody says what it asks beside their names.
    are_named = bool(question.people) and not any(table.matched)
    return are_named and _is_of_those_named(question, table.items[place])


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
    are_all = len(known) == len(values)
    known += [absent] * (_FEW - len(known))
    mean = sum(known) / len(known)
    above = [value - mean for value in known]
    deviation = math.sqrt(sum(map(mul, above, above)) / len(known))
    if deviation < 1e-9:
        return [0.0] * len(values)
    if are_all:
        return [value / deviation for value in above[: len(values)]]
    return [0.0 if value is None else (value - mean) / deviation for value in values]


def _neighbours(pool: Pool) -> tuple[list[int | None], list[int | None]]:
    if all(len(window) == 1 for window in pool.windows):  # as notes are
        return [None] * len(pool.windows), [None] * len(pool.windows)
    before: list[int | None] = []
    after: list[int | None] = []
    for window in filter(None, pool.windows):
        start = len(before)
        last = start + len(window) - 1
        before += (None, *range(start, last))
        after += (*range(start + 1, last + 1), None)
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


def lenders(
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


def _bm25(text: TextFeatures, held: Sequence[tuple[str, float]], typical: float) -> float:
    """Return how well the best passage of a text fits, by the terms it holds."""
    best = 0.0
    for counts, length in text.passages:
        flat = _K1 * (1 - _B + _B * length / typical)
        score = 0.0
        for term, weight in held:
            count = counts.get(term, 0)
            if count:
                score += weight * count * (_K1 + 1) / (count + flat)
        best = max(best, score)
    return best


def _echo(terms: frozenset[str], text: TextFeatures) -> float:
    """Return 1 if a question asks what is asked, and so does not answer it."""
    if any(len(terms) < _ECHO * len(counts) for counts, _ in text.passages):
        return 0.0  # it says much more
    own = _terms_in(text)
    return 1.0 if terms and len(terms & own) >= _ECHO * len(terms | own) else 0.0


def is_users(item: MemoryItem) -> bool:
    """Tell whether the user said it, or nobody did: what is no talk was put here on purpose."""
    return isinstance(item, HumanMemory) or not is_spoken(item)


def names_speaker(question: Question, name: str | None) -> float:
    """Return whether *name*, who spoke, is the one asked about: 0.5, -0.5, or 0 if unknown."""
    if name is None or len(question.people) != 1:
        return 0.0
    return 0.5 if name.casefold() in question.people else -0.5
