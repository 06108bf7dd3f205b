"""`Stream`: what an async iterator yields, for a plain `for`."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from threading import Lock
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from orbiter.memory.errors import UnsupportedError
from orbiter.memory.sync._background_loop import Ended, call

__all__ = ["Stream"]

_T = TypeVar("_T")


class Stream(Iterator[_T], Generic[_T]):
    """What arrives from now on, one after the other; each step waits until there is something.

    Leave it with `close()`, which also ends a `for` of another thread, or `with`, or just drop it.
    """

    def __init__(self, source: AsyncIterator[_T], owner: object) -> None:
        self._source = source
        self._owner = owner  # dropped, the memory would be closed, and the stream with it
        self._process = os.getpid()
        self._turn = Lock()
        self._task: asyncio.Task[Any] | None = None
        self._is_closed = False

    def __next__(self) -> _T:
        self._check()
        with self._turn:
            try:
                return call(self._following)
            except (StopAsyncIteration, Ended):
                raise StopIteration from None
            except asyncio.CancelledError:
                if self._is_closed:
                    raise StopIteration from None
                raise

    async def _following(self) -> _T:
        self._task = asyncio.current_task()
        try:
            return await anext(self._source)
        finally:
            self._task = None

    def close(self) -> None:
        """Hear no more. May be repeated."""
        self._check()
        call(self._end)

    async def _end(self) -> None:
        self._is_closed = True
        if isinstance(self._source, AsyncGenerator) and self._task is not None:
            # A generator that waits cannot be closed; what it waits for can be given up.
            self._task.cancel()
            await asyncio.wait([self._task])
        if hasattr(self._source, "aclose"):
            await self._source.aclose()

    def _check(self) -> None:
        if self._process != os.getpid():
            raise UnsupportedError("a stream ends when the process forks; start another one here")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
