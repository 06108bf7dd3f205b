"""What `erase` has done: how much went, what was read to make sure, and what is still there.

It never holds a word of what was erased, so that it can be kept as the proof of it.
"""

from dataclasses import dataclass, fields
from typing import Self

__all__ = ["Erasure", "counts_of"]

_KINDS = ("items", "forgotten", "versions", "vectors", "cached", "episodes", "keys")


@dataclass(frozen=True, slots=True)
class Erasure:
    """What `erase` removed and checked, or would remove. It is true when nothing is left."""

    items: int = 0
    """Items that could still be read."""
    forgotten: int = 0
    """Items that were soft-deleted already, and could have been restored."""
    versions: int = 0
    """Earlier versions, those of items that are another's now included."""
    vectors: int = 0
    """Items whose vectors were kept beside them."""
    cached: int = 0
    """Vectors in the file of `CachedEmbeddings`."""
    episodes: int = 0
    """What was remembered of the last hours by `activity`."""
    keys: int = 0
    """Keys of a Redis, those of indexes included."""
    tables: int = 0
    """Tables that were asked afterwards."""
    files: tuple[str, ...] = ()
    """Files whose bytes were read afterwards."""
    bytes_read: int = 0
    """How many bytes these have."""
    probes: int = 0
    """Words, slices and names that were looked for; they were held in memory only."""
    problems: tuple[str, ...] = ()
    """What is still there, or could not be made sure of, and the way out."""
    dry_run: bool = False
    """Whether it was only counted, and nothing was touched."""

    def __bool__(self) -> bool:
        return not self.problems and not (self.dry_run and self.total)

    @property
    def total(self) -> int:
        """How much was removed, of all kinds."""
        return sum(getattr(self, kind) for kind in _KINDS)

    def __add__(self, other: Self) -> Self:
        """Return both as one: the same scope, erased in two places."""
        summed = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in _SUMS}
        return type(self)(**summed, dry_run=self.dry_run or other.dry_run)

    def __str__(self) -> str:
        gone = [f"  {kind:<10}{getattr(self, kind):>9,}" for kind in _KINDS if getattr(self, kind)]
        asked = [f"{self.tables} tables"] if self.tables else []
        asked += [f"{len(self.files)} files ({self.bytes_read:,} bytes)"] if self.files else []
        looked = f"looked for {self.probes} traces in {' and '.join(asked)}" if asked else ""
        head = f"erased {self.total:,}" if self.total else "there was nothing to erase"
        if self.dry_run:
            would = f"would erase {self.total:,}" if self.total else "there is nothing to erase"
            return "\n".join([would, *gone])
        tail = "nothing is left" if self else f"{len(self.problems)} left to do"
        lines = [head, *gone, *([looked] if looked else []), tail]
        return "\n".join([*lines, *(f"  - {problem}" for problem in self.problems)])


_SUMS = tuple(each for each in fields(Erasure) if each.name != "dry_run")


def counts_of(done: Erasure) -> dict[str, int]:
    """Return how much of each kind is gone; `Erasure(**counts)` goes on from there."""
    return {kind: getattr(done, kind) for kind in _KINDS if getattr(done, kind)}
