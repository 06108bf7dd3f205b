"""One memory and several event loops: it serves one at a time, and tells the others at once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest

from orbiter.memory import AgentMemory, HumanMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import EventLoopError, MemoryError
from orbiter.memory.testing import HashEmbeddings

Call = Callable[[AgentMemory, ScopedMemory], Awaitable[object]]

CALLS: dict[str, Call] = {
    "init": lambda memory, _: memory.init(),
    "close": lambda memory, _: memory.close(),
    "flush": lambda memory, _: memory.flush(),
    "erase": lambda memory, _: memory.erase(user_id="nobody"),
    "events": lambda memory, _: anext(memory.unscoped().events()),
    "remember": lambda _, alice: alice.remember("tea"),
    "recall": lambda _, alice: alice.recall("tea"),
    "list": lambda _, alice: alice.list(),
    "handle's events": lambda _, alice: anext(alice.events()),
    "chat.add": lambda _, alice: alice.chat("c").add(HumanMemory(content="hi")),
    "chat.context": lambda _, alice: alice.chat("c").context(),
    "facts": lambda _, alice: alice.facts.all(),
}


def make(url: str) -> AgentMemory:
    return AgentMemory(url, embeddings=HashEmbeddings(), summaries=None)


async def leave(memory: AgentMemory) -> None:
    """Close connections to a server in the loop that made them; others leave nothing in a loop."""
    if memory.url.startswith(("postgres", "redis")):
        with suppress(EventLoopError):
            await memory.close()


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # a hang fails this test, no other
    thread.start()
    return thread


def test_many_loops_that_use_a_new_memory_at_once_are_served_or_told_and_never_hang(
    any_local_url: str, who: str
) -> None:
    memory = make(any_local_url)
    alice = memory.scope(user_id=f"alice-{who}")
    start = threading.Barrier(8)
    kept: list[str] = []
    refused: list[BaseException] = []

    async def use(number: int) -> None:
        for turn in range(3):
            try:
                kept.append((await alice.remember(f"cup {number}-{turn}")).id)
            except MemoryError as exc:
                refused.append(exc)
        await leave(memory)

    def run(number: int) -> None:
        start.wait()
        try:
            asyncio.run(use(number))
        except BaseException as exc:  # noqa: BLE001 - looked at below
            refused.append(exc)

    threads = [in_thread(partial(run, number)) for number in range(8)]
    for thread in threads:
        thread.join()

    async def end() -> set[str]:
        found = await alice.list(limit=100)
        await memory.close()
        return {item.id for item in found}

    assert {type(error) for error in refused} <= {EventLoopError}
    assert len(kept) + len(refused) == 24
    assert kept
    assert asyncio.run(end()) == set(kept)


@pytest.mark.parametrize("call", CALLS)
def test_a_second_loop_is_told_at_once_what_to_do(any_local_url: str, who: str, call: str) -> None:
    memory = make(any_local_url)
    alice = memory.scope(user_id=f"alice-{who}")
    told: list[BaseException] = []

    async def second() -> None:
        await CALLS[call](memory, alice)

    def run() -> None:
        try:
            asyncio.run(second())
        except BaseException as exc:  # noqa: BLE001 - looked at below
            told.append(exc)

    async def first() -> list[str]:
        await alice.remember("coffee")
        await asyncio.to_thread(in_thread(run).join)
        found = await alice.list()
        await memory.close()
        return [item.content for item in found]

    assert asyncio.run(first()) == ["coffee"]
    (error,) = told
    assert isinstance(error, EventLoopError)
    assert "one `AgentMemory` for each event loop" in str(error)
    assert "orbiter.memory.sync" in str(error)


def test_the_next_loop_may_use_it_when_the_first_has_ended(any_local_url: str, who: str) -> None:
    memory = make(any_local_url)
    alice = memory.scope(user_id=f"alice-{who}")

    async def use(text: str) -> list[str]:
        await alice.remember(text)
        await alice.recall("cup")
        await alice.chat("c").add(HumanMemory(content=text))
        found = sorted({item.content for item in await alice.list()})
        await leave(memory)
        return found

    assert asyncio.run(use("cup one")) == ["cup one"]
    assert asyncio.run(use("cup two")) == ["cup one", "cup two"]
    asyncio.run(memory.close())


def test_a_loop_that_only_stands_still_gives_the_memory_away_and_gets_it_back(
    any_local_url: str, who: str
) -> None:
    memory = make(any_local_url)
    alice = memory.scope(user_id=f"alice-{who}")
    with asyncio.Runner() as one, asyncio.Runner() as two:
        for number, loop in enumerate((one, two, one, two)):
            loop.run(alice.remember(f"cup {number}"))
            assert len(loop.run(alice.list())) == number + 1

        for loop in (one, two):
            loop.run(memory.close())
