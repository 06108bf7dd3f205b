"""Ids that sort by the time they were made, without a clock the caller must trust."""

import os
import time
from threading import Lock

__all__ = ["new_id"]

_lock = Lock()
_last_ms = 0
_counter = 0


def new_id() -> str:
    """Return 32 hex digits, a UUIDv7: later ids of one process are always greater.

    The random part is read from the system each time, so forked processes never collide.
    """
    global _last_ms, _counter  # noqa: PLW0603 - order within one millisecond needs the previous id
    noise = int.from_bytes(os.urandom(8), "big") >> 2
    with _lock:
        now = time.time_ns() // 1_000_000
        if now > _last_ms:
            _last_ms, _counter = now, 0
        elif _counter < 0xFFF:  # same millisecond, or the clock stepped back
            _counter += 1
        else:
            _last_ms, _counter = _last_ms + 1, 0
        head = _last_ms << 16 | 0x7000 | _counter
    return f"{head << 64 | 0x2 << 62 | noise:032x}"
