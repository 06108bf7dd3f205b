"""Worker thread for long work of requests, shared fairly between keys.

One thread alone: a second one would make the event loop wait twice as long for the interpreter's
lock. Nothing that runs here may be a single long call into C that keeps the lock; see
`json_body.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

__all__ = ["KeyedSemaphore", "WorkerThread"]

T = TypeVar("T")


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

    async def run(self, key_id: str | None, work: Callable[[], T]) -> T:
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
