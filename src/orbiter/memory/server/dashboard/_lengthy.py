"""Parts of pages that take long, as reading or erasing everything does.

The answer begins at once, so that no limit of time ends the work, and its end is the part: what
htmx puts in the page. What goes wrong by then can be no status any more; it is told in the part.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.responses import Response, StreamingResponse

from orbiter.memory.errors import MemoryError
from orbiter.memory.server._hiding import problem_for
from orbiter.memory.server.dashboard._pages import Ask, Data
from orbiter.memory.server.dashboard._render import render

__all__ = ["lengthy"]

_PULSE = 5.0
"""Seconds between two signs of life, so that nothing between here and the browser gives up."""


def lengthy(ask: Ask, template: str, work: Callable[[], Awaitable[Data]]) -> Response:
    """Return the answer that ends with *template*, made of what *work* gives in the end."""
    common: Data = {
        "scope": ask.scope,
        "may_write": ask.may("write"),
        "may_admin": ask.may("admin"),
    }

    async def told() -> AsyncIterator[str]:
        yield "\n"
        task = asyncio.ensure_future(work())
        try:
            while not (await asyncio.wait({task}, timeout=_PULSE))[0]:
                yield "\n"
            yield render(template, {**common, **task.result()})
        except MemoryError as exc:
            why = problem_for(ask.principal, exc)[1]["detail"]
            yield render("parts/went_wrong.html", {**common, "why": why})
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return StreamingResponse(told(), media_type="text/html")
