"""Relevance: the probability that a hit answers the question, and the order of hits.

The score of a hit is its log-odds: how far it stands above the other candidates in the first look,
and what the reader says of it; without a reader, how near it is and how much of the question it
holds. So every reason has its points, and hits stand in the order of their relevance.
`python -m benchmarks.recall_relevance` fits the weights.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
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
_ECHO = -4.5
"""Log-odds of what asks the same, beside all else: a question that was stored is no answer."""
_LEAST, _MOST = -3.0, 4.0
"""Deviations that a comparison counts at most."""
_LEAD = 6.0
"""Log-odds that a lead counts at most."""
_BEHIND = 0.01
"""Log-odds by which what was not read stands behind what was."""


class Weights(NamedTuple):
    """What each measure counts, in log-odds."""

    always: float
    standing: float = 0.0
    """Deviations above the other candidates in the first look."""
    answers: float = 0.0
    related: float = 0.0
    """What the reader says."""
    lead: float = 0.0
    """How far what it says is above what it says of the next, or below what it says of the best."""
    cosine: float = 0.0
    share: float = 0.0
    """How much of the question's words it holds."""


WEIGHTS: Mapping[str, Mapping[str, Weights]] = MappingProxyType({
    "read": {
        "few": Weights(-1.65, 0.52, answers=0.42, related=-0.09, lead=0.16),
        "crowd": Weights(-4.54, 1.36, answers=0.00, related=0.01, lead=0.21),
        "alone": Weights(-0.80, answers=0.39, related=0.19, lead=0.17),
    },
    "near": {
        "few": Weights(-5.06, 1.11, cosine=4.49, share=-1.63),
        "crowd": Weights(-5.60, 1.32, cosine=1.22, share=0.93),
        "alone": Weights(-5.15, cosine=7.34, share=1.17),
    },
    "words": {
        "few": Weights(-3.64, 0.77, share=1.14),
        "crowd": Weights(-5.29, 1.21, share=1.63),
        "alone": Weights(-3.54, share=4.49),
    },
})  # fmt: skip
"""By what is at hand: for the only candidate, for one of a few dozen, and for one of the best of a
long conversation, where much is said of everything. What is between both is weighed between both;
notes stay with the second."""


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
) -> list[Scored]:
    """Return the candidates of a first look with their log-odds as scores, best first.

    What was read, in `table.verdicts`, stands before what was not.
    """
    first = scored[:_BEST]
    if not first:
        return []
    mean = sum(one.score for one in first) / len(first)
    apart = math.sqrt(sum((one.score - mean) ** 2 for one in first) / len(first)) or 1.0
    only_time = asks_for_time_alone(question)
    weights = {
        (evidence, is_said): weights_for(tables, len(first), is_talk=is_said)
        for evidence, tables in WEIGHTS.items()
        for is_said in (False, True)
    }
    echoes = table.columns["echo"]
    leads = leads_of(verdict.answers for verdict in table.verdicts.values())

    def parts_of(one: Scored) -> tuple[float, dict[str, float]]:
        """Return what a point of the first look counts, and what else counts, by its part."""
        verdict = table.verdicts.get(one.place)
        cosine = None if cosines is None else cosines.get(one.item.id)
        evidence = "read" if verdict else "words" if cosine is None else "near"
        given = weights[evidence, is_talk(one.item, names)]
        above = (one.score - mean) / apart
        slope = given.standing / apart
        if not _LEAST < above < _MOST:
            slope *= max(_LEAST, min(_MOST, above)) / above
        parts = {PRIOR: given.always - slope * mean}
        if verdict:
            parts[READ] = given.answers * verdict.answers + given.related * verdict.related
            parts[READ] += given.lead * leads[verdict.answers]
        else:
            parts["meaning"] = given.cosine * (cosine or 0.0)
            parts["words"] = given.share * of_share(question.terms, table.matched[one.place])
        if echo := echoes[one.place]:
            parts["echo"] = _ECHO * echo
        elif only_time and closeness(one.item.created_at, question.times):
            # Any memory of that time answers, whatever it says.
            of_time = _OF_TIME if is_within(one.item.created_at, question.times) else _NEAR_TIME
            less = of_time - slope * one.score - sum(parts.values())
            parts["date"] = max(0.0, less)
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


def leads_of(answers: Iterable[float]) -> dict[float, float]:
    """Return how far each is above the next, or below the highest; what is equal is one text."""
    highest, *others = [*sorted(set(answers), reverse=True), -math.inf]
    leads = {each: max(-_LEAD, each - highest) for each in others}
    return {**leads, highest: min(_LEAD, highest - others[0])} if others else {}


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
