"""A request under an `idempotency_key` is carried out once: in a race, and after a deletion."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.agent.conftest import Open

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import MemoryItem

pytestmark = pytest.mark.filterwarnings("ignore:the `idempotency_key`")
RACES = 50

Call = Callable[[ScopedMemory, str, Sequence[str], str], Awaitable[list[MemoryItem]]]


async def remember(
    handle: ScopedMemory, chat: str, texts: Sequence[str], key: str
) -> list[MemoryItem]:
    return [await handle.remember(texts[0], idempotency_key=key, tags=[chat])]


async def remember_many(
    handle: ScopedMemory, chat: str, texts: Sequence[str], key: str
) -> list[MemoryItem]:
    return await handle.remember_many(texts, idempotency_key=key, tags=[chat])


async def say(handle: ScopedMemory, chat: str, texts: Sequence[str], key: str) -> list[MemoryItem]:
    return await handle.chat(chat).add(list(texts), idempotency_key=key)


every_call = pytest.mark.parametrize("call", [remember, remember_many, say])


def texts_of(items: Sequence[MemoryItem]) -> list[str]:
    return [item.content for item in items]


async def kept(handle: ScopedMemory) -> list[str]:
    return sorted(texts_of(await handle.list(limit=1000)))


def two_handles(url: str, open_memory: Open, who: str) -> list[ScopedMemory]:
    first = open_memory(url)
    second = first if url == "memory://" else open_memory(url)
    return [memory.scope(user_id=who) for memory in (first, second)]


@every_call
async def test_of_two_requests_that_race_under_one_key_one_is_stored_and_both_are_told_which(
    call: Call, any_url: str, open_memory: Open, who: str
) -> None:
    handles = two_handles(any_url, open_memory, who)
    expected: list[str] = []

    for race in range(RACES):
        tries = [[f"{race} {name}{n}" for n in range(2)] for name in "ab"]
        told = await asyncio.gather(
            *(call(h, "c", texts, f"k{race}") for h, texts in zip(handles, tries, strict=True))
        )
        winner = texts_of(told[0])
        assert winner == texts_of(told[1])
        assert winner in [texts[: len(winner)] for texts in tries]
        assert {item.version for items in told for item in items} == {1}
        expected += winner

    assert await kept(handles[0]) == sorted(expected)


@every_call
@pytest.mark.parametrize("texts", [["first", "second"], ["another", "text"]], ids=["same", "other"])
@pytest.mark.parametrize("is_changed", [False, True], ids=["plain", "changed"])
async def test_a_repeated_request_brings_nothing_back_that_was_forgotten(
    call: Call, texts: list[str], is_changed: bool, any_alice: ScopedMemory
) -> None:
    first = await call(any_alice, "c", ["first", "second"], "k")
    if is_changed:
        await any_alice.update(first[0].id, "changed")
    for item in first:
        await any_alice.forget(item.id)

    again = await call(any_alice, "c", texts, "k")

    assert await kept(any_alice) == []
    assert [await any_alice.get(item.id) for item in first] == [None] * len(first)
    assert await any_alice.chat("c").items() == []
    if call is remember:
        assert [item.id for item in again] == [item.id for item in first]
    else:
        assert again == []


@every_call
async def test_a_repeated_request_leaves_a_changed_memory_as_it_is(
    call: Call, any_alice: ScopedMemory
) -> None:
    first = await call(any_alice, "c", ["first", "second"], "k")
    changed = await any_alice.update(first[0].id, "changed")

    again = await call(any_alice, "c", ["first", "second"], "k")

    assert again[0] == changed
    assert again[1:] == first[1:]
    assert await kept(any_alice) == sorted(texts_of([changed, *first[1:]]))


@every_call
async def test_a_key_is_forgotten_with_all_that_is_erased(
    call: Call, any_local_memory: AgentMemory, who: str
) -> None:
    handle = any_local_memory.scope(user_id=who)
    first = await call(handle, "c", ["first", "second"], "k")
    await handle.forget(first[0].id)
    await any_local_memory.erase(user_id=who)

    again = await call(handle, "c", ["first", "second"], "k")

    assert texts_of(again) == texts_of(first)
    assert await kept(handle) == texts_of(first)


async def test_forgetting_everything_and_repeating_many_requests_brings_nothing_back(
    any_alice: ScopedMemory,
) -> None:
    keys = [f"k{n}" for n in range(20)]
    await asyncio.gather(*(any_alice.remember(key, idempotency_key=key) for key in keys))
    await any_alice.forget(everything=True)

    told: list[Any] = await asyncio.gather(
        *(any_alice.remember(key, idempotency_key=key) for key in keys)
    )

    assert texts_of(told) == keys
    assert await kept(any_alice) == []


@every_call
async def test_a_key_that_is_used_for_other_words_warns_and_a_retry_does_not(
    call: Call, any_local_alice: ScopedMemory
) -> None:
    first = await call(any_local_alice, "c", ["one", "two"], "k")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await call(any_local_alice, "c", ["one", "two"], "k") == first
    with pytest.warns(UserWarning, match="`k` was used before, with another text: .* new key"):
        assert await call(any_local_alice, "c", ["other", "two"], "k") == first
    await any_local_alice.update(first[0], "one, as it is now")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it may well be what was stored under the key
        await call(any_local_alice, "c", ["one", "two"], "k")
