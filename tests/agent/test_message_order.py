"""A conversation is in the order in which it was added, whatever the clocks said."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Open
from tests.servers.databases import RedisServer

from orbiter.memory import AgentMemory
from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import validate
from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, ToolMemory
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.transfer import export_file, import_file

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECONDS = (30, 10, 20, 0, 40, 10, 25, -5)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def said() -> list[MemoryItem]:
    """Return messages that were made in another order than they are said."""
    made = [
        HumanMemory(content=f"m{number}", created_at=at(seconds))
        for number, seconds in sorted(enumerate(SECONDS), key=lambda each: each[1])
    ]
    return sorted(made, key=lambda item: item.content)


def turn(*seconds: float) -> list[MemoryItem]:
    """Return a turn with two tool calls, each message at its time."""
    calls = [{"id": f"c{n}", "name": "f", "arguments": {}} for n in range(2)]
    items = [
        HumanMemory(content="how warm is it?"),
        AIMemory(content="", tool_calls=calls),
        ToolMemory(content="20", tool_call_id="c0", tool_name="f"),
        ToolMemory(content="21", tool_call_id="c1", tool_name="f"),
        AIMemory(content="about 20"),
    ]
    for item, second in zip(items, seconds, strict=True):
        item.__dict__["created_at"] = item.__dict__["updated_at"] = at(second)
    return items


class Names:
    """A summarizer that repeats the names it reads."""

    async def summarize(self, prompt: str) -> str:
        return " ".join(sorted(set(re.findall(r"(?:word|late)\d", prompt))))


async def contents(chat: Chat, **window: Any) -> list[str]:
    return [item.content for item in await chat.items(**window)]


@pytest.mark.parametrize("is_list", [True, False], ids=["at once", "one by one"])
async def test_a_chat_is_in_the_order_in_which_it_was_added_with_its_times_as_given(
    is_list: bool, any_alice: ScopedMemory
) -> None:
    chat, items = any_alice.chat("c"), said()
    await chat.add("first")
    if is_list:
        await chat.add(items)
    else:
        for item in items:
            await chat.add(item)
    await chat.add(["almost last", "last"], idempotency_key="k")

    found = await chat.items()

    expected = ["first", *(item.content for item in items), "almost last", "last"]
    assert [item.content for item in found] == expected
    assert [item.created_at for item in found[1:-2]] == [item.created_at for item in items]
    assert [item.id for item in found[1:-2]] == [item.id for item in items]
    assert await contents(chat, rounds=3) == expected[-3:]
    window = await contents(chat, budget=40)
    assert 0 < len(window) < len(expected)
    assert window == expected[-len(window) :]
    newest = await any_alice.list(since=at(25), until=at(60))
    assert [item.content for item in newest] == ["m4", "m0", "m6"]


async def test_a_clock_that_is_set_back_drops_no_tool_group(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    await chat.add(turn(0, 1, -1, 2, 0))
    for item in turn(10, 11, 12, 9, 8):
        item.__dict__["id"] = f"again-{item.id}"
        await chat.add(item)
    await chat.add(HumanMemory(content="and tomorrow?", created_at=at(-3600)))

    kinds = ["human", "ai", "tool", "tool", "ai"]
    assert [item.memory_type for item in await chat.items()] == [*kinds, *kinds, "human"]
    assert [item.memory_type for item in await chat.items(rounds=2)] == [*kinds, "human"]
    context = await chat.context()
    assert not validate(context.messages().messages, "openai")
    roles = [
        message["role"] for message in context.messages().messages if message["role"] != "system"
    ]
    wanted = ["user", "assistant", "tool", "tool", "assistant"]
    assert roles[: 2 * len(wanted)] == [*wanted, *wanted]
    assert "and tomorrow?" in str(context.messages().messages[-1])


async def test_a_message_that_changes_or_comes_back_stays_where_it_was_said(
    alice: ScopedMemory,
) -> None:
    chat, items = alice.chat("c"), said()
    await chat.add(items)

    await alice.update(items[2].id, "changed")
    await alice.forget(items[4].id)
    await chat.add(HumanMemory(id=items[5].id, content="said anew"))
    await alice.forget(items[0].id)
    await chat.add("later")
    await alice.restore(items[0].id)
    await alice.restore(items[4].id)

    expected = ["m0", "m1", "changed", "m3", "m4", "said anew", "m6", "m7", "later"]
    assert await contents(chat) == expected


async def test_a_fork_is_in_the_order_of_what_it_was_forked_from(any_alice: ScopedMemory) -> None:
    chat, items = any_alice.chat("c"), said()
    await chat.add(items)

    branch = await chat.fork(items[5].id)
    await branch.add(HumanMemory(content="another way", created_at=at(-99)))

    assert await contents(branch) == [*(f"m{n}" for n in range(6)), "another way"]
    assert len(await contents(chat)) == len(items)


async def test_no_message_falls_between_a_summary_and_the_window(
    any_local_url: str, open_memory: Open, who: str
) -> None:
    config = SummaryConfig(message_threshold=100, keep_recent=2)  # when it is asked for
    memory = open_memory(any_local_url, summaries=config, summarizer=Names())
    chat = memory.scope(user_id=who).chat("c")
    for n, item in enumerate(said()):
        item.content = f"word{n} " * (40 if n < 6 else 2)  # the long ones have no room
        await chat.add(item)
    await chat.summarize()
    # From a clock that is far behind: by its time, all of it would be summed up.
    for n in range(3):
        await chat.add(HumanMemory(content=f"late{n}", created_at=at(-9999)))

    context = await chat.context("what now?", budget=400)
    shown = str(context.messages().messages)

    assert await chat.summary()
    for n in range(len(SECONDS)):
        assert f"word{n}" in shown, n
    for n in range(3):
        assert f"late{n}" in shown, n
    again = await chat.summarize()
    assert again is not None
    assert "late0" in again


@pytest.mark.parametrize("target", ["sqlite", "redis"])
async def test_an_export_keeps_the_order_of_a_conversation(
    target: str,
    any_local_url: str,
    open_memory: Open,
    who: str,
    tmp_path: Path,
    redis_server: RedisServer,
) -> None:
    handle = open_memory(any_local_url).scope(user_id=who)
    await handle.chat("c").add(said())
    await handle.chat("c").add(turn(10, 11, 9, 8, 7))
    expected = await contents(handle.chat("c"))
    path = tmp_path / "all.jsonl"
    await export_file(handle, path)
    await handle.forget(everything=True)
    place = f"sqlite:///{tmp_path}/other.db" if target == "sqlite" else redis_server.url()
    other = open_memory(place).scope(user_id=who)
    if any_local_url == place:  # the same store: what was forgotten is there no more
        await open_memory(place).erase(user_id=who)

    await import_file(other, path)
    assert await contents(other.chat("c")) == expected

    # Once more, into what has gone on.
    await other.chat("c").add("later")
    await import_file(other, path)
    assert await contents(other.chat("c")) == [*expected, "later"]


async def test_what_several_say_at_once_has_one_order_for_all(
    any_local_url: str, open_memory: Open, who: str
) -> None:
    memories = [open_memory(any_local_url)]
    memories.append(memories[0] if any_local_url == "memory://" else open_memory(any_local_url))
    chats = [memory.scope(user_id=who).chat("c") for memory in memories]
    is_done = asyncio.Event()

    async def speak(speaker: int) -> None:
        for number in range(15):
            texts = [f"{speaker}.{number}.{n}" for n in range(1 + number % 3)]
            await chats[speaker % 2].add(texts)

    async def listen(chat: Chat) -> list[list[str]]:
        heard = []
        while not is_done.is_set():
            heard.append(await contents(chat))
        return [*heard, await contents(chat)]

    async with asyncio.TaskGroup() as group:
        listeners = [group.create_task(listen(chat)) for chat in chats]
        async with asyncio.TaskGroup() as speakers:
            for speaker in range(4):
                speakers.create_task(speak(speaker))
        is_done.set()

    whole = await contents(chats[0])
    assert len(whole) == 4 * 30
    for listener in listeners:
        for heard in listener.result():
            assert heard == whole[: len(heard)]


async def test_what_was_said_in_the_past_can_be_recalled_and_listed_by_its_time(
    any_memory: AgentMemory, who: str
) -> None:
    handle = any_memory.scope(user_id=who)
    await handle.chat("c").add(said())

    assert [item.content for item in await handle.list(limit=3)] == ["m4", "m0", "m6"]
    found = await handle.recall("m3", until=at(5))
    assert found[0].item.content == "m3"


# Forks


async def test_of_two_forks_into_one_name_one_is_refused_and_nothing_is_mixed(
    any_alice: ScopedMemory,
) -> None:
    one, two = any_alice.chat("one"), any_alice.chat("two")
    ones = await one.add([f"one {n}" for n in range(4)])
    twos = await two.add([f"two {n}" for n in range(3)])
    ways = [(one, ones[3]), (one, ones[1]), (two, twos[2])]

    for race in range(10):
        name = f"branch {race}"
        results = await asyncio.gather(
            *(chat.fork(at.id, chat_id=name) for chat, at in ways), return_exceptions=True
        )

        refused = [isinstance(result, QueryError) for result in results]
        assert sorted(refused) == [False, True, True], results
        chat, at = ways[refused.index(False)]
        whole = await contents(chat)
        expected = whole[: whole.index(at.content) + 1]
        assert await contents(any_alice.chat(name)) == expected


async def test_the_same_fork_twice_at_once_is_one_fork(any_alice: ScopedMemory) -> None:
    chat = any_alice.chat("c")
    said = await chat.add(["a", "b", "c"])

    branches = await asyncio.gather(*(chat.fork(said[1].id, chat_id="d") for _ in range(5)))

    assert {branch.id for branch in branches} == {"d"}
    assert await contents(branches[0]) == ["a", "b"]
    assert {item.version for item in await branches[0].items()} == {1}
