"""A store is moved to any other kind, exactly; killed midway, the move is made again."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.servers.databases import (
    PostgresServer,
    RedisServer,
    postgres_server,
    redis_server,
)
from tests.transfer._moving import everything, fill, lines

from orbiter.memory import (
    HumanMemory,
    MemoryMetadata,
    PostgresMemoryStore,
    RedisMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.errors import QueryError, StorageError
from orbiter.memory.transfer._migrate import migrate

__all__ = ["postgres_server", "redis_server"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def databases(postgres_server: PostgresServer) -> Iterator[list[str]]:
    made = [postgres_server.create_database() for _ in range(2)]
    yield made
    for dsn in made:
        postgres_server.drop_database(dsn)


async def test_everything_goes_to_postgres_and_comes_back_byte_for_byte(
    databases: list[str], tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    async with SQLiteMemoryStore(tmp_path / "a.db") as store:
        await fill(store, 2_000)
        before = await lines(store)

    out = await migrate(
        f"sqlite:///{tmp_path}/a.db", databases[0], progress=lambda *n: told.append(n)
    )
    back = await migrate(databases[0], f"sqlite:///{tmp_path}/b.db")

    assert out
    assert back
    assert (out.copied, out.already_there, out.left_out, out.checked) == (2_000, 0, 0, 2_000)
    assert out.source_digest == back.target_digest
    assert told[-1] == (4_000, 4_000)
    assert told == sorted(told)
    async with SQLiteMemoryStore(tmp_path / "b.db") as store:
        assert await lines(store) == before
        assert await store.verify()


async def test_a_move_takes_its_place_beside_what_is_there(tmp_path: Path) -> None:
    ann, bob = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
    async with SQLiteMemoryStore(tmp_path / "a.db") as store:
        for who in (ann, bob, ann):
            await store.add(HumanMemory(content="moves", metadata=who))
    async with SQLiteMemoryStore(tmp_path / "b.db") as store:
        await store.add(HumanMemory(content="was here", metadata=ann))

    moved = await migrate(f"{tmp_path}/a.db", f"{tmp_path}/b.db", scope=ann)
    again = await migrate(f"{tmp_path}/a.db", f"{tmp_path}/b.db", scope=ann)

    assert moved
    assert again
    assert (again.copied, again.already_there) == (0, 2)
    assert (moved.copied, moved.checked) == (2, 2)
    async with SQLiteMemoryStore(tmp_path / "b.db") as store:
        assert [record.item.content for record in await everything(store)] == [
            "was here",
            "moves",
            "moves",
        ]


async def test_redis_takes_what_it_can_keep_and_gives_it_back(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    url = redis_server.url(11)
    async with SQLiteMemoryStore(tmp_path / "a.db") as store:
        await fill(store, 100)
        live = await store.search(limit=1000)
    async with RedisMemoryStore(url) as redis:
        await redis.clear()

    out = await migrate(f"{tmp_path}/a.db", url)
    back = await migrate(url, f"{tmp_path}/b.db")

    assert out
    assert back
    assert (out.copied, out.left_out) == (len(live), 100 - len(live))
    async with SQLiteMemoryStore(tmp_path / "b.db") as store:
        assert await store.search(limit=1000) == live
    async with RedisMemoryStore(url) as redis:
        await redis.clear()


async def test_a_move_that_is_not_exact_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteMemoryStore(tmp_path / "a.db") as store:
        await fill(store, 20)
    whole = SQLiteMemoryStore.put_records
    for spoil in (
        lambda records: records[1:],
        lambda records: [record.present for record in records],
    ):

        async def put(self: SQLiteMemoryStore, records: list[object], **more: object) -> int:
            await whole(self, spoil(records), **more)  # type: ignore[arg-type]  # noqa: B023
            return len(records)

        monkeypatch.setattr(SQLiteMemoryStore, "put_records", put)
        assert not await migrate(f"{tmp_path}/a.db", f"{tmp_path}/b.db")

    monkeypatch.undo()
    assert await migrate(f"{tmp_path}/a.db", f"{tmp_path}/b.db")


async def test_moves_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "a.db"):
        pass
    (tmp_path / "same.db").symlink_to(tmp_path / "a.db")

    for target in (f"{tmp_path}/a.db", f"sqlite:///{tmp_path}/a.db", f"{tmp_path}/same.db"):
        with pytest.raises(QueryError, match="one store"):
            await migrate(f"{tmp_path}/a.db", target)
    with pytest.raises(QueryError, match="one store"):
        await migrate("postgres://me:x@localhost/a", "postgresql://me@127.0.0.1:5432/a")
    for urls in (("memory://", f"{tmp_path}/b.db"), (f"{tmp_path}/a.db", "memory://")):
        with pytest.raises(QueryError, match="gone with this process"):
            await migrate(*urls)
    with pytest.raises(StorageError, match="there is no"):
        await migrate(f"{tmp_path}/typo.db", f"{tmp_path}/b.db")
    assert not (tmp_path / "typo.db").exists()
    assert not (tmp_path / "b.db").exists()


CHILD = """
import asyncio, sys
from orbiter.memory.transfer import _migrate
_migrate.BATCH = 50
def tell(done, total):
    print(done, flush=True)
    if done >= int(sys.argv[3]):
        sys.stdin.read()
asyncio.run(_migrate.migrate(sys.argv[1], sys.argv[2], progress=tell))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_killed_move_is_made_again_and_nothing_is_doubled(
    databases: list[str], tmp_path: Path, kind: str
) -> None:
    source = tmp_path / "a.db"
    target = databases[1] if kind == "postgres" else str(tmp_path / "b.db")
    async with SQLiteMemoryStore(source) as store:
        await fill(store, 300)
        before = await lines(store)

    _die_at(250, str(source), target)
    moved = await migrate(str(source), target)

    assert moved
    assert moved.already_there >= 250
    assert moved.copied >= 1
    assert moved.copied + moved.already_there == 300
    opened = PostgresMemoryStore(target) if kind == "postgres" else SQLiteMemoryStore(target)
    async with opened as store:
        assert await lines(store) == before
        assert await store.verify()
    if kind == "sqlite":
        with closing(sqlite3.connect(source)) as a, closing(sqlite3.connect(target)) as b:
            count = "SELECT count(*) FROM memory_versions"
            assert a.execute(count).fetchone() == b.execute(count).fetchone()


def _die_at(reached: int, *urls: str) -> None:
    """Move in a process that is killed when so many records are done."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *urls, str(reached)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= reached:
            os.kill(child.pid, signal.SIGKILL)
            break
    assert child.wait() == -signal.SIGKILL
    child.communicate()
