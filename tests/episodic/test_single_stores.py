"""What is true of one kind of store only: round trips, leftovers, and size."""

import asyncio
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.servers.databases import RedisServer
from tests.timing import HANG

from orbiter.memory import ShortTermMemoryManager
from orbiter.memory.backends.redis import connection
from orbiter.memory.errors import StorageError


async def test_a_write_and_a_read_are_one_round_trip_each(
    redis_server: RedisServer, agent_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[int] = []
    attempt = connection._Line.attempt

    async def counted(self: Any, commands: Any, *, may_block: bool) -> Any:
        trips.append(len(commands))
        return await attempt(self, commands, may_block=may_block)

    async with ShortTermMemoryManager(redis_server.url(), agent_id) as memory:
        await memory.add_interaction("note", "x")  # the server has seen both scripts now
        await memory.get_recent(limit=10)
        monkeypatch.setattr(connection._Line, "attempt", counted)

        await memory.add_interaction("note", "x")
        assert trips == [1]
        await memory.get_recent(limit=10)
        assert trips == [1, 1]
        await memory.get_recent_summaries()
        assert trips == [1, 1, 1]


async def test_a_server_that_is_away_is_asked_again_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted)
    memory = ShortTermMemoryManager("redis://127.0.0.1:1/0", deadline=1.0)

    with pytest.raises(ConnectionError):
        await memory.add_interaction("note", "x")

    assert 4 <= len(pauses) <= 12
    assert pauses[0] <= 0.02
    assert max(pauses) > 0.1
    assert len(set(pauses)) == len(pauses)


async def test_forgetting_everything_leaves_nothing_in_redis(
    redis_server: RedisServer, agent_id: str
) -> None:
    async with ShortTermMemoryManager(redis_server.url(), agent_id) as memory:
        for _ in range(3):
            await memory.add_interaction("note", "x")

        await memory.forget(everything=True)

    async with Redis.from_url(redis_server.url()) as redis:
        assert [key async for key in redis.scan_iter(f"agent:{agent_id}:*")] == []


@pytest.mark.parametrize("name", ["index", "expiry", "arrivals"])
async def test_a_foreign_type_in_the_way_is_told_and_nothing_is_written(
    redis_server: RedisServer, agent_id: str, name: str
) -> None:
    foreign = f"agent:{agent_id}:episodic:{name}"
    async with Redis.from_url(redis_server.url(), decode_responses=True) as redis:
        await redis.set(foreign, "someone else's", ex=60)
        async with ShortTermMemoryManager(redis_server.url(), agent_id) as memory:
            with pytest.raises(StorageError, match="WRONGTYPE"):
                await memory.add_interaction("note", "x")

        assert [key async for key in redis.scan_iter(f"agent:{agent_id}:*")] == [foreign]


async def test_few_connections_are_enough(redis_server: RedisServer, agent_id: str) -> None:
    url = f"{redis_server.url()}?max_connections=1"
    async with ShortTermMemoryManager(url, agent_id) as memory:
        await asyncio.gather(*(memory.add_interaction("note", str(n)) for n in range(200)))

        assert await memory.count() == 200


async def test_a_stream_goes_on_after_a_disconnect_and_leaves_no_connection(
    redis_server: RedisServer, agent_id: str
) -> None:
    async with Redis.from_url(redis_server.url()) as redis:
        before = len(await redis.client_list())
        memory = ShortTermMemoryManager(redis_server.url(), agent_id)
        first = await memory.add_interaction("note", "first")
        async with aclosing(memory.stream(since=first.timestamp)) as stream:
            assert await anext(stream) == first
            coming = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.1)
            await memory.disconnect()
            second = await memory.add_interaction("note", "second")
            assert await coming == second
        await memory.disconnect()

        assert len(await redis.client_list()) == before


async def test_a_file_keeps_no_room_for_the_dead(tmp_path: Path) -> None:
    path = tmp_path / "episodes.db"
    async with ShortTermMemoryManager(f"sqlite:///{path}") as memory:
        for _ in range(20):
            await memory.add_interaction("note", "short", ttl_hours=0.1 / 3600)
        await asyncio.sleep(0.2)

        await memory.add_interaction("note", "long")

    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM episodic_memories").fetchall() == [(1,)]


async def test_a_stream_in_the_process_goes_on_after_many_arrivals() -> None:
    memory = ShortTermMemoryManager("memory://many-arrivals")
    for _ in range(9_000):
        await memory.add_interaction("note", "before")

    async with asyncio.timeout(HANG), aclosing(memory.stream()) as stream:
        coming = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.1)
        await memory.add_interaction("note", "after")

        assert (await coming).content == "after"


async def test_memories_of_one_name_live_as_long_as_someone_has_them() -> None:
    first = ShortTermMemoryManager("memory://shared")
    await first.add_interaction("note", "x")
    second = ShortTermMemoryManager("memory://shared")
    assert await second.count() == 1
    assert await ShortTermMemoryManager("memory://other").count() == 0

    del first, second

    assert await ShortTermMemoryManager("memory://shared").count() == 0
