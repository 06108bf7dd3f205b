"""Only `facts` and `forget` change what facts answer, and no reader sees less than another."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random

import pytest

from orbiter.memory import AgentMemory, ShortTermMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent.facts import Facts
from orbiter.memory.context import _section_sources
from orbiter.memory.errors import QueryError
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.facts.spans import assertions
from orbiter.memory.model.items import MemoryStatus
from orbiter.memory.model.query import Query


@pytest.fixture
def here(open_memory: Callable[..., AgentMemory], tmp_path: Path) -> ScopedMemory:
    return open_memory(f"sqlite:///{tmp_path}/facts.db", embeddings=None).scope(user_id="ann")


def _year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


def _by(handle: ScopedMemory, clock: Callable[[], datetime]) -> Facts:
    return Facts(handle._session, clock=clock)


async def _in_context(handle: ScopedMemory, query: str) -> list[str]:
    store = await handle._store()
    found, _ = await _section_sources.recall(store, query, scope=handle.scope, limit=5)
    return [item.content for item in found if isinstance(item, FactMemory)]


async def _recalled(handle: ScopedMemory, query: str) -> list[str]:
    return [hit.item.content for hit in await handle.recall(query)]


# Evicting


async def _lived(handle: ScopedMemory) -> None:
    cities = ((2016, "Berlin"), (2018, "Munich"), (2020, "Berlin"), (2022, "Munich"))
    for year, city in cities:
        await handle.facts.put("city", city, valid_from=_year(year))


@pytest.mark.parametrize("budget", [{"duplicates": True}, {"max_items": 0}, {"max_bytes": 0}])
async def test_evicting_changes_no_answer_of_facts(
    here: ScopedMemory, budget: dict[str, int]
) -> None:
    await _lived(here)
    soon = datetime.now(UTC) + timedelta(days=1)
    await here.facts.put("city", "Paris", valid_to=soon)  # then Munich holds again
    wrong = await here.facts.put("pet", "cat")
    known = datetime.now(UTC)
    await here.facts.retract(wrong.id)
    said = await here.remember("I drink tea", importance=1)
    draft = await here.facts.propose("drink", "tea", source=said)
    before = [str(entry) for entry in await here.facts.history("city")]

    evicted = await here.evict(**budget)  # type: ignore[arg-type]  # one of its budgets

    assert len(evicted) == 0
    assert [str(entry) for entry in await here.facts.history("city")] == before
    then = await here.facts.get("city", as_of=_year(2021))
    assert then is not None
    assert then.value == "Berlin"
    after_paris = await here.facts.get("city", as_of=soon)
    assert after_paris is not None
    assert after_paris.value == "Munich"
    assert await here.facts.get("pet", known_at=known) is not None
    assert await here.facts.drafts() == [draft]


async def test_facts_are_no_duplicates(here: ScopedMemory) -> None:
    await _lived(here)
    for _ in range(2):
        await here.remember("Ann has a red bicycle with three gears")

    (group,) = await here.duplicates()

    assert {item.memory_type for item in group} == {"item"}


async def test_a_proposal_that_was_turned_down_may_be_evicted(here: ScopedMemory) -> None:
    said = await here.remember("I drink tea", importance=1)
    draft = await here.facts.propose("drink", "tea", source=said)
    assert draft is not None
    await here.facts.discard(draft.id)

    evicted = await here.evict(max_items=1)

    assert [each.id for each in evicted] == [draft.id]
    assert await here.facts.propose("drink", "tea", source=said) is None


# One rule for all readers


async def test_what_a_fast_clock_recorded_is_recalled_too(here: ScopedMemory) -> None:
    ahead = _by(here, lambda: datetime.now(UTC) + timedelta(hours=1))
    await ahead.put("home_city", "Berlin")
    await here.facts.put("home_city", "Munich")

    told = await here.facts.get("home_city")

    assert told is not None
    assert told.value == "Munich"
    assert (await _recalled(here, "home city"))[0] == "home city: Munich"
    assert await _in_context(here, "home city") == ["home city: Munich"]


async def test_the_end_of_time_is_no_error(here: ScopedMemory) -> None:
    end = datetime.max.replace(tzinfo=UTC)
    store = await here._store()
    await store.add(FactMemory(key="z", value=1, recorded_at=end, metadata=here.scope))

    await here.facts.put("z", 2)

    told = await here.facts.get("z")
    assert told is not None
    assert told.value == 2
    assert await _recalled(here, "z") != []
    assert (await here.facts.retract(told.id)).retracted_at == end
    far = datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=5)))
    with pytest.raises(QueryError):
        await here.facts.put("z", 3, valid_from=far)


async def test_many_assertions_of_one_key_hide_no_fact_of_another(
    here: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.model.facts.spans.PAGE", 7)
    await here.facts.put("home_city", "Berlin")
    now = datetime.now(UTC)
    store = await here._store()
    await store.add_many(
        [
            FactMemory(
                key="home_temperature",
                value=number,
                valid_from=now + timedelta(seconds=number - 60),
                created_at=now + timedelta(microseconds=number),
                metadata=here.scope,
            )
            for number in range(30)
        ]
    )

    assert "home city: Berlin" in await _recalled(here, "home city Berlin")
    assert "home temperature: 29" in await _recalled(here, "home temperature")
    assert "home city: Berlin" in await _in_context(here, "home city Berlin")
    without_pages = ShortTermMemory()
    for item in await here.list(memory_type="fact", limit=100):
        await without_pages.add(item)
    for each in (store, without_pages):
        facts = await assertions(each, Query(metadata=here.scope), ["home_city"])
        assert [fact.value for fact in facts] == ["Berlin"]


# Contradiction


async def _told(facts: Facts) -> list[str]:
    return [str(conflict) for conflict in await facts.conflicts()]


async def test_spans_that_overlap_contradict_each_other_in_either_order(here: ScopedMemory) -> None:
    facts = here.facts
    await facts.put("one", "Acme", valid_from=_year(2020), valid_to=_year(2024))
    await facts.put("one", "Initech", valid_from=_year(2022), valid_to=_year(2025))
    await facts.put("two", "Initech", valid_from=_year(2022), valid_to=_year(2025))
    await facts.put("two", "Acme", valid_from=_year(2020), valid_to=_year(2024))
    # Nobody knew in 2020 to 2024 what was to come: said afterwards, it is a contradiction.
    await facts.put("three", "Acme", valid_from=_year(2020), valid_to=_year(2024))
    await facts.put("three", "Initech", valid_from=_year(2022))
    # These go on from each other.
    await facts.put("four", "Acme", valid_from=_year(2020), valid_to=_year(2022))
    await facts.put("four", "Initech", valid_from=_year(2022), valid_to=_year(2024))
    await facts.put("five", "pro", valid_to=_year(2999))
    await facts.put("five", "free")

    assert await _told(facts) == [
        "one: Acme or Initech (same time)",
        "three: Acme or Initech (same time)",
        "two: Initech or Acme (same time)",
    ]


async def test_an_earlier_value_said_again_is_a_contradiction_once(here: ScopedMemory) -> None:
    facts = here.facts
    await facts.put("city", "Rome", valid_from=_year(2020))
    await facts.put("city", "Oslo", valid_from=_year(2022))

    again = [await facts.put("city", "Rome", valid_from=_year(2020)) for _ in range(3)]

    assert len({fact.id for fact in again}) == 1
    assert len(await facts.history("city")) == 3
    assert await _told(facts) == ["city: Oslo or Rome (same time)"]
    await facts.retract(again[0].id)
    assert await _told(facts) == []


async def test_what_has_ended_said_again_is_a_contradiction(here: ScopedMemory) -> None:
    facts = here.facts
    await facts.put("city", "Rome", valid_from=_year(2020))
    end = await facts.end("city", at=_year(2021))
    assert end is not None

    await facts.put("city", "Rome", valid_from=_year(2020))

    assert await _told(facts) == ["city: ended or Rome (same time)"]
    await facts.retract(end.id)
    assert await _told(facts) == []
    told = await facts.get("city")
    assert told is not None
    assert told.value == "Rome"


async def test_what_is_still_so_is_confirmed_though_a_change_is_to_come(here: ScopedMemory) -> None:
    facts = here.facts
    first = await facts.put("city", "Rome", valid_from=_year(2020))
    await facts.put("city", "Oslo", valid_from=_year(2999))

    assert (await facts.put("city", "Rome")).id == first.id
    assert (await facts.put("city", "Rome", valid_from=_year(2020))).id == first.id
    assert await _told(facts) == []


# Changing


async def test_the_status_of_a_fact_is_changed_by_its_review(here: ScopedMemory) -> None:
    said = await here.remember("I live in Rome")
    draft = await here.facts.propose("city", "Rome", source=said)
    assert draft is not None

    for status in (MemoryStatus.ACCEPTED, MemoryStatus.DISCARD):
        with pytest.raises(QueryError, match=r"`facts\.accept.*`facts\.discard.*`facts\.retract"):
            await here.update(draft.id, status=status)

    assert (await here.update(draft.id, tags=["mine"])).metadata.extra["tags"] == ["mine"]
    assert await here.facts.get("city") is None
    assert (await here.update(said.id, status=MemoryStatus.DISCARD)).status is MemoryStatus.DISCARD


async def test_reverting_takes_back_what_many_said_at_once(alice: ScopedMemory) -> None:
    facts = alice.facts
    await facts.put("city", "Rome", valid_from=_year(2020))
    await asyncio.gather(*(facts.put("city", "Berlin") for _ in range(10)))

    back = await facts.revert("city")

    assert back is not None
    assert back.value == "Rome"
    told = await facts.get("city")
    assert told is not None
    assert told.value == "Rome"


async def test_reverting_takes_back_no_other_time(here: ScopedMemory) -> None:
    facts = here.facts
    await facts.put("city", "Rome", valid_from=_year(2010), valid_to=_year(2012))
    await facts.put("city", "Rome", valid_from=_year(2020))

    assert await facts.revert("city") is None

    assert (await facts.get("city", as_of=_year(2011))) is not None


# The past


async def _tick() -> datetime:
    await asyncio.sleep(0.01)
    moment = datetime.now(UTC)
    await asyncio.sleep(0.01)
    return moment


async def test_the_past_shows_facts_that_were_forgotten_since(alice: ScopedMemory) -> None:
    fact = await alice.facts.put("city", "Rome")
    said = await alice.remember("I drink tea")
    draft = await alice.facts.propose("drink", "tea", source=said)
    assert draft is not None
    then = await _tick()
    await alice.facts.accept(draft.id)
    await alice.forget(fact.id)

    past = alice.as_of(then).facts

    assert [f.value for f in (await past.all()).values()] == ["Rome"]
    assert await past.get("city") is not None
    assert await past.keys() == ["city"]
    assert len(await past.history("city")) == 1
    assert [f.id for f in await past.drafts()] == [draft.id]
    assert await past.get("drink") is None
    assert await alice.facts.get("city") is None


# Reading what decides instead of everything


class _ReadsAll(Facts):
    """Reads all that was said of a key each time, as from a store without an index of facts."""

    async def _deciding(self, key: str, as_of: datetime, known_at: datetime) -> None:
        return None


async def _outcome(call: Awaitable[FactMemory | None]) -> object:
    try:
        fact = await call
    except QueryError as exc:
        return str(exc).partition("retract(")[0]
    if fact is None:
        return None
    times = (fact.valid_from, fact.valid_to, fact.recorded_at, fact.retracted_at)
    return fact.key, fact.value, fact.is_end, *times


async def _change(facts: Facts, dice: Random) -> object:
    """Say, end or retract something, as *dice* will."""
    kind = dice.choices(("put", "end", "retract", "revert"), (6, 2, 1, 1))[0]
    key, start = dice.choice(("city", "häuser")), _year(dice.randrange(2000, 2012))
    if kind == "put":
        value, length = dice.choice(("Rome", "Oslo", 3)), dice.randrange(1, 6)
        stop = start + timedelta(days=365 * length)
        since, until = dice.choice(((None, None), (start, None), (None, start), (start, stop)))
        return await _outcome(facts.put(key, value, valid_from=since, valid_to=until))
    if kind == "end":
        return await _outcome(facts.end(key, at=dice.choice((None, start))))
    if kind == "revert":
        return await _outcome(facts.revert(key))
    number = dice.randrange(40)
    said = await facts.history(key)
    return await _outcome(facts.retract(said[number % len(said)].fact.id)) if said else None


@pytest.mark.parametrize("seed", range(6))
async def test_what_decides_gives_the_same_answers_as_everything(
    local_memory: AgentMemory, who: str, seed: int
) -> None:
    """Also where the clock stands still or is set back, and for what was known once."""
    turn, now = Random(seed), [_year(2010)]
    alice = local_memory.scope(user_id=who)
    other = local_memory.scope(user_id=who, session_id="other")
    pair = (_by(alice, lambda: now[0]), _ReadsAll(other._session, clock=lambda: now[0]))
    for number in range(40):
        now[0] += timedelta(days=turn.choice((-40, 0, 30, 60)))
        done = [await _change(facts, Random(f"{seed} {number}")) for facts in pair]
        assert done[0] == done[1]
        key, then, known = turn.choice(("city", "häuser")), turn.randrange(1999, 2014), None
        if number % 3 == 0:
            known = now[0] - timedelta(days=turn.randrange(400))
        for as_of in (None, _year(then)):
            found = [await _outcome(f.get(key, as_of=as_of, known_at=known)) for f in pair]
            assert found[0] == found[1]


async def test_a_fact_whose_times_were_written_by_hand_is_seen(
    here: ScopedMemory, tmp_path: Path
) -> None:
    for city in ("Rome", "Oslo"):
        await here.facts.put("city", city, valid_from=_year(2001))
    later = {"valid_from": "2005-01-01T00:00:00Z"}
    with sqlite3.connect(tmp_path / "facts.db") as file:
        file.execute(
            "UPDATE memory_items SET extra_json = json_patch(extra_json, ?)"
            " WHERE content LIKE '%Rome'",
            [json.dumps(later)],
        )
    file.close()
    found = await here.facts.get("city")
    assert found is not None
    assert found.value == "Rome"


async def test_what_holds_again_between_others_is_recorded(here: ScopedMemory) -> None:
    """The next that begins ends what holds, whatever was said last."""
    await here.facts.put("city", "Rome", valid_from=_year(2001))
    await here.facts.put("city", "Oslo", valid_from=_year(2005))
    await here.facts.put("city", "Bari", valid_from=_year(1990), valid_to=_year(1991))
    again = await here.facts.put("city", "Rome", valid_from=_year(2003))
    assert again.valid_from == _year(2003)
