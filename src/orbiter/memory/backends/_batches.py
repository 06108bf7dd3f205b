"""Lets writes that come while others are under way share the next round trip and commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")

MOST = 500
"""Writes in one batch."""

LANES = 4
"""Batches under way at once: one that waits for a lock must not hold up everyone."""


class Batches(Generic[_T]):
    """Whoever finds a lane free goes alone and at once; the others wait and go together."""

    def __init__(self, write: Callable[[Sequence[_T]], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: list[tuple[_T, asyncio.Future[None]]] = []
        self._free = LANES
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, value: _T) -> None:
        """Write *value*, alone or with others; return when it is written."""
        if self._free:
            self._free -= 1
            try:
                await self._write([value])
            finally:
                self._hand_on()
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((value, future))
        await future

    async def close(self) -> None:
        """Wait until what was taken is written, or refused."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _hand_on(self) -> None:
        """Give a lane to those who wait, if there are any."""
        batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        # Who was cancelled while waiting has written nothing.
        batch = [each for each in batch if not each[1].done()]
        if not batch:
            self._free += 1
            return
        # In a task of its own: no single caller's cancellation may end what others wait for.
        task = asyncio.get_running_loop().create_task(self._carry_out(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, batch: list[tuple[_T, "asyncio.Future[None]"]]) -> None:
        try:
            await self._write([value for value, _ in batch])
        except Exception as exc:  # noqa: BLE001 - told to the one who asked
            if len(batch) == 1:
                _fail(batch[0][1], exc)
            else:
                # One of them failed, and took the others with it: each gets its own attempt.
                await asyncio.gather(*(self._carry_out_one(*each) for each in batch))
        else:
            for _, future in batch:
                if not future.done():
                    future.set_result(None)
        finally:
            self._hand_on()

    async def _carry_out_one(self, value: _T, future: "asyncio.Future[None]") -> None:
        try:
            await self._write([value])
        except Exception as exc:  # noqa: BLE001 - told to the one who asked
            _fail(future, exc)
        else:
            if not future.done():
                future.set_result(None)


def _fail(future: "asyncio.Future[None]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
