"""How far a replica must be: as far as the primary was after our last write."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.rows import each_row

from orbiter.memory.backends.postgres.pool import PostgresOptions, read_options
from orbiter.memory.backends.postgres.replicas import Replicas
from orbiter.memory.backends.urls import for_several_processes, redacted


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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("postgresql://u:p@h/db?replicas=a:1", ""),
        ("postgresql:///db?host=/run/pg&password=a@b&replicas=a:1", "&connect_timeout=2"),
        ("postgres://h/db?application_name=me@here&replicas=a:1", "#part"),
    ],
)
def test_several_processes_see_all_writes_however_the_address_is_written(
    before: str, after: str
) -> None:
    address = for_several_processes(before + after)

    assert (read_options(before + after).replica_sees, read_options(address).replica_sees) == (
        "own",
        "all",
    )
    assert read_options(address).dsn == read_options(before + after).dsn


@each_row(
    "address",
    [
        "postgresql://h/db?replicas=a:1&replica_sees=own",
        "postgresql://h/db",
        "sqlite:///memory.db?replicas=a:1",
        "redis://h/0?replicas=a:1",
        "postgresql://[h/db?replicas=a:1",
    ],
)
def test_an_address_that_decides_itself_or_has_no_replicas_stays_as_it_is(address: str) -> None:
    assert for_several_processes(address) == address


@pytest.mark.parametrize("address", ["postgresql:///restored", "postgresql:///a?host=/run/pg"])
def test_an_address_without_a_host_keeps_its_three_slashes(address: str) -> None:
    mark = "&" if "?" in address else "?"

    assert redacted(address) == address
    assert read_options(f"{address}{mark}partitions=4").dsn == address
    assert for_several_processes(f"{address}{mark}replicas=a:1").startswith(address)
