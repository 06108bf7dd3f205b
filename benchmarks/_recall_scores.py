"""How good a ranking is against its evidence, and how sure that figure is."""

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean

KS = (1, 5, 10, 20, 50)
APART = "adversarial"
"""A category that is reported, and left out of the overall figures."""


def judge(ranking: Sequence[str], evidence: frozenset[str]) -> dict[str, float]:
    """Return the figures of one question; *ranking* holds ids, best first."""
    found = [item in evidence for item in ranking]
    figures = {}
    for k in KS:
        hits = sum(found[:k])
        figures[f"R@{k}"] = hits / len(evidence)
        figures[f"hit@{k}"] = float(hits > 0)
        figures[f"all@{k}"] = float(hits == len(evidence))
    figures["MRR"] = next((1 / rank for rank, hit in enumerate(found, 1) if hit), 0.0)
    gain = sum(1 / math.log2(rank + 1) for rank, hit in enumerate(found[:10], 1) if hit)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(evidence)) + 1))
    figures["nDCG@10"] = gain / best
    return figures


def mean(judged: Sequence[Mapping[str, float]], figure: str) -> float:
    return 100 * fmean(one[figure] for one in judged) if judged else math.nan


def interval(judged: Sequence[Mapping[str, float]], figure: str) -> tuple[float, float]:
    """Return where 95 % of the means of resampled questions lie."""
    values = [one[figure] for one in judged]
    dice = random.Random(7)
    means = sorted(fmean(dice.choices(values, k=len(values))) for _ in range(1_000))
    return 100 * means[25], 100 * means[974]
