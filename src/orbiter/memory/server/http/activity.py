"""Activity of the last day: how often memories were written and recalled, and how long that took.

It is counted in this process and gone with it. Scopes are kept as hashes that no other process
makes, so no name of a user stays here when they are erased.
"""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = ["Activity", "Period"]

PERIOD = 1_800
"""Seconds of a period."""
PERIODS = 48
_MAX_SCOPES = 300
"""Scopes of one period that are counted apart; the rest only count for everyone."""
_MAX_TIMES = 500
_WRITES = frozenset({"remembered", "said", "updated", "forgotten", "restored"})
_RECALLS = frozenset({"recalled"})
_TIMED = {
    "/v1/recall": "recalls",
    "/v1/context": "recalls",
    "/v1/chats/{chat_id}/context": "recalls",
    "/v1/memories": "writes",
    "/v1/memories/batch": "writes",
    "/v1/chats/{chat_id}/messages": "writes",
}
"""Routes of REST by what they are counted as."""

_Key = tuple[str, tuple[int, ...]]


@dataclass
class _Bucket:
    counts: Counter[_Key] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Period:
    """What happened in half an hour."""

    at: datetime
    writes: int = 0
    recalls: int = 0


class Activity:
    """The periods of the last day; *clock* is in seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._buckets: OrderedDict[int, _Bucket] = OrderedDict()

    def note_event(self, kind: str, scope: MemoryMetadata) -> None:
        """Count something that happened in *scope*."""
        what = "writes" if kind in _WRITES else "recalls" if kind in _RECALLS else ""
        if not what:
            return
        counts = self._bucket().counts
        key = (what, _hashes({name: getattr(scope, name) for name in SCOPE_FIELDS}))
        counts[key if key in counts or len(counts) < _MAX_SCOPES else (what, ())] += 1

    def note_request(self, route: str, method: str, seconds: float) -> None:
        """Note how long a call of REST took; others are left out."""
        what = _TIMED.get(route) if method == "POST" else None
        if what is not None:
            times = self._bucket().times.setdefault(what, [])
            if len(times) < _MAX_TIMES:
                times.append(seconds)

    def periods(self, wanted: Mapping[str, str]) -> list[Period]:
        """Return every period of the last day, the oldest first, of a scope; all if it is empty."""
        now = int(self._clock() // PERIOD)
        hashed = _hashes({name: wanted.get(name) for name in SCOPE_FIELDS})
        periods = []
        for number in range(now - PERIODS + 1, now + 1):
            counts = Counter[str]()
            bucket = self._buckets.get(number)
            for (what, hashes), count in bucket.counts.items() if bucket else ():
                if _is_within(hashes, hashed):
                    counts[what] += count
            at = datetime.fromtimestamp(number * PERIOD, UTC)
            periods.append(Period(at, counts["writes"], counts["recalls"]))
        return periods

    def latency(self, what: str) -> tuple[float, float] | None:
        """Return the median and the 95th percentile in seconds of the last day, if there is any."""
        times = sorted(t for each in self._buckets.values() for t in each.times.get(what, ()))
        if not times:
            return None
        return times[(len(times) - 1) // 2], times[math.ceil(0.95 * len(times)) - 1]

    def _bucket(self) -> _Bucket:
        number = int(self._clock() // PERIOD)
        if number not in self._buckets:
            self._buckets[number] = _Bucket()
            while len(self._buckets) > PERIODS:
                self._buckets.popitem(last=False)
        return self._buckets[number]


def _hashes(scope: Mapping[str, str | None]) -> tuple[int, ...]:
    return tuple(0 if value is None else hash(value) or 1 for value in scope.values())


def _is_within(hashes: tuple[int, ...], hashed: tuple[int, ...]) -> bool:
    if not any(hashed):
        return True
    return bool(hashes) and all(a in (0, own) for own, a in zip(hashes, hashed, strict=True))
