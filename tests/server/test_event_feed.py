"""What happens is heard by whoever may hear it: once, at once, and from other processes, too."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key, until
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.agent import MemoryEvent
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.server.api import sse, transfer_routes
from orbiter.memory.server.http.event_feed import EventFeed

BARE = {"with_mcp": False, "with_dashboard": False}
ANN = MemoryMetadata(user_id="ann")


async def some(stream: AsyncIterator[MemoryEvent], count: int) -> list[MemoryEvent]:
    return [await asyncio.wait_for(anext(stream), HANG) for _ in range(count)]


@pytest.fixture
async def live(memory: AgentMemory) -> AsyncIterator[EventFeed]:
    made = EventFeed(memory, every=0.02)
    yield made
    await made.stop()


async def test_a_listener_hears_what_happens_in_its_scope_and_nothing_else(
    live: EventFeed, memory: AgentMemory
) -> None:
    ann, bob = memory.scope(user_id="ann"), memory.scope(user_id="bob")
    async with live.listen(ANN) as stream, live.listen(MemoryMetadata()) as everything:
        hers = await ann.remember("tea")
        his = await bob.remember("coffee")
        await ann.update(hers.id, "green tea")
        await ann.forget(hers.id)

        heard, all_heard = await some(stream, 3), await some(everything, 4)

    assert [event.kind for event in heard] == ["remembered", "updated", "forgotten"]
    assert {event.item_ids for event in heard} == {(hers.id,)}
    assert all_heard[1].item_ids == (his.id,)


async def test_what_another_memory_writes_is_heard_and_nothing_twice(
    live: EventFeed, memory: AgentMemory
) -> None:
    ann = memory.scope(user_id="ann")
    async with AgentMemory(memory.url, embeddings=None, summaries=None) as elsewhere:
        await elsewhere.scope(user_id="ann").remember("before")
        async with live.listen(ANN) as stream:
            mine, theirs = [], []
            for n in range(20):  # both at once, so that a look at the store sees each of its own
                mine.append((await ann.remember(f"here {n}")).id)
                theirs.append((await elsewhere.scope(user_id="ann").remember(f"there {n}")).id)
                await elsewhere.scope(user_id="bob").remember(f"bob {n}")
            heard: list[str] = []
            while len(heard) < 40:
                (event,) = await some(stream, 1)
                assert event.kind == "remembered"
                heard += event.item_ids
            last = await ann.remember("the last")
            await asyncio.sleep(0.1)  # some looks at the store
            after = [each for event in await some(stream, 1) for each in event.item_ids]

    assert sorted(heard) == sorted(mine + theirs)
    assert after == [last.id]


async def test_what_the_store_told_first_is_not_told_again_but_what_is_written_anew_is(
    live: EventFeed, memory: AgentMemory
) -> None:
    ann = memory.scope(user_id="ann")
    item = MemoryItem(content="tea", metadata=ANN)
    async with live.listen(ANN) as stream:
        live._emit([item])  # as if a look at the store were quicker than the memory itself
        await ann.remember(item)
        await ann.remember(item.model_copy(update={"content": "green tea"}))
        await ann.forget(item.id)

        heard = await some(stream, 3)

    assert [event.kind for event in heard] == ["remembered", "remembered", "forgotten"]
    assert {event.item_ids for event in heard} == {(item.id,)}


async def test_nobody_looks_at_the_store_when_nobody_listens(
    live: EventFeed, memory: AgentMemory
) -> None:
    before = asyncio.all_tasks()
    async with live.listen(ANN), live.listen(ANN), live.listen(MemoryMetadata()):
        assert len(asyncio.all_tasks() - before) == 2  # one that hears, one that looks

    live_now = asyncio.all_tasks() - before

    assert len(live_now) == 1  # which hears what this process does
    await live.stop()
    assert asyncio.all_tasks() <= before


@asynccontextmanager
async def listening(http: httpx.AsyncClient, **asked: str) -> AsyncIterator[AsyncIterator[str]]:
    """Give the lines that a listener gets."""
    async with http.stream("GET", "/v1/events", params=asked, timeout=HANG) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield answer.aiter_lines()


async def events(lines: AsyncIterator[str], count: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    async for line in lines:
        if line.startswith("data: "):
            found.append(json.loads(line[6:]))
            if len(found) == count:
                break
    return found


async def test_a_write_of_another_process_is_seen(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    http = client(await served(**BARE))
    command = [sys.executable, "-m", "orbiter.memory.cli", "remember", "from afar"]
    command += ["--url", memory.url, "--user", "ann", "--model", "none"]

    async with listening(http, user_id="ann") as lines:
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        (event,) = await events(lines, 1)

    assert event["kind"] == "remembered"
    assert event["item_ids"] == [done.stdout.decode().strip()]
    assert "from afar" not in json.dumps(event)


async def test_a_stream_ends_when_its_key_is_revoked(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory
) -> None:
    key, token = keys.create(scope=ANN, role="read")
    http = client(await served(keys=keys, **BARE), token)

    async with listening(http) as lines:
        keys.revoke(key.id)
        await memory.scope(user_id="ann").remember("too late")
        rest = [line async for line in lines]  # which ends by itself

    assert not [line for line in rest if line.startswith("data: ")]


async def test_a_reader_who_leaves_leaves_nothing_behind(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    url = await served(**BARE)
    live = served.app.state.orbiter.live  # type: ignore[attr-defined]
    before = len(asyncio.all_tasks())

    for _ in range(5):
        async with (
            httpx.AsyncClient(base_url=url, timeout=HANG) as http,
            listening(http, user_id="ann") as lines,
        ):
            await memory.scope(user_id="ann").remember("hello")
            await events(lines, 1)
    await until(lambda: not live._walks and len(asyncio.all_tasks()) <= before)

    assert live._listeners == 0
    assert not live._walks


async def test_a_silent_stream_shows_that_it_lives_and_a_late_reader_that_it_missed_something(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "_HEARTBEAT", 0.0)
    http = client(await served(**BARE))
    http.headers["Last-Event-ID"] = "7"

    async with listening(http, user_id="ann") as lines:
        (missed,) = await events(lines, 1)
        while not (line := await anext(lines)).startswith(":"):
            pass

    assert missed["kind"] == "missed"
    assert line == ": still here"


async def test_a_key_has_no_more_streams_than_it_needs(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "_MAX_STREAMS", 1)
    http = client(await served(**BARE))
    counts = served.app.state.orbiter.link.limits.counts  # type: ignore[attr-defined]

    async with listening(http, user_id="ann"):
        second = await http.get("/v1/events", params={"user_id": "ann"})
    await until(lambda: not counts["stream:None"])

    assert second.status_code == 429
    async with listening(http, user_id="ann"):
        assert counts["stream:None"] == 1


async def test_who_asks_for_the_head_alone_gets_it_at_once(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> int:
        raise AssertionError("nobody reads it")

    monkeypatch.setattr(transfer_routes, "_write_out", never)
    http = client(await served(**BARE))

    stream = await http.head("/v1/events", params={"user_id": "ann"})
    file = await http.head("/v1/export", params={"user_id": "ann", "format": "csv"})

    assert (stream.status_code, stream.content) == (200, b"")
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    counts = served.app.state.orbiter.link.limits.counts  # type: ignore[attr-defined]
    assert not counts["stream:None"]
    assert (file.status_code, file.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert (await http.head("/v1/events")).status_code == 422, "whose events is asked, too"


async def test_a_server_that_stops_ends_its_streams(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    http = client(await served(**BARE))

    async with listening(http, user_id="ann") as lines:
        await served.app.state.orbiter.live.stop()  # type: ignore[attr-defined]
        rest = [line async for line in lines]

    assert rest[0] == "retry: 1000"


async def test_a_key_of_another_hears_nothing_of_it_however_it_asks(
    served: Served, client: Client, keys: KeyFile, memory: AgentMemory
) -> None:
    http = client(await served(keys=keys, **BARE), new_key(keys, "read", "bob"))

    refused = await http.get("/v1/events", params={"user_id": "ann"})
    async with listening(http, everyone="true") as lines:
        await memory.scope(user_id="ann").remember("hers")
        await memory.scope(user_id="ann").chat("c").add("hers, too")
        mine = await memory.scope(user_id="bob").remember("his")
        (event,) = await events(lines, 1)

    assert refused.status_code == 403
    assert event["item_ids"] == [mine.id]
