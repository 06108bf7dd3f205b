"""Many callers, cancelled ones, threads, forks, TLS, users: each gets its own answer or error."""

import asyncio
import contextlib
import gc
import logging
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from redis.asyncio import Redis
from tests.crash._children import Child
from tests.crash._redis_children import FORK, add_at
from tests.crash._redis_load import connections, left_open, new_agent, storm
from tests.crash._redis_tls import Strict
from tests.episodic.conftest import RIGHTS
from tests.rows import each_row
from tests.servers.databases import RedisServer, redis_server
from tests.servers.redis_topologies import TLSFront
from tests.timing import HANG, scaled, until

from orbiter.memory import MemoryConnectionError
from orbiter.memory.backends.redis.connection import CONNECTIONS
from orbiter.memory.episodic.manager import (
    EpisodicMemory,
    ShortTermMemoryManager,
    get_short_term_memory,
)
from orbiter.memory.errors import AccessError

__all__ = ["redis_server"]

TICK = timedelta(microseconds=1)


@pytest.fixture
async def memory(redis_server: RedisServer) -> AsyncIterator[ShortTermMemoryManager]:
    async with ShortTermMemoryManager(redis_server.url(), new_agent(), deadline=HANG) as memory:
        yield memory


# Many callers


async def test_five_thousand_at_once_need_few_connections(
    redis_server: RedisServer, memory: ShortTermMemoryManager
) -> None:
    before = await connections(redis_server.url())
    most, is_over = 0, False

    async def watch() -> None:
        nonlocal most
        while not is_over:
            most = max(most, await connections(redis_server.url()))
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    added = await asyncio.gather(*(memory.add_interaction("note", str(n)) for n in range(5_000)))
    read = await asyncio.gather(*(memory.get_recent(limit=1) for _ in range(5_000)))
    is_over = True
    await watching  # called off, it might leave a connection half made

    assert len({each.id for each in added}) == await memory.count() == 5_000
    assert {each.content for (each,) in read} == {"4999"}
    assert 0 < most <= before + CONNECTIONS


async def test_many_streams_do_not_stand_in_the_way_of_writers(
    redis_server: RedisServer, memory: ShortTermMemoryManager
) -> None:
    heard: list[str] = []

    async def follow() -> None:
        async with contextlib.aclosing(memory.stream()) as stream:
            async for each in stream:
                heard.append(each.content)  # noqa: PERF401 - others look at it meanwhile

    following = [asyncio.create_task(follow()) for _ in range(60)]
    most = 0
    async with Redis.from_url(redis_server.url()) as client:

        async def some_wait() -> bool:
            nonlocal most
            most = max(most, (await client.info("clients"))["blocked_clients"])
            return bool(most)

        await until(some_wait, "a stream that waits at the server")
        for n in range(5):
            await some_wait()
            await memory.add_interaction("note", str(n))
            await asyncio.sleep(0.1)
    await until(lambda: len(heard) >= 5 * 60, "every memory at every stream")
    for task in following:
        task.cancel()
    ended = await asyncio.gather(*following, return_exceptions=True)

    assert {type(each) for each in ended} == {asyncio.CancelledError}
    assert 0 < most <= CONNECTIONS // 2, "they leave the others no connection"


# Cancelled callers


# Once in thousands of times a connection that is cancelled while it is being made is freed before
# it is closed, and says so; that none stays at the server, the next test sees.
@left_open
def test_a_storm_of_cancellations_mixes_up_no_answers_and_loses_nothing(
    redis_server: RedisServer,
) -> None:
    asyncio.run(storm(redis_server.url(), cancellations=600))


async def test_after_a_storm_of_cancellations_no_connection_is_left_over() -> None:
    with RedisServer.start() as server:
        memory = ShortTermMemoryManager(server.url(), "nova")
        dice = random.Random(3)
        for _ in range(150):
            tasks = [asyncio.create_task(memory.get_recent(limit=1)) for _ in range(5)]
            await asyncio.sleep(dice.random() * 0.002)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await memory.add_interaction("note", "x")

        assert await connections(server.url()) <= CONNECTIONS
        await memory.disconnect()
        assert await _gone(server.url())


async def test_a_cancelled_caller_takes_nobody_along(memory: ShortTermMemoryManager) -> None:
    for _ in range(100):
        first = asyncio.create_task(memory.add_interaction("note", "cancelled"))
        await asyncio.sleep(0)
        others = [asyncio.create_task(memory.add_interaction("note", "kept")) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        others[1].cancel()

        results = await asyncio.gather(first, *others, return_exceptions=True)

        assert [type(each) for each in results[1::2]] == [EpisodicMemory] * 2


async def test_a_caller_who_handles_another_error_is_waited_for_all_the_same() -> None:
    with RedisServer.start() as server:
        memory = ShortTermMemoryManager(server.url(), "nova")
        await memory.connect()
        await asyncio.to_thread(server.stop)
        try:
            Path("/nowhere/at/all").read_text(encoding="utf-8")
        except FileNotFoundError:
            # That error is the context of every one raised from here on, and none of its causes.
            adding = asyncio.create_task(memory.add_interaction("note", "batched"))
            starting = asyncio.create_task(asyncio.to_thread(server.start_again))
            await memory.add_interaction("note", "x")
            await adding
            await starting
        assert await memory.count() == 2
        await memory.disconnect()


async def test_a_program_that_cancels_every_task_can_still_disconnect() -> None:
    with RedisServer.start() as server:
        for ticks in range(12):
            memory = ShortTermMemoryManager(server.url(), f"agent-{ticks}")
            await memory.connect()
            for _ in range(20):
                asyncio.create_task(memory.add_interaction("note", "x"))  # noqa: RUF006 - found below
            for _ in range(ticks):
                await asyncio.sleep(0)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

            await asyncio.wait_for(memory.add_interaction("note", "y"), HANG)
            await asyncio.wait_for(memory.disconnect(), HANG)


async def test_disconnecting_lets_finish_what_is_under_way_and_leaves_no_connection() -> None:
    with RedisServer.start() as server:
        memory = ShortTermMemoryManager(server.url(), "nova")
        for _ in range(20):
            adding = [asyncio.create_task(memory.add_interaction("note", "x")) for _ in range(50)]
            await asyncio.sleep(0)
            await memory.disconnect()
            await asyncio.gather(*adding)

        assert await _gone(server.url())
        assert await memory.count() == 1_000
        await memory.disconnect()


async def _gone(url: str) -> bool:
    """Tell whether the server has no client any more; it needs a moment to see that they left."""

    async def are_gone() -> bool:
        return not await connections(url)

    await until(are_gone, "the end of every connection")
    return True


# Processes, threads and event loops


async def test_five_processes_in_one_microsecond_overwrite_nothing(
    memory: ShortTermMemoryManager, redis_server: RedisServer
) -> None:
    moment = datetime.now(UTC)

    def together() -> list[Any]:
        work = (redis_server.url(), memory.agent_id, moment, 200)
        children = [Child(add_at, *work) for _ in range(5)]
        for child in children:
            assert child.receive() == "ready"
        for child in children:
            child.pipe.send("go")
        said = [child.receive() for child in children]
        assert [child.end() for child in children] == [0] * 5
        return said

    said = await asyncio.to_thread(together)

    assert all(isinstance(each, list) for each in said), said
    assert len({each for ids in said for each in ids}) == 1_000
    assert {each.id for each in await memory.get_recent()} == {each for ids in said for each in ids}
    assert await memory.count() == 1_000


def test_after_a_fork_child_and_parent_both_go_on(redis_server: RedisServer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, redis_server.url(), new_agent("fork")],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(1 + 3 * (20 + 2))]


def test_one_manager_serves_event_loops_in_many_threads_at_once(redis_server: RedisServer) -> None:
    url, agent_id = redis_server.url(), new_agent("threads")
    errors: list[BaseException] = []

    async def use(name: str) -> None:
        shared = get_short_term_memory(url, agent_id)
        for n in range(10):
            added = await shared.add_interaction("note", f"{name} {n}")
            assert await shared.get_range(added.timestamp, added.timestamp + TICK)
        await shared.disconnect()

    def run(name: str) -> None:
        try:
            for turn in range(5):
                asyncio.run(use(f"{name} {turn}"))
        except BaseException as exc:  # noqa: BLE001 - told to the test
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)

    assert errors == []
    shared = get_short_term_memory(url, agent_id)

    async def contents() -> set[str]:
        async with shared:
            return {each.content for each in await shared.get_recent()}

    assert len(asyncio.run(contents())) == 6 * 5 * 10


@left_open
def test_a_loop_that_ended_without_a_farewell_is_no_trouble_for_the_next() -> None:
    with RedisServer.start() as server:
        memory = ShortTermMemoryManager(server.url(), "nova")

        async def use(memory: ShortTermMemoryManager) -> int:
            await asyncio.gather(*(memory.add_interaction("note", "x") for _ in range(20)))
            return await memory.count()

        counts = [asyncio.run(use(memory)) for _ in range(5)]
        gc.collect()

        assert counts == [20, 40, 60, 80, 100]
        assert asyncio.run(connections(server.url())) <= 2 * CONNECTIONS
        del memory
        gc.collect()


@left_open
def test_a_loop_that_ended_in_the_middle_of_calls_is_no_trouble_for_the_next(
    redis_server: RedisServer,
) -> None:
    memory = ShortTermMemoryManager(redis_server.url(), new_agent("ended"))

    async def leave_early() -> None:
        for _ in range(50):
            asyncio.create_task(memory.add_interaction("note", "x"))  # noqa: RUF006 - on purpose
        await asyncio.sleep(0.001)

    async def use() -> int:
        async with asyncio.timeout(HANG), memory:
            await memory.add_interaction("note", "y")
            return len(await memory.search("y"))

    asyncio.run(leave_early())

    assert asyncio.run(use()) == 1
    gc.collect()


# TLS


async def refusal(url: str, *, deadline: float | None = None) -> Exception:
    """Return the error of a first call, which is not tried again.

    With a *deadline* it is that of a write, which may be, for `connect` has a deadline of its own.
    """
    memory = ShortTermMemoryManager(url, new_agent("refused"), deadline=deadline or 10.0)
    try:
        async with asyncio.timeout(HANG):
            if deadline is None:
                await memory.connect()
            await memory.add_interaction("note", "x")
    except (MemoryConnectionError, AccessError) as exc:
        error = exc
    else:
        raise AssertionError("it was not refused")
    finally:
        await memory.disconnect()
    assert deadline is not None or "did not answer within" not in str(error)
    return error


async def test_a_certificate_is_verified_and_a_refusal_tells_what_to_do(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    with (
        TLSFront.start(redis_server) as good,
        TLSFront.start(redis_server, is_trusted=False) as foreign,
        TLSFront.start(redis_server, host_names=["redis.example"]) as misnamed,
        TLSFront.start(redis_server, wants_certificate=True) as strict,
    ):
        junk = tmp_path / "junk.pem"
        junk.write_text("no certificate", encoding="utf-8")
        plain = redis_server.url().replace("redis://", "rediss://")
        refused = {
            "unknown": good.url(),
            "foreign": f"{foreign.url()}?ssl_ca_certs={foreign.ca_file}",
            "misnamed": f"{misnamed.url()}?ssl_ca_certs={misnamed.ca_file}",
            "no file": f"{good.url()}?ssl_ca_certs={tmp_path / 'missing.pem'}",
            "junk": f"{good.url()}?ssl_ca_certs={junk}",
        }
        # These hang up, or say nothing, as a server does that is about to start.
        silent = {
            "anonymous": f"{strict.url()}?ssl_ca_certs={strict.ca_file}",
            "no TLS there": f"{plain}?ssl_ca_certs={good.ca_file}",
        }

        # One by one: a busy machine does not end five handshakes within the time of one.
        errors = [await refusal(url) for url in refused.values()]
        errors += await asyncio.gather(
            *(refusal(url, deadline=scaled(1)) for url in silent.values())
        )
        for case, error in zip(refused | silent, errors, strict=True):
            assert isinstance(error, ConnectionError), case
            assert "ssl_ca_certs" in str(error), case
            assert "ssl_certfile" in str(error), case
            assert password_of(redis_server) not in whole(error), case

        own = f"ssl_certfile={strict.client_file}&ssl_keyfile={strict.client_file}"
        for url in (
            f"{good.url()}?ssl_ca_certs={good.ca_file}",
            f"{strict.url()}?ssl_ca_certs={strict.ca_file}&{own}",
        ):
            async with ShortTermMemoryManager(url, new_agent("tls")) as memory:
                await memory.add_interaction("note", "x")
                assert await memory.count() == 1


async def test_a_server_that_says_it_wants_a_certificate_is_not_asked_again(tmp_path: Path) -> None:
    with Strict(tmp_path) as strict:
        error = await refusal(
            f"rediss://:hush@127.0.0.1:{strict.port}?ssl_ca_certs={strict.ca_file}"
        )

    assert isinstance(error, ConnectionError)
    assert "ssl_certfile" in str(error)
    assert "hush" not in whole(error)
    assert strict.refused == 1


async def test_a_tls_server_that_is_away_for_a_moment_is_waited_for(
    redis_server: RedisServer,
) -> None:
    with TLSFront.start(redis_server) as front:
        url = f"{front.url()}?ssl_ca_certs={front.ca_file}"
        async with ShortTermMemoryManager(url, new_agent("tls")) as memory:
            for n in range(5):
                async with Redis.from_url(redis_server.url()) as client:
                    await client.client_kill_filter(_type="normal", skipme=True)
                await memory.add_interaction("note", str(n))

            assert await memory.count() == 5


# Users and passwords


def password_of(server: RedisServer) -> str:
    return server.url().partition("//:")[2].partition("@")[0]


def whole(error: BaseException) -> str:
    """Return all that a program could print of *error*, its causes included."""
    text = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        text += repr(seen) + str(seen) + repr(seen.args) + repr(vars(seen))
        seen = seen.__cause__ or seen.__context__
    return text


@pytest.fixture(scope="module")
def guarded() -> Any:
    """Start a server with users of odd passwords and few rights."""
    users = {
        "orbiter": ["on", ">s3cret/@:#", *RIGHTS],
        "odd": ["on", ">/@:#%?&=+[]", "~agent:*", "+@all"],
        "narrow": ["on", ">narrow-hush", "~other:*", "+@all"],
        "meek": ["on", ">meek-hush", "~agent:*", "+@all", "-zadd"],
    }
    with RedisServer.start(users=users) as server:
        yield server


@pytest.mark.parametrize("user", ["orbiter", "odd"])
async def test_a_quoted_password_may_be_anything(guarded: RedisServer, user: str) -> None:
    async with ShortTermMemoryManager(guarded.url(user=user), new_agent("acl")) as memory:
        await memory.add_interaction("note", "x")

        assert await memory.count() == 1
        assert guarded.url(user=user).partition(":")[2] not in repr(memory)


@pytest.mark.parametrize(
    ("user", "password"),
    [("orbiter", "wr0ng-hush"), ("nobody", "wr0ng-hush"), ("narrow", "narrow-hush"),
     ("meek", "meek-hush"), ("", "wr0ng-hush"), ("", "")],
)  # fmt: skip
async def test_who_may_not_is_told_at_once_and_no_secret_shows(
    guarded: RedisServer, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    login = f"{user}:{quote(password)}@" if password else ""

    error = await refusal(f"redis://{login}127.0.0.1:{guarded.port}/0")

    assert isinstance(error, PermissionError)
    assert isinstance(error, AccessError)
    assert str(guarded.port) in str(error)
    assert "hush" not in whole(error) + caplog.text


@each_row(
    "url",
    [
        "redis://:hu/sh@127.0.0.1:6379/0",
        "redis://:hu#sh@127.0.0.1:6379/0",
        "redis://:hu?sh@127.0.0.1:6379/0",
        "redis://ann:12/hush@127.0.0.1:6379/0",
        "redis://ann:12#hush@127.0.0.1:6379/0",
        "redis://ann:12?hush@127.0.0.1:6379/0",
        "redis://ann:12?x=hush@127.0.0.1:6379/0",
        "redis://:hu[sh@127.0.0.1:6379/0",
        "redis://:hu]sh@127.0.0.1:6379/0",
        "redis+cluster://ann:12/hush@127.0.0.1:6379",
        "redis+sentinel://ann:12/hush@127.0.0.1:6379/mymaster",
        "redis+sentinel://ann:12?hush@127.0.0.1:6379/mymaster",
        "rediss://:hush@127.0.0.1:port/0",
        "redis+cluster://:hush@127.0.0.1/3",
        "redis+sentinel://:hush@127.0.0.1",
        "redis+other://:hush@127.0.0.1",
        "redis//:hush@127.0.0.1",
        "hush@127.0.0.1",
        "redis://127.0.0.1:6379/0?socket_timeout=hush",
        "redis://127.0.0.1:6379/0?no_such_option=hush",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_and_shows_no_secret(url: str) -> None:
    with pytest.raises(ValueError, match="redis|address") as caught:
        ShortTermMemoryManager(url)

    assert "hu" not in str(caught.value)
    assert caught.value.__cause__ is None
