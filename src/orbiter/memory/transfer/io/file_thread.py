"""A worker thread for files: the event loop never waits for a disk."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["FileThread", "iterate_in_thread"]

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
