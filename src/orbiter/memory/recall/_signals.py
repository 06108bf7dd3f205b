"""Recall signals: the one table of what may count for a candidate, and how it is explained.

A row has the name of the signal, the column it is measured by and the words of its reason. The
weights are fitted as a set and stand in `_rerank`. A row without a weight, a weight without a
row, or a row whose column nobody measures is a `SignalError` when this package is imported.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from orbiter.memory.model.items import AIMemory, MemoryItem
from orbiter.memory.recall._candidate_pool import Pool, is_spoken, speaker_of
from orbiter.memory.recall._dates import closeness, is_within
from orbiter.memory.recall._features import (
    FeatureTable,
    Measurement,
    centre,
    is_users,
    names_speaker,
    says_when,
    standardise,
)
from orbiter.memory.recall._query_analysis import Question, words_of

__all__ = [
    "NO_SAY",
    "SIGNALS",
    "Evidence",
    "Signal",
    "SignalError",
    "SignalKind",
    "check_columns",
    "is_important",
    "is_recent",
    "means",
    "measure",
    "names",
    "who_said",
]

SignalKind = Literal["words", "meaning", "reader", "time", "importance", "other"]
"""What signals have in common, for a person who wants to know what a score is made of."""

Source = Literal["text", "vectors", "word_vectors", "reader", "caller"]
"""What a column is measured from: the texts, vectors of texts, vectors of words, what the reader
says, or what the caller weighs beside relevance."""

_ROLES = {"human": "user", "ai": "assistant", "item": "note"}
_STRONG = 1.0
"""Deviations above the other candidates from which a meaning is nearly the same,"""
_NEAR = 0.3
"""if it is so near besides: among what has nothing to do with a question, one is nearest, too."""
_RATHER = 0.5
"""The probability from which on the reader says something,"""
NO_SAY = "does not answer it"
"""and what is told of a memory of which it says neither."""


class SignalError(RuntimeError):
    """A signal of recall is only half there: a mistake in the package, not of its user."""


class Evidence(NamedTuple):
    """One candidate beside the question: what the words of a reason are made of."""

    question: Question
    pool: Pool
    table: FeatureTable
    item: MemoryItem
    place: int
    """Its row in the table."""


Column = Callable[[Measurement], list[float]]
Words = Callable[[Evidence], tuple[str, str]]
"""What is said if the signal speaks for a candidate, and if it speaks against it."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that may count for a candidate."""

    name: str
    kind: SignalKind
    words: Words
    column: Column | None = None
    """How it is measured; nothing for what is measured later."""
    source: Source = "text"
    part_of: str | None = None
    """The signal it is counted with where nothing was said around a candidate."""

    def __post_init__(self) -> None:
        if (self.column is None) != (self.source in ("word_vectors", "reader", "caller")):
            raise SignalError(
                f"signal `{self.name}`: `text` and `vectors` need a `column`, others must have none"
            )


def _always(text: str, against: str | None = None) -> Words:
    return lambda _: (text, text if against is None else against)


def _own_words(one: Evidence) -> tuple[str, str]:
    own = _listed(one, [one.place])
    return own, f"{own}{_others_more(one)}"


def _words_with_previous(one: Evidence) -> tuple[str, str]:
    before = one.table.before[one.place]
    both = _listed(one, [one.place] if before is None else [one.place, before])
    return (
        f"with the message before it, {both}",
        f"even with the message before it, {both}{_others_more(one)}",
    )


def _nearness(one: Evidence) -> tuple[str, str]:
    cosine = None if one.pool.similarity is None else one.pool.similarity.get(one.item.id)
    strength = one.table.columns.get("meaning", {one.place: 0.0})[one.place]
    return (means(cosine, strength=strength),) * 2


def _said_by_whom(one: Evidence) -> tuple[str, str]:
    said = f"said by {who_said(one.item, one.pool.names)}, who is"
    return f"{said} asked about", f"{said} not asked about"


def _of_user(one: Evidence) -> tuple[str, str]:
    if is_spoken(one.item):
        return (f"said by {who_said(one.item)}",) * 2
    return ("saved as a note",) * 2


def _near_in_time(one: Evidence) -> tuple[str, str]:
    if one.item.memory_type == "fact":  # whose own time is when it holds
        return (f"was written down on {_day(one.item)}",) * 2
    said = f"{'said on' if is_spoken(one.item) else 'is from'} {_day(one.item)}"
    where = "in" if is_within(one.item.created_at, one.question.times) else "near"
    return f"{said}, {where} the time asked about", said


def _read(one: Evidence) -> tuple[str, str]:
    """Return the reader's say in words, which every page, tool and answer shows."""
    said = one.table.verdicts[one.place]
    answers, related = (1 / (1 + math.exp(-odds)) for odds in said[:2])
    if answers >= _RATHER:
        return (f"answers it ({answers:.2f})",) * 2
    if related >= _RATHER:
        return (f"about it ({related:.2f})",) * 2
    return (f"{NO_SAY} ({answers:.2f})",) * 2


def _if(is_asked: bool, m: Measurement, value: Callable[[MemoryItem], float]) -> list[float]:  # noqa: FBT001 - a condition
    """Return the value of each item if the question asks for it, or nothing for any."""
    return [float(value(item)) for item in m.items] if is_asked else [0.0] * len(m.items)


SIGNALS: tuple[Signal, ...] = (
    Signal("words", "words", _own_words, lambda m: standardise(m.bm25())),
    Signal(
        "prev_turn",
        "words",
        _words_with_previous,
        lambda m: standardise(m.with_previous()),
        part_of="words",
    ),
    Signal(
        "neighbours",
        "words",
        _always(
            "the surrounding conversation matches", "the surrounding conversation does not match"
        ),
        lambda m: standardise(m.with_neighbours()),
        part_of="words",
    ),
    Signal("meaning", "meaning", _nearness, lambda m: m.meaning, "vectors"),
    Signal(
        "neighbour_meaning",
        "meaning",
        _always(
            "the surrounding conversation is similar",
            "the surrounding conversation is not similar",
        ),
        lambda m: m.neighbour_meaning(),
        "vectors",
    ),
    Signal(
        "detail",
        "meaning",
        _always(
            "related words",
            "few related words",
        ),
        source="word_vectors",
    ),
    Signal(
        "neighbour_detail",
        "meaning",
        _always(
            "with the surrounding messages, every word of the question is matched",
            "the surrounding messages leave words of the question unmatched",
        ),
        source="word_vectors",
        part_of="detail",
    ),
    Signal(
        "speaker",
        "other",
        _said_by_whom,
        lambda m: [names_speaker(m.question, name) for name in m.speakers],
    ),
    Signal(
        "user",
        "other",
        _of_user,
        lambda m: centre([1.0 if is_users(item) else 0.0 for item in m.items]),
    ),
    Signal(
        "assistant",
        "other",
        _always("the assistant is asked"),
        lambda m: _if(m.question.asks_you, m, lambda item: isinstance(item, AIMemory)),
    ),
    Signal(
        "date",
        "time",
        _near_in_time,
        lambda m: _if(
            bool(m.question.times), m, lambda item: closeness(item.created_at, m.question.times)
        ),
    ),
    Signal(
        "when",
        "time",
        _always("says when"),
        lambda m: _if(m.question.asks_when, m, lambda item: says_when(item.content)),
    ),
    Signal(
        "echo", "other", _always("asks the same", "asks the same, so it is not an answer"),
        lambda m: m.echo,
    ),
    Signal("reader", "reader", _read, source="reader"),
    Signal(
        "prior",
        "other",
        _always("beside the other candidates", "few memories answer a question"),
        source="reader",
    ),
    Signal("recency", "time", lambda one: (is_recent(one.item),) * 2, source="caller"),
    Signal("importance", "importance", lambda _: (is_important(),) * 2, source="caller"),
)  # fmt: skip


def names(*sources: Source, signals: Iterable[Signal] = SIGNALS) -> list[str]:
    """Return the names of the signals that are measured from *sources*, in the table's order."""
    return [signal.name for signal in signals if signal.source in sources]


def check_columns(
    source: Source, measured: Collection[str], *, signals: Iterable[Signal] = SIGNALS
) -> None:
    """Raise `SignalError` unless the columns *measured* from *source* are those of the table."""
    expected = names(source, signals=signals)
    if wrong := sorted(set(measured) ^ set(expected)):
        raise SignalError(
            f"columns from `{source}` and rows of `SIGNALS` differ: `{'`, `'.join(wrong)}`"
        )


def measure(question: Question, pool: Pool, wanted: Collection[str] | None = None) -> FeatureTable:
    """Return what speaks for every item of *pool* as an answer to *question*.

    With *wanted*, only these columns are measured.
    """
    measured = Measurement(question, pool)
    at_hand = ("text",) if pool.similarity is None else ("text", "vectors")
    return measured.table(
        {
            signal.name: signal.column(measured)
            for signal in SIGNALS
            if signal.column is not None
            and signal.source in at_hand
            and (wanted is None or signal.name in wanted)
        }
    )


def means(cosine: float | None, *, strength: float) -> str:
    """Return what a nearness in meaning says, *strength* deviations above the others."""
    near = "" if cosine is None else f" ({cosine:.2f})"
    if strength < 0:
        return f"unrelated meaning{near}"
    is_near = cosine is None or cosine >= _NEAR
    is_strong = strength >= _STRONG and is_near
    return f"similar meaning{near}" if is_strong else f"loosely related{near}"


def is_recent(item: MemoryItem) -> str:
    """Return how recency is told."""
    return f"is recent, from {_day(item)}"


def is_important() -> str:
    """Return how importance is told."""
    return "is marked as important"


def who_said(item: MemoryItem, names: frozenset[str] = frozenset()) -> str:
    """Return who speaks in an item: a name, a role, or what kind of item it is."""
    name = speaker_of(item, names)
    return name if name is not None else _ROLES.get(item.memory_type, item.memory_type)


def _listed(one: Evidence, places: Sequence[int]) -> str:
    terms = {term for place in places for term in one.table.matched[place]}
    if not terms:
        return "contains none of the words of the question"
    ordered = sorted(terms, key=lambda term: (-one.table.rarity[term], term))
    # Several terms may be of one word.
    contained = words_of(one.question.text, ordered)
    every = words_of(one.question.text, one.table.rarity)
    listed = f"contains {_quoted(contained)}"
    if not frozenset(contained) <= frozenset(every):
        return listed  # a part of a run without spaces
    return f"{listed} ({len(contained)} of {len(every)} word{'' if len(every) == 1 else 's'})"


def _quoted(named: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in named)


def _others_more(one: Evidence) -> str:
    return ", others more" if one.table.matched[one.place] else ""


def _day(item: MemoryItem) -> str:
    return f"{item.created_at.day} {item.created_at:%B %Y}"
