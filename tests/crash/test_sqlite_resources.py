"""Opening, failing, forgetting, closing: descriptors and threads stay flat, nothing hangs."""

import asyncio
import gc
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash._faults import leaks_of, open_and_close
from tests.timing import HANG

from orbiter.memory import HumanMemory, SQLiteMemoryStore
from orbiter.memory.backends.sqlite.trigram_index import index_some
from orbiter.memory.errors import StorageError


async def test_opening_and_closing_leaks_nothing(tmp_path: Path) -> None:
    figures = await open_and_close(tmp_path / "m.db", times=80)

    assert figures.is_clean, figures
    assert figures.acknowledged == 80


async def test_failed_opens_leak_nothing_and_the_store_can_be_opened_later(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"junk" * 1000)
    store = SQLiteMemoryStore(path)
    for _ in range(50):
        with pytest.raises(StorageError):
            await store.init()
    assert await leaks_of(path) == []

    path.unlink()
    await store.init()

    await store.add(HumanMemory(content="x"))
    await store.close()
    assert await leaks_of(path) == []


async def test_a_store_nobody_closed_warns_and_lets_go_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    store = SQLiteMemoryStore(path)
    await store.init()
    await asyncio.gather(*(store.add(HumanMemory(content="x")) for _ in range(5)))
    await asyncio.gather(*(store.count() for _ in range(10)))

    with pytest.warns(ResourceWarning, match="m.db.*not closed") as told:  # noqa: PT031 - one act
        del store
        for _ in range(100):  # a thread that has just answered may still hold it
            gc.collect()
            if told:
                break
            await asyncio.sleep(0.01)

    assert await leaks_of(path) == []
    async with SQLiteMemoryStore(path) as again:
        assert await again.count() == 5


async def test_a_row_that_cannot_be_indexed_stops_no_writer(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with SQLiteMemoryStore(path) as store:
        await store.add(HumanMemory(id="a", content="x"))
        for content in ("x'00ff'", "CAST(x'ff41' AS TEXT)"):
            with closing(sqlite3.connect(path)) as other, other:
                other.execute(f"UPDATE memory_items SET content = {content} WHERE id = 'a'")
            await store.add_many([HumanMemory(content=f"text {n}") for n in range(300)])
            await asyncio.sleep(0.1)  # in which the writer does its chores

            await asyncio.wait_for(store.add(HumanMemory(id="b", content="y")), HANG)

            assert await store.get("b")
            assert len(await store.search(query="text 299", limit=9)) in (1, 2)


async def test_long_texts_are_indexed_a_few_at_a_time(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db", durability="normal") as store:
        with store._file.without_chores():
            await store.add_many([HumanMemory(content="x" * 50_000) for _ in range(20)])

            await store._file.read(index_some, writing=True)  # nobody else can write meanwhile

            assert (await store.stats()).unindexed >= 18


async def test_a_backup_ends_while_others_keep_writing(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db", durability="normal") as store:
        await store.add_many([HumanMemory(content="x" * 50_000) for _ in range(1_000)])
        done = asyncio.Event()

        async def write() -> int:
            count = 0
            while not done.is_set():
                await store.add(HumanMemory(id=f"w{count}", content="x"))
                count += 1
            return count

        writing = asyncio.create_task(write())
        try:
            await asyncio.wait_for(store.backup(tmp_path / "copy.db"), HANG)
        finally:
            done.set()
        written = await writing

        assert written > 5
        async with SQLiteMemoryStore(tmp_path / "copy.db") as copy:
            assert await copy.count() >= 1_000
            assert await copy.verify()


async def test_of_two_backups_to_one_name_one_succeeds_and_is_whole(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db", durability="normal") as store:
        await store.add_many([HumanMemory(content="x" * 50_000) for _ in range(120)])
        for number in range(2):
            target = tmp_path / f"copy{number}.db"

            ends = await asyncio.gather(
                store.backup(target), store.backup(target), return_exceptions=True
            )

            errors = [end for end in ends if end is not None]
            assert [type(error) for error in errors] == [StorageError], errors
            async with SQLiteMemoryStore(target) as copy:
                assert await copy.count() == 120
                assert await copy.verify()
        assert [each.name for each in tmp_path.glob("*.part*")] == []


async def test_closing_during_a_long_read_does_not_stop_the_event_loop(tmp_path: Path) -> None:
    store = SQLiteMemoryStore(tmp_path / "m.db")
    await store.init()
    await store.add_many([HumanMemory(content="x" * 50_000) for _ in range(200)])

    reading, go_on = threading.Event(), threading.Event()
    waited: list[bool] = []

    def dawdle(_: int, __: int) -> None:
        reading.set()
        waited.append(go_on.wait(30))

    backup = asyncio.create_task(store.backup(tmp_path / "copy.db", progress=dawdle))
    await asyncio.to_thread(reading.wait)
    # Only this event loop lets the reading go on, some time after the closing has begun.
    asyncio.get_running_loop().call_later(0.1, go_on.set)
    await store.close()
    await backup

    assert waited
    assert all(waited)
    assert await leaks_of(tmp_path / "m.db") == []
