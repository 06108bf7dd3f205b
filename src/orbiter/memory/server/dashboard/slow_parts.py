"""Slow parts of a page: the answer is a stream of comments about progress, then the part itself.

Work that ends within a second is answered as any other part, also where it fails. Later than that
the status is sent already, so an error is shown in the place of the part. The page draws a bar from
the comments; see `progressBar` in `app.js`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.responses import HTMLResponse, Response, StreamingResponse

from orbiter.memory.errors import MemoryError
from orbiter.memory.server.dashboard.page import Ask, Data
from orbiter.memory.server.dashboard.templating import render
from orbiter.memory.server.http.error_responses import HTTPProblem, problem_for
from orbiter.memory.tasks.progress import Tracker, track

__all__ = ["SlowParts", "slow_part"]

_SOON = 1.0
"""Seconds to wait for the work before the stream begins."""

_EVERY = 0.5
"""Seconds between two comments."""

_MAX_TASKS = 16
"""Slow parts of one key that run at the same time."""


class SlowParts:
    """The tasks of slow parts; `app.state.slow_parts`. They go on if the page is left."""

    def __init__(self) -> None:
        self.tasks: dict[asyncio.Task[Data], str | None] = {}
        """Each with the id of the key that it is for."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Cancel all tasks when the server ends."""
        try:
            yield
        finally:
            tasks = list(self.tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def begin(
        self, key_id: str | None, work: Callable[[], Awaitable[Data]]
    ) -> "asyncio.Task[Data]":
        """Start *work*; `HTTPProblem` if the key has too much of it."""
        if list(self.tasks.values()).count(key_id) >= _MAX_TASKS:
            raise HTTPProblem(429, "too many tasks are running; wait until one ends")
        task = asyncio.ensure_future(work())
        self.tasks[task] = key_id
        task.add_done_callback(self._end)
        return task

    def _end(self, task: "asyncio.Task[Data]") -> None:
        del self.tasks[task]
        if not task.cancelled():
            task.exception()  # is retrieved, also if nobody waits for the part any more


async def slow_part(ask: Ask, template: str, work: Callable[[], Awaitable[Data]]) -> Response:
    """Return *template*, made of what *work* returns."""
    parts: SlowParts = ask.request.app.state.slow_parts
    done = total = 0

    def advance(now: int, whole: int) -> None:
        nonlocal done, total
        done, total = now, whole

    async def run() -> Data:
        with track(Tracker(advance)):
            return await work()

    async def stream() -> AsyncIterator[str]:
        while not task.done():
            yield f"<!-- {done}/{total} -->"
            await asyncio.wait({task}, timeout=_EVERY)
        try:
            html = await _html(ask, template, task.result())
        except MemoryError as exc:
            why = problem_for(ask.principal, exc)[1]["detail"]
            html = render("parts/went_wrong.html", {"why": why})
        yield html

    task = parts.begin(ask.principal.key_id, run)
    await asyncio.wait({task}, timeout=min(_SOON, ask.server.settings.timeout / 2))
    if task.done():
        return HTMLResponse(await _html(ask, template, task.result()))
    return StreamingResponse(stream(), media_type="text/html")


async def _html(ask: Ask, template: str, data: Data) -> str:
    return await asyncio.to_thread(render, template, {**ask.common(), **data})
