"""Batching: calls that arrive while others are under way share the next round trip."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

__all__ = ["GLANCE", "HEAVIEST", "LANES", "PATIENCE", "Batches", "Deadlines"]

_T = TypeVar("_T")
_R = TypeVar("_R")
_Batch = list[tuple[_T, "asyncio.Future[_R]"]]

LANES = 4
"""Batches under way at once."""

PATIENCE = 0.02
"""Seconds after which those who wait get a lane of their own: a batch that itself waits, for a
lock perhaps, must not hold up everyone."""

HEAVIEST = 2**20
"""What a batch of several calls may weigh; a single one may be heavier."""

GLANCE = 0.1
"""Seconds by which a call may overrun its time."""


class Deadlines:
    """Ends what takes too long; one timer for all.

    `asyncio.timeout` for each would take longer than the rest of a short call.
    """

    def __init__(self) -> None:
        self._ends: dict[Callable[[], object], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, end: Callable[[], object], within: float) -> None:
        """Call *end* after *within* seconds, unless it is left out before."""
        loop = asyncio.get_running_loop()
        self._ends[end] = loop.time() + within
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(GLANCE, self._look)

    def leave(self, end: Callable[[], object]) -> None:
        """Call *end* no more."""
        del self._ends[end]

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for end, when in self._ends.items():
            if when <= now:
                self._ends[end] = math.inf  # once
                end()
        self._timer = loop.call_later(GLANCE, self._look) if self._ends else None

    def limit(self, within: float) -> "_Limit":
        """Return what ends the block in it with a `TimeoutError` after *within* seconds."""
        return _Limit(self, within)

    def close(self) -> None:
        """Look no more; nobody waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Limit:
    """Cancels the task that is in its block for too long, and turns that into a `TimeoutError`."""

    def __init__(self, deadlines: Deadlines, within: float) -> None:
        self._deadlines, self._within = deadlines, within
        self._is_late = False

    def __enter__(self) -> None:
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._before = (
            self._task.cancelling()
        )  # more than 0 where someone was cancelled and cleans up
        self._deadlines.watch(self._end, self._within)

    def _end(self) -> None:
        self._is_late = self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._deadlines.leave(self._end)
        if not self._is_late:
            return
        is_ours = self._task.uncancel() <= self._before
        if is_ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from None


class Batches(Generic[_T, _R]):
    """Whoever finds nothing under way goes alone and at once; the others wait and go together.

    *send* carries several calls out and returns the answer to each, in order; an answer that is
    an exception is raised for the one who asked. At most *most* go together; as soon as that many
    wait, they go. An *eager* one does not look first whether others start at the same time, which
    is worth it where a round trip costs little more than a look. *weigh* tells how heavy a call
    is, and `HEAVIEST` what together they may be, so that no batch takes longer than all have time.
    """

    def __init__(
        self,
        send: Callable[[Sequence[_T]], Awaitable[Sequence[_R | Exception]]],
        *,
        most: int = 500,
        eager: bool = False,
        weigh: Callable[[_T], int] | None = None,
    ) -> None:
        self._send = send
        self._most = most
        self._eager = eager
        self._weigh = weigh
        self._waiting: _Batch[_T, _R] = []
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None
        self._deadlines = Deadlines()
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, value: _T, *, within: float | None = None) -> _R:
        """Send *value*, alone or with others; return its answer.

        `TimeoutError` after *within* seconds; whether it is carried out is then not known.
        """
        loop = asyncio.get_running_loop()
        if not self._busy:
            self._busy += 1
            try:
                if not self._eager:
                    await asyncio.sleep(0)  # those who start together go together
                if not self._waiting:
                    return _value((await self._alone(value, within))[0])
            finally:
                self._busy -= 1
                if self._waiting:
                    loop.call_soon(self._go)
            # Whoever came meanwhile came later.
            future: asyncio.Future[_R] = loop.create_future()
            self._waiting.insert(0, (value, future))
        else:
            future = loop.create_future()
            self._waiting.append((value, future))
        if len(self._waiting) == self._most:
            self._go()
        elif self._timer is None:
            self._timer = loop.call_later(PATIENCE, self._go)
        if within is None:
            return await future
        end = partial(_settle, future, TimeoutError())
        self._deadlines.watch(end, within)
        try:
            return await future
        finally:
            self._deadlines.leave(end)

    async def _alone(self, value: _T, within: float | None) -> Sequence[_R | Exception]:
        if within is None:
            return await self._send([value])
        with self._deadlines.limit(within):
            return await self._send([value])

    async def close(self) -> None:
        """Wait until what was taken is answered, or refused."""
        while self._busy or self._waiting:  # noqa: ASYNC110 - rare, and not worth an event
            await asyncio.sleep(0.001)
        self._deadlines.close()

    def _go(self) -> None:
        """Send those who wait on their way, if there is a lane."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Who was cancelled while waiting has sent nothing.
        self._waiting = [each for each in self._waiting if not each[1].done()]
        loop = asyncio.get_running_loop()
        is_due = True
        while self._waiting and self._busy < LANES and (is_due or len(self._waiting) >= self._most):
            count = self._count()
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            self._busy += 1
            # In a task of its own: no single caller's cancellation may end what others wait for.
            task = loop.create_task(self._carry_out(batch))
            self._tasks.add(task)
            task.add_done_callback(partial(self._end, batch))
            is_due = False
        if self._waiting:
            self._timer = loop.call_later(PATIENCE, self._go)

    def _count(self) -> int:
        """Return how many of those who wait go together."""
        weigh, weight = self._weigh, 0
        if weigh is not None:
            for place, (value, _) in enumerate(self._waiting[: self._most]):
                weight += weigh(value)
                if weight > HEAVIEST and place:
                    return place
        return self._most

    def _end(self, batch: "_Batch[_T, _R]", task: asyncio.Task[None]) -> None:
        """Free the lane: here, because a task that is cancelled early does not even begin."""
        self._tasks.discard(task)
        self._busy -= 1
        if task.cancelled():  # by a program that ends all its tasks
            for _, future in batch:
                future.cancel()
        self._go()

    async def _carry_out(self, batch: "_Batch[_T, _R]") -> None:
        try:
            answers = await self._send([value for value, _ in batch])
        except Exception as exc:  # noqa: BLE001 - told to those who asked
            # Whether a batch that was not answered is written is not known: it must not be sent
            # again, or it might count twice.
            if len(batch) == 1 or isinstance(exc, (TimeoutError, ConnectionError)):
                for _, future in batch:
                    _settle(future, exc)
            else:
                # One of them failed, and took the others with it: each gets its own attempt.
                await asyncio.gather(*(self._carry_out_one(*each) for each in batch))
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                _settle(future, answer)

    async def _carry_out_one(self, value: _T, future: "asyncio.Future[_R]") -> None:
        try:
            _settle(future, (await self._send([value]))[0])
        except Exception as exc:  # noqa: BLE001 - told to the one who asked
            _settle(future, exc)


def _value(answer: _R | Exception) -> _R:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _settle(future: "asyncio.Future[_R]", answer: _R | Exception) -> None:
    if future.done():  # cancelled: no one waits for it
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
