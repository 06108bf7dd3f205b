"""Counts and token buckets that all processes of one server share, so that a limit is one limit.

Alone, a server has them in `LocalLimits`. Workers of one supervisor have them in `SharedLimits`: a
file in memory that each of them maps. Names are kept as digests. What a worker counts stands in a
column of its own, so that a worker that was killed takes its counts with it.
"""

import hashlib
import mmap
import os
import struct
import tempfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Limits", "LocalLimits", "SharedLimits", "shared_limits_file"]

Level = tuple[float, float]
"""How many tokens a bucket held, and when, by the monotonic clock that all processes share."""

_MAX_BUCKETS = 10_000
"""Buckets that are kept; who did not ask for longest begins with a full one."""

_BUCKETS = 2**14
_NAMES = 2**13
_PROBES = 16
"""Places that a digest may be in, from the one it names on."""
_DIGEST = 16
_LEVEL = struct.Struct("dd")
_BUCKET = _DIGEST + _LEVEL.size
_NONE = bytes(_DIGEST)


class Limits(Protocol):
    """Counts by name, each with a limit, and token buckets."""

    def take(self, name: str, most: int) -> bool:
        """Count one more of *name*, unless there are *most* already."""

    def give(self, name: str) -> None:
        """Count one less."""

    def elsewhere(self, name: str) -> int:
        """Return how many of *name* other processes hold."""

    def level(self, name: str, change: Callable[[Level | None], Level]) -> Level:
        """Put what *change* makes of a bucket in its place, alone; return it."""


class LocalLimits:
    """The limits of a server that is one process."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._levels: OrderedDict[str, Level] = OrderedDict()

    def take(self, name: str, most: int) -> bool:
        """Count one more of *name*, unless there are *most* already."""
        if self.counts[name] >= most:
            self._drop(name)
            return False
        self.counts[name] += 1
        return True

    def give(self, name: str) -> None:
        """Count one less."""
        self.counts[name] -= 1
        self._drop(name)

    def _drop(self, name: str) -> None:
        if self.counts[name] <= 0:
            del self.counts[name]

    def elsewhere(self, name: str) -> int:  # noqa: ARG002 - as the other has it
        """Return zero: there is no other process."""
        return 0

    def level(self, name: str, change: Callable[[Level | None], Level]) -> Level:
        """Put what *change* makes of a bucket in its place; return it."""
        self._levels[name] = level = change(self._levels.pop(name, None))
        if len(self._levels) > _MAX_BUCKETS:
            self._levels.popitem(last=False)
        return level


def shared_limits_file(columns: int) -> int:
    """Return a new file in memory for as many workers as *columns*, open and without a name."""
    if hasattr(os, "memfd_create"):
        handle: int = os.memfd_create("orbiter-memory-limits")
    else:  # a Mac
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.truncate(handle, _size(columns))
    return handle


def _size(columns: int) -> int:
    return _BUCKETS * _BUCKET + _NAMES * (_DIGEST + 4 * columns)


class SharedLimits:
    """The limits in the file *handle*, of which this worker counts in the column *number*.

    All methods are for one thread: the lock of the file is the process's.
    """

    def __init__(self, handle: int, *, number: int, columns: int) -> None:
        self._handle, self._number = handle, number
        self._map = mmap.mmap(handle, _size(columns))
        self._row = struct.Struct(f"{columns}I")
        self._width = _DIGEST + self._row.size
        self._names = _BUCKETS * _BUCKET

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()
        os.close(self._handle)

    def take(self, name: str, most: int) -> bool:
        """Count one more of *name*, unless all workers together have *most* already."""
        with self._alone():
            place, counts = self._counts(_digest(name))
            if place is None or sum(counts) >= most:
                return False
            counts[self._number] += 1
            self._put(place, _digest(name), counts)
        return True

    def give(self, name: str) -> None:
        """Count one less."""
        with self._alone():
            place, counts = self._counts(_digest(name))
            if place is not None and counts[self._number]:
                counts[self._number] -= 1
                self._put(place, _digest(name), counts)

    def elsewhere(self, name: str) -> int:
        """Return how many of *name* the other workers hold."""
        _, counts = self._counts(_digest(name))
        return sum(counts) - counts[self._number]

    def clear(self, number: int) -> None:
        """Count nothing of a worker that has ended."""
        with self._alone():
            for index in range(_NAMES):
                place = self._names + index * self._width
                digest = self._map[place : place + _DIGEST]
                if digest != _NONE:
                    counts = list(self._row.unpack_from(self._map, place + _DIGEST))
                    counts[number] = 0
                    self._put(place, digest, counts)

    def level(self, name: str, change: Callable[[Level | None], Level]) -> Level:
        """Put what *change* makes of a bucket in its place, while no other worker does."""
        digest = _digest(name)
        with self._alone():
            oldest, before, since = 0, None, float("inf")
            for place in _places(digest, _BUCKETS, 0, _BUCKET):
                there = self._map[place : place + _DIGEST]
                level: Level = _LEVEL.unpack_from(self._map, place + _DIGEST)
                if there == digest:
                    oldest, before = place, level
                    break
                at = -1.0 if there == _NONE else level[1]
                if at < since:
                    oldest, since = place, at
            made = change(before)
            self._map[oldest : oldest + _DIGEST] = digest
            _LEVEL.pack_into(self._map, oldest + _DIGEST, *made)
        return made

    def _counts(self, digest: bytes) -> tuple[int | None, list[int]]:
        """Return where the counts of a name are, or may be; `None` if there is no room."""
        free: int | None = None
        for place in _places(digest, _NAMES, self._names, self._width):
            there = self._map[place : place + _DIGEST]
            if there == digest:
                return place, list(self._row.unpack_from(self._map, place + _DIGEST))
            if there == _NONE and free is None:
                free = place
        return free, [0] * (self._row.size // 4)

    def _put(self, place: int, digest: bytes, counts: list[int]) -> None:
        self._row.pack_into(self._map, place + _DIGEST, *counts)
        self._map[place : place + _DIGEST] = digest if any(counts) else _NONE

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock, which the system takes from a process that ends."""
        import fcntl  # noqa: PLC0415 - there are no workers on Windows

        fcntl.lockf(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._handle, fcntl.LOCK_UN)


def _places(digest: bytes, count: int, begin: int, width: int) -> Iterator[int]:
    first = int.from_bytes(digest[:4], "little")
    for index in range(first, first + _PROBES):
        yield begin + index % count * width


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
