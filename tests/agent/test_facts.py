"""Facts of a scope: superseded by key, read at any time and as known at any time, never lost."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from orbiter.memory import AgentMemory, MemoryStatus, ToolMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent._facts_view import FactsView
from orbiter.memory.agent.facts import Facts
from orbiter.memory.errors import (
    AccessError,
    ItemNotFoundError,
    QueryError,
    StatusError,
    UnsupportedError,
)
from orbiter.memory.integrations.tools import memory_tools
from orbiter.memory.model.trust import Trust, trust_of
from orbiter.memory.testing import ManualClock

Open = Callable[..., AgentMemory]


def at(year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


@pytest.fixture
def here(open_memory: Open) -> ScopedMemory:
    """Return a handle on a store of this process."""
    return open_memory("memory://").scope(user_id="alice")


def clocked(handle: ScopedMemory, clock: Callable[[], datetime]) -> Facts:
    return Facts(handle._session, clock=clock)


async def values(facts: FactsView, **when: datetime) -> dict[str, object]:
    return {key: fact.value for key, fact in (await facts.all(**when)).items()}


async def test_a_new_value_takes_over_and_the_old_one_keeps_its_time(
    any_alice: ScopedMemory,
) -> None:
    facts = any_alice.facts
    berlin = await facts.put("home_city", "Berlin", valid_from=at(2020))
    munich = await facts.put("home_city", "Munich", valid_from=at(2024, 3))
    await facts.put("pets", ["Tom", {"name": "Rex", "age": 3}])

    now = await facts.get("home_city")
    then = await facts.get("home_city", as_of=at(2021))
    history = await facts.history("home_city")

    assert now == munich
    assert then == berlin
    assert await facts.get("home_city", as_of=at(2019)) is None
    assert await facts.get("nothing") is None
    assert [str(each) for each in history] == [
        "Berlin, 2020 to 1 Mar 2024",
        "Munich, since 1 Mar 2024",
    ]
    assert await values(facts) == {
        "home_city": "Munich",
        "pets": ["Tom", {"name": "Rex", "age": 3}],
    }
    assert await facts.keys() == ["home_city", "pets"]
    assert await facts.conflicts() == []


async def test_what_was_told_in_may_is_true_since_march(local_alice: ScopedMemory) -> None:
    clock = ManualClock(at(2023))
    facts = clocked(local_alice, clock)
    await facts.put("home_city", "Berlin", valid_from=at(2020))
    clock.now = at(2024, 5, 10)
    await facts.put("home_city", "Munich", valid_from=at(2024, 3))

    async def city(**when: datetime) -> object:
        found = await facts.get("home_city", **when)
        return None if found is None else found.value

    assert await city(as_of=at(2024, 4)) == "Munich"
    assert await city(as_of=at(2024, 4), known_at=at(2024, 4)) == "Berlin"
    assert await city(known_at=at(2022)) is None
    assert await values(facts, known_at=at(2024, 4)) == {"home_city": "Berlin"}


async def test_an_end_a_revert_and_a_retraction_change_nothing_that_was_known(
    local_alice: ScopedMemory,
) -> None:
    clock = ManualClock(at(2024))
    facts = clocked(local_alice, clock)
    acme = await facts.put("job", "Acme", valid_from=at(2020))
    clock.now = at(2024, 2)
    end = await facts.end("job")
    assert end is not None
    assert await facts.get("job") is None
    assert await facts.keys() == ["job"]
    assert await facts.end("job") is None
    clock.now = at(2024, 3)

    assert await facts.revert("job") == acme

    assert (await facts.get("job")) == acme
    assert await facts.get("job", known_at=at(2024, 2, 15), as_of=at(2024, 2, 15)) is None
    clock.now = at(2024, 4)
    retracted = await facts.retract(acme.id)
    assert retracted.retracted_at == at(2024, 4)
    assert await facts.retract(acme.id) == retracted
    assert await facts.get("job") is None
    assert await facts.revert("job") is None
    assert [str(each) for each in await facts.history("job")] == [
        "Acme, retracted 1 Apr 2024",
        "ended, retracted 1 Mar 2024",
    ]


async def test_a_slow_clock_cannot_hide_what_is_said_last(here: ScopedMemory) -> None:
    ahead, behind = at(2024, 1, 2), at(2024)
    await clocked(here, lambda: ahead).put("mood", "good")
    slow = clocked(here, lambda: behind)

    assert (await slow.get("mood")).value == "good"  # type: ignore[union-attr]  # it is there
    await slow.put("mood", "bad")

    assert await values(slow) == {"mood": "bad"}
    assert await values(clocked(here, lambda: ahead)) == {"mood": "bad"}


async def test_the_same_again_adds_its_source_and_nothing_else(alice: ScopedMemory) -> None:
    facts = alice.facts
    first, second = await alice.chat("c").add(["I live in Berlin", "Berlin, as I said"])
    page = await alice.remember("Alice of Berlin", source="web:example.com")
    read = await facts.put("home_city", "Berlin", source=page)

    said = await facts.put("home_city", "Berlin", source=[first, second])
    again = await facts.put("home_city", "Berlin", source=first)
    other_time = await facts.put("home_city", "Berlin", valid_from=at(2019))

    assert trust_of(read) is Trust.WEB
    assert said.id == read.id
    assert said.source_ids == [page.id, first.id, second.id]
    assert trust_of(said) is Trust.USER
    assert again == said
    assert other_time.id != said.id
    assert len(await facts.history("home_city")) == 2


async def test_a_fact_is_worth_what_its_worst_source_is(
    alice: ScopedMemory, bob: ScopedMemory
) -> None:
    facts = alice.facts
    (asked,) = await alice.chat("c").add("Where do I live?")
    (called,) = await alice.chat("c").add(
        ToolMemory(content="Rome", tool_call_id="1", tool_name="lookup")
    )
    (theirs,) = await bob.chat("c").add("Alice lives in Paris")
    await facts.put("home_city", "Berlin")

    found = await facts.put("home_city", "Rome", source=[asked, called])
    labelled = await facts.put("job", "clerk", source="web:example.com", importance=0.5)

    assert trust_of(found) is Trust.TOOL
    assert (labelled.metadata.extra["source"], labelled.metadata.extra["trust"]) == (
        "web:example.com",
        1,
    )
    assert labelled.metadata.extra["importance"] == 0.5
    (conflict,) = await facts.conflicts()
    assert (conflict.earlier.value, conflict.later.value) == ("Berlin", "Rome")
    await facts.retract(conflict.later.id)
    assert await facts.conflicts() == []
    with pytest.raises(AccessError):
        await facts.put("home_city", "Paris", source=theirs)


async def test_facts_are_of_exactly_one_scope(
    memory: AgentMemory, alice: ScopedMemory, bob: ScopedMemory
) -> None:
    session = memory.scope(user_id=alice.scope.user_id, session_id="s")
    mine = await alice.facts.put("color", "red")
    await session.facts.put("color", "blue")
    await bob.facts.put("color", "green")

    assert await values(alice.facts) == {"color": "red"}
    assert await values(session.facts) == {"color": "blue"}
    for stranger in (bob.facts, session.facts):
        for call in (stranger.retract, stranger.accept, stranger.discard):
            with pytest.raises(ItemNotFoundError):
                await call(mine.id)
    assert await values(alice.facts) == {"color": "red"}


async def test_a_proposal_waits_for_its_review(any_local_alice: ScopedMemory) -> None:
    clock = ManualClock(at(2030))
    facts = clocked(any_local_alice, clock)
    (said,) = await any_local_alice.chat("c").add("I moved to Munich in March 2024")

    draft = await facts.propose("home_city", "Munich", source=said, valid_from=at(2024, 3))
    assert draft is not None
    assert await facts.get("home_city") is None
    assert await facts.drafts() == [draft]
    clock.now = at(2031)
    accepted = await facts.accept(draft.id)

    assert (accepted.status, accepted.recorded_at) == (MemoryStatus.ACCEPTED, at(2031))
    assert accepted.source_ids == [said.id]
    assert await facts.accept(draft.id) == accepted
    assert await values(facts) == {"home_city": "Munich"}
    assert await values(facts, known_at=at(2030, 6)) == {}
    assert await facts.drafts() == []
    with pytest.raises(QueryError, match="retract"):
        await facts.discard(draft.id)


async def test_the_same_messages_propose_the_same_once_whatever_became_of_it(
    any_alice: ScopedMemory,
) -> None:
    facts = any_alice.facts
    one, two = await any_alice.chat("c").add(["I like tea", "I do like tea"])

    first = await facts.propose("drink", "tea", source=one, confidence=0.7)
    assert first is not None
    assert first.metadata.extra["confidence"] == 0.7
    assert await facts.propose("drink", "tea", source=one) == first
    assert await facts.propose("drink", "tea", source=[two, one]) == first
    await facts.discard(first.id)
    await facts.discard(first.id)
    assert await facts.propose("drink", "tea", source=one) is None
    assert await facts.propose("drink", "tea", source=[one, two]) is None
    with pytest.raises(StatusError):
        await facts.accept(first.id)
    said_again = await facts.propose("drink", "tea", source=two)
    assert said_again is not None
    await facts.accept(said_again.id)
    (third,) = await any_alice.chat("c").add("Tea, please")
    assert await facts.propose("drink", "tea", source=third) is None
    await facts.revert("drink")
    assert await facts.propose("drink", "tea", source=two) is None
    assert await facts.drafts() == []


async def test_what_was_forgotten_is_not_proposed_again(alice: ScopedMemory) -> None:
    facts = alice.facts
    (said,) = await alice.chat("c").add("My PIN is 1234")
    draft = await facts.propose("pin", "1234", source=said)
    assert draft is not None

    await alice.forget(draft)

    assert await facts.propose("pin", "1234", source=said) is None
    assert await facts.drafts() == []


async def test_moving_back_is_proposed_although_it_was_true_before(here: ScopedMemory) -> None:
    facts = here.facts
    await facts.put("home_city", "Berlin", valid_from=at(2020))
    await facts.put("home_city", "Munich", valid_from=at(2022))
    (said,) = await here.chat("c").add("Berlin again!")

    assert await facts.propose("home_city", "Berlin", source=said) is not None


async def test_accepting_what_holds_already_leaves_one_fact_with_both_sources(
    alice: ScopedMemory,
) -> None:
    facts = alice.facts
    (said,) = await alice.chat("c").add("I like tea")
    draft = await facts.propose("drink", "tea", source=said)
    assert draft is not None
    held = await facts.put("drink", "tea", valid_from=at(2020))

    accepted = await facts.accept(draft.id)

    assert accepted.id == held.id
    assert accepted.source_ids == [said.id]
    assert await facts.drafts() == []
    assert len(await facts.history("drink")) == 1


async def test_what_is_over_needs_no_beginning(here: ScopedMemory) -> None:
    facts = here.facts

    await facts.put("home_city", "Rome", valid_to=at(2019))

    assert await values(facts) == {}
    assert await values(facts, as_of=at(2018)) == {"home_city": "Rome"}


async def test_the_same_value_for_longer_is_something_new(here: ScopedMemory) -> None:
    facts = here.facts
    await facts.put("home_city", "Rome", valid_from=at(2020), valid_to=at(2022))

    await facts.put("home_city", "Rome", valid_from=at(2021))

    assert await values(facts) == {"home_city": "Rome"}
    assert [str(each) for each in await facts.history("home_city")] == [
        "Rome, 2020 to 2021",
        "Rome, since 2021",
    ]
    assert await facts.conflicts() == []


async def test_those_who_put_at_once_lose_nothing(
    any_url: str, open_memory: Open, who: str
) -> None:
    url = any_url
    first = open_memory(url)
    other = first if url == "memory://" else open_memory(url)
    both = [memory.scope(user_id=who).facts for memory in (first, other)]
    held = await both[0].put("drink", "tea", valid_from=at(2020))
    messages = await first.scope(user_id=who).chat("c").add([f"tea {n}" for n in range(8)])

    await asyncio.gather(
        *(both[n % 2].put("count", n, valid_from=at(2020) + timedelta(days=n)) for n in range(8)),
        *(both[n % 2].put("drink", "tea", source=messages[n]) for n in range(8)),
    )

    assert len(await both[0].history("count")) == 8
    assert await values(both[1]) == {"count": 7, "drink": "tea"}
    kept = await both[1].get("drink")
    assert kept is not None
    assert kept.id == held.id
    assert sorted(kept.source_ids) == sorted(message.id for message in messages)
    left = await asyncio.gather(*(facts.revert("count") for facts in both * 4))
    assert None in left
    assert await both[0].get("count") is None


async def test_reads_go_through_all_pages(
    here: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.agent._facts_view._PAGE", 3)
    facts = here.facts
    for number in range(7):
        await facts.put("count", number, valid_from=at(2020) + timedelta(days=number))

    assert len(await facts.history("count")) == 7
    assert await values(facts, as_of=at(2020)) == {"count": 0}


async def test_changes_are_told(here: ScopedMemory) -> None:
    facts = here.facts
    (said,) = await here.chat("c").add("I like tea")
    stream = here.events()
    fact = await facts.put("drink", "tea")
    await facts.retract(fact.id)
    draft = await facts.propose("drink", "coffee", source=said)
    assert draft is not None
    await facts.discard(draft.id)
    await stream.aclose()

    told = [(event.kind, event.item_ids) async for event in stream]

    assert told == [
        ("remembered", (fact.id,)),
        ("updated", (fact.id,)),
        ("remembered", (draft.id,)),
        ("updated", (draft.id,)),
    ]


async def test_senseless_calls_are_refused(here: ScopedMemory) -> None:
    facts = here.facts
    with pytest.raises(QueryError, match="key"):
        await facts.get("")
    with pytest.raises(QueryError, match="as_of"):
        await facts.get("a", as_of="some day")
    with pytest.raises(ValueError, match="JSON"):
        await facts.put("a", object())
    with pytest.raises(ValueError, match="valid_to"):
        await facts.put("a", 1, valid_from=at(2024), valid_to=at(2023))
    with pytest.raises(QueryError, match="source"):
        await facts.propose("a", 1, source=[])
    with pytest.raises(QueryError, match="source"):
        await facts.put("a", 1, source=[1])  # type: ignore[list-item]  # the point of the test
    (said,) = await here.chat("c").add("a")
    with pytest.raises(QueryError, match="confidence"):
        await facts.propose("a", 1, source=said, confidence=2)
    assert await facts.keys() == []


async def test_a_page_says_which_facts_hold_no_more(alice: ScopedMemory, bob: ScopedMemory) -> None:
    oslo = await alice.facts.put("city", "Oslo")
    bergen = await alice.facts.put("city", "Bergen")
    await alice.facts.put("city", "Paris")
    never = await alice.facts.put("size", "L", valid_from="2020-01-01")
    await alice.facts.put("size", "M", valid_from="2020-01-01")
    await alice.facts.put("size", "S", valid_from="2021-01-01")
    cat = await alice.facts.put("pet", "cat")
    await alice.facts.end("pet")
    wrong = await alice.facts.put("car", "none")
    await alice.facts.retract(wrong.id)
    await bob.facts.put("city", "Rome")

    page = await alice.list()

    assert page.ended[oslo.id] == 'replaced by "city: Bergen"'
    assert page.ended[bergen.id] == 'replaced by "city: Paris"'
    assert page.ended[never.id] == 'replaced by "size: M"'
    assert [page.ended.get(item.id) for item in page if item.content == "size: M"] == [
        'replaced by "size: S"'
    ]
    assert page.ended.keys() > {cat.id, wrong.id}
    assert len(page.ended) == 6
    assert page.ended[cat.id].startswith("ended ")
    assert page.ended[wrong.id] == "retracted"
    assert (await bob.list()).ended == {}
    shown = page._repr_html_()
    assert "city: Oslo (replaced by &quot;city: Bergen&quot;)" in shown


async def test_a_tool_forgets_all_values_of_a_fact_in_any_store(any_alice: ScopedMemory) -> None:
    for value in ("4710", "4711"):
        fact = await any_alice.facts.put("gym.locker", value)

    answer = await memory_tools(any_alice)["forget"](fact.id)

    assert await any_alice.facts.get("gym.locker") is None
    assert list(await any_alice.list(memory_type="fact")) == []
    assert list(await any_alice.recall("gym locker")) == []
    try:
        await any_alice.restore(fact.id)
    except UnsupportedError:
        assert "keeps nothing" in answer
    else:
        assert f"`restore` brings back {fact.id}" in answer
