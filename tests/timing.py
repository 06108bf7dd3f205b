"""How long tests wait: for events wherever there is one, else by one scale for every deadline.

A test that waits a fixed time for something to happen fails on a busy machine. So a test waits
with `until`, and a deadline that must run out, or must not, is `scaled`. The scale is the load per
core at that moment, at least 1; `ORBITER_TEST_TIME_SCALE=8` fixes it for a run.
"""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable

__all__ = ["HANG", "scaled", "until", "until_blocking"]

HANG = 180.0
"""Seconds after which something hangs: far more than a busy machine takes. Passing tests never
wait so long, so it costs nothing to be generous."""

_PAUSE = 0.01


def scaled(seconds: float) -> float:
    """Return *seconds*, stretched by as much as this machine is busy."""
    fixed = os.environ.get("ORBITER_TEST_TIME_SCALE")
    scale = float(fixed) if fixed else os.getloadavg()[0] / (os.cpu_count() or 1)
    return round(seconds * max(1.0, scale), 2)


async def until(condition: Callable[[], object | Awaitable[object]], what: str = "it") -> None:
    """Wait until *condition* returns, or its coroutine returns, something true."""
    try:
        async with asyncio.timeout(HANG):
            while True:
                result = condition()
                if await result if inspect.isawaitable(result) else result:
                    return
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen in {HANG:.0f} seconds") from None


def until_blocking(condition: Callable[[], object], what: str = "it") -> None:
    """Wait as `until` does, in a thread that has no event loop."""
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {HANG:.0f} seconds"
        time.sleep(_PAUSE)
