"""Recall from Redis by an in-memory index: it finds what the store has, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.servers.databases import RedisServer, redis_server
from tests.timing import scaled, until

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, MemoryStatus, RedisMemoryStore
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.items import new_id
from orbiter.memory.recall import InMemoryIndex, RecallResult, _in_memory_index
from orbiter.memory.testing import HashEmbeddings

__all__ = ["redis_server"]

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
START = datetime(2024, 6, 1, tzinfo=UTC)


def _note(item_id: str, content: str, who: MemoryMetadata = ANN, minute: int = 0) -> MemoryItem:
    at = START + timedelta(minutes=minute)
    return MemoryItem(id=item_id, content=content, metadata=who, created_at=at)


def _ids(found: RecallResult) -> list[str]:
    return [hit.item.id for hit in found]


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisMemoryStore]:
    async with RedisMemoryStore(redis_server.url(), name=new_id()) as store:
        yield store


@pytest.fixture
async def mirror(store: RedisMemoryStore) -> AsyncIterator[InMemoryIndex]:
    mirror = InMemoryIndex(store, HashEmbeddings(256))
    yield mirror
    await mirror.close()


async def test_redis_is_recalled_from_in_every_mode(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    await store.add_many([_note("tea", "green tea"), _note("code", "my door code", minute=1)])

    both = await mirror.recall("the door code", scope=ANN)
    words = await mirror.recall("the door codes", scope=ANN, mode="words")
    meaning = await mirror.recall("my door code", scope=ANN, mode="meaning", k=1)
    recent = await mirror.recall("", scope=ANN, mode="recent")

    assert _ids(both) == _ids(words) == ["code"]
    assert {"words", "meaning"} <= {reason.part for reason in both[0].why}
    assert "meaning" not in {reason.part for reason in words[0].why}
    assert [(hit.item.id, round(hit.score, 5)) for hit in meaning] == [("code", 1.0)]
    assert _ids(recent) == ["code", "tea"]


async def test_items_come_back_as_the_store_has_them(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    who = MemoryMetadata(user_id="ann", session_id="s", extra={"topic": "doors", "n": 3})
    for _ in range(3):
        await store.add(HumanMemory(id="a", content="door code", metadata=who, created_at=START))
    await store.add(HumanMemory(id="b", content="door code", metadata=who, created_at=START))

    found = await mirror.recall("door", scope=ANN, explain=True, where={"topic": "doors"})

    (hit,) = found
    kept = {item_id: await store.get(item_id) for item_id in "ab"}
    assert {item.id: item for item in (hit.item, *hit.repeats)} == kept
    assert {one.item.id: one.item for one in found.left_out}.items() <= kept.items()
    assert kept["a"] is not None
    assert kept["a"].version == 3


async def test_what_was_changed_removed_or_added_since_is_seen(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    await store.add_many([_note(name, f"door code {name}") for name in ("one", "two", "three")])
    await mirror.recall("door code", scope=ANN)

    await store.delete("one")
    await store.add(_note("two", "a zebra sleeps"))
    await store.add(_note("four", "door code four"))
    found = await mirror.recall("door code", scope=ANN, mode="words")

    assert set(_ids(found)) == {"three", "four"}
    assert _ids(await mirror.recall("zebra", scope=ANN, mode="words")) == ["two"]
    await store.clear()
    for mode in ("hybrid", "words", "meaning", "recent"):
        assert await mirror.recall("door", scope=ANN, mode=mode) == []


async def test_an_item_that_is_made_anew_with_an_old_id_is_seen(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    await store.add(_note("a", "a zebra sleeps"))
    await mirror.recall("zebra", scope=ANN)

    await store.delete("a")
    await store.add(_note("a", "a giraffe sleeps"))

    assert await mirror.recall("zebra", scope=ANN, mode="words") == []
    assert _ids(await mirror.recall("giraffe", scope=ANN)) == ["a"]


async def test_what_a_caller_does_to_a_hit_changes_no_answer(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    await store.add(_note("a", "a zebra sleeps"))
    (hit,) = await mirror.recall("zebra", scope=ANN)

    hit.item.content = "a giraffe sleeps"
    await store.add(hit.item)
    hit.item.version = 2

    assert await store.get("a") == hit.item
    assert _ids(await mirror.recall("giraffe", scope=ANN, mode="words")) == ["a"]


async def _is_empty(store: RedisMemoryStore) -> bool:
    return await store.count() == 0


async def test_an_item_whose_time_is_over_is_not_recalled(redis_server: RedisServer) -> None:
    hours = scaled(0.3) / 3600
    async with RedisMemoryStore(redis_server.url(), name=new_id(), ttl_hours=hours) as store:
        mirror = InMemoryIndex(store)
        await store.add(_note("a", "door code"))
        before = await mirror.recall("door", scope=ANN, mode="words")
        await until(lambda: _is_empty(store), "the end of the item")
        after = await mirror.recall("door", scope=ANN, mode="words")
        await mirror.close()

    assert _ids(before) == ["a"]
    assert after == []


async def test_users_never_see_each_others_items(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    await store.add_many([_note("a", "door code of ann"), _note("b", "door code of bob", BOB)])
    everyone = await mirror.recall("door code", scope=None)

    found = await asyncio.gather(
        *(mirror.recall("door code", scope=who, k=9) for who in (ANN, BOB) * 5)
    )

    assert set(_ids(everyone)) == {"a", "b"}
    assert [_ids(each) for each in found] == [["a"], ["b"]] * 5


async def test_an_item_that_moved_to_another_user_is_theirs_alone(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    await store.add(_note("a", "door code"))
    await mirror.recall("door", scope=ANN)

    await store.add(_note("a", "door code", BOB))

    assert _ids(await mirror.recall("door", scope=BOB)) == ["a"]
    for _ in range(2):
        assert await mirror.recall("door", scope=ANN) == []
    assert _ids(await mirror.recall("door", scope=BOB)) == ["a"]


async def test_a_wider_scope_forgets_what_a_narrower_one_has_seen(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    narrow = MemoryMetadata(user_id="ann", session_id="s")
    await store.add_many([_note("a", "door code one", narrow), _note("b", "door code two")])
    await mirror.recall("door", scope=narrow)

    await store.delete("a")

    assert _ids(await mirror.recall("door", scope=ANN)) == ["b"]


async def test_only_the_newest_of_very_many_are_read_page_by_page(
    store: RedisMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_in_memory_index, "_PAGE", 40)
    await store.add_many([_note(f"i{n}", f"door number n{n}", minute=n) for n in range(130)])
    mirror = InMemoryIndex(store, max_items=100)

    newest = await mirror.recall("n129 n30", scope=ANN, mode="words", k=2)
    oldest = await mirror.recall("n29 n0", scope=ANN, mode="words")
    every = await mirror.recall("", scope=ANN, mode="recent", k=1_000)
    await mirror.close()

    assert set(_ids(newest)) == {"i129", "i30"}
    assert oldest == []
    assert _ids(every) == [f"i{n}" for n in range(129, 29, -1)]


class Vanishing(RedisMemoryStore):
    """A store that removes the last item of a page just after it was read."""

    async def search(self, **asked: Any) -> list[MemoryItem]:
        page = await super().search(**asked)
        if page and "before" not in asked:
            await self.delete(page[-1].id)
        return page


async def test_an_item_that_goes_between_two_pages_stops_nobody(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_in_memory_index, "_PAGE", 5)
    async with Vanishing(redis_server.url(), name=new_id()) as store:
        await store.add_many([_note(f"i{n}", f"door {n}", minute=n) for n in range(12)])
        mirror = InMemoryIndex(store)

        found = await mirror.recall("", scope=ANN, mode="recent", k=20)
        await mirror.close()

    # What went while it was read may be among the answers, or not.
    assert [each for each in _ids(found) if each != "i7"] == [
        f"i{n}" for n in range(11, -1, -1) if n != 7
    ]


async def test_items_of_one_instant_stay_in_the_order_of_the_store(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    for n in range(5):
        await store.add(_note(f"i{n}", f"line {n}"))
    in_store = [item.id for item in await store.search(metadata=ANN)]

    assert _ids(await mirror.recall("", scope=ANN, mode="recent")) == in_store


async def test_scopes_that_were_not_asked_for_lately_are_forgotten(
    store: RedisMemoryStore, mirror: InMemoryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_in_memory_index, "_SCOPES", 2)
    users = [MemoryMetadata(user_id=f"u{n}") for n in range(4)]
    await store.add_many([_note(f"i{n}", "door code", who) for n, who in enumerate(users)])

    for who in (users[0], users[1], users[0], users[2]):
        await mirror.recall("door", scope=who)
    held = set(mirror._held)
    again = await mirror.recall("door", scope=users[1])

    assert held == {"i0", "i2"}
    assert _ids(again) == ["i1"]


async def test_few_scopes_of_many_items_are_forgotten_too(
    store: RedisMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_in_memory_index, "_ROOM", 2)
    users = [MemoryMetadata(user_id=f"u{n}") for n in range(3)]
    await store.add_many([_note(f"i{n}", "door code", users[n % 3]) for n in range(12)])
    mirror = InMemoryIndex(store, max_items=4)

    for who in users:
        await mirror.recall("door", scope=who, mode="words")
    held, scopes = len(mirror._held), len(mirror._scopes)
    await mirror.close()

    assert (held, scopes) == (8, 2)


async def test_scopes_of_long_items_are_forgotten_too(
    store: RedisMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_in_memory_index, "_MAX_CHARS", 10_000)
    users = [MemoryMetadata(user_id=f"u{n}") for n in range(3)]
    await store.add_many([_note(f"i{n}", "door code " * 400, users[n]) for n in range(3)])
    mirror = InMemoryIndex(store)

    for who in users:
        assert len(await mirror.recall("door", scope=who, mode="words")) == 1
    held, scopes = len(mirror._held), len(mirror._scopes)
    await mirror.close()

    assert (held, scopes) == (2, 2)


async def test_what_is_cancelled_midway_leaves_no_item_behind(
    store: RedisMemoryStore, mirror: InMemoryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add(_note("a", "door code"))
    await mirror.recall("door", scope=ANN)
    index = mirror._index
    assert index is not None
    add_many = index.add_many

    async def slow(items: Sequence[MemoryItem]) -> None:
        await add_many(items)
        await asyncio.sleep(60)

    monkeypatch.setattr(index, "add_many", slow)
    await store.add(_note("b", "door key"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(mirror.recall("door", scope=ANN), 0.3)
    await store.delete("b")

    assert _ids(await mirror.recall("door", scope=ANN)) == ["a"]


async def test_after_close_the_next_answer_begins_anew(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    await store.add(_note("a", "door code"))
    await mirror.recall("door", scope=ANN)

    await mirror.close()
    await mirror.close()

    assert _ids(await mirror.recall("door", scope=ANN)) == ["a"]


async def test_drafts_stay_out_of_the_way_until_they_are_asked_for(
    store: RedisMemoryStore, mirror: InMemoryIndex
) -> None:
    draft = _note("a", "door code")
    draft.status = MemoryStatus.DRAFT
    await store.add(draft)

    assert await mirror.recall("door", scope=ANN) == []
    assert _ids(await mirror.recall("door", scope=ANN, status=None)) == ["a"]


async def test_what_cannot_be_asked_is_said_before_anything_is_read(
    store: RedisMemoryStore,
) -> None:
    mirror = InMemoryIndex(store)

    with pytest.raises(UnsupportedError, match=r"RedisMemoryStore.*orbiter-memory\[local\]"):
        await mirror.recall("door", scope=ANN, mode="meaning")
    with pytest.raises(QueryError, match="`recent`"):
        await mirror.recall("door", scope=ANN, mode="best")  # type: ignore[arg-type]  # that is the case
    with pytest.raises(QueryError, match="scope"):
        await mirror.recall("door", scope=MemoryMetadata())
    with pytest.raises(QueryError, match="max_items"):
        InMemoryIndex(store, max_items=-1)
    assert mirror._index is None
