"""`users` and `count_by` through every door: who has memories, which values, and nobody else's."""

from datetime import timedelta
from typing import Any

import pytest
from tests.agent.conftest import Open

from orbiter.memory import AgentMemory
from orbiter.memory.agent import DEFAULT_USER, ScopedMemory, UserInfo, ValueCount
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.errors import AccessError, QueryError
from orbiter.memory.model.derived import ExtractionMemory
from orbiter.memory.sync import AgentMemory as BlockingMemory


async def test_users_are_listed_with_how_much_they_have(any_memory: AgentMemory, who: str) -> None:
    ann, bob = (any_memory.scope(f"{who}-{name}") for name in ("ann", "bob"))
    first = await ann.remember("likes tea")
    [last] = await ann.chat("c").add("hello")
    only = await bob.remember("likes coffee")

    found = await any_memory.users(starts_with=f"{who}-")

    assert list(found) == [
        UserInfo(f"{who}-ann", 2, 1, first.created_at, last.created_at),
        UserInfo(f"{who}-bob", 1, 0, only.created_at, only.created_at),
    ]
    assert found.next is None
    assert "2 users" in found._repr_html_()
    assert "sessions" in found._repr_html_()
    assert found.to_dicts()[1]["items"] == 1


async def test_whoever_has_entries_alone_is_listed_too(any_memory: AgentMemory, who: str) -> None:
    ann, bob = (any_memory.scope(f"{who}-{name}") for name in ("ann", "bob"))
    first = await ann.remember("likes tea")
    await ann.kv.put(("state",), "step", b"7")
    await bob.kv.put(("state",), "step", b"1")
    await bob.kv.put(("state",), "step", b"2")
    await any_memory.scope(f"{who}-bob", session_id="s").kv.put(("state",), "step", b"1")
    entries = [await ann.kv.get(("state",), "step"), await bob.kv.get(("state",), "step")]

    found = await any_memory.users(starts_with=f"{who}-")

    assert [(user.user_id, user.items, user.entries) for user in found] == [
        (f"{who}-ann", 1, 1),
        (f"{who}-bob", 0, 2),
    ]
    assert entries[0] is not None
    assert entries[1] is not None
    assert found[0].first_at == first.created_at
    assert found[0].last_at == entries[0].updated_at
    assert found[1].first_at == entries[1].created_at
    assert found[1].last_at >= entries[1].updated_at
    assert "entries" in found._repr_html_()


async def test_entries_count_in_a_store_that_cannot_count_users() -> None:
    class Plain(SQLiteMemoryStore):
        users = None  # type: ignore[assignment]  # as if it had none
        count_by = None  # type: ignore[assignment]

    async with AgentMemory(store=Plain(), embeddings=None) as memory:
        await memory.scope("ann").kv.put((), "k", b"v")
        await memory.scope(agent_id="nova").kv.put((), "k", b"v")

        assert [(user.user_id, user.entries) for user in await memory.users()] == [("ann", 1)]


@pytest.mark.parametrize("order", ["name", "recent", "items"])
async def test_users_are_read_page_by_page(any_memory: AgentMemory, who: str, order: Any) -> None:
    for n in range(5):
        await any_memory.scope(f"{who}-{n}").remember_many(["hi"] * (n % 3 + 1))

    whole = await any_memory.users(starts_with=who, order=order)
    pages: list[UserInfo] = []
    cursor = None
    while True:
        page = await any_memory.users(starts_with=who, order=order, limit=2, cursor=cursor)
        pages += page
        cursor = page.next
        if cursor is None:
            break

    assert pages == list(whole)
    assert len(pages) == 5
    with pytest.raises(QueryError, match="next"):
        await any_memory.users(cursor="elsewhere")
    for items in ("Infinity", "-1", str(2**63)):
        with pytest.raises(QueryError, match="`next` of the previous page"):
            await any_memory.users(order="items", cursor=f'["a", {items}, "2026-01-01T00:00Z"]')
    with pytest.raises(QueryError, match="order"):
        await any_memory.users(order="size")  # type: ignore[arg-type]  # on purpose


async def test_the_default_user_is_named(open_memory: Open) -> None:
    memory = open_memory("memory://")
    await memory.default_user.remember("I like tea")
    await memory.scope("ann").remember("likes coffee")

    found = await memory.users()

    assert [(user.user_id, user.is_default) for user in found] == [
        ("ann", False),
        (DEFAULT_USER, True),
    ]
    assert "(default user)" in found._repr_html_()


async def test_pending_extractions_and_what_is_forgotten_are_not_counted(
    local_memory: AgentMemory, who: str
) -> None:
    ann, bob = (local_memory.scope(f"{who}-{name}") for name in ("ann", "bob"))
    kept = await ann.remember("likes tea", tags=["food"])
    gone = await ann.remember("likes jam", tags=["food"])
    await ann.forget(gone)
    for handle in (ann, bob):
        await handle.remember(ExtractionMemory(content="job"))
    over = await bob.remember("over", expires=timedelta(milliseconds=1))
    while await bob.get(over.id) is not None:
        pass

    assert [(user.user_id, user.items) for user in await local_memory.users(starts_with=who)] == [
        (kept.metadata.user_id, 1)
    ]
    assert await ann.count_by("tags") == [ValueCount("food", 1)]
    assert await ann.count_by("memory_type") == [ValueCount("item", 1)]
    assert (await ann.stats()).items == 1


async def test_values_are_counted_in_a_scope_and_nobody_elses(
    any_alice: ScopedMemory, any_bob: ScopedMemory
) -> None:
    await any_alice.remember("tea", tags=["food", "hot"], source="web:a.example")
    await any_alice.remember("jam", tags=["food"], extra={"stars": 4})
    await any_alice.chat("c").add("hello")
    await any_bob.remember("secret", tags=["private"], extra={"stars": 5})

    assert await any_alice.count_by("tags") == [ValueCount("food", 2), ValueCount("hot", 1)]
    assert await any_alice.count_by("tags", limit=1) == [ValueCount("food", 2)]
    assert await any_alice.count_by("tags", where={"stars": 4}) == [ValueCount("food", 1)]
    assert await any_alice.count_by("stars") == [ValueCount(4, 1)]
    assert await any_alice.count_by("source") == [ValueCount("web:a.example", 1)]
    assert await any_alice.count_by("memory_type") == [
        ValueCount("item", 2),
        ValueCount("human", 1),
    ]
    assert await any_alice.count_by("session_id") == [ValueCount("c", 1)]
    assert await any_alice.count_by("user_id") == [ValueCount(any_alice.scope.user_id, 3)]
    assert await any_bob.count_by("tags") == [ValueCount("private", 1)]
    with pytest.raises(QueryError, match="content"):
        await any_alice.count_by("content")


async def test_the_default_users_values_are_counted_by_the_memory_itself(
    open_memory: Open,
) -> None:
    memory = open_memory("memory://")
    await memory.default_user.remember("tea", tags=["food"])
    await memory.scope("ann").remember("jam", tags=["hers"])

    assert await memory.default_user.count_by("tags") == [ValueCount("food", 1)]


async def test_a_memory_that_is_held_to_users_lists_none(postgres_dsn: str) -> None:
    async with AgentMemory(postgres_dsn, embeddings=None, row_security=True) as memory:
        with pytest.raises(AccessError, match="row_security"):
            await memory.users()


def test_the_blocking_form_lists_and_counts() -> None:
    with BlockingMemory("memory://", embeddings=None) as memory:
        memory.scope("ann").remember("tea", tags=["food"])

        assert [user.user_id for user in memory.users()] == ["ann"]
        assert memory.scope("ann").count_by("tags") == [ValueCount("food", 1)]
