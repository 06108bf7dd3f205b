"""Timing of coroutines that take turns: what is compared is measured side by side, in rounds.

A busy machine slows a whole round, so two calls are compared within each round, and the median
of those ratios counts.
"""

import gc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks._timing import resting_gc

Work = Callable[[], Awaitable[object]]


async def timed(work: Work) -> float:
    """Return how many seconds *work* takes."""
    with resting_gc():
        began = perf_counter()
        await work()
        return perf_counter() - began


async def nothing() -> None:
    """Do nothing, where something could be done after a call."""


class Rounds:
    """Seconds by name, one of each in every round."""

    def __init__(self, seconds: Mapping[str, Sequence[float]]) -> None:
        self._seconds = seconds

    def typical(self, name: str) -> float:
        """Return the median time of a call."""
        return median(self._seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Return how many times as long as *to* a call takes: the median over the rounds."""
        pairs = zip(self._seconds[name], self._seconds[to], strict=True)
        return median(mine / other for mine, other in pairs)


async def in_turns(
    make: Mapping[str, Callable[[int], Work]],
    *,
    rounds: int,
    calls: int = 1,
    after: Mapping[str, Work] | None = None,
) -> Rounds:
    """Time the work that each of *make* returns for a round, after a round that does not count.

    *calls* is how many calls that work makes; what is returned is for one. *after* names what
    must be finished, untimed, before the next one's turn.
    """
    seconds: dict[str, list[float]] = {name: [] for name in make}
    gc.collect()
    gc.freeze()  # the peers' modules are many objects, and would be looked through for each turn
    for number in range(rounds + 1):
        names = list(make)
        for name in names if number % 2 else reversed(names):
            taken = await timed(make[name](number))
            await (after or {}).get(name, nothing)()
            if number:
                seconds[name].append(taken / calls)
    return Rounds(seconds)


def one_by_one(call: Callable[[Any], Awaitable[object]], values: Sequence[Any]) -> Work:
    """Return work that makes one call after the other."""

    async def work() -> None:
        for value in values:
            await call(value)

    return work
