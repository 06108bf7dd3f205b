"""The supervisor of workers: who begins when, and what is left of a worker that ended."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.timing import until

from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.supervisor import Supervisor

# A worker that waits for the only place there is, holds it from then on, and counts that.
_WORKER = """
import asyncio, os
from orbiter.memory.server.http.worker_link import join_supervisor

async def main():
    link, got = join_supervisor(), []
    await link.connect()
    link.ready({"pid": os.getpid()})
    link.start(lambda: {"places": len(got)})
    while not link.limits.take("place", 1):
        await asyncio.sleep(0.02)
    got.append("place")
    await asyncio.Event().wait()

asyncio.run(main())
"""


class _Watched(Supervisor):
    """One that notes how many workers there are whenever another begins."""

    most = 0

    async def _begin(self) -> Any:
        worker = await super()._begin()
        self.most = max(self.most, len(self._workers))
        return worker


@asynccontextmanager
async def _supervised(workers: int) -> AsyncIterator[_Watched]:
    supervisor = _Watched(
        Settings(port=0, drain=0.1), workers=workers, command=[sys.executable, "-c", _WORKER]
    )
    try:
        await supervisor.start()
        yield supervisor
    finally:
        await supervisor.stop()


def _served_by(supervisor: Supervisor, count: int) -> set[int]:
    """Return the processes of *count* workers, once those and no others are there."""
    there = supervisor._workers
    serving = {each.process.pid for each in there if each.serves}
    return serving if len(serving) == len(there) == count else set()


def _held(supervisor: Supervisor) -> float:
    return sum((each.counts or {}).get("places", 0) for each in supervisor._workers)


async def test_a_reload_replaces_one_worker_after_the_other() -> None:
    async with _supervised(3) as supervisor:
        await until(lambda: _served_by(supervisor, 3), "the start of all workers")
        before = _served_by(supervisor, 3)

        supervisor.reload()
        await until(
            lambda: (now := _served_by(supervisor, 3)) and not now & before, "the replacement"
        )

        assert supervisor.most == 4, "there is one more worker at a time, not twice as many"


async def test_what_a_worker_held_is_free_once_it_has_ended() -> None:
    async with _supervised(1) as supervisor:
        await until(lambda: _held(supervisor), "the first worker takes the place")
        before = _served_by(supervisor, 1)

        supervisor.reload()  # the next one has another column, and the old one gives nothing back
        await until(
            lambda: (now := _served_by(supervisor, 1)) and not now & before, "the replacement"
        )

        await until(lambda: _held(supervisor), "the next worker takes the place")
