"""Many processes, threads, loops and forks on one file."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.crash._children import (
    ROOT,
    Child,
    append_until_killed,
    hold_lock,
    hold_snapshot,
    open_and_add,
)
from tests.crash._faults import leaks_of, write_from_processes
from tests.timing import HANG, scaled

from orbiter.memory import HumanMemory, MemoryMetadata, SQLiteMemoryStore, VersionConflict
from orbiter.memory.errors import MemoryTimeoutError


async def test_five_processes_of_twenty_writers_lose_no_write_and_count_every_upsert(
    tmp_path: Path,
) -> None:
    figures = await write_from_processes(tmp_path / "m.db", processes=5, writers=20, adds=5)

    assert figures.is_clean, figures
    assert figures.acknowledged == 500


async def test_processes_that_create_a_file_at_once_all_succeed(tmp_path: Path) -> None:
    for attempt in range(6):
        path = str(tmp_path / f"{attempt}.db")
        children = [Child(open_and_add, path, f"p{number}") for number in range(8)]
        assert [child.receive() for child in children] == ["ready"] * 8

        for child in children:
            child.pipe.send("go")

        assert [child.receive() for child in children] == [""] * 8
        for child in children:
            child.end()
        async with SQLiteMemoryStore(path) as store:
            assert await store.count() == 8
            assert await store.verify()


async def test_two_stores_on_one_file_keep_it_while_other_processes_come_and_go(
    tmp_path: Path,
) -> None:
    look = (
        "import asyncio, sys; from orbiter.memory import SQLiteMemoryStore\n"
        "async def main():\n"
        "    async with SQLiteMemoryStore(sys.argv[1]) as store:\n"
        "        print(await store.count())\n"
        "asyncio.run(main())"
    )
    path = tmp_path / "m.db"

    def seen_by_another() -> int:
        done = subprocess.run(
            [sys.executable, "-c", look, str(path)], capture_output=True, check=True, text=True
        )
        return int(done.stdout)

    async with SQLiteMemoryStore(path) as first, SQLiteMemoryStore(path) as second:
        await first.add(HumanMemory(content="one"))
        async with SQLiteMemoryStore(path) as third:
            assert await third.count() == 1
        assert await asyncio.to_thread(seen_by_another) == 1

        await second.add(HumanMemory(content="two"))

        assert await asyncio.to_thread(seen_by_another) == 2
        assert await first.count() == 2


async def test_a_write_waits_for_another_process_and_then_succeeds(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "m.db", busy_timeout=HANG) as store:
        holder = Child(hold_lock, store.db_path, HANG)
        assert holder.receive() == "locked"
        adding = asyncio.create_task(store.add(HumanMemory(content="x")))
        await asyncio.sleep(0.3)
        assert not adding.done()

        holder.pipe.send("go")
        await adding

        assert await store.count() == 1
        assert holder.rest() == ["free"]
        holder.end()


async def test_a_lock_held_too_long_is_an_error_that_names_the_cause(tmp_path: Path) -> None:
    patience = scaled(0.3)
    async with SQLiteMemoryStore(tmp_path / "m.db", busy_timeout=patience) as store:
        holder = Child(hold_lock, store.db_path, HANG)
        assert holder.receive() == "locked"

        with pytest.raises(
            MemoryTimeoutError, match=f"m.db.*locked by another process.*{patience:g} s"
        ):
            await store.add(HumanMemory(content="x"))

        assert await store.count() == 0  # reading goes on
        holder.pipe.send("go")
        holder.rest()
        holder.end()
        await store.add(HumanMemory(content="x"))
        assert await store.count() == 1


async def test_an_open_reader_blocks_no_writer_and_the_journal_shrinks_after_it(
    tmp_path: Path,
) -> None:
    # Not in the content, of which an index would have to be made.
    ballast = MemoryMetadata(extra={"ballast": "x" * 100_000})
    async with SQLiteMemoryStore(tmp_path / "m.db", durability="normal") as store:
        await store.add(HumanMemory(content="x"))
        reader = Child(hold_snapshot, store.db_path)
        assert reader.receive() == "reading"
        journal = Path(f"{store.db_path}-wal")

        for _ in range(24):
            await store.add_many([HumanMemory(content="x", metadata=ballast) for _ in range(10)])
        grown = journal.stat().st_size
        reader.pipe.send("go")
        reader.rest()
        reader.end()
        for _ in range(3):
            await store.add(HumanMemory(content="x"))

        assert grown > 20 * 2**20
        assert journal.stat().st_size <= 16 * 2**20
        await store.optimize()
        assert journal.stat().st_size == 0


async def test_an_append_is_there_once_and_in_the_order_every_reader_saw(tmp_path: Path) -> None:
    path = str(tmp_path / "m.db")
    said = []

    for generation in range(3):
        children = [Child(append_until_killed, path, f"{generation}{letter}", 3) for letter in "ab"]
        said += [children[0].receive() for _ in range(60 * (generation + 1))]
        children[0].kill()
        said += [children[1].receive() for _ in range(30)]
        children[1].kill()
        for child in children:
            said += child.rest()
            child.end()

    async with SQLiteMemoryStore(path) as store:
        item = await store.get("list")
        assert item is not None
        final = item.metadata.extra["values"]
        assert item.version == len(final)
        assert len(await store.history("list")) == len(final)
    appended = [words[1] for words in said if words[0] == "ok"]
    assert len(appended) > 30
    assert len(set(final)) == len(final)
    assert set(appended) <= set(final)
    seen: dict[str, list[str]] = {}
    for words in said:
        if words[0] == "seen":
            assert words[2] == final[: len(words[2])]
            assert len(words[2]) >= len(seen.get(words[1], []))
            seen[words[1]] = words[2]


async def test_upserts_through_two_stores_each_count_and_a_conflict_writes_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"
    async with SQLiteMemoryStore(path) as one, SQLiteMemoryStore(path) as two:
        await one.add(HumanMemory(id="a", content="x"))

        await asyncio.gather(
            *(each.add(HumanMemory(id="a", content="x")) for each in (one, two) * 30)
        )

        found = await two.get("a")
        assert found is not None
        assert found.version == 61
        ends = await asyncio.gather(
            *(
                each.add(HumanMemory(id="a", content=str(n)), expected_version=61)
                for n, each in enumerate((one, two) * 10)
            ),
            return_exceptions=True,
        )
        winners = [str(n) for n, end in enumerate(ends) if end is None]
        after = await one.get("a")
        assert after is not None
        assert [after.content] == winners
        assert after.version == 62
        assert sum(isinstance(end, VersionConflict) for end in ends) == 19
        assert len(await one.history("a")) == 62


def test_a_store_made_in_one_loop_works_in_another(tmp_path: Path) -> None:
    store = SQLiteMemoryStore(tmp_path / "m.db")
    asyncio.run(store.init())
    for number in range(3):
        asyncio.run(store.add(HumanMemory(id=f"i{number}", content="x")))

    assert asyncio.run(store.count()) == 3
    asyncio.run(store.close())


def test_threads_with_loops_of_their_own_share_a_store(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    for attempt in range(5):
        store = SQLiteMemoryStore(path)
        start = threading.Barrier(8)
        errors: list[BaseException] = []

        async def work(name: str, store: SQLiteMemoryStore = store) -> None:
            await store.init()
            for number in range(5):
                await store.add(HumanMemory(id=f"{name}-{number}", content="x"))
            assert await store.get(f"{name}-4")

        def run(
            name: str,
            start: threading.Barrier = start,
            errors: list[BaseException] = errors,
        ) -> None:
            start.wait()
            try:
                asyncio.run(work(name))
            except BaseException as exc:  # noqa: BLE001 - looked at below
                errors.append(exc)

        threads = [threading.Thread(target=run, args=(f"{attempt}-{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert errors == []
        assert asyncio.run(store.count()) == 40 * (attempt + 1)
        asyncio.run(store.close())
        assert asyncio.run(leaks_of(path)) == []


FORK = """
import asyncio, os, sys, threading, time
from orbiter.memory import HumanMemory, SQLiteMemoryStore

path, how = sys.argv[1:]
store = SQLiteMemoryStore(path, busy_timeout=3)
asyncio.run(store.init())
asyncio.run(store.add(HumanMemory(id="before", content="x")))
asyncio.run(store.count())
gate, go = os.pipe()
go_on, told = os.pipe()
if how == "while writing":
    async def busy():
        is_writing = threading.Event()
        def write(connection):
            connection.execute("UPDATE memory_items SET content = 'y'")
            is_writing.set()
            time.sleep(0.5)
        task = asyncio.ensure_future(store._file.write(write))
        while not is_writing.is_set():
            await asyncio.sleep(0.01)
        return task, fork()
def fork():
    child = os.fork()
    if not child:
        try:
            os.close(go)
            os.close(go_on)
            if how == "closed in the parent":
                asyncio.run(store.add(HumanMemory(id="early", content="x")))
                os.write(told, b".")
                os.read(gate, 1)
            for number in range(20):
                asyncio.run(store.add(HumanMemory(id=f"child{number}", content="x")))
            assert asyncio.run(store.get("before")) is not None
            os.write(told, b".")
            os.read(gate, 1)
            if how != "child does not close":
                asyncio.run(store.close())
        except BaseException as exc:
            print("child:", repr(exc), flush=True)
            os._exit(1)
        os._exit(0)
    os.close(gate)
    os.close(told)
    return child
if how == "while writing":
    async def main():
        task, child = await busy()
        await task
        return child
    child = asyncio.run(main())
else:
    child = fork()
if how == "closed in the parent":
    os.read(go_on, 1)
    asyncio.run(store.close())
    os.write(go, b".")
    assert os.read(go_on, 1)
    # Someone who comes and goes meanwhile must not take the child's journal away.
    async def visit():
        async with SQLiteMemoryStore(path) as visitor:
            await visitor.count()
    asyncio.run(visit())
else:
    for number in range(20):
        asyncio.run(store.add(HumanMemory(id=f"parent{number}", content="x")))
    os.read(go_on, 1)
os.close(go)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "child failed"
if how != "closed in the parent":
    asyncio.run(store.close())
"""


@pytest.mark.parametrize(
    "how",
    [
        "idle",
        "child does not close",
        "closed in the parent",
        "while writing",
    ],
)
async def test_after_a_fork_parent_and_child_both_read_and_write(tmp_path: Path, how: str) -> None:
    path = str(tmp_path / "m.db")
    # Python warns of what is under test: a fork while threads are running.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, path, how]

    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    async with SQLiteMemoryStore(path) as store:
        names = ["before", *(f"child{number}" for number in range(20))]
        if how != "closed in the parent":
            names += [f"parent{number}" for number in range(20)]
        assert [name for name in names if await store.get(name) is None] == []
        assert await store.verify()
