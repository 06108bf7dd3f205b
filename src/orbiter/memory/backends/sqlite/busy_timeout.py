"""How long a write waits for another process: `busy_timeout` in all, not at every try.

SQLite counts the wait of one statement. A write may wait behind others that wait for the same
lock, on the one thread that writes, and what they waited is part of its own time.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["Patience", "Waiting", "is_busy"]


class Waiting(NamedTuple):
    """When somebody began to wait, and how long the thread had been blocked by then."""

    since: float
    blocked: float


class Patience:
    """The *seconds* that each write has for other processes, kept by the thread that writes."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._blocked = 0.0

    def begin(self) -> Waiting:
        """Say that a write waits from now on; may be called from any thread."""
        return Waiting(self._clock(), self._blocked)

    def left(self, waiting: Waiting | None) -> float:
        """Return the seconds that a write still has, 0 or more; all, if it has not waited."""
        if waiting is None:
            return self._seconds
        # Of a wait that began before this write came, only the end is its own.
        waited = min(self._clock() - waiting.since, self._blocked - waiting.blocked)
        return max(0.0, self._seconds - waited)

    @contextmanager
    def spent(
        self, connection: sqlite3.Connection, waiting: Waiting | None = None
    ) -> Iterator[None]:
        """Let statements wait for what *waiting* has left; count it if it was in vain."""
        left = self.left(waiting)
        is_less = left < self._seconds
        if is_less:
            _set_timeout(connection, left)
        began = self._clock()
        try:
            yield
        except sqlite3.OperationalError as exc:
            if is_busy(exc):
                self._blocked += min(self._clock() - began, left)
            raise
        finally:
            if is_less:
                _set_timeout(connection, self._seconds)


def is_busy(error: BaseException) -> bool:
    """Tell whether *error* says that another connection has the lock."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _set_timeout(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
