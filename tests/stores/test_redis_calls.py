"""`RedisMemoryStore` and its server: calls are repeated, servers die, refuse, or are not there."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.crash._proxy import Proxy
from tests.rows import each_row
from tests.servers.databases import RedisServer, redis_server, require_or_skip
from tests.stores.test_redis import ANN, BOB, client, said, store
from tests.timing import HANG, scaled, until

from orbiter.memory import MemoryConnectionError, MemoryMetadata, VersionConflict
from orbiter.memory.backends.redis.store import RedisMemoryStore
from orbiter.memory.errors import AccessError, StorageError
from orbiter.memory.model.items import new_id

__all__ = ["client", "redis_server", "store"]


@pytest.fixture(scope="module")
def mortal() -> Iterator[RedisServer]:
    """Start a server that may be killed, and that lets `ann` see her own keys only."""
    users = {"ann": ["on", ">secret", "~orbiter:{ann}:*", "+@all"]}
    try:
        server = RedisServer.start(users=users)
    except ModuleNotFoundError as exc:
        require_or_skip(str(exc))
    with server:
        yield server


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(proxy: Proxy, store: RedisMemoryStore) -> AsyncIterator[RedisMemoryStore]:
    """Return a store on the data of `store`, on the other side of a network that loses answers."""
    async with RedisMemoryStore(proxy.dsn(store._url), name=store.name, deadline=scaled(3)) as far:
        yield far


async def test_a_write_whose_answer_is_lost_counts_once(
    far: RedisMemoryStore, store: RedisMemoryStore, proxy: Proxy
) -> None:
    proxy.lose_reply(b"mark-1")
    await far.add(said("mark-1", "one"))
    proxy.lose_reply(b"mark-2")
    await far.add_many([said("mark-2", "one"), said("mark-2", "two")])
    proxy.lose_reply(b"mark-3")
    await far.add(said("mark-3", "two"), expected_version=1)

    found = await store.search()
    assert [(item.id, item.version) for item in found] == [("two", 2), ("one", 2)]

    proxy.lose_reply(b"two")
    assert await far.delete("two") is True
    proxy.lose_reply(b"user_id:ann")
    assert await far.clear(metadata=ANN) == 1


async def test_a_repeated_write_does_not_undo_what_others_did_meanwhile(
    far: RedisMemoryStore, store: RedisMemoryStore, proxy: Proxy
) -> None:
    proxy.lose_reply(b"mark-1")
    adding = asyncio.create_task(far.add(said("mark-1", "one"), expected_version=0))
    while await store.get("one") is None:
        pass
    await store.add(said("newer", "one"))
    await adding

    found = await store.get("one")
    assert found is not None
    assert (found.content, found.version) == ("newer", 2)

    proxy.lose_reply(b"mark-2")
    adding = asyncio.create_task(far.add(said("mark-2", "two")))
    while not await store.delete("two"):
        pass
    await adding

    assert await store.get("two") is None


async def test_an_expected_version_guards_a_write(store: RedisMemoryStore) -> None:
    results = await asyncio.gather(
        *(store.add(said(str(n), "one"), expected_version=0) for n in range(8)),
        return_exceptions=True,
    )

    assert results.count(None) == 1
    conflicts = [each for each in results if isinstance(each, VersionConflict)]
    assert [(each.expected, each.found) for each in conflicts] == [(0, 1)] * 7
    with pytest.raises(ValueError, match="expected_version"):
        await store.add(said("x"), expected_version=-1)


async def test_a_server_that_forgot_the_scripts_is_told_again(
    store: RedisMemoryStore, client: Any
) -> None:
    await store.add(said("before", "one"))

    await client.script_flush()
    await asyncio.gather(*(store.add(said(f"n{number}", "one")) for number in range(20)))
    await client.script_flush()

    assert [item.version for item in await store.search()] == [21]


async def test_no_reset_of_the_network_loses_or_doubles_a_write(
    far: RedisMemoryStore, store: RedisMemoryStore, proxy: Proxy
) -> None:
    async def count_up(number: int) -> None:
        for _ in range(10):
            await far.add(said("n", f"i{number}"))
            while True:
                found = await far.get("sum")
                extra = {"n": found.metadata.extra["n"] + 1 if found else 1}
                total = said("", "sum", MemoryMetadata(extra=extra))
                try:
                    await far.add(total, expected_version=found.version if found else 0)
                except VersionConflict:
                    continue
                break

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(count_up(number)) for number in range(5)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.03)
            proxy.reset()

    found = await store.search(metadata=ANN)
    assert [item.version for item in found] == [10] * 5
    total = await store.get("sum")
    assert total is not None
    assert (total.metadata.extra, total.version) == ({"n": 50}, 50)


# Servers


async def test_a_killed_server_has_everything_when_it_is_back(mortal: RedisServer) -> None:
    async with RedisMemoryStore(mortal.url(), name=new_id(), deadline=scaled(10)) as store:
        items = [said(f"n{number}") for number in range(20)]
        for item in items:
            await store.add(item)
        mortal.stop(mode="immediate")
        adding = asyncio.create_task(store.add(said("meanwhile")))
        await asyncio.sleep(0.1)  # it may have tried by now; it waits in any case
        await asyncio.to_thread(mortal.start_again)
        await adding

        found = await store.search(limit=100)
        assert [item.content for item in found[1:]] == [f"n{n}" for n in reversed(range(20))]
        assert found[0].content == "meanwhile"


async def test_a_full_server_takes_nothing_and_gives_everything(mortal: RedisServer) -> None:
    async with (
        Redis.from_url(mortal.url()) as admin,
        RedisMemoryStore(mortal.url(), name=new_id()) as store,
    ):
        await store.add_many([said("old", f"i{number}") for number in range(3)])
        await admin.config_set("maxmemory", "1mb")
        try:
            for refused in (store.add(said("new", "i0", BOB)), store.add_many([said("new")])):
                with pytest.raises(StorageError, match="full"):
                    await refused
            with pytest.raises(VersionConflict):
                await store.add(said("new", "i0"), expected_version=7)
            assert [item.content for item in await store.search(metadata=ANN)] == ["old"] * 3
            assert await store.delete("i1") is True
            assert await store.clear(metadata=ANN) == 2
        finally:
            await admin.config_set("maxmemory", "0")

        await store.add(said("new", "i0", BOB))
        assert [item.version for item in await store.search()] == [1]


async def test_a_user_of_the_server_may_be_held_to_one_name(mortal: RedisServer) -> None:
    async with RedisMemoryStore(mortal.url(user="ann"), name="ann") as hers:
        await hers.add_many([said("a", who=BOB), said("b")])
        assert (len(await hers.search(metadata=BOB)), await hers.clear()) == (1, 2)

    with pytest.raises(AccessError):
        await RedisMemoryStore(mortal.url(user="ann"), name="bob").init()


async def test_a_server_that_is_not_there_is_told_in_time_without_the_password() -> None:
    store = RedisMemoryStore("redis://:hush@127.0.0.1:1/0", name="n", deadline=0.3)

    with pytest.raises(MemoryConnectionError, match="127.0.0.1:1") as caught:
        await asyncio.wait_for(store.init(), HANG)

    assert "hush" not in str(caught.value) + repr(store)
    assert repr(store) == "RedisMemoryStore('redis://127.0.0.1:1/0', name='n')"


async def test_a_wrong_password_is_refused_at_once(redis_server: RedisServer) -> None:
    url = f"redis://:wrong@127.0.0.1:{redis_server.port}/0"

    with pytest.raises(AccessError) as caught:
        await asyncio.wait_for(RedisMemoryStore(url, deadline=600).init(), HANG)

    assert "wrong" not in str(caught.value).replace("WRONGPASS", "")


@each_row("url", ["", None, "localhost", "http://localhost", "redis://h:x/0"])
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(ValueError, match="redis"):
        RedisMemoryStore(url)


@pytest.mark.parametrize("deadline", [0, -1, None, "1"])
def test_a_deadline_is_a_number_of_seconds(deadline: Any) -> None:
    with pytest.raises(ValueError, match="deadline"):
        RedisMemoryStore(deadline=deadline)


async def test_close_lets_finish_what_is_under_way(
    far: RedisMemoryStore, store: RedisMemoryStore, proxy: Proxy
) -> None:
    proxy.black_hole()
    adding = asyncio.create_task(far.add(said("hi")))
    await until(lambda: proxy.held, "a request on its way")
    closing = asyncio.create_task(far.close())
    await asyncio.sleep(0.05)
    is_closed = closing.done()
    proxy.heal()
    await asyncio.gather(adding, closing)

    assert not is_closed
    assert await store.count() == 1
    with pytest.raises(RuntimeError, match="not initialized"):
        await far.count()


async def test_two_stores_of_one_address_close_apart(
    store: RedisMemoryStore, redis_server: RedisServer
) -> None:
    async with RedisMemoryStore(redis_server.url(), name=store.name) as other:
        await other.add(said("a"))

    assert await store.count() == 1


def test_a_store_works_in_one_event_loop_after_another(redis_server: RedisServer) -> None:
    store = RedisMemoryStore(redis_server.url(), name=new_id())

    async def use() -> int:
        async with store:
            await store.add(said("a"))
            return await store.count()

    assert [asyncio.run(use()) for _ in range(2)] == [1, 2]


def test_without_redis_py_the_constructor_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc.collect()  # what tests before left warns when it goes, and must not do so while importing
    for name in [*sys.modules]:
        if name.startswith(("redis", "orbiter.memory.backends.redis")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'orbiter-memory\[redis\]'"):
        RedisMemoryStore()
