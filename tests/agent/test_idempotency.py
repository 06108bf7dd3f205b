"""A request under an `idempotency_key` is carried out once: in a race, and after a deletion."""

import asyncio
import unicodedata
import warnings
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
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


# Said twice


async def test_what_says_the_same_is_stored_once(any_memory: AgentMemory, who: str) -> None:
    ann = any_memory.scope(who)
    plain = await ann.remember("Ann likes green tea", tags=["drink"])
    first = await ann.remember("Ann keeps  bees", tags=["hobby"], dedupe=True)

    again = await ann.remember("ann likes green tea.", tags=["tea", "drink"], dedupe=True)
    same = await ann.remember("ANN keeps\nbees!", dedupe=True)

    assert (again.id, again.content) == (plain.id, "Ann likes green tea")
    assert again.metadata.extra["tags"] == ["drink", "tea"]
    assert same == first
    for other in ("Ann likes green tea?", "Ann likes green teas", "Ann likes tea"):
        await ann.remember(other, dedupe=True)
    await ann.remember("Ann keeps bees", source="web:x.org", dedupe=True)
    await ann.remember("Ann keeps bees", extra={"since": 2019}, dedupe=True)
    await any_memory.scope(who, session_id="s").remember("Ann keeps bees", dedupe=True)
    assert len(await ann.list(limit=100)) == 8


async def test_of_what_is_said_twice_the_higher_importance_is_kept(any_alice: ScopedMemory) -> None:
    first = await any_alice.remember("I like tea", dedupe=True)
    for importance, kept in ((0.4, 0.4), (0.9, 0.9), (0.2, 0.9), (None, 0.9)):
        again = await any_alice.remember(
            "I like tea", dedupe=True, tags=[f"t{importance}"], importance=importance
        )
        assert again.id == first.id
        assert again.metadata.extra["importance"] == kept

    (item,) = await any_alice.list()
    assert item.metadata.extra["importance"] == 0.9
    assert len(item.metadata.extra["tags"]) == 4


async def test_the_same_text_composed_otherwise_is_stored_once(any_alice: ScopedMemory) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Zoë’s café") for form in ("NFC", "NFD"))
    for first, second in ((composed, decomposed), (f"{decomposed} opens", f"{composed} opens")):
        made = await any_alice.remember(first)
        again = await any_alice.remember(second, dedupe=True)
        assert again.id == made.id


async def test_what_is_said_again_after_it_was_forgotten_or_changed_is_stored_again(
    any_alice: ScopedMemory,
) -> None:
    ids = []
    for way in ("forget", "change", "expire", "keep"):
        end = timedelta(days=1) if way == "expire" else None
        item = await any_alice.remember("Ann likes tea", expires=end, dedupe=True)
        ids.append(item.id)
        if way == "forget":
            await any_alice.forget(item)
        if way == "change":
            await any_alice.update(item, "Ann likes coffee")

    assert len(set(ids)) == 4
    assert (await any_alice.remember("ann likes tea.", dedupe=True)).id == ids[-1]


async def test_writers_who_say_the_same_at_once_store_one(
    any_url: str, open_memory: Open, who: str
) -> None:
    handles = two_handles(any_url, open_memory, who)
    texts = ("Ann likes tea", "ann  likes TEA.", "Ann likes tea!")

    for life in range(3):
        calls = [
            each.remember(text, tags=[text], dedupe=True) for each in handles for text in texts
        ]
        made = await asyncio.gather(*calls)

        assert len({item.id for item in made}) == 1, life
        (item,) = await handles[0].list(limit=100)
        assert set(item.metadata.extra["tags"]) == set(texts)
        await handles[1].forget(item)


async def test_a_text_that_a_hook_rewrites_is_stored_once(open_memory: Open, who: str) -> None:
    ann = open_memory("memory://", pii=lambda text: text.replace("Ann", "A.")).scope(who)

    for text in ("Ann likes tea", "Ann likes tea.", "A. likes tea"):
        await ann.remember(text, tags=[text], dedupe=True)

    (item,) = await ann.list()
    assert item.content == "A. likes tea"
