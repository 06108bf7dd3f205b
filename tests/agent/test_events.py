"""Whoever listens hears what happens in its scope, in order, and never what was said."""

import asyncio
from collections.abc import Callable

import pytest
from tests.timing import HANG

from orbiter.memory import AgentMemory, MemoryItem, MemoryMetadata
from orbiter.memory.agent import EventStream, MemoryEvent, ScopedMemory, events
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import ScriptedSummarizer

Open = Callable[..., AgentMemory]


async def heard(stream: EventStream) -> list[MemoryEvent]:
    """Return what the stream holds; it hears no more."""
    await stream.aclose()
    return [event async for event in stream]


async def test_everything_that_happens_is_told_in_order(alice: ScopedMemory) -> None:
    stream = alice.events()

    item = await alice.remember("tea")
    await alice.recall("tea")
    await alice.update(item.id, "coffee")
    await alice.forget(item.id)
    await alice.restore(item.id)
    two = await alice.remember_many(["one", "two"])
    (said,) = await alice.chat("c").add("hello")
    await alice.chat("c").context()
    branch = await alice.chat("c").fork(said)

    told = await heard(stream)
    assert [event.kind for event in told if event.kind != "recalled"] == [
        "remembered",
        "updated",
        "forgotten",
        "restored",
        "remembered",
        "said",
        "assembled",
        "forked",
    ]
    assert [event.at for event in told] == sorted(event.at for event in told)
    assert [event.item_ids for event in told[:5]] == [(item.id,)] * 5
    by_kind = {event.kind: event for event in told}
    assert by_kind["remembered"].item_ids == tuple(each.id for each in two)
    assert by_kind["said"].scope == said.metadata
    assert by_kind["forked"].scope == branch.scope


async def test_what_changed_nothing_is_not_told(alice: ScopedMemory) -> None:
    item = await alice.remember("tea", idempotency_key="k")
    await alice.chat("c").add("hello", idempotency_key="k")
    stream = alice.events()

    await alice.remember("tea", idempotency_key="k")
    await alice.chat("c").add("hello", idempotency_key="k")
    await alice.forget("nothing")
    await alice.forget(item.id, dry_run=True)
    await alice.get(item.id)
    await alice.list()
    await alice.chat("c").add([])
    await alice.remember_many([])

    assert await heard(stream) == []


async def test_a_listener_hears_of_its_own_scope_only(memory: AgentMemory, who: str) -> None:
    alice, bob = memory.scope(user_id=f"alice-{who}"), memory.scope(user_id=f"bob-{who}")
    session = memory.scope(user_id=f"alice-{who}", session_id="s")
    streams = {name: h.events() for name, h in (("a", alice), ("b", bob), ("s", session))}
    everything = memory.unscoped().events()

    ours = await alice.remember("ours")
    theirs = await bob.remember("theirs")
    inner = await session.remember("in the session")

    ids = {name: [e.item_ids[0] for e in await heard(s)] for name, s in streams.items()}
    assert ids == {"a": [ours.id, inner.id], "b": [theirs.id], "s": [inner.id]}
    assert [e.item_ids[0] for e in await heard(everything)] == [ours.id, theirs.id, inner.id]


async def test_a_listener_hears_what_a_wider_handle_does_to_its_scope(
    memory: AgentMemory, alice: ScopedMemory, bob: ScopedMemory
) -> None:
    ours, theirs = await alice.remember("ours"), await bob.remember("theirs")
    stream = alice.events()
    admin = memory.unscoped()

    await admin.update(ours.id, "changed")
    await admin.forget(where={"id": {"$in": [ours.id, theirs.id]}})
    await admin.restore(ours.id)
    await admin.remember_many(
        [MemoryItem(content="for alice", metadata=alice.scope), MemoryItem(content="for nobody")]
    )

    told = await heard(stream)
    assert [event.kind for event in told] == ["updated", "forgotten", "restored", "remembered"]
    assert {event.scope.user_id for event in told} == {alice.scope.user_id}
    assert [event.item_ids for event in told[:3]] == [(ours.id,)] * 3
    assert len(told[3].item_ids) == 1
    await admin.forget(where={"content": "for nobody"})


async def test_no_event_holds_content(url: str, open_memory: Open, who: str) -> None:
    summaries = SummaryConfig(message_threshold=2, keep_recent=1)
    script = ScriptedSummarizer(RuntimeError("secret cause"), "secret summary")
    memory = open_memory(url, summaries=summaries, summarizer=script)
    alice = memory.scope(user_id=who)
    stream = memory.unscoped().events()

    item = await alice.remember("secret one", tags=["secret-tag"], extra={"secret": "secret"})
    await alice.update(item.id, "secret two", source="secret-source")
    await alice.recall("secret question", where={"secret": "secret"})
    await alice.forget(query="secret")
    await alice.restore(item.id)
    chat = alice.chat("c")
    (said, *_) = await chat.add([f"secret {number}" for number in range(4)])
    await memory.flush()
    assert await chat.summarize() == "secret summary"
    await chat.context("secret task", budget=2_000)
    await chat.fork(said)

    told = await heard(stream)
    assert {"summary failed", "summarized"} <= {event.kind for event in told}
    assert "secret" not in repr(told)


async def test_a_slow_listener_is_told_how_much_it_missed(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 3)
    alice = open_memory("memory://").scope(user_id="alice")
    slow, quick = alice.events(), alice.events()
    items, seen = [], []

    for number in range(5):
        items.append(await alice.remember(f"{number}"))
        seen.append(await anext(quick))

    told = await heard(slow)
    assert [event.kind for event in told] == ["missed"] + ["remembered"] * 3
    assert told[0].detail == "2 events"
    assert [event.item_ids[0] for event in told[1:]] == [item.id for item in items[2:]]
    assert [event.item_ids[0] for event in seen] == [item.id for item in items]


async def test_a_waiting_listener_hears_at_once_and_ends_with_the_memory(
    local_url: str, open_memory: Open, who: str
) -> None:
    memory = open_memory(local_url)
    alice = memory.scope(user_id=who)
    await memory.init()
    told: list[str] = []

    async def listen() -> None:
        async for event in alice.events():
            told.append(event.kind)  # noqa: PERF401 - looked at meanwhile

    listener = asyncio.create_task(listen())
    await asyncio.sleep(0)
    await alice.remember("tea")
    await asyncio.sleep(0)
    assert told == ["remembered"]
    await alice.remember("coffee")
    await memory.close()
    await asyncio.wait_for(listener, HANG)

    assert told == ["remembered", "remembered"]


async def test_a_listener_that_left_hears_nothing_more(open_memory: Open) -> None:
    memory = open_memory("memory://")
    alice = memory.scope(user_id="alice")

    async with alice.events() as stream:
        await alice.remember("tea")
    await alice.remember("coffee")

    assert len([event async for event in stream]) == 1
    alice.events()  # dropped at once
    await alice.remember("milk")
    assert len(memory._core.events._streams) == 0


async def test_the_scope_of_an_event_says_whose_and_nothing_else(open_memory: Open) -> None:
    memory = open_memory("memory://")
    stream = memory.unscoped().events()

    await memory.scope(user_id="alice").remember("tea", tags=["drink"])

    assert [event.scope for event in await heard(stream)] == [MemoryMetadata(user_id="alice")]
