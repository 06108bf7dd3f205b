"""No proposal and no message is lost, and no job grows with all that was said before."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.extraction._extractors import LineExtractor

from orbiter.memory import AgentMemory, HumanMemory
from orbiter.memory.agent import Chat, ScopedMemory
from orbiter.memory.extraction import ExtractionMemory, MemoryOrchestrator
from orbiter.memory.extraction._openai_extractor import _prompt
from orbiter.memory.extraction._queue import RECENT
from orbiter.memory.model.facts import FactMemory


@pytest.fixture
def ann(open_memory: Callable[..., AgentMemory], tmp_path: Path) -> ScopedMemory:
    return open_memory(f"sqlite:///{tmp_path}/lost.db", embeddings=None).scope(user_id="ann")


def _year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


# Proposals


async def test_a_draft_of_one_time_takes_none_of_another(ann: ScopedMemory) -> None:
    facts = ann.facts
    once = await ann.remember("I worked at Acme until 2012")
    again = await ann.remember("I am back at Acme since today")

    first = await facts.propose("employer", "Acme", source=once, valid_to=_year(2012))
    second = await facts.propose("employer", "Acme", source=again)

    assert first is not None
    assert second is not None
    assert [draft.id for draft in await facts.drafts()] == [first.id, second.id]
    await facts.accept(first.id)
    await facts.accept(second.id)
    held = [str(entry).partition(",")[2] for entry in await facts.history("employer")]
    assert len(held) == 2
    assert held[0] == " until 2012"


async def test_one_message_may_tell_of_two_times(ann: ScopedMemory) -> None:
    facts = ann.facts
    said = await ann.remember("I lived in Rome from 2010 to 2012, and again since 2020")
    spans = [(_year(2010), _year(2012)), (_year(2020), None)]

    for start, end in spans * 2:
        draft = await facts.propose("city", "Rome", source=said, valid_from=start, valid_to=end)
        if draft is not None:
            await facts.accept(draft.id)

    assert [str(entry) for entry in await facts.history("city")] == [
        "Rome, 2010 to 2012",
        "Rome, since 2020",
    ]


async def test_what_has_ended_since_is_proposed(ann: ScopedMemory) -> None:
    await ann.facts.put("employer", "Acme", valid_from=_year(2010))
    said = await ann.remember("I was at Acme from 2010 to 2024")

    draft = await ann.facts.propose(
        "employer", "Acme", source=said, valid_from=_year(2010), valid_to=_year(2024)
    )

    assert draft is not None
    assert draft.valid_to == _year(2024)


async def test_the_same_said_again_makes_one_draft(ann: ScopedMemory) -> None:
    said = [await ann.remember(f"I like tea {number}") for number in range(3)]

    drafts = {(await ann.facts.propose("drink", "tea", source=each)).id for each in said}  # type: ignore[union-attr]  # there is one

    assert len(drafts) == len(await ann.facts.drafts()) == 1


# Jobs


async def test_a_job_that_vanished_is_not_called_done(ann: ScopedMemory) -> None:
    chat = ann.chat("c")
    for number in range(3):
        await chat.add(f"key{number} is value")
    work = MemoryOrchestrator(ann, LineExtractor(), batch=1)
    await work.enqueue(chat)
    jobs = await ann.list(memory_type="extraction", where={"extraction": "open"})
    store = await ann._store()

    await store.delete_many([jobs[0].id])  # past the handle, which would have it queued again
    await work.run()

    assert str(await work.report()) == "0 waiting, 0 running, 2 done, 0 failed"


async def test_drafts_and_jobs_outlast_an_eviction(ann: ScopedMemory) -> None:
    chat = ann.chat("c")
    await chat.add(["city is Rome", "city is Rome"])
    work = MemoryOrchestrator(ann, LineExtractor(), batch=1)
    await work.enqueue(chat)
    draft = await ann.facts.propose("drink", "tea", source=await chat.items())

    evicted = await ann.evict(max_items=0, duplicates=True)

    assert {each.text for each in evicted} == {"city is Rome"}
    assert (await work.report()).waiting == 2
    assert await ann.facts.drafts() == [draft]


# Queueing


async def _undated(handle: ScopedMemory, count: int) -> Chat:
    """Store messages a microsecond apart, as files are read that have no times."""
    chat = handle.chat("import")
    start = datetime.now(UTC)
    await handle.remember_many(
        [
            HumanMemory(
                content=f"note {number}",
                created_at=start + timedelta(microseconds=number),
                metadata=chat.scope,
            )
            for number in range(count)
        ]
    )
    return chat


async def test_a_job_does_not_grow_with_what_was_said_before(ann: ScopedMemory) -> None:
    count = 2 * RECENT + 30
    chat = await _undated(ann, count)
    extractor = LineExtractor()
    work = MemoryOrchestrator(ann, extractor, batch=20)

    assert await work.enqueue(chat) == -(-count // 20)

    kept = [
        item
        for item in await ann.list(memory_type="extraction", limit=1_000)
        if isinstance(item, ExtractionMemory)
    ]
    longest = {item.state: 0 for item in kept}
    for item in kept:
        longest[item.state] = max(longest[item.state], len(item.recent))
    assert longest == {"open": 20, "cursor": RECENT}
    assert await work.enqueue(chat) == 0
    await chat.add("last is value")
    assert await work.enqueue_new() == 1
    await work.run()
    seen = [text for job in extractor.seen for text in job]
    assert len(seen) == len(set(seen)) == count + 1


async def test_messages_of_one_instant_are_all_queued_once(ann: ScopedMemory) -> None:
    chat = ann.chat("c")
    now = datetime.now(UTC)
    count = RECENT + 20
    await ann.remember_many(
        [
            HumanMemory(content=f"note {number}", created_at=now, metadata=chat.scope)
            for number in range(count)
        ]
    )
    extractor = LineExtractor()
    work = MemoryOrchestrator(ann, extractor, batch=50)

    made = [await work.enqueue(chat), await work.enqueue(chat), await work.enqueue_new()]
    await work.run()

    assert made == [-(-count // 50), 0, 0]
    seen = [text for job in extractor.seen for text in job]
    assert len(seen) == len(set(seen)) == count


async def test_a_crash_before_the_cursor_loses_and_repeats_nothing(
    ann: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = await _undated(ann, 10)
    extractor = LineExtractor()
    work = MemoryOrchestrator(ann, extractor, batch=3)
    queue = "orbiter.memory.extraction._queue.cursor_at"
    with monkeypatch.context() as broken:
        broken.setattr(queue, lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            await work.enqueue(chat)

    other = MemoryOrchestrator(ann, extractor, batch=4)
    await other.enqueue(chat)
    await other.run()

    seen = [text for job in extractor.seen for text in job]
    assert len(seen) == len(set(seen)) == 10


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_message_that_comes_late_is_found(ann: ScopedMemory, is_new: bool) -> None:
    chat = ann.chat("c")
    now = datetime.now(UTC)

    async def said(text: str, seconds: float) -> None:
        at = now - timedelta(seconds=seconds)
        await ann.remember(HumanMemory(content=text, metadata=chat.scope, created_at=at))

    await said("one is said", 0)
    work = MemoryOrchestrator(ann, LineExtractor())
    assert await work.enqueue_new() == 1
    await said("two is late", 3)
    await said("three is very late", 30)

    found = [await (work.enqueue_new() if is_new else work.enqueue(chat)) for _ in range(3)]

    assert found == [1, 0, 0]
    (cursor,) = await ann.list(where={"memory_type": "extraction", "extraction": "cursor"})
    assert isinstance(cursor, ExtractionMemory)
    assert cursor.messages == (3 if is_new else 1)  # else it would be looked at for ever
    await work.run()
    assert {draft.key for draft in await ann.facts.drafts()} == {"one", "two", "three"}


async def test_a_message_of_the_first_year_can_be_queued(ann: ScopedMemory) -> None:
    chat = ann.chat("c")
    first = datetime(1, 1, 1, tzinfo=UTC)
    await ann.remember(HumanMemory(content="a is b", metadata=chat.scope, created_at=first))
    work = MemoryOrchestrator(ann, LineExtractor())

    assert [await work.enqueue(chat), await work.enqueue(chat)] == [1, 0]


# Asking


def test_a_prompt_takes_so_many_known_facts_those_that_are_spoken_of_first() -> None:
    known = {
        f"key_{number}": FactMemory(
            key=f"key_{number}", value="v" * 5_000, recorded_at=_year(2000 + number % 20)
        )
        for number in range(300)
    }
    known["home_city"] = FactMemory(key="home_city", value="Oslo", recorded_at=_year(1990))
    said = HumanMemory(content="Oslo is my city no more")

    prompt = _prompt({"m1": said}, known, 8_000)

    assert len(prompt) < 40_000
    assert 'home_city = "Oslo"' in prompt
    assert "key_19" in prompt
    assert "Oslo is my city no more" in prompt
