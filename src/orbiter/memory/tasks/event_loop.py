"""Event loops: an object for one loop, limited concurrency, work that is not cut off, no pauses.

What asyncio has to wait with, locks and events, belongs to the loop it first waited in: shared by
two loops it raises in one and never wakes the other. So whoever owns such a thing calls `enter`
before it uses it.
"""

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, TypeVar

from orbiter.memory.errors import EventLoopError

__all__ = ["OneLoop", "bounded_gather", "short_pauses", "to_end", "waiting_thread"]

_SWITCH = 0.0005
_FULL = 100
"""Collections of younger objects before all are looked at; Python's own number is 10."""

waiting_thread: ContextVar[int | None] = ContextVar("waiting_thread", default=None)
"""The thread that waits for this work, which a background loop does for it."""


class OneLoop:
    """Belongs to the first loop that enters, until that loop ends, stops or was forked away.

    *owner* is how the object is called in errors.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._claiming = Lock()
        self._turn = asyncio.Lock()

    def enter(self) -> bool:
        """Belong to the running loop; tell whether it was another's before.

        Raises `EventLoopError` while that other one runs.
        """
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():
            # The parent's loop looks as if it ran, and a thread that is not here may hold the lock.
            self._process, self._claiming, self._loop = os.getpid(), Lock(), None
        if self._loop is loop:
            return False
        with self._claiming:
            last = self._loop
            if last is not None and last.is_running():
                raise EventLoopError(self._owner)
            self._loop, self._turn = loop, asyncio.Lock()
        return last is not None

    @property
    def turn(self) -> asyncio.Lock:
        """A lock of the loop that has entered."""
        self.enter()
        return self._turn


_T = TypeVar("_T")
_A = TypeVar("_A")


async def bounded_gather(
    call: Callable[[_A], Awaitable[_T]], arguments: Sequence[_A], *, limit: int
) -> list[_T]:
    """Return what *call* gives for each argument, in their order, *limit* of them at a time.

    The first error ends all, as a cancellation does; nothing of it runs on when this returns.
    """
    results: dict[int, _T] = {}
    waiting = iter(enumerate(arguments))

    async def work() -> None:
        for number, argument in waiting:
            results[number] = await call(argument)

    workers = [asyncio.ensure_future(work()) for _ in range(min(limit, len(arguments)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[number] for number in range(len(arguments))]


async def to_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Return what *work* does; if this is cancelled meanwhile, not before *work* has ended.

    So whoever is told of the cancellation finds nothing under way any more.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it is not the one that is told
        raise


@contextmanager
def short_pauses() -> Iterator[None]:
    """Have the event loop wait for nothing else in this process for long.

    What is loaded by now is left out of garbage collection, which stops everything meanwhile: it
    is some 115,000 objects that stay as long as the process, and to look at them takes 50 ms. What
    requests hold is looked at less often: of 10,000 messages that takes as long, and was done three
    times while one request read them, though nearly all of it goes without a collection. And
    threads that compute hand the interpreter's lock over every half millisecond: a request takes
    it some ten times, and would wait for five milliseconds each time.
    """
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(_SWITCH)
    gc.set_threshold(*thresholds[:2], _FULL)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(before)
