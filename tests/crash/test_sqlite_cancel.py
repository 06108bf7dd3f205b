"""Tasks cancelled at any moment: whole or absent, no lock left, nothing hung, nothing leaked."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.crash._children import Child, hold_lock, take_lock
from tests.crash._faults import cancel_writes, leaks_of
from tests.timing import HANG

from orbiter.memory import HumanMemory, SQLiteMemoryStore
from orbiter.memory.errors import MemoryTimeoutError


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(tmp_path / "m.db") as store:
        yield store


async def test_a_storm_of_cancelled_writes_leaves_no_lock_and_loses_nothing(
    tmp_path: Path,
) -> None:
    figures = await cancel_writes(tmp_path / "m.db", random.Random(4), storms=200)

    assert figures.is_clean, figures
    assert figures.cycles == 600
    assert figures.acknowledged >= 400


async def test_a_write_cancelled_while_it_waits_for_the_lock_leaves_none(
    store: SQLiteMemoryStore,
) -> None:
    for number in range(5):
        holder = Child(hold_lock, store.db_path, 30)
        assert holder.receive() == "locked"
        tasks = [
            asyncio.create_task(store.add(HumanMemory(id=f"{number}-{n}", content="x")))
            for n in range(3)
        ]
        await asyncio.sleep(0.05)
        for task in tasks[:2]:
            task.cancel()
        await asyncio.wait(tasks[:2])
        holder.pipe.send("go")

        await tasks[2]

        assert holder.rest() == ["free"]
        holder.end()
        assert await store.get(f"{number}-2")
        asker = Child(take_lock, store.db_path, 1)
        asker.pipe.send("try")
        assert asker.receive() is True
        asker.end()


async def test_a_cancelled_init_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    for number in range(50):
        store = SQLiteMemoryStore(path)
        task = asyncio.create_task(store.init())
        for _ in range(number % 5):
            await asyncio.sleep(0.0005 * (number % 3))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()

    assert await leaks_of(path) == []
    async with SQLiteMemoryStore(path) as store:
        assert await store.count() == 0


async def test_a_cancelled_second_init_does_not_close_the_store_for_others(
    store: SQLiteMemoryStore,
) -> None:
    task = asyncio.create_task(store.init())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    await store.add(HumanMemory(id="a", content="x"))

    assert await store.get("a")


async def test_of_several_inits_at_once_those_not_cancelled_succeed(tmp_path: Path) -> None:
    for cancelled in range(3):
        store = SQLiteMemoryStore(tmp_path / f"{cancelled}.db")
        tasks = [asyncio.create_task(store.init()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[cancelled].cancel()

        ends = await asyncio.gather(*tasks, return_exceptions=True)

        assert [end for end in ends if end is not None] == [ends[cancelled]]
        await store.add(HumanMemory(content="x"))
        await store.close()
        assert await leaks_of(tmp_path / f"{cancelled}.db") == []


async def test_a_cancelled_close_still_closes(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    for number in range(20):
        store = SQLiteMemoryStore(path)
        await store.init()
        await store.add(HumanMemory(id=f"i{number}", content="x"))
        await store.count()
        task = asyncio.create_task(store.close())
        for _ in range(number % 4):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()

        assert await leaks_of(path) == []

    async with SQLiteMemoryStore(path) as store:
        assert await store.count() == 20


async def test_every_write_in_a_group_gives_up_after_one_busy_timeout(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db", busy_timeout=0.3) as store:
        holder = Child(hold_lock, store.db_path, 600)
        assert holder.receive() == "locked"
        first = asyncio.create_task(store.add(HumanMemory(content="first")))
        await asyncio.sleep(0.05)  # the others wait behind it, as one group

        # One after another they would take more than twice as long as they may.
        async with asyncio.timeout(HANG):
            ends = await asyncio.gather(
                *(store.add(HumanMemory(content="x")) for _ in range(500)), return_exceptions=True
            )

        assert {type(end) for end in ends} == {MemoryTimeoutError}
        assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], TimeoutError)
        holder.pipe.send("go")
        assert holder.rest() == ["free"]
        holder.end()
        await store.add(HumanMemory(content="after"))
        assert await store.count() == 1
