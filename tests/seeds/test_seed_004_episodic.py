"""Seed 004, line by line: `ShortTermMemoryManager` on a real Redis, and the assembled context."""

import asyncio
import inspect
import json
import textwrap
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.rows import each_row
from tests.servers.databases import RedisServer, redis_server
from tests.timing import until

import orbiter.memory
from orbiter.memory import (
    ContextManager,
    EpisodicMemory,
    ShortTermMemoryManager,
    get_short_term_memory,
)

__all__ = ["redis_server"]

BASIC_USAGE = """\
from src.memory import get_short_term_memory

memory = get_short_term_memory()
await memory.connect()

# Store an interaction
await memory.add_interaction(
    interaction_type="posted_tweet",
    content="Just shipped a new AI feature!",
    platform="x"
)

# Retrieve recent summaries for LLM context
summaries = await memory.get_recent_summaries(hours=2.0, limit=10)
# Returns: ["[14:23] posted_tweet on x: Just shipped a new AI feature!"]
"""

CONTEXT_ASSEMBLY = """\
from src.memory import ContextManager, get_short_term_memory

context_mgr = ContextManager(soul_path="./SOUL.md")
short_term = get_short_term_memory()

# Context assembly auto-fetches memories
context = await context_mgr.assemble_context(
    input_query="Generate a tweet about AI ethics",
    short_term_manager=short_term
)
"""


@pytest.fixture(scope="module")
def usual_redis() -> Iterator[RedisServer]:
    """Return a Redis as most people have it: no password."""
    with RedisServer.start(settings={"requirepass": ""}) as server:
        yield server


@pytest.fixture
async def at_the_usual_address(
    usual_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Lead `localhost:6379`, which may be anyone's, to the Redis of this test."""
    connect = asyncio.open_connection

    async def detour(*, host: str, port: int, **options: Any) -> Any:
        assert (host, port) == ("localhost", 6379)
        return await connect(host="127.0.0.1", port=usual_redis.port, **options)

    monkeypatch.setattr(asyncio, "open_connection", detour)
    yield
    await get_short_term_memory().forget(everything=True)
    await get_short_term_memory().disconnect()


@pytest.fixture
async def memory(redis_server: RedisServer) -> AsyncIterator[ShortTermMemoryManager]:
    async with ShortTermMemoryManager(redis_server.url(), "seed") as manager:
        yield manager
        await manager.forget(everything=True)


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Any]:
    client = Redis.from_url(redis_server.url(), decode_responses=True)
    yield client
    await client.aclose()


async def _run(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    body = textwrap.indent(example, "    ")
    exec(f"async def program():\n{body}\n    return locals()", names)  # a reader pastes it, too
    result: dict[str, Any] = await names["program"]()
    return result


def _signature(function: Any) -> list[tuple[str, Any]]:
    parameters = inspect.signature(function).parameters.values()
    empty = inspect.Parameter.empty
    return [(p.name, ... if p.default is empty else p.default) for p in parameters]


def test_the_names_come_from_orbiter_memory() -> None:
    for name in (
        "ContextManager",
        "EpisodicMemory",
        "ShortTermMemoryManager",
        "get_short_term_memory",
    ):
        assert name in orbiter.memory.__all__


def test_the_constructor_has_the_seeds_defaults() -> None:
    parameters = list(inspect.signature(ShortTermMemoryManager).parameters.values())

    assert [(p.name, p.default) for p in parameters[:2]] == [
        ("redis_url", "redis://localhost:6379/0"),
        ("agent_id", "nova"),
    ]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters[2:])


@each_row(
    ("name", "signature"),
    [
        ("connect", []),
        ("disconnect", []),
        (
            "add_interaction",
            [
                ("interaction_type", ...),
                ("content", ...),
                ("platform", None),
                ("metadata", None),
                ("ttl_hours", None),
            ],
        ),
        ("get_recent", [("hours", 2.0), ("limit", None)]),
        ("get_recent_summaries", [("hours", 2.0), ("limit", None)]),
    ],
)
def test_the_methods_have_the_seeds_signatures(name: str, signature: list[Any]) -> None:
    method = getattr(ShortTermMemoryManager, name)

    assert _signature(method)[1:] == signature
    assert inspect.iscoroutinefunction(method)


def test_the_context_manager_has_the_seeds_signature() -> None:
    assert _signature(ContextManager)[0] == ("soul_path", "./SOUL.md")
    assert [name for name, _ in _signature(ContextManager.assemble_context)[1:3]] == [
        "input_query",
        "short_term_manager",
    ]


async def test_the_first_example_runs_verbatim(at_the_usual_address: None) -> None:
    result = await _run(BASIC_USAGE)

    (summary,) = result["summaries"]
    (added,) = await get_short_term_memory().get_recent()
    time = f"{added.timestamp:%H:%M}"
    assert summary == f"[{time}] posted_tweet on x: Just shipped a new AI feature!"


async def test_the_second_example_runs_verbatim(
    at_the_usual_address: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "SOUL.md").write_text("# Nova\n\nYou are Nova, curious and kind.\n")
    monkeypatch.chdir(tmp_path)
    await _run(BASIC_USAGE)

    context = (await _run(CONTEXT_ASSEMBLY))["context"]

    assert isinstance(context, str)
    assert "You are Nova, curious and kind." in context
    assert "Just shipped a new AI feature!" in context
    assert "Generate a tweet about AI ethics" in context


async def test_an_interaction_lies_under_the_seeds_keys_with_its_ttl(
    memory: ShortTermMemoryManager, redis: Any
) -> None:
    added = await memory.add_interaction("posted_tweet", "x", ttl_hours=1)

    (key,) = await redis.zrange("agent:seed:episodic:index", 0, -1)
    moment = added.timestamp.isoformat(timespec="microseconds")
    assert key.startswith(f"agent:seed:episodic:{moment}")
    assert await redis.zscore("agent:seed:episodic:index", key) == added.timestamp.timestamp()
    assert EpisodicMemory.model_validate_json(await redis.get(key)) == added
    assert 3_590_000 < await redis.pttl(key) <= 3_600_000
    assert await redis.pttl("agent:seed:episodic:index") == pytest.approx(
        await redis.pttl(key), abs=100
    )


async def test_the_index_lives_exactly_as_long_as_its_longest_member(
    memory: ShortTermMemoryManager, redis: Any
) -> None:
    async def hours_left() -> float:
        left: int = await redis.pttl("agent:seed:episodic:index")
        return round(left / 3_600_000, 2)

    await memory.add_interaction("note", "short", ttl_hours=1)
    assert await hours_left() == 1
    long = await memory.add_interaction("note", "long", ttl_hours=5)
    assert await hours_left() == 5
    await memory.add_interaction("note", "short", ttl_hours=1)
    assert await hours_left() == 5
    await memory.forget(long)
    assert await hours_left() == 1


async def test_everything_of_an_agent_is_gone_when_its_last_memory_is(
    memory: ShortTermMemoryManager, redis: Any
) -> None:
    for _ in range(3):
        await memory.add_interaction("note", "x", ttl_hours=0.3 / 3600)

    async def is_empty() -> bool:
        return [key async for key in redis.scan_iter("agent:seed:*")] == []

    await until(is_empty, "the end of every key")


@pytest.mark.parametrize("is_naive", [False, True], ids=["aware", "naive"])
async def test_keys_that_the_original_has_written_are_read(
    memory: ShortTermMemoryManager, redis: Any, is_naive: bool
) -> None:
    now = datetime.now(UTC)
    for minutes, content in ((20, "older"), (10, "newer")):
        moment = now - timedelta(minutes=minutes)
        written = moment.replace(tzinfo=None) if is_naive else moment
        key = f"agent:seed:episodic:{written.isoformat()}"
        body = {
            "timestamp": written.isoformat(),
            "interaction_type": "posted_tweet",
            "content": content,
            "platform": "x",
            "metadata": {"likes": 3},
        }
        await redis.set(key, json.dumps(body), ex=7200)
        await redis.zadd("agent:seed:episodic:index", {key: moment.timestamp()})
    added = await memory.add_interaction("note", "ours")

    found = await memory.get_recent()

    assert [each.content for each in found] == ["ours", "newer", "older"]
    assert found[0] == added
    assert (found[1].platform, found[1].metadata) == ("x", {"likes": 3})
    assert found[1].timestamp == now - timedelta(minutes=10)
    assert (await memory.get_recent_summaries())[2].endswith("posted_tweet on x: older")


async def test_dead_members_leave_the_index_on_the_way(
    memory: ShortTermMemoryManager, redis: Any
) -> None:
    for _ in range(20):
        await memory.add_interaction("note", "short", ttl_hours=0.2 / 3600)

    async def all_died() -> bool:
        return await memory.count() == 0

    await until(all_died, "the end of the short ones")

    await memory.add_interaction("note", "long")

    assert await redis.zcard("agent:seed:episodic:index") == 1
    assert await redis.zcard("agent:seed:episodic:expiry") == 1


def test_there_is_one_manager_for_each_address_and_agent() -> None:
    manager = get_short_term_memory("memory://seed", "a")

    assert get_short_term_memory("memory://seed", "a") is manager
    assert get_short_term_memory("memory://seed", "b") is not manager
    assert get_short_term_memory("memory://other", "a") is not manager


async def test_no_redis_is_a_connection_error() -> None:
    memory = ShortTermMemoryManager("redis://127.0.0.1:1/0", deadline=0.5)

    with pytest.raises(ConnectionError, match=r"redis://127\.0\.0\.1:1/0"):
        await memory.connect()
    with pytest.raises(ConnectionError):
        await memory.add_interaction("note", "x")


@each_row("timestamp", ["yesterday", "2026-13-45", "", float("nan"), object()])
def test_a_timestamp_that_is_none_is_a_value_error(timestamp: Any) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        EpisodicMemory(interaction_type="note", content="x", timestamp=timestamp)


def test_a_time_without_a_zone_that_has_not_come_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="time zone"):
        EpisodicMemory(
            interaction_type="note",
            content="x",
            timestamp=datetime(2999, 1, 1),  # noqa: DTZ001
        )
