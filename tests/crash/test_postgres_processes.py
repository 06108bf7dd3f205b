"""Many processes, event loops and forks on one database: each works, or is told why not."""

import asyncio
import itertools
import subprocess
import sys
import textwrap
from typing import Any

import asyncpg
import pytest
from tests.crash._children import Child
from tests.crash._postgres_children import count_up, open_and_add
from tests.timing import HANG

from orbiter.memory import HumanMemory, PostgresMemoryStore
from orbiter.memory.backends.postgres import schema
from orbiter.memory.errors import StorageError


async def ask(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


def together(work: Any, *arguments: tuple[Any, ...]) -> list[Any]:
    """Run *work* once for each of *arguments*, all from the same moment; return what they say."""
    children = [Child(work, *each) for each in arguments]
    for child in children:
        assert child.receive() == "ready"
    for child in children:
        child.pipe.send("go")
    said = [child.receive() for child in children]
    assert [child.end() for child in children] == [0] * len(children)
    return said


@pytest.mark.parametrize("partitions", [None, 4])
async def test_six_processes_may_make_the_tables_at_once(
    postgres_dsn: str, partitions: int | None
) -> None:
    work = [(postgres_dsn, f"p{n}", partitions) for n in range(6)]

    said = await asyncio.to_thread(together, open_and_add, *work)

    assert said == [""] * 6
    newest = 1 + len(schema.MIGRATIONS)
    assert await ask(postgres_dsn, "SELECT version FROM memory_schema") == [(newest,)]
    assert await ask(postgres_dsn, "SELECT count(*), max(version) FROM memory_items") == [(6, 1)]


@pytest.mark.parametrize("partitions", [None, 4])
async def test_two_processes_count_exactly_by_expected_versions(
    postgres_dsn: str, partitions: int | None
) -> None:
    store = PostgresMemoryStore(postgres_dsn)
    await store.init(partitions=partitions)

    said = await asyncio.to_thread(together, count_up, (postgres_dsn, 4, 8), (postgres_dsn, 4, 8))

    added = sorted(value for each in said for value in each)
    shared, upserts = await store.get("shared"), await store.get("upserts")
    assert len(added) == 64
    assert shared is not None
    assert upserts is not None
    assert sorted(shared.metadata.extra["values"]) == added
    assert (shared.version, upserts.version) == (64, 64)
    # What a version added to the list, the next one kept.
    lists = [each.item.metadata.extra["values"] for each in await store.history("shared")]
    assert all(new[:-1] == old for old, new in itertools.pairwise(lists))
    await store.close()


def test_a_store_opened_in_a_loop_that_is_gone_says_so_and_can_be_opened_again(
    postgres_server: Any,
) -> None:
    dsn = postgres_server.create_database()
    store = PostgresMemoryStore(dsn)
    with asyncio.Runner() as first:
        first.run(store.init())
        with asyncio.Runner() as second:
            with pytest.raises(StorageError, match="another process or event loop"):
                second.run(store.add(HumanMemory(content="one")))
            with pytest.raises(StorageError, match="another process or event loop"):
                second.run(store.search())

            second.run(store.init())
            second.run(store.add(HumanMemory(content="one")))
            second.run(store.close())
        first.run(asyncio.sleep(0.05))

    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    assert asyncio.run(ask(dsn, f"{others} AND pid <> pg_backend_pid()")) == [(0,)]
    postgres_server.drop_database(dsn)


async def test_a_store_used_from_another_thread_says_so_at_once(postgres_dsn: str) -> None:
    async with PostgresMemoryStore(postgres_dsn) as store:
        elsewhere = asyncio.to_thread(lambda: asyncio.run(store.count()))

        with pytest.raises(StorageError, match="make a store in this one"):
            await asyncio.wait_for(elsewhere, HANG)

        assert await store.count() == 0


async def test_a_pool_of_another_loop_is_refused_at_once(postgres_dsn: str) -> None:
    pool = await asyncpg.create_pool(postgres_dsn, min_size=1)

    def elsewhere() -> None:
        asyncio.run(PostgresMemoryStore(pool=pool).init())

    with pytest.raises(StorageError, match="event loop"):
        await asyncio.wait_for(asyncio.to_thread(elsewhere), HANG)

    assert await pool.fetchval("SELECT 1") == 1
    await pool.close()


_FORK = """
import asyncio, os, sys
from orbiter.memory import HumanMemory, PostgresMemoryStore
from orbiter.memory.errors import StorageError

store = PostgresMemoryStore(sys.argv[1], statement_timeout=30)

async def in_child():
    try:
        await store.add(HumanMemory(id="lost", content="one"))
    except StorageError as error:
        print("child:", "another process" in str(error))
    await store.close()
    await store.init()
    await store.add(HumanMemory(id="child", content="one"))
    await store.close()

async def main():
    await store.init()
    await store.add(HumanMemory(id="before", content="one"))
    pid = os.fork()
    if pid == 0:
        # A forked process has this loop still running; it starts afresh in a thread.
        import threading
        thread = threading.Thread(target=lambda: asyncio.run(in_child()))
        thread.start()
        thread.join()
        sys.stdout.flush()
        os._exit(0)
    await asyncio.to_thread(os.waitpid, pid, 0)
    for n in range(20):
        await store.add(HumanMemory(id=f"parent {n}", content="one"))
    print("parent:", await store.count())
    await store.close()

asyncio.run(main())
"""


async def test_a_fork_leaves_the_parents_connections_alone(postgres_dsn: str) -> None:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(_FORK), postgres_dsn]

    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=90, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["child: True", "parent: 22"]
