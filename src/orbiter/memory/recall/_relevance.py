"""Relevance: the probability that a hit answers the question, and the order of hits.

The score of a hit is its log-odds: what the reader says of it, and how far it stands behind the
best candidate in the first look; without a reader, how near it is and how much of the question it
holds. It is not how far it stands above the average, which the best does whether it answers or not.
Every reason has its points, and hits stand in the order of their relevance.
`python -m benchmarks.recall_relevance` fits the weights.
"""

import math
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from orbiter.memory.recall._candidate_pool import is_talk
from orbiter.memory.recall._dates import closeness, is_within
from orbiter.memory.recall._features import FeatureTable
from orbiter.memory.recall._foreign_times import asks_only_time
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.recall._scoring import Scored

__all__ = [
    "OUTDATED",
    "PRIOR",
    "READ",
    "WEIGHTS",
    "Weights",
    "asks_for_time_alone",
    "of_share",
    "probability",
    "weighed",
    "weights_for",
]

READ, PRIOR = "reader", "prior"
"""The parts of a score that the reader gives, and that every candidate begins with."""
OUTDATED = 0.3
"""What is left of the relevance of what does not hold at the time asked about."""
_BEST = 50
"""Candidates with which one is compared; what is behind them never stands before them."""
_ENOUGH = 16
"""Candidates from which on the comparison counts in full; among a few, it says little."""
_OF_TIME, _NEAR_TIME = 0.01, -0.85
"""Log-odds at least of what is of a time, for a question that names nothing else, and of what is
near it: people tell of a day in the days after it."""
_ECHO = -6.0
"""Log-odds at most of what asks the same: a question that was stored is no answer."""
_UNREAD = ("speaker", "user", "assistant", "date", "when")
"""The signals of what the reader does not see, or hardly."""
_FURTHEST, _EQUAL = -6.0, 1e-9
"""Deviations behind the best that count at most, and the share of the scores by which candidates
must be apart."""
_BEHIND = 0.01
"""Log-odds by which what was not read stands behind what was."""


class Weights(NamedTuple):
    """What each measure counts, in log-odds."""

    always: float
    standing: float = 0.0
    """Deviations from the best candidate of the first look: 0 or less."""
    answers: float = 0.0
    related: float = 0.0
    """What the reader says."""
    cosine: float = 0.0
    share: float = 0.0
    """How much of the question's words it holds."""


WEIGHTS: Mapping[str, Mapping[str, Weights]] = MappingProxyType({
    "read": {
        "few": Weights(0.38, standing=0.35, answers=0.90, related=-0.27),
        "crowd": Weights(-0.48, standing=1.16, answers=0.21, related=0.08),
        "alone": Weights(0.18, standing=0.35, answers=0.93, related=-0.09),
    },
    "near": {
        "few": Weights(-3.18, standing=1.02, cosine=6.26),
        "crowd": Weights(-2.03, standing=1.18, cosine=2.82, share=0.64),
        "alone": Weights(-6.26, cosine=11.97),
    },
    "words": {
        "few": Weights(-2.79, standing=0.37, share=2.99),
        "crowd": Weights(-2.14, standing=0.84, share=1.99),
        "alone": Weights(-3.73, share=4.38),
    },
})  # fmt: skip
"""By what is at hand: `alone` is for the only candidate, `few` for one of a few dozen, and `crowd`
for one of the best of a long conversation, where much is said of everything. What is between two
of them is weighed between them; notes are never a crowd."""


def of_share(terms: Sequence[str], held: Set[str]) -> float:
    """Return how much of the question's terms are *held*, from 0 to 1."""
    return sum(term in held for term in terms) / len(terms) if terms else 0.0


def asks_for_time_alone(question: Question) -> bool:
    """Tell whether a question names a time in the past and nothing else."""
    return bool(question.times) and question.asks_past and asks_only_time(question.text)


def probability(log_odds: float) -> float:
    """Return the probability that has these log-odds; 0 of what is no number."""
    if math.isnan(log_odds):
        return 0.0
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, log_odds))))


def weighed(
    scored: Sequence[Scored],
    table: FeatureTable,
    *,
    question: Question,
    names: frozenset[str],
    cosines: Mapping[str, float] | None,
    coverage: float = 1.0,
) -> list[Scored]:
    """Return the candidates of a first look with their log-odds as scores, best first.

    What was read, in `table.verdicts`, stands before what was not. *coverage* is how well the model
    knows the language of the question: the less, the more the first look counts.
    """
    first = scored[:_BEST]
    if not first:
        return []
    best = first[0].score
    apart = _deviation([one.score for one in first])
    only_time = asks_for_time_alone(question)
    weights = {
        (evidence, is_said): weights_for(tables, len(first), is_talk=is_said)
        for evidence, tables in WEIGHTS.items()
        for is_said in (False, True)
    }
    echoes = table.columns["echo"]
    of_best = sum(_unread(first[0]).values())

    def parts_of(one: Scored) -> tuple[float, dict[str, float]]:
        """Return what a point of the first look counts, and what else counts, by its part."""
        verdict = table.verdicts.get(one.place)
        cosine = None if cosines is None else cosines.get(one.item.id)
        is_said = is_talk(one.item, names)
        given = weights["read" if verdict else "words" if cosine is None else "near", is_said]
        # How much more the standing counts where nothing is read.
        without = max(0.0, weights["near", is_said].standing - given.standing)
        standing = given.standing + (1 - coverage) * without * bool(verdict)
        behind = (one.score - best) / apart
        slope = standing / apart
        if behind < _FURTHEST:
            slope *= _FURTHEST / behind
        parts = {PRIOR: given.always - slope * best}
        if verdict:
            own = _unread(one)
            away = abs(sum(own.values()) - of_best)
            more = coverage * without / max(apart, away / -_FURTHEST)
            parts |= {part: more * points for part, points in own.items()}
            parts[PRIOR] -= more * of_best
            parts[READ] = given.answers * verdict.answers + given.related * verdict.related
        else:
            parts["meaning"] = given.cosine * (cosine or 0.0)
            parts["words"] = given.share * of_share(question.terms, table.matched[one.place])
        if echoes[one.place]:  # whatever else speaks for it
            parts["echo"] = min(0.0, _ECHO - slope * one.score - sum(parts.values()))
        elif only_time and closeness(one.item.created_at, question.times):
            # Any memory of that time answers, whatever it says.
            of_time = _OF_TIME if is_within(one.item.created_at, question.times) else _NEAR_TIME
            less = of_time - slope * one.score - sum(parts.values())
            parts["date"] = parts.get("date", 0.0) + max(0.0, less)
        return slope, parts

    found: list[Scored] = []
    # What was read stands before what was not, and the best of the first look before the others.
    read = [one for one in scored if one.place in table.verdicts]
    others = [one for one in scored if one.place not in table.verdicts]
    at = max(0, _BEST - len(read))
    lowest = math.inf
    for group in (read, others[:at], others[at:]):
        added = [_with_log_odds(one, *parts_of(one)) for one in group]
        less = max((one.score for one in added), default=-math.inf) + _BEHIND - lowest
        if less > 0 and not only_time:  # then its time alone says what is behind
            added = [_behind(one, less) for one in added]
        found += added
        lowest = min([lowest, *(one.score for one in added)])
    return sorted(found, key=_best_first)


def _unread(one: Scored) -> dict[str, float]:
    """Return the points for what the reader does not see: who said it, and when."""
    return {part: points for part, points in one.points.items() if part in _UNREAD}


def _deviation(scores: Sequence[float]) -> float:
    """Return how far *scores* are apart; 1 if they differ by rounding alone."""
    mean = math.fsum(scores) / len(scores)
    apart = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    return apart if apart > _EQUAL * max(1.0, abs(mean)) else 1.0


def weights_for(tables: Mapping[str, Weights], count: int, *, is_talk: bool) -> Weights:
    """Return the weights for one of *count* candidates, which are at most `_BEST`."""
    among = _between(tables["alone"], tables["few"], (count - 1) / (_ENOUGH - 1))
    if not is_talk:
        return among
    return _between(among, tables["crowd"], (count - _ENOUGH) / (_BEST - _ENOUGH))


def _between(one: Weights, other: Weights, share: float) -> Weights:
    share = max(0.0, min(1.0, share))
    return Weights(*((1 - share) * a + share * b for a, b in zip(one, other, strict=True)))


def _best_first(one: Scored) -> tuple[float, float, str]:
    return -one.score, -one.item.created_at.timestamp(), one.item.id


def _behind(one: Scored, less: float) -> Scored:
    def points(_: int) -> dict[str, float]:
        return {**one.points, PRIOR: one.points[PRIOR] - less}

    return Scored(one.item, one.place, points, one.score - less)


def _with_log_odds(one: Scored, slope: float, more: Mapping[str, float]) -> Scored:
    def points(_: int) -> dict[str, float]:
        parts = {name: slope * value for name, value in one.points.items()}
        return parts | {name: parts.get(name, 0.0) + value for name, value in more.items()}

    return Scored(one.item, one.place, points, slope * one.score + sum(more.values()))
