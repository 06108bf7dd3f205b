"""How far a replica must be: as far as the primary was after our last write."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from orbiter.memory.backends.postgres.pool import PostgresOptions
from orbiter.memory.backends.postgres.replicas import Replicas


class _Primary:
    """Answers where its log is when the test says so, in any order, as two connections may."""

    options = PostgresOptions("postgresql://db/memory")

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[str]] = []
        self.released = asyncio.Event()

    @asynccontextmanager
    async def lease(self, _: object) -> AsyncIterator[object]:
        yield None
        await self.released.wait()

    async def do(self, *_: object) -> list[tuple[str]]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return [(await self.asked[-1],)]


async def test_an_answer_that_comes_late_does_not_stand_for_what_was_written_since() -> None:
    primary: Any = _Primary()
    replicas = Replicas(primary)
    replicas.wrote()
    early = asyncio.create_task(replicas._position_of(None))
    await asyncio.sleep(0)
    replicas.wrote()
    late = asyncio.create_task(replicas._position_of(None))
    await asyncio.sleep(0)

    primary.asked[1].set_result("0/20")
    await asyncio.sleep(0)
    primary.asked[0].set_result("0/10")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    primary.released.set()

    assert await late == "0/20"
    assert await early is not None
    assert await replicas._position_of(None) == "0/20"
