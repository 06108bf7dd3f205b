"""Fit the weights of recall, and judge them on conversations they were not fitted to.

    python -m benchmarks.recall_fit --data FILE… [--cache FILE] [--names NAME…] [--hold …] [--best]
    python -m benchmarks.recall_fit --data FILE… --people [--ablate]

Every question is put to the real pipeline; what it measured for each candidate, and which of them
are evidence, goes into a conditional logit with a ridge. Each conversation is judged by a fit on
all others, or each half of the questions by the other half where there is only one conversation.
Prints those figures and the weights of a fit on everything, for `recall/_rerank.py`. `--best` fits
the order of the candidates that were looked at word by word. `--people` fits what ships for people
as it was fitted: the best, the columns that have a weight, and `words` held. `--ablate` judges
without each column, and prints no weights. Needs numpy.
"""

import argparse
import asyncio
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from benchmarks._conversations import read
from benchmarks._recall_scores import APART
from benchmarks.recall_quality import fill, opened, part_of

from orbiter.memory.embeddings.cached import CachedEmbeddings
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.items import MemoryStatus
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query
from orbiter.memory.recall._candidates import gather
from orbiter.memory.recall._rerank import MAX_RERANKED, PEOPLE, order
from orbiter.memory.recall._signals import measure

Floats = npt.NDArray[np.float64]
NOTHING: Mapping[str, float] = MappingProxyType({})
MOST = 20
RIDGE = 0.1
"""How strongly weights are drawn to 0; of 0.03, 0.1, 0.3 and 1 this does best across folds."""


@dataclass
class Example:
    """One question: what was measured for each candidate, and which of them are evidence."""

    columns: dict[str, Floats]
    is_evidence: npt.NDArray[np.bool_]
    is_best: npt.NDArray[np.bool_]
    """Whether it was among those that were looked at word by word."""
    evidence: int
    """How many items are evidence, found or not."""

    def of_the_best(self) -> "Example":
        """Return the example without what was not looked at word by word."""
        kept = self.is_best
        columns = {name: values[kept] for name, values in self.columns.items()}
        return Example(columns, self.is_evidence[kept], kept[kept], self.evidence)


async def examples(path: Path, embeddings: Embeddings | None) -> list[list[Example]]:
    """Return the examples of each conversation, or of the halves of a single one."""
    _, conversations = read(path)
    if len(conversations) == 1:
        conversations = [part_of(conversations, part)[0] for part in (1, 2)]
    folds: list[list[Example]] = []
    async with opened(None, embeddings) as store:
        for conversation in conversations:
            await fill(store, conversation)
            folds.append([])
            for asked in conversation.questions:
                if asked.category == APART:
                    continue
                query = Query("", conversation.scope, status=MemoryStatus.ACCEPTED)
                now = asked.at or conversation.end
                question, pool = await gather(store, asked.text, query, now=now)
                table = measure(question, pool)
                scored = await order(store, pool, table, max_reranked=MAX_RERANKED)
                best = {one.item.id for one in scored[:MAX_RERANKED]}
                truth = [conversation.ids[item.id] in asked.evidence for item in table.items]
                looked = [item.id in best for item in table.items]
                columns = {name: np.array(values) for name, values in table.columns.items()}
                evidence = len(asked.evidence)
                folds[-1].append(Example(columns, np.array(truth), np.array(looked), evidence))
    return folds


def matrix(example: Example, names: Iterable[str]) -> Floats:
    return np.array([example.columns[name] for name in names]).T


@dataclass
class Pairs:
    """Each item of evidence beside all that is none of the same question, one after the other."""

    rows: Floats
    """Pair, candidate, column; questions with fewer candidates are filled up."""
    points: Floats
    """What weights that are not fitted give to each candidate."""
    is_among: npt.NDArray[np.bool_]
    """Which candidates count for a pair: other evidence of the question does not."""
    places: npt.NDArray[np.int_]
    """Where the evidence stands."""
    share: Floats
    """What a pair counts: all of one question count 1."""

    @classmethod
    def of(cls, made: list[Example], names: list[str], held: Mapping[str, float]) -> "Pairs":
        """Return the pairs of all questions that have evidence among their candidates."""
        usable = [one for one in made if one.is_evidence.any() and not one.is_evidence.all()]
        most = max(len(one.is_evidence) for one in usable)
        pairs = sum(int(one.is_evidence.sum()) for one in usable)
        rows, points = np.zeros((pairs, most, len(names))), np.zeros((pairs, most))
        is_among = np.zeros((pairs, most), dtype=bool)
        places, share = np.zeros(pairs, dtype=int), np.zeros(pairs)
        at = 0
        for one in usable:
            size, own = len(one.is_evidence), _held(one, held)
            columns = matrix(one, names)
            for place in np.flatnonzero(one.is_evidence):
                rows[at, :size], points[at, :size] = columns, own
                is_among[at, :size] = ~one.is_evidence
                is_among[at, place] = True
                places[at], share[at] = place, 1 / one.is_evidence.sum()
                at += 1
        return cls(rows, points, is_among, places, share)


def fit(made: list[Example], names: list[str], held: Mapping[str, float] = NOTHING) -> Floats:
    """Return the weights under which evidence is likeliest, by Newton's method.

    Those that are *held* count, and stay.
    """
    pairs = Pairs.of(made, names, held)
    weights = np.zeros(len(names))
    likelihood, slope, curve = _likelihood(pairs, weights)
    for _ in range(50):
        step = np.linalg.solve(curve, slope)
        while True:  # half as far, until it is uphill
            ahead = _likelihood(pairs, weights - step)
            if ahead[0] >= likelihood or np.abs(step).max() < 1e-6:
                break
            step = step / 2
        weights = weights - step
        likelihood, slope, curve = ahead
        if np.abs(step).max() < 1e-4:
            break
    return weights


def _held(example: Example, held: Mapping[str, float]) -> Floats:
    """Return the points that weights which are not fitted give to each candidate."""
    points = np.zeros(len(example.is_evidence))
    for name, weight in held.items():
        points += weight * example.columns[name]
    return points


def _likelihood(pairs: Pairs, weights: Floats) -> tuple[float, Floats, Floats]:
    """Return the log likelihood with its slope and curvature.

    Each item of evidence stands against all that is none, and not against the others.
    """
    scores = np.where(pairs.is_among, pairs.rows @ weights + pairs.points, -np.inf)
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    size = odds.sum(axis=1)
    odds /= size[:, None]
    means = np.einsum("pc,pcn->pn", odds, pairs.rows)
    every = np.arange(len(pairs.places))
    likely = scores[every, pairs.places] - np.log(size)
    ahead = pairs.rows[every, pairs.places] - means
    total = float(pairs.share @ likely) - RIDGE * float(weights @ weights)
    spread = (pairs.rows * np.sqrt(odds * pairs.share[:, None])[:, :, None]).reshape(
        -1, len(weights)
    )
    curve = (means * pairs.share[:, None]).T @ means - spread.T @ spread
    return (
        total,
        pairs.share @ ahead - 2 * RIDGE * weights,
        curve - 2 * RIDGE * np.eye(len(weights)),
    )


def found(
    made: list[Example], names: list[str], weights: Floats, held: Mapping[str, float]
) -> list[list[float]]:
    """Return R@1 to R@20 of every question."""
    shares = []
    for one in made:
        scores = matrix(one, names) @ weights + _held(one, held)
        order = np.argsort(-scores, kind="stable")[:MOST]
        hits = np.zeros(MOST)
        hits[: len(order)] = one.is_evidence[order]
        shares.append((np.cumsum(hits) / one.evidence).tolist())
    return shares


def by_folds(
    folds: list[list[Example]], names: list[str], held: Mapping[str, float]
) -> tuple[float, float, float]:
    """Return R@5, R@10 and the mean of R@3 to R@20, each fold by weights fitted on the others."""
    judged: list[list[float]] = []
    for number, fold in enumerate(folds):
        others = [one for at, each in enumerate(folds) if at != number for one in each]
        judged += found(fold, names, fit(others, names, held), held)
    means = 100 * np.mean(judged, axis=0)
    return float(means[4]), float(means[9]), float(means[2:].mean())


def ablate(folds: list[list[Example]], names: list[str], held: Mapping[str, float]) -> None:
    """Print what is found without each column, all others fitted anew."""
    print(f"{'without':24}{'R@5':>8}{'R@10':>8}{'3-20':>8}")
    whole = by_folds(folds, names, held)
    print(f"{'nothing':24}" + "".join(f"{figure:8.1f}" for figure in whole))
    for name in names:
        less = by_folds(folds, [each for each in names if each != name], held)
        print(f"{name:24}" + "".join(f"{figure:8.1f}" for figure in less))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--names", nargs="+", help="the columns to weigh; else all")
    parser.add_argument(
        "--hold", nargs="+", default=[], metavar="NAME=WEIGHT", help="weights that are not fitted"
    )
    parser.add_argument("--best", action="store_true", help="fit the order of the best only")
    parser.add_argument("--people", action="store_true", help="fit the set that ships for people")
    parser.add_argument("--ablate", action="store_true", help="judge without each of the columns")
    parser.add_argument("--words-only", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    model: Embeddings | None = None
    if not given.words_only:
        model = LocalEmbeddings()
        if given.cache:
            model = CachedEmbeddings(model, given.cache, max_entries=1_000_000)
    folds = [fold for path in given.data for fold in asyncio.run(examples(path, model))]
    shipped = PEOPLE.words if given.words_only else PEOPLE.details
    if given.people:
        given.names, given.best = list(shipped), not given.words_only
        given.hold = [f"{name}={shipped[name]}" for name in ("echo", "words")[: 1 + given.best]]
    if given.best:
        folds = [[one.of_the_best() for one in fold] for fold in folds]
    held = {name: float(weight) for name, _, weight in (one.partition("=") for one in given.hold)}
    names = [name for name in given.names or sorted(folds[0][0].columns) if name not in held]
    if given.ablate:
        ablate(folds, names, held)
        return 0
    at_five, at_ten, mean = by_folds(folds, names, held)
    print(f"not fitted to: R@5 {at_five:.1f}, R@10 {at_ten:.1f}, mean of R@3 to R@20 {mean:.1f}")
    weights = fit([one for fold in folds for one in fold], names, held)
    print(", ".join(f"{name}={weight:.2f}" for name, weight in zip(names, weights, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
