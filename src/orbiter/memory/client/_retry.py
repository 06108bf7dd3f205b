"""Retry policy: how often a request is tried, and how long to wait in between. No I/O."""

import math
import random
from dataclasses import dataclass

__all__ = ["RetryPolicy"]

_FIRST = 0.05
_LONGEST = 5.0
_LONGEST_UNSENT = 1.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Most tries of one call that may have arrived, and the seconds that it may take in all."""

    tries: int = 5
    timeout: float = 60.0

    def pause(
        self,
        tried: int,
        *,
        asked: str | None = None,
        left: float = math.inf,
        is_unsent: bool = False,
    ) -> float | None:
        """Return the seconds to wait after *tried* tries, or `None` to give up.

        *asked* is what the server asks for in `Retry-After`: whoever it tells to wait has its turn
        in the end, so only the time counts. So it does where nobody was there at all: a server
        that is started again comes back. Else the tries count. Pauses grow, and are drawn by
        chance, so that those whom one server left do not come back all at once. None ends after
        the seconds that are *left*.
        """
        growing = _FIRST * 2 ** min(tried, 10)
        wanted = _seconds(asked)
        if wanted is not None:
            # Whatever it says, it is not asked without a pause.
            wanted = max(wanted, min(growing, _LONGEST_UNSENT) / 2)
            wanted += random.uniform(0, max(_FIRST, wanted / 2))  # noqa: S311 - no secret
        elif is_unsent:
            wanted = random.uniform(0.5, 1) * min(growing, _LONGEST_UNSENT)  # noqa: S311
        elif tried < self.tries:
            wanted = random.uniform(0, min(growing, _LONGEST))  # noqa: S311
        else:
            return None
        return wanted if wanted < left else None


def _seconds(asked: str | None) -> float | None:
    """Return what `Retry-After` says; a date, which we never send, counts as nothing."""
    try:
        found = math.nan if asked is None else float(asked)
    except ValueError:
        return None
    return max(0.0, found) if math.isfinite(found) else None
