"""Lets writes that come while others are under way share the next round trip and commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")

MOST = 500
"""Writes in one batch."""

LANES = 4
"""Batches under way at once."""

PATIENCE = 0.02
"""Seconds after which those who wait get a lane of their own: a batch that itself waits, for a
lock perhaps, must not hold up everyone."""


class Batches(Generic[_T]):
    """Whoever finds nothing under way goes alone and at once; the others wait and go together."""

    def __init__(self, write: Callable[[Sequence[_T]], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: list[tuple[_T, asyncio.Future[None]]] = []
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, value: _T) -> None:
        """Write *value*, alone or with others; return when it is written."""
        loop = asyncio.get_running_loop()
        if not self._busy:
            self._busy += 1
            try:
                await asyncio.sleep(0)  # those who start together go together
                if not self._waiting:
                    await self._write([value])
                    return
            finally:
                self._busy -= 1
                if self._waiting:
                    loop.call_soon(self._go)
            # Whoever came meanwhile came later.
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.insert(0, (value, future))
        else:
            future = loop.create_future()
            self._waiting.append((value, future))
        if self._timer is None:
            self._timer = loop.call_later(PATIENCE, self._go)
        await future

    async def close(self) -> None:
        """Wait until what was taken is written, or refused."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _go(self) -> None:
        """Send those who wait on their way, if there is a lane."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Who was cancelled while waiting has written nothing.
        waiting = [each for each in self._waiting if not each[1].done()]
        if not waiting or self._busy >= LANES:
            self._waiting = waiting
            return
        batch, self._waiting = waiting[:MOST], waiting[MOST:]
        loop = asyncio.get_running_loop()
        if self._waiting:
            self._timer = loop.call_later(PATIENCE, self._go)
        self._busy += 1
        # In a task of its own: no single caller's cancellation may end what others wait for.
        task = loop.create_task(self._carry_out(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, batch: list[tuple[_T, "asyncio.Future[None]"]]) -> None:
        try:
            await self._write([value for value, _ in batch])
        except Exception as exc:  # noqa: BLE001 - told to those who asked
            # Whether a batch that was not answered is written is not known: it must not be sent
            # again, or it might count twice.
            if len(batch) == 1 or isinstance(exc, (TimeoutError, ConnectionError)):
                for _, future in batch:
                    _fail(future, exc)
            else:
                # One of them failed, and took the others with it: each gets its own attempt.
                await asyncio.gather(*(self._carry_out_one(*each) for each in batch))
        else:
            for _, future in batch:
                if not future.done():
                    future.set_result(None)
        finally:
            self._busy -= 1
            self._go()

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
