"""What is special about `RedisMemoryStore`: lifetimes, keys, and reading much."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot
from tests.rows import each_row
from tests.servers.databases import RedisServer, redis_server
from tests.timing import until

from orbiter.memory import (
    HumanMemory,
    MemoryError,
    MemoryItem,
    MemoryMetadata,
)
from orbiter.memory.backends.redis.store import MAX_BATCH, RedisMemoryStore
from orbiter.memory.model.items import new_id

__all__ = ["redis_server"]

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob", session_id="s")
SHORT = 0.25
"""Seconds that an item lives here."""


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with Redis.from_url(redis_server.url()) as client:
        yield client


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisMemoryStore]:
    async with RedisMemoryStore(redis_server.url(), name=new_id()) as store:
        yield store


@pytest.fixture
async def brief(redis_server: RedisServer) -> AsyncIterator[RedisMemoryStore]:
    async with RedisMemoryStore(redis_server.url(), name=new_id(), ttl_hours=SHORT / 3600) as store:
        yield store


def said(content: str, item_id: str | None = None, who: MemoryMetadata = ANN) -> HumanMemory:
    return HumanMemory(id=item_id or new_id(), content=content, metadata=who)


async def keys_of(client: Any, store: RedisMemoryStore) -> dict[str, bytes]:
    """Return the keys of *store*, without the beginning they share, and what they are."""
    start = f"orbiter:{{{store.name}}}:"
    return {
        key.decode().removeprefix(start): await client.type(key)
        async for key in client.scan_iter(match=f"{start}*", count=10_000)
    }


def lasting(keys: dict[str, bytes]) -> set[str]:
    """Return the keys that hold items; the others are forgotten by themselves."""
    return {key for key in keys if not key.startswith("call:") and key != "seq"}


def counted(store: RedisMemoryStore) -> list[Any]:
    """Return a list to which every call from now on is added."""
    calls: list[Any] = []
    send = store._items._send

    async def send_and_tell(command: Any) -> Any:
        calls.append(command)
        return await send(command)

    store._items._send = send_and_tell  # type: ignore[method-assign]  # counts, and does it
    return calls


# Lifetimes


async def _is_empty(store: RedisMemoryStore) -> bool:
    return await store.count() == 0


async def test_an_item_is_gone_after_its_time_from_everywhere(
    brief: RedisMemoryStore, client: Any
) -> None:
    items: list[MemoryItem] = [said(f"n{number}", who=BOB) for number in range(70)]
    await brief.add_many(items)
    await until(lambda: _is_empty(brief), "the end of every item")

    assert await brief.get(items[0].id) is None
    assert await brief.search() == []
    assert await brief.search(metadata=BOB) == []
    assert (await brief.count(), await brief.count(metadata=BOB)) == (0, 0)
    assert await brief.clear() == 0
    assert lasting(await keys_of(client, brief)) == set()


async def test_each_write_begins_the_time_anew(redis_server: RedisServer, client: Any) -> None:
    async with RedisMemoryStore(redis_server.url(), name=new_id(), ttl_hours=0.01) as store:
        start, ends = f"orbiter:{{{store.name}}}:", []
        for who in (ANN, ANN, BOB):
            await store.add(said("hi", "one", who))
            ((_, end),) = await client.zrange(f"{start}expiry", 0, -1, withscores=True)
            assert abs(end - await client.pexpiretime(f"{start}item:one")) <= 5
            ends.append(end)
            await asyncio.sleep(0.05)

    assert ends[0] + 40 <= ends[1] <= ends[2] - 40


async def test_an_item_that_comes_back_after_its_time_begins_anew(brief: RedisMemoryStore) -> None:
    await brief.add(said("old", "one"))
    await brief.add(said("older", "one"))
    await until(lambda: _is_empty(brief), "the end of the item")

    await brief.add(said("new", "one", BOB))

    (found,) = await brief.search()
    assert (found.content, found.version) == ("new", 1)
    assert (await brief.count(metadata=ANN), await brief.count(metadata=BOB)) == (0, 1)


async def test_no_key_lives_for_ever_and_no_index_dies_before_its_items(
    redis_server: RedisServer, client: Any
) -> None:
    async with RedisMemoryStore(redis_server.url(), name=new_id(), ttl_hours=0.01) as store:
        await store.add_many([said("a", "one"), said("b", "two", BOB)])
        await store.add(said("c", "one", BOB))

        left = {
            key: await client.pttl(f"orbiter:{{{store.name}}}:{key}")
            for key in await keys_of(client, store)
        }

    item = max(left["item:one"], left["item:two"])
    assert 30_000 < item <= 36_000
    for index in ("all", "expiry", "user_id:bob", "session_id:s"):
        assert item <= left[index] <= 37_000, index
    assert min(left.values()) > 0
    assert "user_id:ann" not in left


async def test_items_with_and_without_an_end_share_a_name(
    brief: RedisMemoryStore, redis_server: RedisServer, client: Any
) -> None:
    async with RedisMemoryStore(redis_server.url(), name=brief.name) as lasts:
        await brief.add_many([said("brief", "one"), said("brief", "two")])
        await lasts.add_many([said("lasts", "two"), said("lasts", "three", BOB)])
        await brief.add(said("brief", "four"))

        async def has_no_end() -> bool:
            await lasts.search()  # whoever comes by removes what is over
            return "expiry" not in await keys_of(client, lasts)

        await until(has_no_end, "the end of what is brief")
        found = await lasts.search()

        assert [item.id for item in found] == ["three", "two"]
        assert await lasts.count(metadata=ANN) == 1


@each_row("hours", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_lifetime_is_a_number_of_hours(hours: Any) -> None:
    with pytest.raises(ValueError, match="ttl_hours"):
        RedisMemoryStore(ttl_hours=hours)


# Keys


async def test_all_keys_are_under_the_name_and_in_one_slot(
    store: RedisMemoryStore, client: Any
) -> None:
    everyone = MemoryMetadata(user_id="{x}", session_id="}{", task_id="t:t", agent_id="")
    await store.add(said("a", "{id}:1", everyone))

    keys = await keys_of(client, store)

    assert lasting(keys) == {
        "item:{id}:1", "all", "user_id:{x}", "session_id:}{", "task_id:t:t", "agent_id:",
        "added:all", "added:session_id:}{", "added:task_id:t:t",
    }  # fmt: skip
    slots = {key_slot(f"orbiter:{{{store.name}}}:{key}".encode()) for key in keys}
    assert len(slots) == 1


async def test_nothing_is_left_of_what_was_removed(store: RedisMemoryStore, client: Any) -> None:
    await store.add_many([said(str(number), f"i{number}", BOB) for number in range(3)])
    await store.add(said("moved", "i0"))

    assert await store.delete("i0") is True
    assert await store.delete("i0") is False
    assert await store.delete("") is False
    assert await store.clear(metadata=BOB) == 2

    assert lasting(await keys_of(client, store)) == set()
    for key in await keys_of(client, store):
        assert await client.pttl(f"orbiter:{{{store.name}}}:{key}") > 0, key


async def test_names_do_not_see_each_other(redis_server: RedisServer) -> None:
    base = new_id()
    names = [base, f"{base}:", f"{base}:item", f"{base} ", base.upper() + "é", "all"]
    stores = [RedisMemoryStore(redis_server.url(), name=name) for name in names]
    for store in stores:
        await store.init()
        await store.clear()

    for store in stores:
        await store.add(said(f"of {store.name}", "one"))

    for store in stores:
        assert [item.content for item in await store.search()] == [f"of {store.name}"]
        assert await store.clear() == 1
        await store.close()


@each_row("name", ["", "{a}", "a}", "{", "a\0", "x" * 257, "\ud800", None, 7])
def test_a_name_that_could_be_another_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        RedisMemoryStore(name=name)


async def test_places_are_in_order_over_all_years(store: RedisMemoryStore) -> None:
    years = [datetime(year, 1, 1, tzinfo=UTC) for year in (2025, 1, 9999, 1969, 1970)]
    for moment in years:
        await store.add(HumanMemory(content=str(moment.year), created_at=moment))

    found = await store.search()
    middle = await store.search(since=years[3], until=years[2])

    assert [item.created_at.year for item in found] == [9999, 2025, 1970, 1969, 1]
    assert [item.created_at.year for item in middle] == [2025, 1970, 1969]


async def test_what_the_server_has_evicted_is_skipped_and_forgotten(
    store: RedisMemoryStore, client: Any
) -> None:
    await store.add_many([said(str(number), f"i{number}") for number in range(4)])
    await client.unlink(f"orbiter:{{{store.name}}}:item:i2")

    found = await store.search(metadata=ANN, limit=3)

    assert [item.content for item in found] == ["3", "1", "0"]
    assert (await store.count(), await store.count(metadata=ANN)) == (3, 3)


async def test_an_item_takes_little_memory(store: RedisMemoryStore, client: Any) -> None:
    who = [MemoryMetadata(user_id=f"u{n % 10}", session_id=f"s{n % 50}") for n in range(1000)]
    await store.add_many([said("x" * 200, who=each) for each in who])

    start = f"orbiter:{{{store.name}}}:"
    keys = lasting(await keys_of(client, store))
    used = sum([await client.memory_usage(f"{start}{key}", samples=0) for key in keys])

    # 775 measured, of which 515 are the item itself.
    assert used / len(who) < 1000


# Reading and removing much


async def test_a_users_few_items_are_found_in_one_call_among_many(store: RedisMemoryStore) -> None:
    await store.add(said("hers", who=MemoryMetadata(user_id="ann", session_id="s")))
    await store.add_many([said("his", who=BOB) for _ in range(3000)])
    calls = counted(store)
    both = MemoryMetadata(user_id="ann", session_id="s")
    assert [item.content for item in await store.search(metadata=both, query="H")] == ["hers"]
    assert (await store.count(metadata=both), len(calls)) == (1, 2)


async def test_two_scopes_that_seldom_meet_are_walked_to_the_end(store: RedisMemoryStore) -> None:
    items = [
        said(
            f"n{n}", who=MemoryMetadata(user_id=f"u{n % 2}", session_id=f"s{n // 2500 or n == 4:d}")
        )
        for n in range(5000)
    ]
    await store.add_many(items)

    both = MemoryMetadata(user_id="u0", session_id="s1")
    assert await store.count(metadata=both) == 1251
    assert (await store.search(metadata=both, limit=2000))[-1].content == "n4"
    assert await store.clear(metadata=both) == 1251
    assert await store.count() == 3749


async def test_items_of_any_size_are_read_a_few_at_a_time(store: RedisMemoryStore) -> None:
    big = "x" * 400_000
    await store.add_many([said(f"{number} {big}") for number in range(6)])
    calls = counted(store)

    found = await store.search(limit=5)

    assert [item.content[0] for item in found] == ["5", "4", "3", "2", "1"]
    assert len(calls) == 2


async def test_a_batch_beyond_what_redis_takes_is_refused(store: RedisMemoryStore) -> None:
    with pytest.raises(ValueError, match="split") as caught:
        await store.add_many([said("hi")] * (MAX_BATCH + 1))

    assert isinstance(caught.value, MemoryError)
    assert await store.count() == 0


async def test_clear_leaves_what_is_written_after_it_began(store: RedisMemoryStore) -> None:
    await store.add_many([said(f"n{number}", f"i{number}") for number in range(3000)])

    clearing = asyncio.create_task(store.clear())
    while await store.count() == 3000:
        pass
    await store.add(said("new", "new"))
    await store.add(said("again", "i0"))  # the oldest: its turn is last
    removed = await clearing

    found = await store.search(limit=5000)
    assert {item.id for item in found} == {"new", "i0"}
    assert removed in (2999, 3000)
