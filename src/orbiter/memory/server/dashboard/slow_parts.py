"""Parts of pages that take long, as reading or erasing everything does.

What is soon done is answered with its part. For the rest the answer is a bar, which asks for itself
again until the part is there in its place. What goes wrong by then can be no status any more; it is
told in the part.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from starlette.responses import HTMLResponse, Response

from orbiter.memory.auth import Principal
from orbiter.memory.errors import MemoryError
from orbiter.memory.server.dashboard.page import Ask, Data, Pages
from orbiter.memory.server.dashboard.templating import render
from orbiter.memory.server.http.error_responses import HTTPProblem, problem_for
from orbiter.memory.server.http.worker_link import Alone
from orbiter.memory.tasks.progress import Tracker, track

__all__ = ["SlowParts", "pages", "slow_part"]

pages = Pages()

_SOON = 1.0
"""Seconds to wait for the part itself, before a bar is shown."""

_MAX_WORKS = 16
"""Works of one key that are under way, or whose part nobody has asked for yet."""

_GONE = (
    "the server was restarted in the meantime; a running erasure resumes, and Data shows its "
    "progress"
)


@dataclass(eq=False)
class SlowPart:
    """What is done for one part of a page."""

    principal: Principal
    template: str
    common: Data
    task: "asyncio.Task[Data]"
    done: int = 0
    total: int = 0
    id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def owner(self) -> str | None:
        """The id of the key that asked."""
        return self.principal.key_id


class SlowParts:
    """All that is under way for pages; `app.state.works`."""

    def __init__(self, link: Alone) -> None:
        self.by_id: dict[str, SlowPart] = {}
        self._link = link
        link.on("slow part", self._answer_other)

    async def elsewhere(self, work_id: str, owner: str | None) -> str | None:
        """Return the part, or the bar, that another worker of this server has for it."""
        parts = await self._link.ask("slow part", {"work": work_id, "owner": owner})
        return str(parts[0]) if parts else None

    async def _answer_other(self, body: dict[str, str | None]) -> str | None:
        work = self.by_id.get(str(body["work"]))
        if work is None or work.owner != body["owner"]:
            return None
        return await _html(self, work)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End everything with the server."""
        try:
            yield
        finally:
            tasks = [work.task for work in self.by_id.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, ask: Ask, template: str, work: Callable[[], Awaitable[Data]]) -> SlowPart:
        """Begin *work*; `HTTPProblem` if the key has too much of it."""
        owner = ask.principal.key_id
        own = [each for each in self.by_id.values() if each.owner == owner]
        over = [each for each in own if each.task.done()]
        if len(own) >= _MAX_WORKS:
            if not over:
                raise HTTPProblem(429, "too many tasks are running; wait until one ends")
            del self.by_id[over[0].id]
        common: Data = {
            "scope": ask.scope,
            "may_write": ask.may("write"),
            "may_admin": ask.may("admin"),
        }
        made: SlowPart

        def advance(done: int, total: int) -> None:
            made.done, made.total = done, total

        async def run() -> Data:
            with track(Tracker(advance)):
                return await work()

        made = SlowPart(ask.principal, template, common, asyncio.ensure_future(run()))
        self.by_id[made.id] = made
        return made


async def slow_part(ask: Ask, template: str, work: Callable[[], Awaitable[Data]]) -> Response:
    """Return *template*, made of what *work* gives, or a bar until that is there."""
    works: SlowParts = ask.request.app.state.works
    return await _answer(ask, works, works.begin(ask, template, work))


async def _answer(ask: Ask, works: SlowParts, work: SlowPart) -> Response:
    await asyncio.wait({work.task}, timeout=min(_SOON, ask.server.settings.timeout / 2))
    return HTMLResponse(await _html(works, work))


async def _html(works: SlowParts, work: SlowPart) -> str:
    if not work.task.done():
        bar: Data = {"work": work.id, "done": work.done, "total": work.total}
        return render("parts/progress.html", {**work.common, **bar})
    works.by_id.pop(work.id, None)
    try:
        data = work.task.result()
    except MemoryError as exc:
        why = problem_for(work.principal, exc)[1]["detail"]
        return render("parts/went_wrong.html", {**work.common, "why": why})
    return await asyncio.to_thread(render, work.template, {**work.common, **data})


@pages.part("GET", "/ui/progress/{work}")
async def progress(ask: Ask) -> Response:
    """Show how far something is, or what became of it."""
    works: SlowParts = ask.request.app.state.works
    work = works.by_id.get(ask.request.path_params["work"])
    if work is None or work.owner != ask.principal.key_id:
        text = await works.elsewhere(ask.request.path_params["work"], ask.principal.key_id)
        return HTMLResponse(text or render("parts/went_wrong.html", {"why": _GONE}))
    return await _answer(ask, works, work)
