"""Keys with many values: `add` and `remove` change what there is, and `end` ends it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from orbiter.memory import AgentMemory, MemoryStatus
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent.facts import Facts
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations.tools import memory_tools
from orbiter.memory.model.trust import source_of

Open = Callable[..., AgentMemory]


def at(year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


async def value_of(facts: Facts, key: str, **when: datetime) -> object:
    fact = await facts.get(key, **when)
    return None if fact is None else fact.value


@pytest.fixture
def here(open_memory: Open) -> ScopedMemory:
    """Return a handle on a store of this process."""
    return open_memory("memory://").scope(user_id="alice")


async def test_values_are_added_and_removed_in_every_store(any_alice: ScopedMemory) -> None:
    facts = any_alice.facts
    await facts.put("likes", "basketball")
    both = await facts.put("likes", "tennis", op="add")
    again = await facts.put("likes", "Tennis".lower(), op="add")
    assert both.value == ["basketball", "tennis"]
    assert again == both

    left = await facts.put("likes", "basketball", op="remove")
    assert left.value == ["tennis"]
    assert (await facts.put("likes", "golf", op="remove")) == left
    assert await facts.conflicts() == []
    assert await value_of(facts, "likes", as_of=both.valid_from) == ["basketball", "tennis"]

    assert (await facts.put("likes", ["tennis"], op="remove")).is_end
    assert await facts.get("likes") is None
    assert (await facts.put("likes", ["a", "b"], op="add")).value == ["a", "b"]


async def test_of_values_that_are_added_at_once_none_is_lost(any_alice: ScopedMemory) -> None:
    names = [f"v{number}" for number in range(6)]

    await asyncio.gather(*(any_alice.facts.put("likes", name, op="add") for name in names))

    held = await any_alice.facts.get("likes")
    assert held is not None
    assert sorted(held.value) == names


async def test_what_was_forgotten_can_be_added_again(here: ScopedMemory) -> None:
    first = await here.facts.put("likes", "tea", op="add")
    await here.forget(first)

    assert (await here.facts.put("likes", "tea", op="add")).value == ["tea"]


async def test_a_value_of_the_past_joins_whatever_held_in_its_time(here: ScopedMemory) -> None:
    facts = here.facts
    await facts.put("speaks", ["Dutch"], valid_from=at(2020))
    await facts.put("speaks", ["Dutch", "Thai"], valid_from=at(2024))

    await facts.put("speaks", "Greek", op="add", valid_from=at(2019), valid_to=at(2025))

    held = {y: await facts.get("speaks", as_of=at(y, 6)) for y in (2018, 2019, 2020, 2024, 2025)}
    assert {year: fact and fact.value for year, fact in held.items()} == {
        2018: None,
        2019: ["Greek"],
        2020: ["Dutch", "Greek"],
        2024: ["Dutch", "Thai", "Greek"],
        2025: ["Dutch", "Thai"],
    }


async def test_drafts_change_what_there_is_when_they_are_accepted(any_alice: ScopedMemory) -> None:
    facts = any_alice.facts
    await facts.put("likes", ["basketball", "golf"], source="user")
    said = await any_alice.remember("I like tennis now, too, but no golf", source="web:x")
    added = await facts.propose("likes", "tennis", op="add", source=said)
    removed = await facts.propose("likes", "golf", op="remove", source=said)
    assert added is not None
    assert removed is not None
    assert (added.content, removed.content) == ("likes: add tennis", "likes: remove golf")
    assert await value_of(facts, "likes") == ["basketball", "golf"]

    await facts.put("likes", "chess", op="add")
    held = await facts.accept(added)
    await facts.accept(removed)

    assert held.status is MemoryStatus.ACCEPTED
    assert source_of(held) == "web:x"
    assert said.id in held.source_ids
    assert await value_of(facts, "likes") == ["basketball", "chess", "tennis"]
    assert await facts.drafts() == []
    assert await facts.propose("likes", "tennis", op="add", source=said) is None
    assert await facts.propose("likes", "golf", op="remove", source=said) is None


async def test_nothing_is_an_end_and_never_a_value(any_alice: ScopedMemory) -> None:
    facts = any_alice.facts
    await facts.put("job", "clerk")
    said = await any_alice.remember("I have retired")

    draft = await facts.propose("job", None, source=said)
    assert draft is not None
    assert (draft.is_end, draft.content) == (True, "job: ended")
    await facts.accept(draft)

    assert await facts.get("job") is None
    assert await facts.propose("job", None, source=said) is None
    for op in ("set", "add", "remove"):
        with pytest.raises(QueryError, match="end"):
            await facts.put("job", None, op=op)
    with pytest.raises(QueryError, match="no value"):
        await facts.put("job", "clerk", op="remove")
    with pytest.raises(QueryError, match="swap"):
        await facts.put("job", "clerk", op="swap")  # type: ignore[arg-type]  # which is none


async def test_a_tool_that_forgets_a_fact_ends_it_and_says_so(any_alice: ScopedMemory) -> None:
    facts, forget = any_alice.facts, memory_tools(any_alice)["forget"]
    await facts.put("home.city", "Oslo")
    paris = await facts.put("home.city", "Paris")

    told = await forget(paris.id)

    assert told.startswith("Ended and forgotten: the fact home.city with all its values")
    assert await facts.get("home.city") is None
    assert await facts.history("home.city") == []
    assert not await any_alice.recall("home city")
