"""What the library keeps for itself among the memories is in nobody's way, and is not lost."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.extraction._extractors import LineExtractor

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.extraction import LongTermMemory, MemoryOrchestrator


async def _talked(handle: ScopedMemory) -> MemoryOrchestrator:
    for name in ("monday", "tuesday"):
        await handle.chat(name).add("favourite_drink is strong green tea")
    orchestrator = MemoryOrchestrator(handle, LineExtractor())
    assert await orchestrator.enqueue_new() == 2
    return orchestrator


async def test_jobs_are_no_memories_unless_they_are_asked_for(any_alice: ScopedMemory) -> None:
    await _talked(any_alice)

    listed = await any_alice.list()
    first = await any_alice.list(limit=1)
    rest = await any_alice.list(limit=1, cursor=first.next)
    jobs = await any_alice.list(memory_type="extraction")
    asked = await any_alice.list(where={"memory_type": {"$in": ["extraction"]}})

    assert [item.memory_type for item in listed] == ["human", "human"]
    assert [*first, *rest] == listed
    assert rest.next is None
    assert len(jobs) == len(asked) == 4
    assert (await any_alice.stats()).items == 2
    assert not await any_alice.forget(query="extraction")


async def test_who_walks_the_past_meets_no_jobs(here: ScopedMemory) -> None:
    await _talked(here)
    past = here.as_of(datetime.now(UTC) + timedelta(seconds=1))

    walked = [item async for item in past]

    assert [item.memory_type for item in walked] == ["human", "human"]
    assert walked == list(await past.list())
    assert len(await past.list(memory_type="extraction")) == 4


async def test_jobs_are_no_duplicates(here: ScopedMemory) -> None:
    for _ in range(3):
        await here.chat("monday").add("I like my tea strong and green")
    await MemoryOrchestrator(here, LineExtractor(), batch=1).enqueue_new()

    alike = await here.duplicates()

    assert len(await here.list(memory_type="extraction")) == 4
    assert [{item.memory_type for item in group} for group in alike] == [{"human"}]


async def test_a_budget_counts_no_jobs_and_takes_none(any_alice: ScopedMemory) -> None:
    orchestrator = await _talked(any_alice)

    within = await any_alice.evict(max_items=2)
    evicted = await any_alice.evict(max_items=0)

    assert (len(within), within.kept) == (0, 2)
    assert {each.text for each in evicted} == {"favourite_drink is strong green tea"}
    assert (evicted.kept, evicted.kept_bytes, evicted.is_met) == (0, 0, True)
    assert (await orchestrator.report()).waiting == 2


@pytest.mark.parametrize("is_one", [True, False])
async def test_the_messages_of_a_job_that_was_forgotten_are_queued_again(
    any_alice: ScopedMemory, is_one: bool
) -> None:
    orchestrator = await _talked(any_alice)
    jobs = await any_alice.list(memory_type="extraction", where={"extraction": "open"})

    if is_one:
        await any_alice.forget(jobs[0].id)
    else:
        assert len(await any_alice.forget(memory_type="extraction")) == 4

    assert await orchestrator.enqueue_new() == (1 if is_one else 2)
    assert await orchestrator.enqueue_new() == 0
    await orchestrator.run()
    drafts = await any_alice.facts.drafts()
    assert {draft.value for draft in drafts} == {"strong green tea"}
    assert (await orchestrator.report()).done == 2


async def test_doubting_the_user_leaves_the_jobs(alice: ScopedMemory) -> None:
    orchestrator = await _talked(alice)

    hidden = await alice.quarantine("user")

    assert {item.memory_type for item in hidden} == {"human"}
    assert (await orchestrator.report()).waiting == 2


async def test_forgetting_everything_takes_the_jobs_along(alice: ScopedMemory) -> None:
    orchestrator = await _talked(alice)

    would = await alice.forget(everything=True, dry_run=True)
    gone = await alice.forget(everything=True)

    assert len(would) == len(gone) == 2
    assert str(await orchestrator.report()) == "0 waiting, 0 running, 0 done, 0 failed"
    stats = await alice.stats()
    assert (stats.items, stats.forgotten) == (0, 2)


class _Plain:
    def extract(self, messages: object, known: object) -> list[object]:
        return []


@pytest.mark.parametrize("kind", [LongTermMemory, MemoryOrchestrator])
def test_what_cannot_extract_is_refused_at_once(kind: type, here: ScopedMemory) -> None:
    for extractor in (_Plain(), object(), LineExtractor):
        with pytest.raises(QueryError, match="async def extract"):
            kind(here, extractor)
    with pytest.raises(QueryError, match=r"memory\.scope"):
        kind("alice", LineExtractor())


def test_facts_belong_to_somebody() -> None:
    with pytest.raises(QueryError, match=r"`memory\.scope\(user_id=…\)`"):
        LongTermMemory(AgentMemory("memory://"), LineExtractor())  # type: ignore[arg-type]  # what is tested
