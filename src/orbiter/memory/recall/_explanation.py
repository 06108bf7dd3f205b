"""Explanations: each part of a score in words, with the points it gave."""

from collections.abc import Iterable
from dataclasses import dataclass

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.recall._candidate_pool import Pool, as_shown, is_talk
from orbiter.memory.recall._features import FeatureTable, best_passage
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.recall._relevance import READ
from orbiter.memory.recall._scoring import Scored
from orbiter.memory.recall._signals import NO_SAY, SIGNALS, Evidence, SignalKind

__all__ = [
    "ENDED",
    "FACT",
    "HOLDS",
    "REPLACED",
    "REPLACES",
    "RERANKER",
    "UNTOLD",
    "Explanation",
    "Reason",
    "passage_of",
    "quoted",
    "reasons",
    "replaced_by",
]


@dataclass(frozen=True, slots=True)
class Reason:
    """One part of why an item was recalled."""

    part: str
    """What spoke for it: `words`, `meaning`, `speaker`, `date`, and so on."""
    points: float
    """What it added to the score, in log-odds; less than nothing if it spoke against the item."""
    text: str
    """The same for a person."""

    @property
    def kind(self) -> SignalKind:
        """What it has in common with other parts: `words`, `meaning`, `time`, and so on."""
        signal = _BY_NAME.get(self.part)
        return "other" if signal is None else signal.kind

    def __str__(self) -> str:
        return f"{self.points:+.2f}  {self.text}"


class Explanation(tuple[Reason, ...]):
    """The reasons for an item, the strongest first; as text, what speaks for it most."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return at most three reasons for the item, in about a hundred characters.

        The first is the time of a fact, or what an item is replaced by: without it, what is over
        would look true. Then comes what the reader says, whatever it counts.
        """
        points = (reason.points for reason in self if reason.part != READ)
        strongest = max(points, default=0.0)
        least = max(_MIN_POINTS, _WEAK * strongest)
        texts = [reason.text for reason in self if reason.part == FACT and reason.text != HOLDS]
        texts += [reason.text for reason in self if reason.part == REPLACED]
        texts += [reason.text for reason in self if reason.part == READ and _tells(reason)]
        others = (
            reason
            for reason in self
            if (reason.points >= least or reason.part == RERANKER)
            and reason.part != READ
            and reason.text not in texts
        )
        for text in _kinds(others):
            if len(texts) < _MAX_TOLD and len("; ".join((*texts, text))) <= _LONGEST:
                texts.append(text)
            elif not texts:
                texts.append(f"{text[: _LONGEST - 1]}…")
        if not texts and len(self) == 1 and self[0].part == "recency":
            return self[0].text  # all that is asked for, however long ago
        return "; ".join(texts) or "not relevant enough"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


FACT = "fact"
"""The part that tells for how long a fact holds."""
RERANKER = "reranker"
"""The part that tells what a reranker says, whatever it counts."""
ENDED = ", ended"
"""What is told behind a fact that holds no more, and that no other took the place of."""
HOLDS = "holds"
"""What it tells of a fact without dates."""
REPLACED, REPLACES = "replaced", "replaces"
"""The parts that tell by what an item is replaced, and what it replaces."""
UNTOLD = ("prior",)
"""The part that tells nothing by itself."""
_LONGEST = 100
_MAX_TOLD = 3
_QUOTED = 60
_MIN_POINTS = 0.005
_WEAK = 0.1
"""Share of the strongest reason's points below which another is not worth the room."""
_BY_NAME = {signal.name: signal for signal in SIGNALS}
_ORDER = list(_BY_NAME)
_PARTS = {
    whole.part_of: [each.name for each in SIGNALS if whole.part_of in (each.name, each.part_of)]
    for whole in SIGNALS
    if whole.part_of is not None
}
"""The signals that are one signal where nothing was said around a candidate."""
_SAID_ONCE = ("words", "meaning")
"""Kinds of which the first part that speaks for an item is enough for a sentence."""


def _kinds(listed: Iterable[Reason]) -> list[str]:
    """Return a text for each kind of reason, the strongest kind first."""
    kinds: dict[str, list[Reason]] = {}
    for reason in sorted(listed, key=lambda reason: -reason.points):
        if reason.part not in UNTOLD:
            is_once = reason.kind in _SAID_ONCE
            kinds.setdefault(reason.kind if is_once else reason.part, []).append(reason)
    return [min(kind, key=_place).text for kind in kinds.values()]


def _tells(reason: Reason) -> bool:
    return not reason.text.startswith(NO_SAY)


def _place(reason: Reason) -> int:
    return _ORDER.index(reason.part) if reason.part in _BY_NAME else 0


def reasons(question: Question, pool: Pool, table: FeatureTable, one: Scored) -> Explanation:
    """Return why *one* was recalled, the strongest part first."""
    points = dict(one.points)
    if not is_talk(one.item, pool.names):
        # Nothing was said around it, so these are all about its own words.
        for whole, parts in _PARTS.items():
            together = sum(points.pop(part, 0.0) for part in parts)
            points = {whole: together, **points}
    evidence = Evidence(question, pool, table, one.item, one.place)
    explained = [
        Reason(part, value, _BY_NAME[part].words(evidence)[value < 0])
        for part, value in points.items()
        if value
    ]
    return Explanation(sorted(explained, key=lambda reason: -abs(reason.points)))


def quoted(item: MemoryItem) -> str:
    """Return the beginning of an item in quotes, for a reason."""
    text = " ".join(as_shown(item).content.split())
    return f'"{text}"' if len(text) <= _QUOTED else f'"{text[: _QUOTED - 1]}…"'


def replaced_by(newer: MemoryItem) -> str:
    """Return what is told of a statement or a fact that *newer* replaces."""
    return f"replaced by {quoted(newer)}"


def passage_of(question: Question, item: MemoryItem) -> str:
    """Return the passage of an item that holds most of the question, or all of a short item."""
    return best_passage(item.content, frozenset(question.terms))
