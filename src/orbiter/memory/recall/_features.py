"""Features of the candidates of one question: the measurements that signals are made of.

Plain functions from a question and a pool to one number per item; no store, no model, no clock.
Numbers that have no natural unit are standardised over the pool, so that one set of weights
serves short dialogues and long chats, small stores and large ones. `_signals` has the table of
which of them count.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import islice
from operator import mul
from typing import NamedTuple, TypeVar

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.items import HumanMemory, MemoryItem
from orbiter.memory.recall._candidate_pool import Pool, is_spoken, is_talk, speaker_of
from orbiter.memory.recall._date_phrases import has_time
from orbiter.memory.recall._query_analysis import Question, asks, is_question
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
    details: dict[int, tuple[float, float]]
    """How near the words of an item, and of those around it, are to each word asked, by row."""


class TextFeatures(NamedTuple):
    """What recall knows of a text, whatever is asked."""

    passages: tuple[tuple[Counter[str], int], ...]
    """The terms and the length of each passage."""
    length: float
    """The logarithm of how many terms it has."""
    is_question: bool
    specifics: tuple[str, ...]
    """The first names and numbers in it, in small letters."""


@text_cache(
    max_bytes=_MAX_BYTES,
    size_of=lambda text: (
        1_000 + 4 * sum(map(len, text.specifics)) + sum(100 * size for _, size in text.passages)
    ),
)
def _text_features(content: str) -> TextFeatures:
    passages = tuple(map(_counted, words.passages(content)))
    length = math.log(1 + sum(length for _, length in passages))
    specifics = tuple(islice(_specifics(content), _MAX_SPECIFICS))
    return TextFeatures(passages, length, is_question(content), specifics)


def _counted(passage: str) -> tuple[Counter[str], int]:
    terms = words.terms(passage)
    return Counter(terms), len(terms)


# A capital letter within a sentence: at its start, every word has one. It begins with a class of
# few characters, which is found much faster than what has to stand before it.
_SPECIFIC = lazy_pattern(
    r"[A-Z0-9\u0080-\U0010ffff]"
    r"(?:(?<=\d)\d*|(?:(?<=[^\WA-Z\d_] [^\Wa-z\d_])|(?<=[,;] [^\Wa-z\d_]))[\w’'-]+)"
)
_MAX_SPECIFICS = 8
_ENOUGH = 2
"""Names and numbers that count: more of them make no better answer."""


def _specifics(content: str) -> Iterator[str]:
    """Yield the names and numbers of a text; in German all nouns, in Chinese only numbers."""
    for match in _SPECIFIC.finditer(content):
        word = match[0]
        if word[0].isdigit() or (word[0].isupper() and word[1] not in "’'"):  # not "I'm"
            yield word.removesuffix("'s").removesuffix("’s").casefold()


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
        both = list(zip(self.items, self.texts, strict=True))
        self.asks = [asks(item, is_question=text.is_question) for item, text in both]
        """Which items ask for something."""
        self.echo = [
            _echo(every, text) if asks else 0.0
            for text, asks in zip(self.texts, self.asks, strict=True)
        ]
        """1 for an item that asks what is asked."""
        self.masks = list(map(self.terms.mask, self.texts))
        """Which of the asked terms stand in each item."""

    def table(self, columns: dict[str, list[float]]) -> FeatureTable:
        """Return *columns* as a table of these candidates."""
        matched = [self.terms.sets[mask] for mask in self.masks]
        return FeatureTable(self.items, columns, self.before, self.after, matched, self.rarity, {})

    def bm25(self) -> list[float]:
        """Return how well the best passage of each item matches the question's terms."""
        lengths = [length for text in self.texts for _, length in text.passages]
        typical = max(sum(lengths) / len(lengths), 1.0) if lengths else 1.0
        return [
            _bm25(text, self.terms.weighed[mask], typical) if mask else 0.0
            for text, mask in zip(self.texts, self.masks, strict=True)
        ]

    def session_bm25(self) -> list[float]:
        """Return how well the whole session of each item matches the question's terms."""
        return _session_words(self._sessions, self.texts, self.masks, self.terms)

    @functools.cached_property
    def speakers(self) -> list[str | None]:
        """Who spoke, item by item."""
        return [speaker_of(item, self.pool.names) for item in self.items]

    @functools.cached_property
    def _are_talk(self) -> list[bool]:
        """Whether each item is part of a conversation."""
        return [is_talk(item, self.pool.names) for item in self.items]

    @functools.cached_property
    def _sessions(self) -> list[int]:
        """A number for the session of each item."""
        if not any(self._are_talk):
            return list(range(len(self.items)))
        numbers: dict[object, int] = {}
        return [
            numbers.setdefault(_session(item, is_part=is_part), len(numbers))
            for item, is_part in zip(self.items, self._are_talk, strict=True)
        ]

    def specifics(self) -> list[float]:
        """Return how many names and numbers each message has, beyond the mean of all.

        Answers have more of them than small talk. The names of those who speak do not count. What
        is no message, or said by somebody who is not asked about, is average.
        """
        if not any(self._are_talk):
            return [0.0] * len(self.items)
        people = {name: names_speaker(self.question, name) >= 0 for name in set(self.speakers)}
        speaking = {part for name in people if name for part in name.casefold().split()}
        counts = [
            min(sum(each not in speaking for each in text.specifics), _ENOUGH)
            if is_part and people[name]
            else None
            for text, is_part, name in zip(self.texts, self._are_talk, self.speakers, strict=True)
        ]
        known = [count for count in counts if count is not None]
        mean = sum(known) / len(known) if known else 0.0
        return [0.0 if count is None else count - mean for count in counts]

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
            near = [*none, *self.meaning[start:end], *none]
            every = zip(near, near[1:], near[3:], near[4:], strict=False)
            means += [(b + a + c + d) / (2 * _SPAN) for a, b, c, d in every]
            start = end
        return means

    def session_meaning(self) -> list[float]:
        """Return how near the best items of each item's session are."""
        return _session_best(self._sessions, self.meaning)


EVIDENCE = frozenset(("echo", "meaning", "date"))
"""Columns that `has_evidence` looks at."""


def has_evidence(question: Question, table: FeatureTable, place: int) -> bool:
    """Tell whether anything but its form speaks for an item."""
    if table.matched[place]:  # as most that are asked about have something themselves
        return True
    lending = lenders(place, table.before, table.after, table.columns["echo"])
    if any(table.matched[at] for at in lending):
        return True
    if question.people and not any(table.matched):  # nobody says what it asks beside their names
        return _is_of_those_named(question, table.items[place]) or _is_near(table, place)
    return _is_near(table, place)


def _is_near(table: FeatureTable, place: int) -> bool:
    """Tell whether an item is of a time or a meaning that is asked for."""
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


def _session_words(
    sessions: Sequence[int],
    texts: Sequence[TextFeatures],
    masks: Sequence[int],
    terms: _AskedTerms,
) -> list[float]:
    """Return how well the whole session of each item fits, as BM25 over sessions."""
    if not sessions:
        return []
    lengths = [0] * (max(sessions) + 1)
    counts: dict[str, dict[int, int]] = {term: {} for term in terms.terms}
    for session, text, mask in zip(sessions, texts, masks, strict=True):
        for held, length in text.passages:
            lengths[session] += length
            if mask:
                for term in terms.sets[mask]:
                    if count := held.get(term, 0):
                        of_term = counts[term]
                        of_term[session] = of_term.get(session, 0) + count
    typical = max(sum(lengths) / len(lengths), 1.0)
    scores = [0.0] * len(lengths)
    for having in counts.values():
        rarity = math.log(1 + (len(lengths) - len(having) + 0.5) / (len(having) + 0.5))
        for session, count in having.items():
            flat = _K1 * (0.5 + 0.5 * lengths[session] / typical)
            scores[session] += rarity * count * (_K1 + 1) / (count + flat)
    return [scores[session] for session in sessions]


def _session_best(sessions: Sequence[int], meaning: Sequence[float]) -> list[float]:
    """Return the mean of the three nearest items of each item's session."""
    by_session: dict[int, list[float]] = {}
    for session, value in zip(sessions, meaning, strict=True):
        by_session.setdefault(session, []).append(value)
    best = {
        session: sum(sorted(values, reverse=True)[:3]) / 3 for session, values in by_session.items()
    }
    return [best[session] for session in sessions]


def _session(item: MemoryItem, *, is_part: bool) -> object:
    # Where nobody talks, nothing says that two items belong together.
    if not is_part:
        return item.metadata.user_id, (item.id,)
    # What was said without a session belongs to what was said that day.
    return item.metadata.user_id, item.metadata.session_id or item.created_at.date()


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
