"""Arguments that a handle refuses, and its errors; and what `erase` would do."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.model import acting_as


@pytest.fixture
def here(open_memory: Callable[..., AgentMemory]) -> ScopedMemory:
    return open_memory("memory://").scope(user_id="ann")


async def test_an_end_that_is_over_is_refused(here: ScopedMemory) -> None:
    note = await here.remember("the door code is 4711")
    hour = timedelta(hours=1)

    for over in (-hour, timedelta(0), datetime.now(UTC) - hour):
        with pytest.raises(QueryError, match="`expires` is in the past"):
            await here.remember("x", expires=over)
        with pytest.raises(QueryError, match="`expires` is in the past"):
            await here.remember_many(["x"], expires=over)
        with pytest.raises(QueryError, match="`forget`"):
            await here.update(note.id, expires=over)

    assert (await here.stats()).items == 1


async def test_what_is_no_end_is_told_what_one_is(here: ScopedMemory) -> None:
    note = await here.remember("the door code is 4711")
    no_time: Any = 3

    with pytest.raises(QueryError, match="a datetime or a timedelta, not 3"):
        await here.remember("x", expires=no_time)
    with pytest.raises(QueryError, match="a datetime, a timedelta or `never`, not 3"):
        await here.update(note.id, expires=no_time)
    with pytest.raises(QueryError, match='`expires="never"` removes the expiry'):
        await here.update(note.id, expires=None)


async def test_a_source_that_nothing_came_from_is_told_which_there_are(
    here: ScopedMemory, bob: ScopedMemory
) -> None:
    await here.remember("one", source="web:example.com")
    await here.remember("two", source="crm:7")
    await here.remember("three")
    call: Callable[..., Any]

    for call in (here.quarantine, here.release, here.undo):
        with pytest.raises(QueryError, match="`webb`.*`crm:7`, `user`, `web:example.com`"):
            await call("webb")
    assert not await here.quarantine("tool")
    assert len(await here.quarantine("crm")) == 1
    assert not await here.quarantine("crm")  # hidden already
    assert await here.release("crm") == 1
    assert await here.release("crm") == 0
    with pytest.raises(QueryError, match="`webb`.*there are no memories here"):
        await bob.quarantine("webb")


async def test_nobody_can_sign_as_the_library_does(open_memory: Callable[..., AgentMemory]) -> None:
    memory = open_memory("memory://")
    ann = memory.scope(user_id="ann", by="quarantine")
    hidden = await ann.remember("of a tool", source="tool")
    await ann.forget(hidden)  # by one who is called so

    assert await ann.release("tool") == 0
    for reserved in ("~quarantine", "~"):
        with pytest.raises(QueryError, match="`by`"):
            memory.scope(user_id="ann", by=reserved)
        with pytest.raises(QueryError, match="`by`"):
            memory.unscoped(by=reserved)
        with pytest.raises(QueryError, match="`by`"):
            await memory.erase(user_id="ann", by=reserved)
        with pytest.raises(QueryError, match="`by`"), acting_as(reserved):
            pass


async def test_a_dry_run_counts_what_erase_would_take(any_memory: AgentMemory, who: str) -> None:
    ann, ben = (any_memory.scope(user_id=f"{name}-{who}") for name in ("ann", "ben"))
    await ann.remember("one")
    await ann.forget(await ann.remember("two"))
    await ben.remember("three")
    keeps = (await ann.stats()).forgotten is not None

    would = await any_memory.erase(user_id=f"ann-{who}", dry_run=True)
    nobody = await any_memory.erase(user_id=f"nobody-{who}", dry_run=True)

    assert (would.items, would.forgotten, would.dry_run) == (1, int(keeps), True)
    assert not would
    assert str(would) == "would erase 1 memory" + (" and 1 forgotten" if keeps else "")
    assert "nothing is left" not in str(would)
    assert nobody
    assert (await ann.stats()).items == 1
    done = await any_memory.erase(user_id=f"ann-{who}")
    assert (done.items, done.forgotten, done.dry_run) == (1, int(keeps), False)
    assert (await ben.stats()).items == 1


async def test_a_filter_that_goes_too_deep_is_refused(here: ScopedMemory) -> None:
    deep: dict[str, object] = {"mood": "good"}
    for _ in range(2_000):
        deep = {"$and": [deep]}

    for call in (here.list(where=deep), here.recall("tea", where=deep), here.forget(where=deep)):
        with pytest.raises(QueryError, match="deep|nested"):
            await call
