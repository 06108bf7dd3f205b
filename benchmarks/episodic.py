"""Episodes in Redis: writing, reading the newest, room, and growth, against plain redis-py.

python -m benchmarks.episodic [--full]

*naive* is what a reader of the specification would write: SET, ZADD and EXPIRE one after the
other, and for the newest ten all that is within the hours, cut at the end. *raw* is our own
script called with finished arguments. `--full` goes up to a million memories, with 1 GB of room.
"""

import argparse
import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks._async_timing import Rounds, Work, in_turns
from benchmarks._timing import Table, duration, exit_code
from pydantic import BaseModel, Field
from redis.asyncio import Redis
from tests.servers.databases import RedisServer

from orbiter.memory.episodic import EpisodicMemory
from orbiter.memory.episodic.manager import ShortTermMemoryManager
from orbiter.memory.episodic.protocol import Episode
from orbiter.memory.episodic.redis import _PUT, RedisEpisodes

NAIVE, RAW, PIPELINED, OURS = "naive redis-py", "raw script", "raw script, pipelined", "ours"
AGENTS = "openai-agents `get_items`"
CONTENT = "Just shipped a new AI feature! " * 7
WRITES, WRITE_ROUNDS = 200, 15
WRITERS, EACH, CONCURRENT_ROUNDS = 64, 12, 15
READS, READ_ROUNDS = 20, 9
LIMIT = 10
ONE_BAR, CONCURRENT_BAR, READ_BAR, BYTES_BAR, GROWTH_BAR = 1.6, 5.0, 100.0, 1024, 2.0

Call = Callable[[], Awaitable[object]]


class _Interaction(BaseModel):
    interaction_type: str
    content: str
    platform: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Naive:
    """Short-term memory in a dozen lines of redis-py."""

    index = "agent:naive:episodic:index"

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def add(self) -> None:
        new = _Interaction(interaction_type="posted_tweet", content=CONTENT[:200], platform="x")
        key = f"agent:naive:episodic:{new.timestamp.isoformat()}"
        await self._redis.set(key, new.model_dump_json(), ex=7200)
        await self._redis.zadd(self.index, {key: new.timestamp.timestamp()})
        await self._redis.expire(self.index, 7200)

    async def newest(self) -> list[_Interaction]:
        since = (datetime.now(UTC) - timedelta(hours=2)).timestamp()
        keys: Any = await self._redis.zrevrangebyscore(self.index, "+inf", since)
        bodies = await self._redis.mget(keys)
        return [_Interaction.model_validate_json(body) for body in bodies if body][:LIMIT]


class Raw:
    """The script alone: neither model nor error handling."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._keys = [f"agent:raw:episodic:{name}" for name in ("index", "expiry", "arrivals")]
        self._numbers = itertools.count(1)
        self._body = _memory().model_dump_json()

    def _args(self) -> tuple[Any, ...]:
        number = next(self._numbers)
        moment = f"2026-01-01T00:00:00.{number % 10**6:06d}+00:00-{number:016x}"
        return _PUT.digest, 3, *self._keys, f"{moment} {number}.000001 7200000 {self._body}"

    async def teach(self) -> None:
        await self._redis.script_load(_PUT.source)

    async def add(self) -> None:
        await self._redis.evalsha(*self._args())

    async def add_many(self, count: int) -> None:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for _ in range(count):
                pipeline.evalsha(*self._args())
            await pipeline.execute()


def _memory(at: datetime | None = None) -> EpisodicMemory:
    moment = {} if at is None else {"timestamp": at}
    return EpisodicMemory(
        interaction_type="posted_tweet", content=CONTENT[:200], platform="x", **moment
    )


@asynccontextmanager
async def contenders(url: str) -> AsyncIterator[tuple[Naive, Raw, ShortTermMemoryManager]]:
    async with Redis.from_url(url) as redis, ShortTermMemoryManager(url) as ours:
        raw = Raw(redis)
        await raw.teach()
        yield Naive(redis), raw, ours


def _often(call: Call, count: int) -> Callable[[int], Work]:
    async def work() -> None:
        for _ in range(count):
            await call()

    return lambda _: work


def _at_once(call: Call) -> Callable[[int], Work]:
    writer = _often(call, EACH)

    async def work() -> None:
        await asyncio.gather(*(writer(0)() for _ in range(WRITERS)))

    return lambda _: work


def _add(ours: ShortTermMemoryManager) -> Call:
    return lambda: ours.add_interaction("posted_tweet", CONTENT[:200], platform="x")


def _times(rounds: Rounds, name: str, to: str) -> str:
    return f"{rounds.ratio(name, to):.2f} ×"


async def writing(url: str) -> list[Table]:
    async with contenders(url) as (naive, raw, ours):
        one = await in_turns(
            {
                NAIVE: _often(naive.add, WRITES),
                RAW: _often(raw.add, WRITES),
                PIPELINED: lambda _: lambda: raw.add_many(WRITES),
                OURS: _often(_add(ours), WRITES),
            },
            rounds=WRITE_ROUNDS,
            calls=WRITES,
        )
        many = await in_turns(
            {
                NAIVE: _at_once(naive.add),
                RAW: _at_once(raw.add),
                OURS: _at_once(_add(ours)),
            },
            rounds=CONCURRENT_ROUNDS,
            calls=WRITERS * EACH,
        )
    single = Table("One write after the other: time against the raw script", "", "typical")
    for name in (NAIVE, RAW, PIPELINED):
        single.add(name, duration(one.typical(name)), measured=_times(one, name, RAW))
    ratio = one.ratio(OURS, RAW)
    single.add(
        OURS,
        duration(one.typical(OURS)),
        measured=f"{ratio:.2f} ×",
        bar=f"≤ {ONE_BAR} ×",
        ok=ratio <= ONE_BAR,
    )
    single.add("the specification", "< 10 ms", measured=duration(one.typical(OURS)), ok=None)
    together = Table(f"{WRITERS} writers at once: times as fast as naive", "", "a write")
    for name in (NAIVE, RAW):
        together.add(name, duration(many.typical(name)), measured=_times(many, NAIVE, name))
    ratio = many.ratio(NAIVE, OURS)
    together.add(
        OURS,
        duration(many.typical(OURS)),
        measured=f"{ratio:.2f} ×",
        bar=f"≥ {CONCURRENT_BAR:g} ×",
        ok=ratio >= CONCURRENT_BAR,
    )
    rate = 1 / many.typical(OURS)
    together.add("the specification", "100 writes/s", measured=f"{rate:,.0f} writes/s")
    return [single, together]


async def fill(manager: ShortTermMemoryManager, count: int) -> None:
    """Add *count* memories of the last hour, the fast way."""
    place = manager._episodes
    assert isinstance(place, RedisEpisodes)
    first = datetime.now(UTC) - timedelta(hours=1)
    for start in range(0, count, 2_000):
        size = min(2_000, count - start)
        if count > 100_000 and start % 200_000 == 0:
            print(f"    {start:,} of {count:,} …", file=sys.stderr, flush=True)
        made = [_memory(first + timedelta(microseconds=start + n)) for n in range(size)]
        await asyncio.gather(
            *(place.put(Episode(m.id, m.timestamp, m.model_dump_json(), 7_200_000)) for m in made)
        )


async def reading(url: str) -> Table:
    table = Table(f"The newest {LIMIT}: times as fast as naive", "live memories", NAIVE, OURS)
    async with contenders(url) as (naive, _, ours), Redis.from_url(url) as redis:
        for size in (3_000, 100_000):
            await fill(ours, size - await ours.count())
            await _copy(redis, naive, ours)
            rounds = await in_turns(
                {
                    NAIVE: _often(naive.newest, 1),
                    OURS: _often(lambda: ours.get_recent(limit=LIMIT), READS),
                },
                rounds=READ_ROUNDS,
            )
            mine = rounds.typical(OURS) / READS
            ratio = rounds.ratio(NAIVE, OURS) * READS
            table.add(
                f"{size:,}",
                duration(rounds.typical(NAIVE)),
                duration(mine),
                measured=f"{ratio:,.0f} ×",
                bar=f"≥ {READ_BAR:g} ×",
                ok=ratio >= READ_BAR,
            )
    table.add("the specification", "", "< 50 ms", measured=duration(mine))
    return table


async def beside_agents(url: str) -> Table:
    """Return what reading the newest ten costs, beside openai-agents' session in Redis."""
    from agents.extensions.memory import RedisSession  # noqa: PLC0415 - only who measures peers

    theirs = RedisSession.from_url("newest", url=url)
    async with ShortTermMemoryManager(url, "newest") as ours:
        await fill(ours, 1_000)
        content: Any = {"role": "user", "content": CONTENT[:200]}
        await theirs.add_items([content] * 1_000)
        rounds = await in_turns(
            {
                OURS: _often(lambda: ours.get_recent(limit=LIMIT), READS),
                AGENTS: _often(lambda: theirs.get_items(LIMIT), READS),
            },
            rounds=4 * READ_ROUNDS,
            calls=READS,
        )
    await theirs.close()
    table = Table(f"The newest {LIMIT} of 1,000: time against ours", "", "typical")
    table.add(OURS, duration(rounds.typical(OURS)))
    ratio = rounds.ratio(AGENTS, OURS)
    table.add(
        AGENTS,
        duration(rounds.typical(AGENTS)),
        measured=f"{ratio:.2f} ×",
        bar="behind ours",
        ok=ratio > 1,
    )
    return table


async def _copy(redis: Redis, naive: Naive, ours: ShortTermMemoryManager) -> None:
    """Give the naive one as many memories as ours has."""
    missing = await ours.count() - await redis.zcard(naive.index)
    now = datetime.now(UTC).timestamp()
    body = _Interaction(interaction_type="posted_tweet", content=CONTENT[:200], platform="x")
    for start in range(0, missing, 2_000):
        async with redis.pipeline(transaction=False) as pipeline:
            for number in range(start, min(start + 2_000, missing)):
                key = f"agent:naive:episodic:copy-{now}-{number}"
                pipeline.set(key, body.model_dump_json(), ex=7200)
                pipeline.zadd(naive.index, {key: now - number / 1000})
            await pipeline.execute()


async def room(url: str) -> Table:
    count = 5_000
    async with ShortTermMemoryManager(url, "room") as ours, Redis.from_url(url) as redis:
        await fill(ours, count)
        keys: Any = await redis.zrange("agent:room:episodic:index", 0, -1)
        sizes: list[Any] = [await redis.memory_usage(key) for key in keys]
        bodies = sum(sizes) / count
        shared = 0.0
        for name in ("index", "expiry", "arrivals"):
            shared += await redis.memory_usage(f"agent:room:episodic:{name}", samples=0) or 0
    table = Table("Bytes of a memory with 200 characters, by MEMORY USAGE", "")
    table.add("the memory itself", measured=f"{bodies:.0f}")
    table.add("its share of index, expiry and arrivals", measured=f"{shared / count:.0f}")
    total = bodies + shared / count
    table.add("in all", bar=f"< {BYTES_BAR}", measured=f"{total:.0f}", ok=total < BYTES_BAR)
    return table


async def growth(url: str, sizes: tuple[int, ...]) -> Table:
    table = Table("Cost as memories pile up, against 1,000", "live memories", "write", "newest 10")
    agents = [f"size-{size}" for size in sizes]
    managers = [ShortTermMemoryManager(url, agent) for agent in agents]
    for manager, size in zip(managers, sizes, strict=True):
        await fill(manager, size)
    names = [f"{size:,}" for size in sizes]
    writes = await in_turns(
        {n: _often(_add(m), WRITES) for n, m in zip(names, managers, strict=True)},
        rounds=READ_ROUNDS,
        calls=WRITES,
    )
    reads = await in_turns(
        {
            n: _often(lambda m=m: m.get_recent(limit=LIMIT), WRITES)  # type: ignore[misc]  # default
            for n, m in zip(names, managers, strict=True)
        },
        rounds=READ_ROUNDS,
        calls=WRITES,
    )
    for name in names:
        worst = max(writes.ratio(name, names[0]), reads.ratio(name, names[0]))
        table.add(
            name,
            _times(writes, name, names[0]),
            _times(reads, name, names[0]),
            measured=f"{worst:.2f} ×",
            bar=f"≤ {GROWTH_BAR:g} ×",
            ok=worst <= GROWTH_BAR,
        )
    for manager in managers:
        await manager.disconnect()
    return table


async def tables(write: str, read: str, grow: str, sizes: tuple[int, ...]) -> list[Table]:
    return [
        *await writing(write),
        await reading(read),
        await beside_agents(read),
        await room(read),
        await growth(grow, sizes),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="up to a million memories")
    sizes = (1_000, 10_000, 100_000, *((1_000_000,) if parser.parse_args().full else ()))
    with (
        RedisServer.start(settings={"appendfsync": "everysec"}) as write,
        RedisServer.start(settings={"appendonly": "no"}) as read,
        RedisServer.start(settings={"appendonly": "no"}) as grow,
    ):
        return exit_code(*asyncio.run(tables(write.url(), read.url(), grow.url(), sizes)))


if __name__ == "__main__":
    sys.exit(main())
