"""Timing and tables for the benchmarks: every figure is a ratio within one run.

The machine may be busy, so nothing here compares with a time written down earlier.
"""

import gc
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

_T = TypeVar("_T")
_LEFT = frozenset(("ok", "MISSED", ""))


def finish(call: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, without an event loop, and return its result."""
    try:
        call.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    raise RuntimeError(f"`{call}` suspended; time it inside an event loop")


def seconds_per_call(
    calls: Mapping[str, Callable[[], object]], *, series: int = 5, budget: float = 0.1
) -> dict[str, float]:
    """Return what each call takes: the best of *series* medians, the calls taking turns.

    Each series of a call lasts about *budget* seconds and holds at least three samples. The
    garbage collector rests meanwhile, as it does in `timeit`.
    """
    loops = {name: _loops(call) for name, call in calls.items()}
    best = dict.fromkeys(calls, math.inf)
    for _ in range(series):
        for name, call in calls.items():
            with resting_gc():
                best[name] = min(best[name], _median(call, loops[name], budget))
    return best


@contextmanager
def resting_gc() -> Iterator[None]:
    """Collect the garbage, then none until the block ends."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _loops(call: Callable[[], object]) -> int:
    """Return how many calls make a sample long enough for the clock."""
    call()
    loops = 1
    while (taken := _sample(call, loops)) < 0.001:
        loops = max(loops * 2, int(loops * 0.001 / max(taken, 1e-7)))
    return loops


def _sample(call: Callable[[], object], loops: int) -> float:
    began = perf_counter()
    for _ in repeat(None, loops):
        call()
    return perf_counter() - began


def _median(call: Callable[[], object], loops: int, budget: float) -> float:
    samples: list[float] = []
    while len(samples) < 3 or (sum(samples) < budget and len(samples) < 200):
        samples.append(_sample(call, loops))
    return median(samples) / loops


def duration(seconds: float) -> str:
    """Return a time as people read it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e6:.1f} µs"


class Table:
    """Rows of text with a verdict at the end: the bar, what was measured, `ok` or `MISSED`."""

    def __init__(self, title: str, *columns: str) -> None:
        self.title = title
        self._rows: list[Sequence[str]] = [(*columns, "bar", "measured", "")]
        self.missed = 0

    def add(self, *cells: str, measured: str = "", bar: str = "", ok: bool | None = None) -> None:
        """Add a row; one without a bar only informs."""
        verdict = {None: "", True: "ok", False: "MISSED"}[ok]
        self._rows.append((*cells, bar, measured, verdict))
        self.missed += ok is False

    def show(self) -> None:
        """Print the table: the first column and the verdict to the left, the others to the right.

        A column with nothing in it is left out.
        """
        columns = [cells for cells in zip(*self._rows, strict=True) if any(cells[1:])]
        widths = [max(map(len, cells)) for cells in columns]
        print(f"\n{self.title}\n")
        for number, row in enumerate(zip(*columns, strict=True)):
            shown = [
                cell.ljust(width) if place == 0 or cell in _LEFT else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            print("  ".join(shown).rstrip())
            if number == 0:
                print("  ".join("-" * width for width in widths))


def exit_code(*tables: Table) -> int:
    """Show every table and return 1 if a bar was missed in one of them."""
    for table in tables:
        table.show()
    return 1 if any(table.missed for table in tables) else 0
