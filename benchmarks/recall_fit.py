"""Fit the weights of recall, and judge them on conversations they were not fitted to.

    python -m benchmarks.recall_fit --data FILE… [--cache FILE] [--names NAME…] [--hold …] [--best]

Every question is put to the real pipeline; what it measured for each candidate, and which of them
are evidence, goes into a conditional logit with a ridge. Each conversation is judged by a fit on
all others, or each half of the questions by the other half where there is only one conversation.
Prints those figures and the weights of a fit on everything, for `recall/_rerank.py`. `--best` fits
the order of the candidates that were looked at word by word. Needs numpy.
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
from orbiter.memory.recall._rerank import MAX_RERANKED, order
from orbiter.memory.recall._signals import measure

Floats = npt.NDArray[np.float64]
NOTHING: Mapping[str, float] = MappingProxyType({})
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
                scored = await order(store, pool, table, {}, max_reranked=MAX_RERANKED)
                best = {one.item.id for one in scored[:MAX_RERANKED]}
                truth = [conversation.ids[item.id] in asked.evidence for item in table.items]
                looked = [item.id in best for item in table.items]
                columns = {name: np.array(values) for name, values in table.columns.items()}
                evidence = len(asked.evidence)
                folds[-1].append(Example(columns, np.array(truth), np.array(looked), evidence))
    return folds


def matrix(example: Example, names: Iterable[str]) -> Floats:
    return np.array([example.columns[name] for name in names]).T


def fit(made: list[Example], names: list[str], held: Mapping[str, float] = NOTHING) -> Floats:
    """Return the weights under which evidence is likeliest, by Newton's method.

    Those that are *held* count, and stay.
    """
    usable = [
        (matrix(one, names), _held(one, held), one.is_evidence)
        for one in made
        if one.is_evidence.any() and not one.is_evidence.all()
    ]
    weights = np.zeros(len(names))
    likelihood, slope, curve = _likelihood(usable, weights)
    for _ in range(50):
        step = np.linalg.solve(curve, slope)
        while True:  # half as far, until it is uphill
            ahead = _likelihood(usable, weights - step)
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


def _likelihood(
    usable: list[tuple[Floats, Floats, npt.NDArray[np.bool_]]], weights: Floats
) -> tuple[float, Floats, Floats]:
    """Return the log likelihood with its slope and curvature.

    Each item of evidence stands against all that is none, and not against the others.
    """
    total = -RIDGE * float(weights @ weights)
    slope, curve = -2 * RIDGE * weights, -2 * RIDGE * np.eye(len(weights))
    for rows, points, truth in usable:
        scores = rows @ weights + points
        scores -= scores.max()
        for place in np.flatnonzero(truth):
            among = ~truth
            among[place] = True
            share = np.exp(scores) * among
            size = share.sum()
            share /= size
            mean = share @ rows
            total += float(scores[place] - np.log(size)) / truth.sum()
            slope += (rows[place] - mean) / truth.sum()
            curve -= ((rows * share[:, None]).T @ rows - np.outer(mean, mean)) / truth.sum()
    return total, slope, curve


def found(
    made: list[Example], names: list[str], weights: Floats, k: int, held: Mapping[str, float]
) -> list[float]:
    """Return R@k of every question."""
    shares = []
    for one in made:
        scores = matrix(one, names) @ weights + _held(one, held)
        order = np.argsort(-scores, kind="stable")[:k]
        shares.append(one.is_evidence[order].sum() / one.evidence)
    return shares


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
    parser.add_argument("--words-only", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    model: Embeddings | None = None
    if not given.words_only:
        model = LocalEmbeddings()
        if given.cache:
            model = CachedEmbeddings(model, given.cache, max_entries=1_000_000)
    folds = [fold for path in given.data for fold in asyncio.run(examples(path, model))]
    if given.best:
        folds = [[one.of_the_best() for one in fold] for fold in folds]
    held = {name: float(weight) for name, _, weight in (one.partition("=") for one in given.hold)}
    names = [name for name in given.names or sorted(folds[0][0].columns) if name not in held]
    judged: dict[int, list[float]] = {5: [], 10: []}
    for number, fold in enumerate(folds):
        others = [one for at, each in enumerate(folds) if at != number for one in each]
        weights = fit(others, names, held)
        for k, shares in judged.items():
            shares.extend(found(fold, names, weights, k, held))
    for k, shares in judged.items():
        print(f"R@{k}, not fitted to: {100 * float(np.mean(shares)):.1f}")
    weights = fit([one for fold in folds for one in fold], names, held)
    print(", ".join(f"{name}={weight:.2f}" for name, weight in zip(names, weights, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
