"""The past of a scope, as a handle sees it: read only, and nobody else's."""

import asyncio
from datetime import UTC, datetime

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent._past import PastMemory
from orbiter.memory.errors import QueryError, UnsupportedError


async def moment() -> datetime:
    """Return a moment between all that was and all that will be: SQLite counts milliseconds."""
    await asyncio.sleep(0.002)
    now = datetime.now(UTC)
    await asyncio.sleep(0.002)
    return now


def at(handle: ScopedMemory, then: datetime) -> PastMemory:
    return handle.as_of(then)


async def test_a_scope_is_read_as_it_was(alice: ScopedMemory) -> None:
    tea = await alice.remember("Tea in the morning", tags=["drink"])
    await alice.remember("The cat is called Mimi")
    then = await moment()
    await alice.update(tea.id, "Coffee in the morning")
    await alice.forget(query="Mimi")
    await alice.remember("Something new")

    past = at(alice, then)

    assert await past.get(tea.id) == tea
    assert [item.content for item in await past.list()] == [
        "The cat is called Mimi",
        "Tea in the morning",
    ]
    assert [item.id for item in await past.list(query="TEA")] == [tea.id]
    assert [item.id for item in await past.list(where={"tags": {"$contains": "drink"}})] == [tea.id]
    assert [item.content async for item in past] == [item.content for item in await past.list()]
    assert [hit.item.content for hit in await past.recall("what is the cat called?", k=1)] == [
        "The cat is called Mimi"
    ]
    assert await past.recall("coffee") == []
    assert await past.recall("what is the cat called?", min_relevance=1.0) == []
    spread = await past.recall("morning cat", spread=True)
    assert [hit.item.content for hit in spread] == ["Tea in the morning", "The cat is called Mimi"]
    assert f"{then.isoformat()}" in repr(past)


async def test_pages_of_the_past_go_on_from_each_other(alice: ScopedMemory) -> None:
    await alice.remember_many([f"note {n}" for n in range(5)])
    past = at(alice, await moment())
    await alice.forget(everything=True)

    first = await past.list(limit=2)
    second = await past.list(limit=2, cursor=first.next)
    third = await past.list(limit=2, cursor=second.next)

    assert [len(first), len(second), len(third), third.next] == [2, 2, 1, None]
    assert {item.content for item in first + second + third} == {f"note {n}" for n in range(5)}


async def test_pages_of_the_past_go_on_though_the_last_item_is_erased(
    memory: AgentMemory, alice: ScopedMemory
) -> None:
    user_id = alice.scope.user_id
    for number in range(5):
        await memory.scope(user_id=user_id, session_id=f"s{number}").remember(f"note {number}")
    past = at(alice, await moment())

    first = await past.list(limit=2)
    await memory.erase(user_id=user_id, session_id=first[-1].metadata.session_id)
    second = await past.list(limit=2, cursor=first.next)

    assert [item.content for item in first + second] == ["note 4", "note 3", "note 2", "note 1"]


async def test_anothers_past_is_not_there(alice: ScopedMemory, bob: ScopedMemory) -> None:
    secret = await alice.remember("the door code is 4711")
    then = await moment()
    past = at(bob, then)

    assert await past.get(secret.id) is None
    assert await past.list() == []
    assert [item async for item in past] == []
    assert await past.recall("door code") == []
    with pytest.raises(QueryError, match="cursor"):
        await past.list(cursor=secret.id)


async def test_a_store_without_versions_says_so(any_memory: AgentMemory, who: str) -> None:
    past = at(any_memory.scope(user_id=who), datetime.now(UTC))

    if any_memory.url.startswith("redis"):
        with pytest.raises(UnsupportedError, match="reading the past"):
            await past.list()
    else:
        assert await past.list() == []


def test_a_moment_is_a_time(alice: ScopedMemory) -> None:
    with pytest.raises(QueryError, match="moment"):
        at(alice, "yesterday")  # type: ignore[arg-type]
