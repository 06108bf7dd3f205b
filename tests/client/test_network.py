"""Answers that are lost, servers that go and come again: nothing is stored twice, nothing hangs."""

import asyncio
import gc
import logging
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from tests.client.conftest import new_key
from tests.crash._proxy import Proxy
from tests.server.conftest import Served
from tests.timing import HANG, scaled, until

from orbiter.memory import AgentMemory, MemoryConnectionError
from orbiter.memory.agent import MemoryEvent
from orbiter.memory.auth import KeyFile
from orbiter.memory.client import RemoteMemory, _transport
from orbiter.memory.client._transport import RetryPolicy
from orbiter.memory.errors import AccessError, MemoryTimeoutError, QueryError
from orbiter.memory.server import Settings, create_app, serving


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.fixture
async def proxy(served: Served) -> AsyncIterator[Proxy]:
    """Return what stands between a client and its server."""
    async with Proxy(0) as proxy:
        url = await served(
            allowed_hosts=(f"127.0.0.1:{proxy.port}",), rate=1e6, burst=10**6, with_mcp=False
        )
        proxy.upstream = port_of(url)
        yield proxy


@pytest.fixture
async def remote(proxy: Proxy) -> AsyncIterator[RemoteMemory]:
    async with RemoteMemory(f"http://127.0.0.1:{proxy.port}") as memory:
        yield memory


async def test_a_lost_answer_stores_nothing_twice(proxy: Proxy, remote: RemoteMemory) -> None:
    alice = remote.scope(user_id="alice")

    proxy.drop_reply(b"POST /v1/memories?")
    one = await alice.remember("tea")
    proxy.drop_reply(b"POST /v1/memories/batch")
    many = await alice.remember_many(["coffee", "milk"])
    proxy.drop_reply(b"POST /v1/chats/c/messages")
    said = await alice.chat("c").add(["hello", "there"])

    assert proxy.lost == 3
    kept = {item.id for item in await alice.list()}
    assert kept == {item.id for item in [one, *many, *said]}
    assert len(kept) == 5
    assert [item.content for item in await alice.chat("c").items()] == ["hello", "there"]


async def test_what_cannot_be_repeated_says_that_it_may_be_done(
    proxy: Proxy, remote: RemoteMemory
) -> None:
    alice = remote.scope(user_id="alice")
    item = await alice.remember("tea")

    proxy.drop_reply(b"PATCH /v1/memories/")
    with pytest.raises(MemoryConnectionError, match="may or may not have been carried out"):
        await alice.update(item.id, "coffee")

    assert [each.item.content for each in await alice.history(item.id)] == ["tea", "coffee"]


async def test_a_lost_request_is_sent_again(proxy: Proxy, remote: RemoteMemory) -> None:
    alice = remote.scope(user_id="alice")
    await alice.remember("tea")

    proxy.lose_request(b"POST /v1/memories/query")

    assert len(await alice.list()) == 1
    assert proxy.lost == 1


async def test_a_server_that_says_nothing_is_not_waited_for_without_end(proxy: Proxy) -> None:
    patience = scaled(0.2)
    async with RemoteMemory(f"http://127.0.0.1:{proxy.port}", timeout=patience) as memory:
        proxy.half_open()

        with pytest.raises(MemoryTimeoutError, match=f"did not answer in {patience:g} seconds"):
            await memory.scope(user_id="alice").list()


async def test_cancelled_calls_leave_the_connections_to_others(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transport, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(_transport, "_FREE", 60.0)  # a place that is lost is not made good for
    async with RemoteMemory(f"http://127.0.0.1:{proxy.port}", timeout=HANG) as memory:
        alice = memory.scope(user_id="alice")
        for turn in range(20):
            calls = [asyncio.create_task(alice.list(limit=1)) for _ in range(12)]
            for step in range(6):
                await asyncio.sleep(0.002 * ((turn + step) % 5))
                for call in calls[step::6]:
                    call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

        found = await asyncio.gather(*(alice.list() for _ in range(12)))
        used = next(iter(memory._engine._link._clients.values()))

    assert found == [[]] * 12
    assert not used._old


async def test_whoever_is_cancelled_leaves_at_once(proxy: Proxy, remote: RemoteMemory) -> None:
    proxy.hold(b"POST /v1/memories/query")  # the answer never comes
    call = asyncio.create_task(remote.scope(user_id="alice").list())
    await until(lambda: proxy.held, "the request")

    call.cancel()
    await asyncio.wait([call])

    assert call.cancelled()
    running = next(iter(remote._engine._link._clients.values()))._running
    assert len(running) == 1
    await remote.close()
    assert not running


async def test_a_pool_that_has_lost_its_places_is_replaced(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transport, "_FREE", 0.05)
    memory = RemoteMemory(f"http://127.0.0.1:{proxy.port}")
    connections = await memory._engine._link._here()
    lost = connections._calls
    lost._transport._pool._max_connections = 0  # type: ignore[attr-defined]

    assert await memory.scope(user_id="alice").list() == []
    assert connections._calls is not lost
    await memory.close()


async def test_a_server_that_comes_back_in_time_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transport, "_FIRST", 0.0001)
    monkeypatch.setattr(_transport, "_LONGEST_UNSENT", 0.001)
    store = AgentMemory(tmp_path / "a.db", embeddings=None, summaries=None)
    settings = Settings(port=0, with_mcp=False, with_dashboard=False)
    async with serving(create_app(store, settings=settings), settings=settings) as url:
        memory = RemoteMemory(url, timeout=HANG)
        await memory.init()
    call = asyncio.create_task(memory.scope(user_id="alice").facts.end("city"))  # done once only
    await asyncio.sleep(0.2)  # far more tries than a call has that may have arrived

    again = Settings(port=port_of(url), with_mcp=False, with_dashboard=False)
    async with serving(create_app(store, settings=again), settings=again):
        assert await call is None
        await memory.close()


def test_nothing_goes_beyond_the_time_of_a_call() -> None:
    patience = RetryPolicy(tries=3, timeout=60.0)

    assert patience.pause(100, is_unsent=True, left=0.01) is None
    assert patience.pause(1, retry_after="5", left=4.0) is None
    assert patience.pause(1, left=0.0) is None
    assert 0.5 <= (patience.pause(10**6, is_unsent=True, left=60.0) or 0) <= 1.0
    assert patience.pause(3, left=60.0) is None


async def test_nobody_there_is_told_with_the_cure() -> None:
    memory = RemoteMemory("http://127.0.0.1:1", timeout=scaled(0.5))

    with pytest.raises(MemoryConnectionError, match=r"orbiter-memory serve"):
        await memory.init()
    with pytest.raises(ConnectionError):
        async with memory.scope(user_id="alice").events():
            await memory.scope(user_id="alice").remember("tea")
    await memory.close()


async def test_what_is_wrong_with_tls_is_told_as_that(served: Served, tmp_path: Path) -> None:
    made = trustme.CA().issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made.private_key_pem.write_to_path(key)
    made.cert_chain_pems[0].write_to_path(cert)
    strange = await served(tls_cert=str(cert), tls_key=str(key))
    plain = (await served()).replace("http:", "https:")

    for url, why in ((strange, "SSL_CERT_FILE"), (plain, r"http://")):
        memory = RemoteMemory(url, timeout=600)  # which it does not take: no other try helps
        with pytest.raises(MemoryConnectionError, match=f"TLS.*{why}") as caught:
            await memory.init()
        assert "orbiter-memory serve" not in str(caught.value)


async def test_a_server_that_was_started_again_is_used_again(tmp_path: Path) -> None:
    store = AgentMemory(tmp_path / "a.db", embeddings=None, summaries=None)
    settings = Settings(port=0, with_mcp=False, with_dashboard=False)
    async with serving(create_app(store, settings=settings), settings=settings) as url:
        remote = AgentMemory(url)
        alice = remote.scope(user_id="alice")
        stream = alice.events()
        await alice.remember("before")
        assert (await anext(stream)).kind == "remembered"

    again = Settings(port=port_of(url), with_mcp=False, with_dashboard=False)
    async with serving(create_app(store, settings=again), settings=again):
        after = await alice.remember("after")
        assert {item.content for item in await alice.list()} == {"before", "after"}
        heard: list[MemoryEvent] = []

        async def listen() -> None:
            async for event in stream:
                heard.append(event)  # noqa: PERF401 - looked at meanwhile

        listener = asyncio.create_task(listen())
        while not any(event.kind == "updated" for event in heard):  # it comes back by itself
            await alice.update(after.id, tags=["seen"])
            await asyncio.sleep(0.02)
        await remote.close()
        await listener
        assert heard[0].kind == "missed"


async def test_whoever_is_told_to_wait_waits(served: Served) -> None:
    async with AgentMemory(await served(rate=50, burst=2)) as memory:
        alice = memory.scope(user_id="alice")

        await asyncio.gather(*(alice.remember(f"{number}") for number in range(6)))

        assert len(await alice.list()) == 6


async def test_many_calls_at_once_are_all_answered(served: Served) -> None:
    async with AgentMemory(await served(rate=1e6, burst=10**6)) as memory:
        users = [memory.scope(user_id=f"user-{number}") for number in range(60)]

        stored = await asyncio.gather(*(user.remember(user.scope.user_id or "") for user in users))
        found = await asyncio.gather(*(user.list() for user in users))

    assert [items[0].content for items in found] == [item.content for item in stored]


async def test_listening_ends_with_the_memory_and_hears_what_came_before(served: Served) -> None:
    memory = AgentMemory(await served())
    alice = memory.scope(user_id="alice")
    stream, everything = alice.events(), memory.unscoped().events()
    kinds: list[str] = []

    async def listen() -> None:
        kinds.extend([event.kind async for event in stream])

    listener = asyncio.create_task(listen())
    await alice.remember("tea")
    await memory.scope(user_id="bob").remember("coffee")
    await memory.close()
    await asyncio.wait_for(listener, HANG)

    assert kinds == ["remembered"]
    assert [event.scope.user_id async for event in everything] == ["alice", "bob"]
    assert len(await alice.list()) == 1, "the next use opens it again"
    await memory.close()


async def test_a_stream_hears_from_the_moment_it_is_made(
    proxy: Proxy, remote: RemoteMemory
) -> None:
    alice = remote.scope(user_id="alice")
    proxy.hold(b"GET /v1/events")

    stream = alice.events()
    call = asyncio.create_task(alice.remember("tea"))
    await until(lambda: proxy.held, "the request")
    await asyncio.sleep(0.05)  # the server does not listen yet, and must not be overtaken
    proxy.heal()

    assert (await asyncio.wait_for(anext(stream), HANG)).item_ids == ((await call).id,)


async def test_a_stream_that_is_dropped_ends(served: Served) -> None:
    async with AgentMemory(await served()) as memory:
        stream = memory.scope(user_id="alice").events()
        await memory.scope(user_id="alice").remember("tea")
        task: asyncio.Task[None] = stream._task  # type: ignore[attr-defined]

        del stream
        gc.collect()
        await asyncio.wait([task])

        assert task.cancelled()


# Keys


async def test_a_call_that_names_another_than_the_key_is_refused(
    served: Served, keys: KeyFile
) -> None:
    url = await served(keys=keys, rate=1e6, burst=10**6)
    token = new_key(keys, "write", "alice")
    async with AgentMemory(url, token=token) as memory:
        item = await memory.scope(user_id="alice").remember("tea")
        with pytest.raises(AccessError, match="this key is for user_id `alice`, not `bob`"):
            await memory.scope(user_id="bob").remember("tea")

        mine = await memory.default_user.remember("a program that names no user")
        assert mine.metadata.user_id == "alice"
        assert {each.id for each in await memory.unscoped().list()} == {item.id, mine.id}
        for call in (memory.stats, memory.verify, memory.audit.head):
            with pytest.raises(AccessError):
                await call()
        with pytest.raises(AccessError):
            await memory.erase(user_id="bob")
    async with AgentMemory(url, token=new_key(keys, "read", "bob")) as memory:
        with pytest.raises(AccessError):
            await memory.scope(user_id="alice").list()
        with pytest.raises(AccessError):
            await memory.scope(user_id="bob").remember("coffee")
        with pytest.raises((AccessError, QueryError)):
            await memory.audit.entries()


async def test_a_key_is_never_shown(
    served: Served, keys: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    token = new_key(keys, "write", "alice")
    wrong = f"om_00000000_{'x' * 43}"
    url = await served(keys=keys)
    shown: list[str] = []

    with caplog.at_level(logging.DEBUG):
        for key, address, patience in (
            (token, url, HANG),
            (wrong, url, HANG),
            (wrong, "http://127.0.0.1:1", scaled(0.5)),
        ):
            memory = RemoteMemory(address, token=key, timeout=patience)
            alice = memory.scope(user_id="alice")
            shown += map(repr, (memory, alice, alice.chat("c"), alice.facts, memory._engine._link))
            shown += [repr(memory.audit), repr(alice.as_of(datetime.now(UTC))), memory.url]
            for call in (alice.list, memory.init):
                try:
                    await call()
                # The last try may be under way when the time is over.
                except (AccessError, MemoryConnectionError, MemoryTimeoutError) as exc:
                    shown += traceback.format_exception(exc)
            await memory.close()

    told = "".join([*shown, caplog.text])
    assert token not in told
    assert wrong not in told


async def test_a_wrong_key_is_an_access_error(served: Served, keys: KeyFile) -> None:
    new_key(keys, "write", "alice")
    url = await served(keys=keys)

    for token, why in (
        (None, "a key is required"),
        (f"om_00000000_{'x' * 43}", "wrong, expired or revoked"),
    ):
        memory = AgentMemory(url, token=token)
        with pytest.raises(AccessError, match=f"{why}.*`token=`.*ORBITER_MEMORY_TOKEN.*--token"):
            await memory.init()
        with pytest.raises(AccessError, match="key"):
            await anext(memory.scope(user_id="alice").events())
        await memory.close()
