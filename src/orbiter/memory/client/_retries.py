"""How often a request is tried, and how long to wait before it is tried again. No I/O."""

import random
from dataclasses import dataclass

__all__ = ["Patience"]

_FIRST = 0.05
_LONGEST = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Most tries of one call, and the seconds that it may take in all."""

    tries: int = 5
    timeout: float = 60.0

    def pause(self, tried: int, *, asked: str | None = None, spent: float = 0.0) -> float | None:
        """Return the seconds to wait after *tried* tries, or `None` to give up.

        *asked* is what the server asks for in `Retry-After`: whoever it tells to wait has its turn
        in the end, so only the time counts. Without it, the pauses grow. All are drawn by chance,
        so that those whom one server left do not come back all at once.
        """
        wanted = _seconds(asked)
        if wanted is not None:
            wanted += random.uniform(0, max(_FIRST, wanted / 2))  # noqa: S311 - no secret
        elif tried < self.tries:
            wanted = random.uniform(0, min(_FIRST * 2**tried, _LONGEST))  # noqa: S311
        else:
            return None
        return wanted if spent + wanted < self.timeout else None


def _seconds(asked: str | None) -> float | None:
    """Return what `Retry-After` says; a date, which we never send, counts as nothing."""
    try:
        return None if asked is None else max(0.0, float(asked))
    except ValueError:
        return None
