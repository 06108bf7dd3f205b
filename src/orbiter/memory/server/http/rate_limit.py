"""How often somebody may ask: a bucket of tokens for each, which fills up again with time."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from orbiter.memory.server.http.error_responses import Refused

__all__ = ["Buckets"]

_MOST = 10_000
"""Buckets that are kept; who did not ask for longest begins with a full one."""


class Buckets:
    """One bucket of *burst* tokens for everybody, filled with *rate* tokens a second."""

    def __init__(
        self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Take a token of *who*, or raise `Refused` if there is none."""
        now = self._clock()
        level, since = self._levels.pop(who, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._rate)
        is_enough = level >= 1
        self._levels[who] = (level - 1 if is_enough else level, now)
        if len(self._levels) > _MOST:
            self._levels.popitem(last=False)
        if not is_enough:
            wait = max(1, math.ceil((1 - level) / self._rate))
            raise Refused(429, "too many requests", headers={"Retry-After": str(wait)})
