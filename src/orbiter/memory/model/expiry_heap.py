"""Expiry heap: when the items of a store in this process expire, and which have by now.

Who keeps items asks before it reads or writes any. Where none has an end, asking costs nothing.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush

__all__ = ["ExpiryHeap"]


class ExpiryHeap:
    """Ids by the instant at which their items expire."""

    def __init__(self) -> None:
        self._end: dict[str, datetime] = {}
        self._queue: list[tuple[datetime, str]] = []

    def note(self, item_id: str, end: object) -> None:
        """Remember when an item expires; what is not an instant never does."""
        if not isinstance(end, datetime):
            self._end.pop(item_id, None)
        elif self._end.get(item_id) != end:
            self._end[item_id] = end
            heappush(self._queue, (end, item_id))
            if len(self._queue) > 2 * len(self._end) + 64:  # mostly of what was changed
                self._queue = [(at, name) for name, at in self._end.items()]
                heapify(self._queue)

    def expired(self) -> Iterator[str]:
        """Yield the ids of items that have expired by now, and forget them."""
        if not self._queue:
            return
        now = datetime.now(UTC)
        while self._queue and self._queue[0][0] <= now:
            end, item_id = heappop(self._queue)
            if self._end.get(item_id) == end:
                del self._end[item_id]
                yield item_id
