"""Memories can be changed, forgotten, brought back and walked through."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from tests.servers.databases import RedisServer

from orbiter.memory import (
    AgentMemory,
    HumanMemory,
    MemoryItem,
    MemoryStatus,
    PostgresMemoryStore,
    VersionConflict,
)
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import ItemNotFoundError, QueryError, StatusError, UnsupportedError
from orbiter.memory.model.query import Query

Open = Callable[..., AgentMemory]


async def contents(handle: ScopedMemory) -> list[str]:
    return [item.content for item in await handle.list(limit=500)]


# Changing


async def test_an_update_changes_what_is_given_and_nothing_else(any_alice: ScopedMemory) -> None:
    item = await any_alice.remember("tea", tags=["drink"], source="menu", extra={"hot": True})

    changed = await any_alice.update(item.id, "coffee", importance=1, extra={"hot": False})

    assert changed.content == "coffee"
    assert changed.version == 2
    assert changed.created_at == item.created_at
    assert changed.updated_at > item.updated_at
    assert changed.metadata.extra == {
        "tags": ["drink"],
        "source": "menu",
        "trust": 2,
        "hot": False,
        "importance": 1,
        "edited": True,  # it no longer says what the menu said
    }
    assert await any_alice.get(item.id) == changed
    assert [hit.item.content for hit in await any_alice.recall("coffee")] == ["coffee"]
    assert await any_alice.recall("tea", mode="words") == []


async def test_a_status_moves_as_statuses_may(any_alice: ScopedMemory) -> None:
    item = await any_alice.remember("tea")

    changed = await any_alice.update(item.id, status=MemoryStatus.DISCARD)

    assert changed.status is MemoryStatus.DISCARD
    assert await any_alice.recall("tea") == []
    with pytest.raises(StatusError):
        await any_alice.update(item.id, status=MemoryStatus.ACCEPTED)


async def test_an_update_of_the_expected_version_only(any_alice: ScopedMemory) -> None:
    item = await any_alice.remember("one")
    await any_alice.update(item.id, "two", expected_version=1)

    with pytest.raises(VersionConflict):
        await any_alice.update(item.id, "three", expected_version=1)

    stored = await any_alice.get(item.id)
    assert stored is not None
    assert (stored.content, stored.version) == ("two", 2)


async def test_updates_at_the_same_time_all_land(any_url: str, open_memory: Open, who: str) -> None:
    count = 1 if any_url == "memory://" else 2
    handles = [open_memory(any_url).scope(user_id=who) for _ in range(count)]
    item = await handles[0].remember("tea")

    changes = [
        handles[number % count].update(item.id, extra={f"key {number}": number})
        for number in range(24)
    ]
    await asyncio.gather(*changes)

    stored = await handles[0].get(item.id)
    assert stored is not None
    assert stored.metadata.extra == {f"key {number}": number for number in range(24)}
    assert stored.version == 25


async def test_what_changes_while_its_words_are_indexed_is_still_found(
    postgres_url: str, open_memory: Open, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_memory(postgres_url, embeddings=None)
    alice = memory.scope(user_id=who)
    item = await alice.remember("tea")
    index = PostgresMemoryStore._together
    changed: list[MemoryItem] = []

    async def change_first(store: PostgresMemoryStore, steps: Callable[[], object]) -> object:
        if not changed:
            changed.append(item)
            changed.append(await alice.update(item.id, importance=1))
        return await index(store, steps)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(PostgresMemoryStore, "_together", change_first)
    await alice.recall("tea", mode="words")

    # Asked past `recall`, which also looks at what was written last.
    asked = Query(metadata=alice.scope)
    assert isinstance(memory.store, PostgresMemoryStore)
    assert (await memory.store.match_words(["tea"], asked)).items == changed[1:]
    assert len(changed) == 2


async def test_of_updates_that_expect_the_same_version_one_lands(alice: ScopedMemory) -> None:
    item = await alice.remember("tea")

    changes = [alice.update(item.id, f"{n}", expected_version=1) for n in range(10)]
    done = await asyncio.gather(*changes, return_exceptions=True)

    won = [each for each in done if isinstance(each, MemoryItem)]
    assert len(won) == 1
    assert all(isinstance(each, VersionConflict) for each in done if each is not won[0])
    assert await contents(alice) == [won[0].content]


async def test_what_is_not_there_is_not_updated(any_alice: ScopedMemory) -> None:
    item = await any_alice.remember("tea")
    await any_alice.forget(item)

    for item_id in (item.id, "nothing"):
        with pytest.raises(ItemNotFoundError, match=item_id):
            await any_alice.update(item_id, "coffee")


async def test_a_bad_change_changes_nothing(open_memory: Open) -> None:
    alice = open_memory("memory://").scope(user_id="alice")
    item = await alice.remember("tea")
    bad: list[dict[str, object]] = [
        {"content": 7},
        {"content": "  "},
        {"tags": "drink"},
        {"importance": 2},
        {"source": ""},
        {"extra": ["a"]},
        {"status": "finished"},
        {"expected_version": -1},
        {"expected_version": "1"},
    ]

    for change in bad:
        with pytest.raises(ValueError, match=r".{10}"):
            await alice.update(item.id, **change)  # type: ignore[arg-type]  # wrong on purpose

    assert await alice.get(item.id) == item


# Forgetting


async def test_one_memory_is_forgotten_by_its_id_or_itself(any_alice: ScopedMemory) -> None:
    one, two, three = await any_alice.remember_many(["one", "two", "three"])

    assert (await any_alice.forget(one.id)).items == (one,)
    assert (await any_alice.forget(two)).items == (two,)

    assert await any_alice.list() == [three]
    assert await any_alice.get(one.id) is None
    assert [hit.item.id for hit in await any_alice.recall(mode="recent")] == [three.id]
    assert not await any_alice.forget(one.id)


async def test_memories_are_forgotten_by_what_they_have_in_common(any_alice: ScopedMemory) -> None:
    await any_alice.remember_many(["red tea", "black tea"], tags=["drink"])
    await any_alice.remember("tea towel")
    await any_alice.remember(HumanMemory(content="tea, please"))

    assert len(await any_alice.forget(where={"tags": {"$contains": "drink"}})) == 2
    assert len(await any_alice.forget(memory_type="human")) == 1
    assert len(await any_alice.forget(query="TOWEL")) == 1

    assert await contents(any_alice) == []


async def test_memories_are_forgotten_by_their_time(any_alice: ScopedMemory) -> None:
    noon = datetime(2025, 6, 1, 12, tzinfo=UTC)
    hours = [noon + timedelta(hours=number) for number in range(4)]
    await any_alice.remember_many(
        [MemoryItem(content=f"{at:%H}", created_at=at) for at in hours],
    )

    gone = await any_alice.forget(since=hours[1], until=hours[3])

    assert {item.content for item in gone.items} == {"13", "14"}
    assert await contents(any_alice) == ["15", "12"]


async def test_a_dry_run_forgets_nothing_and_tells_what_would_go(any_alice: ScopedMemory) -> None:
    items = await any_alice.remember_many(["one", "two"])

    for would in (
        await any_alice.forget(items[0], dry_run=True),
        await any_alice.forget(everything=True, dry_run=True),
    ):
        assert would
        assert would.dry_run
        assert {item.id for item in would.items} <= {item.id for item in items}

    assert await contents(any_alice) == ["two", "one"]


async def test_everything_is_forgotten_only_if_that_is_said(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    await any_alice.remember_many([f"{number}" for number in range(5)])
    await any_bob.remember("theirs")
    unclear: list[dict[str, object]] = [
        {},
        {"where": {}},
        {"query": ""},
        {"where": {}, "query": ""},
        {"item": "x", "everything": True},
        {"item": "x", "query": "y"},
        {"query": "y", "everything": True},
    ]

    for asked in unclear:
        with pytest.raises(QueryError, match="everything"):
            await any_alice.forget(**asked)  # type: ignore[arg-type]  # wrong on purpose
    assert len(await any_alice.forget(everything=True)) == 5

    assert await contents(any_alice) == []
    assert await contents(any_bob) == ["theirs"]


@pytest.mark.slow
async def test_more_than_a_page_is_forgotten_whole(alice: ScopedMemory) -> None:
    for start in (0, 550):  # one call to a server takes a thousand
        await alice.remember_many([f"note {number}" for number in range(start, start + 550)])

    would = await alice.forget(everything=True, dry_run=True)
    gone = await alice.forget(everything=True)

    assert len({item.id for item in would.items}) == len({item.id for item in gone.items}) == 1_100
    assert (await alice.stats()).items == 0
    assert (await alice.stats()).forgotten == 1_100


# Bringing back


async def test_what_was_forgotten_comes_back_as_it_was(alice: ScopedMemory) -> None:
    item = await alice.remember("tea", tags=["drink"])
    await alice.forget(item)

    back = await alice.restore(item.id)

    assert back.content == "tea"
    assert back.metadata == item.metadata
    assert back.created_at == item.created_at
    assert await alice.list() == [back]
    assert [hit.item.id for hit in await alice.recall("tea")] == [item.id]
    stats = await alice.stats()
    assert (stats.items, stats.forgotten) == (1, 0)


async def test_an_earlier_version_comes_back_as_a_new_one(alice: ScopedMemory) -> None:
    item = await alice.remember("one", tags=["first"])
    await alice.update(item.id, "two", tags=["second"])
    await alice.update(item.id, "three")

    back = await alice.restore(item.id, version=1)

    assert (back.content, back.version) == ("one", 4)
    assert back.metadata == item.metadata
    assert [each.item.content for each in await alice.history(item.id)] == [
        "one",
        "two",
        "three",
        "one",
    ]


async def test_an_earlier_version_of_what_was_forgotten_comes_back(alice: ScopedMemory) -> None:
    item = await alice.remember("one")
    await alice.update(item.id, "two")
    await alice.forget(item.id)

    back = await alice.restore(item.id, version=1)

    assert back.content == "one"
    assert await alice.list() == [back]


async def test_what_never_was_does_not_come_back(alice: ScopedMemory) -> None:
    item = await alice.remember("one")
    await alice.forget(item.id)

    with pytest.raises(ItemNotFoundError, match="nothing"):
        await alice.restore("nothing")
    with pytest.raises(ItemNotFoundError, match="version"):
        await alice.restore(item.id, version=9)

    assert await alice.get(item.id) is None, "half of it came back"


async def test_history_tells_what_became_of_a_memory(alice: ScopedMemory) -> None:
    item = await alice.remember("one")
    await alice.update(item.id, "two")
    await alice.forget(item.id)
    await alice.restore(item.id)

    history = await alice.history(item.id)

    assert [each.change for each in history] == ["added", "updated", "deleted", "restored"]
    assert [each.item.content for each in history] == ["one", "two", "two", "two"]
    assert await alice.history("nothing") == []


async def test_a_store_without_a_past_says_which_ones_have_it(
    redis_server: RedisServer, open_memory: Open, who: str
) -> None:
    memory = open_memory(redis_server.url())
    alice = memory.scope(user_id=who)
    item = await alice.remember("one")

    for call in (alice.history(item.id), alice.restore(item.id), alice.restore("x", version=1)):
        with pytest.raises(UnsupportedError, match="SQLite and Postgres") as caught:
            await call
        assert urlpassword(redis_server) not in str(caught.value)
    for ask in (memory.stats(), memory.verify(), memory.reindex(), memory.backup("x.db")):
        with pytest.raises(UnsupportedError, match="SQLite|snapshot"):
            await ask
    assert (await alice.stats()).forgotten is None


def urlpassword(server: RedisServer) -> str:
    return server.url().partition(":")[2].strip("/:").partition("@")[0].lstrip(":")


# Walking through


async def test_pages_together_are_everything_once_newest_first(any_alice: ScopedMemory) -> None:
    stored = await any_alice.remember_many([f"{number}" for number in range(7)])

    pages, cursor = [], None
    while True:
        page = await any_alice.list(limit=3, cursor=cursor)
        pages.append(list(page))
        cursor = page.next
        if cursor is None:
            break

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [item.id for page in pages for item in page] == [item.id for item in stored][::-1]


@pytest.mark.parametrize("size", [1, 3])
async def test_a_walk_goes_on_though_the_last_item_of_each_page_is_erased(
    any_memory: AgentMemory, any_alice: ScopedMemory, size: int
) -> None:
    """Items of one instant, whose ids say nothing of their order, lie across the pages' ends."""
    user_id = any_alice.scope.user_id
    moment = datetime(2025, 5, 1, tzinfo=UTC)
    for number in range(8):
        one = any_memory.scope(user_id=user_id, session_id=f"s{number}")
        await one.remember(f"{number}", created_at=moment + timedelta(seconds=number // 5))

    found, cursor = [], None
    while True:
        page = await any_alice.list(limit=size, cursor=cursor)
        found += [item.content for item in page]
        cursor = page.next
        if cursor is None:
            break
        erased = await any_memory.erase(user_id=user_id, session_id=page[-1].metadata.session_id)
        assert erased
        assert await any_alice.get(page[-1].id) is None

    assert found == [f"{number}" for number in reversed(range(8))]


async def test_what_is_no_cursor_is_refused_by_name(any_alice: ScopedMemory) -> None:
    await any_alice.remember("one")

    for bad in ("nobody", "fffffffffffffff.x", "000000000000000.", "00000000000000g.x", "a" * 300):
        with pytest.raises(QueryError, match="cursor"):
            await any_alice.list(cursor=bad)


async def test_a_page_that_ends_with_the_last_item_is_the_last(any_alice: ScopedMemory) -> None:
    await any_alice.remember_many(["one", "two"])

    assert (await any_alice.list(limit=2)).next is None
    assert (await any_alice.list(limit=1)).next is not None
    assert (await any_alice.list(limit=0)) == []
    assert (await any_alice.list(limit=0)).next is None
    for bad in (-1, "2", True, 1.5):
        with pytest.raises(QueryError, match="limit"):
            await any_alice.list(limit=bad)  # type: ignore[arg-type]  # wrong on purpose


async def test_what_others_write_shifts_no_page(alice: ScopedMemory) -> None:
    stored = await alice.remember_many([f"{number}" for number in range(20)])
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await alice.remember(f"later {number}")
            await alice.update(stored[number % 20].id, extra={"touched": number})

    writer = asyncio.create_task(write())
    seen, cursor = [], None
    while True:
        page = await alice.list(limit=3, cursor=cursor)
        seen += [item.id for item in page]
        cursor = page.next
        if cursor is None:
            break
    stop.set()
    await writer

    old = [item.id for item in stored][::-1]
    assert [item_id for item_id in seen if item_id in set(old)] == old
    assert len(seen) == len(set(seen))


async def test_a_page_may_begin_at_what_was_forgotten_meanwhile(alice: ScopedMemory) -> None:
    stored = await alice.remember_many(["one", "two", "three"])
    page = await alice.list(limit=2)
    await alice.forget(stored[1])

    assert await alice.list(cursor=page.next) == [stored[0]]
    assert await alice.list(cursor=stored[1].id) == [stored[0]]


async def test_a_list_is_filtered_before_it_is_cut(any_alice: ScopedMemory) -> None:
    await any_alice.remember_many(["old tea", "old coffee"], tags=["old"])
    await any_alice.remember_many(["new tea", "new coffee", "new milk"])

    assert [item.content for item in await any_alice.list(query="TEA")] == ["new tea", "old tea"]
    tagged = await any_alice.list(where={"tags": {"$contains": "old"}}, limit=1)
    assert [item.content for item in tagged] == ["old coffee"]
    assert tagged.next is not None
    assert await any_alice.list(status=MemoryStatus.DRAFT) == []
    assert await any_alice.list(memory_type="human") == []


async def test_a_handle_says_who_acts_through_it(url: str, open_memory: Open) -> None:
    memory = open_memory(url, embeddings=None)
    support = memory.scope(user_id=f"u-{secrets.token_hex(4)}", by="support")

    item = await support.remember("tea")
    await support.chat("talk").add("hello")
    await support.update(item.id, "green tea")
    said = (await support.chat("talk").items())[0]

    assert [each.by for each in await support.history(item.id)] == ["support", "support"]
    assert [each.by for each in await support.history(said.id)] == ["support"]


async def test_the_text_of_a_fact_is_not_changed_apart_from_its_value(
    url: str, open_memory: Open
) -> None:
    memory = open_memory(url, embeddings=None)
    alice = memory.scope(user_id=f"u-{secrets.token_hex(4)}")
    fact = await alice.facts.put("city", "Berlin")

    with pytest.raises(QueryError, match=r"facts\.put"):
        await alice.update(fact.id, "city: Rome")

    assert (await alice.update(fact.id, tags=["home"])).content == "city: Berlin"


async def test_what_is_remembered_for_a_while_is_gone_after_it(url: str, open_memory: Open) -> None:
    memory = open_memory(url, embeddings=None)
    alice = memory.scope(user_id=f"u-{secrets.token_hex(4)}")
    day = timedelta(days=1)
    kept = await alice.remember("for a day", expires=day)
    several = await alice.remember_many(["one", "two"], expires=datetime.now(UTC) + day)

    changed = await alice.update(kept.id, expires="never")

    assert changed.expires_at is None
    assert all(item.expires_at is not None for item in several)
    assert [item.content for item in await alice.list()] == ["two", "one", "for a day"]
    with pytest.raises(QueryError, match="out of range"):
        await alice.remember("x", expires=timedelta.max)


async def test_tags_are_added_and_removed_beside_the_others(alice: ScopedMemory) -> None:
    item = await alice.remember("Backups run at 3 am", tags=["ops", "old"], importance=0.5)

    changed = await alice.update(item, add_tags=["night", "ops"], remove_tags=["old", "none"])
    without = await alice.update(item, remove_tags=["ops", "night"])

    assert changed.metadata.extra == {"tags": ["ops", "night"], "importance": 0.5}
    assert without.metadata.extra["tags"] == []
    assert len(await alice.list(where={"tags": {"$contains": "ops"}})) == 0
    for wrong, way in (
        ({"tags": ["a"], "add_tags": ["b"]}, "`tags` replaces all tags"),
        ({"add_tags": ["a"], "remove_tags": ["a"]}, "`a` is among `add_tags` and `remove_tags`"),
        ({"add_tags": "ops"}, "tags` must be a list"),
    ):
        with pytest.raises(QueryError, match=way):
            await alice.update(item, **wrong)


async def test_of_two_who_change_tags_at_once_neither_is_lost(alice: ScopedMemory) -> None:
    item = await alice.remember("Backups run at 3 am", tags=["ops"])

    await asyncio.gather(*(alice.update(item, add_tags=[f"t{n}"]) for n in range(5)))

    stored = await alice.get(item)
    assert stored is not None
    assert set(stored.metadata.extra["tags"]) == {"ops", "t0", "t1", "t2", "t3", "t4"}
