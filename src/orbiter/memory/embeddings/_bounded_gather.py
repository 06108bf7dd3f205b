"""Many awaitable calls, a few at a time, as one call that can be cancelled."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")
_A = TypeVar("_A")


async def in_turns(
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
