"""How good and how calibrated relevance is, as a table; see `recall_relevance`.

`AUC` is how often a candidate that answers has more than one that does not. `none` is the share of
questions without an answer that have a hit from 0.5 and from 0.8. `ans<.3` is the share of answers
below 0.3. The last two columns say how many of the first ten hits answer, by their relevance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass
class Example:
    """A question with what was measured for its candidates, best of the first look first."""

    fold: str
    kind: str
    group: str
    """Of the languages."""
    evidence: int
    """How many items answer, found or not."""
    rows: Floats
    """A column for each weight."""
    is_talk: npt.NDArray[np.bool_]
    answers: npt.NDArray[np.bool_]
    turn: npt.NDArray[np.int_]
    """When the reader looks at it; never, for who only asks the same."""
    unread: Floats
    """Deviations from the best by what the reader does not see."""
    coverage: float
    """How well the model knows the language of the question."""
    is_hit: npt.NDArray[np.bool_]
    """Whether anything connects it with the question; what has nothing is left out."""


Judged = list[tuple[Example, Floats]]
"""Questions, and the relevance of each candidate."""


def auc(said: Floats, answers: npt.NDArray[np.bool_]) -> float:
    """Return how often what answers has more than what does not."""
    _, places, counts = np.unique(said, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    wanted = answers.sum()
    above = ranks[answers].sum() - wanted * (wanted + 1) / 2
    return float(above / (wanted * (len(said) - wanted))) if 0 < wanted < len(said) else np.nan


HEAD = (
    f"{'':26}{'asked':>6}{'AUC':>7}{'hit@1':>7}{'R@5':>7}{'R@10':>7}{'none: ≥.5':>13}{'≥.8':>6}"
    f"{'ans<.3':>9}{'.8-.9':>14}{'.9-1':>14}"
)


def show(label: str, some: Judged) -> None:
    """Print the figures of some questions, in percent."""
    said, truth = np.concatenate([p for _, p in some]), np.concatenate([e.answers for e, _ in some])
    best = [(one, p, np.argsort(-p, kind="stable")[:10]) for one, p in some]
    answered = [(one, one.answers[places]) for one, _, places in best if one.evidence]
    highest = np.array([p.max() for one, p, _ in best if not one.evidence])
    hits = np.concatenate([p[places] for _, p, places in best])
    right = np.concatenate([one.answers[places] for one, _, places in best])

    def share(values: Any) -> str:
        return f"{100 * np.mean(values):.1f}" if len(values) else "–"

    def between(low: float, high: float) -> str:
        is_there = (hits >= low) & (hits < high)
        return f"{share(right[is_there])} of {is_there.sum()}"

    found = [share([right[:k].sum() / one.evidence for one, right in answered]) for k in (5, 10)]
    print(
        f"{label:26}{len(some):6}{auc(said, truth):7.3f}"
        f"{share([right[0] for _, right in answered]):>7}{found[0]:>7}{found[1]:>7}"
        f"{share(highest >= 0.5):>13}{share(highest >= 0.8):>6}{share(said[truth] < 0.3):>9}"
        f"{between(0.8, 0.9):>14}{between(0.9, 1.01):>14}"
    )


def report(label: str, found: Judged) -> None:
    print(f"\n{label}\n{HEAD}")
    of_scenes = [each for each in found if "/" not in each[0].fold]
    of_data = [each for each in found if "/" in each[0].fold]

    def by(some: Judged, key: Callable[[Example], str]) -> None:
        for name in sorted({key(one) for one, _ in some}):
            show(f"  {name}", [each for each in some if key(each[0]) == name])

    if of_scenes:
        show("scenes", of_scenes)
        for key in (lambda one: one.fold, lambda one: one.group, lambda one: one.kind):
            by(of_scenes, key)
    if of_data:
        show("conversations", of_data)
        by(of_data, lambda one: one.kind)
