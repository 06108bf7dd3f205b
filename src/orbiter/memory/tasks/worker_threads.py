"""Threads: one for the files of an import, one for a server's long work, and what a fork needs.

The event loop never waits for a disk. A server has one thread alone for long work: a second one
would make the event loop wait twice as long for the interpreter's lock. Nothing that runs there may
be a single long call into C that keeps the lock; see `server/http/json_body.py`. A child of a fork
must not use its parent's threads, locks, sessions and connections.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakSet, WeakValueDictionary

__all__ = ["FileThread", "Forkable", "KeyedSemaphore", "WorkerThread", "iterate_in_thread"]

_T = TypeVar("_T")

_PATIENCE = 2.0
"""Seconds that closing may take before the thread is left to it."""


class FileThread:
    """One worker thread; what it is given is done in that order."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="orbiter-memory-import")

    def run(self, work: Callable[..., _T], *arguments: object) -> "asyncio.Future[_T]":
        """Begin *work*; what is returned can be awaited."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    async def leave(self, close: Callable[[], None]) -> None:
        """End it with *close*, behind what the thread is at: it alone may close what it reads.

        A thread that hangs, as on a disk that is gone, keeps nobody waiting.
        """
        last = self.run(close)
        last.add_done_callback(_looked_at)
        self._pool.shutdown(wait=False)
        done, _ = await asyncio.wait({last}, timeout=_PATIENCE)
        if done:
            last.result()


def _looked_at(done: "asyncio.Future[None]") -> None:
    if not done.cancelled():
        done.exception()


async def iterate_in_thread(
    values: Generator[_T, None, None], *, stop: Callable[[], None]
) -> AsyncGenerator[_T, None]:
    """Yield what *values* does, made in a thread; *stop* is called before it is closed."""
    thread = FileThread()
    try:
        while (value := await thread.run(next, values, None)) is not None:
            yield value
    finally:
        stop()
        await thread.leave(values.close)


class KeyedSemaphore:
    """Semaphores by key: each key has at most *most* turns at a time, and waits for more."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._by_key: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, key_id: str | None) -> AsyncIterator[None]:
        """Have one of the turns of a key while the block runs."""
        turns = self._by_key.get(key_id)
        if turns is None:
            turns = self._by_key[key_id] = asyncio.Semaphore(self._most)
        async with turns:
            yield


class WorkerThread:
    """The thread of one server; a key has one piece of work there at a time, others go between."""

    def __init__(self) -> None:
        self._turns = KeyedSemaphore(most=1)
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, key_id: str | None, work: Callable[[], _T]) -> _T:
        """Return what *work* returns, or raise what it raises."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="orbiter-server")
        async with self._turns.of(key_id):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread after what it does now; the next work begins another."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)


class Forkable:
    """Something that is told when the process forks, for as long as it lives."""

    def __init__(self) -> None:
        _alive.add(self)

    def before_fork(self) -> None:
        """Bring to rest what must not be in use at that moment."""

    def after_in_parent(self) -> None:
        """Go on."""

    def after_in_child(self) -> None:
        """Replace what is the parent's."""


_alive: WeakSet[Forkable] = WeakSet()
_held: list[Forkable] = []


def _before() -> None:
    _held[:] = _alive
    for one in _held:
        one.before_fork()


def _in_parent() -> None:
    for one in _held:
        one.after_in_parent()
    _held.clear()


def _in_child() -> None:
    for one in _held:
        one.after_in_child()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
