"""Extraction is queued durably, done once, tried again, and never holds anything up."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import pytest
from tests.extraction._extractors import LineExtractor

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import (
    AccessError,
    ExtractionError,
    ItemNotFoundError,
    QueryError,
    StorageError,
)
from orbiter.memory.extraction import (
    ExtractionMemory,
    LongTermMemory,
    MemoryOrchestrator,
    ProposedFact,
    _queue,
)
from orbiter.memory.extraction._queue import OVERLAP
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import HumanMemory, MemoryItem
from orbiter.memory.testing import ManualClock

Open = Callable[..., AgentMemory]
START = datetime(2030, 1, 1, tzinfo=UTC)


class Pauses:
    """Time that passes when somebody waits for it."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.waited: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.clock.advance(seconds=seconds)
        await asyncio.sleep(0)


def orchestrated(
    memory: AgentMemory | ScopedMemory, extractor: LineExtractor, **settings: object
) -> tuple[MemoryOrchestrator, Pauses]:
    pauses = Pauses()
    options = {"clock": pauses.clock, "pause": pauses, "dice": lambda: 1.0, "concurrency": 1}
    return MemoryOrchestrator(memory, extractor, **{**options, **settings}), pauses  # type: ignore[arg-type]  # as the test says


async def drafts(handle: ScopedMemory) -> list[str]:
    found = await LongTermMemory(handle, LineExtractor()).drafts()
    return sorted(f"{fact.key}={fact.value}" for fact in found)


async def test_what_is_new_in_any_conversation_is_read_once(any_alice: ScopedMemory) -> None:
    extractor = LineExtractor()
    work, _ = orchestrated(any_alice, extractor, batch=2)
    chat, other = any_alice.chat("c"), any_alice.chat("d")
    await chat.add(["a is 1", {"role": "system", "content": "be kind"}, "hello"])
    await other.add("b is 2")

    assert await work.enqueue_new() == 3
    assert await work.enqueue_new() == 0
    assert await work.enqueue(chat) == 0
    assert str(await work.report()) == "3 waiting, 0 running, 0 done, 0 failed"
    await work.run()

    assert sorted(extractor.seen) == [["a is 1"], ["b is 2"], ["hello"]]
    assert await drafts(any_alice) == ["a=1", "b=2"]
    assert str(await work.report()) == "0 waiting, 0 running, 3 done, 0 failed"
    kept = await any_alice.list(memory_type="extraction")
    ends = {(item.metadata.extra["extraction"], item.expires_at is None) for item in kept}
    assert ends == {("done", False), ("cursor", True)}
    await chat.add("c is 3")
    assert await work.enqueue_new() == 1
    await work.run()
    assert extractor.seen[-1] == ["c is 3"]
    assert await drafts(any_alice) == ["a=1", "b=2", "c=3"]


async def test_what_is_not_indexed_becomes_no_fact(any_alice: ScopedMemory) -> None:
    extractor = LineExtractor()
    work, _ = orchestrated(any_alice, extractor)
    await any_alice.chat("c").add("code is 4711", index=False)
    await any_alice.chat("c").add("a is 1")

    await work.enqueue_new()
    await work.run()

    assert await drafts(any_alice) == ["a=1"]
    assert "code is 4711" not in [text for texts in extractor.seen for text in texts]


async def test_facts_of_a_chat_belong_to_the_handle_it_is_of(memory: AgentMemory, who: str) -> None:
    work, _ = orchestrated(memory.scope(user_id=who), LineExtractor())
    session = memory.scope(user_id=who, session_id="s")
    await session.chat("task").add("a is 1")
    await memory.scope(user_id=who).chat("c").add("b is 2")

    await work.enqueue_new()
    await work.run()

    assert await drafts(session) == ["a=1"]
    assert await drafts(memory.scope(user_id=who)) == ["b=2"]


async def test_a_message_that_is_stored_late_is_still_read(alice: ScopedMemory) -> None:
    extractor = LineExtractor()
    work, _ = orchestrated(alice, extractor)
    chat = alice.chat("c")
    (first,) = await chat.add("a is 1")
    await work.enqueue(chat)
    # Another process took its time between the clock and the commit.
    late = HumanMemory(
        content="b is 2", metadata=chat.scope, created_at=first.created_at - OVERLAP / 2
    )
    await alice._core.store.add(late)
    await chat.add("c is 3")

    assert await work.enqueue(chat) == 1
    assert await work.enqueue(chat) == 0
    await work.run()

    assert sorted(extractor.seen) == [["a is 1"], ["b is 2", "c is 3"]]


async def test_a_poisoned_job_is_tried_so_often_and_never_in_the_way(alice: ScopedMemory) -> None:
    def choke(messages: Sequence[MemoryItem]) -> None:
        if any(message.content == "poison" for message in messages):
            raise RuntimeError("ch\0oked\n\ud800")

    extractor = LineExtractor(choke)
    work, pauses = orchestrated(alice, extractor, max_attempts=4, backoff=8, max_backoff=20)
    for name, text in (("c", "poison"), ("d", "a is 1"), ("e", "b is 2")):
        await alice.chat(name).add(text)
    await work.enqueue_new()

    await work.run()

    assert await drafts(alice) == ["a=1", "b=2"]
    assert extractor.seen.count(["poison"]) == 4
    assert extractor.seen[1:3] != [["poison"], ["poison"]]
    assert sum(pauses.waited) == pytest.approx(8 + 16 + 20, abs=1)
    report = await work.report()
    assert not report
    (failed,) = report.failed
    assert (failed.attempts, failed.messages) == (4, 1)
    assert failed.scope == alice.chat("c").scope
    assert failed.error == "ExtractionError: the extractor failed: RuntimeError: ch oked "
    assert f'retry("{failed.job_id}")' in str(report)
    extractor._before = None
    await work.retry(failed.job_id)
    await work.retry(failed.job_id)
    await work.run()
    assert (await work.report()).failed == ()
    assert extractor.seen.count(["poison"]) == 5


async def test_waits_differ_so_that_not_all_come_back_at_once(here: ScopedMemory) -> None:
    def fail(_: Sequence[MemoryItem]) -> None:
        raise ExtractionError("no")

    work, pauses = orchestrated(
        here, LineExtractor(fail), max_attempts=2, backoff=8, poll=100, dice=lambda: 0.5
    )
    await here.chat("c").add("a is 1")
    await work.enqueue_new()

    await work.run()

    assert sum(pauses.waited) == pytest.approx(6, abs=0.1)


async def test_an_extractor_that_hangs_is_given_up(here: ScopedMemory) -> None:
    class Hanging(LineExtractor):
        async def extract(
            self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
        ) -> list[ProposedFact]:
            await asyncio.sleep(3_600)
            return []

    work, _ = orchestrated(here, Hanging(), timeout=0.02, max_attempts=1)
    await here.chat("c").add("a is 1")
    await work.enqueue_new()

    await work.run()

    assert (await work.report()).failed[0].error == "it took longer than 0.02 s"


async def test_many_workers_do_each_job_once(any_url: str, open_memory: Open, who: str) -> None:
    first = open_memory(any_url)
    second = first if any_url == "memory://" else open_memory(any_url)
    at_work: list[str] = []

    def note(messages: Sequence[MemoryItem]) -> None:
        at_work.extend(message.content for message in messages)

    handles = [memory.scope(user_id=who) for memory in (first, second)]
    for number in range(6):
        await handles[0].chat(f"c{number}").add(f"a{number} is {number}")
    clock = ManualClock(START)
    workers = [
        MemoryOrchestrator(handle, LineExtractor(note), clock=clock, concurrency=2)
        for handle in handles
    ]

    await asyncio.gather(*(worker.enqueue_new() for worker in workers))
    await asyncio.gather(*(worker.run() for worker in workers))

    assert sorted(at_work) == [f"a{number} is {number}" for number in range(6)]
    assert await drafts(handles[0]) == [f"a{number}={number}" for number in range(6)]
    assert (await workers[0].report()).done == 6


@pytest.mark.slow
async def test_a_worker_that_is_killed_loses_no_job_and_makes_no_fact_twice(
    url: str, open_memory: Open, who: str
) -> None:
    alice = open_memory(url).scope(user_id=who)
    work, pauses = orchestrated(alice, LineExtractor())
    await alice.chat("c").add(["a is 1", "b is 2", "c is 3"])
    await work.enqueue_new()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.extraction._child",
        url,
        who,
        "1",
        stdout=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"in the middle\n"
    child.kill()
    await child.wait()
    assert await drafts(alice) == ["a=1"]

    pauses.clock.now = datetime.now(UTC)
    assert await work._queue.reserve() is None  # it is still the dead one's
    assert (await work.report()).running == 1
    pauses.clock.advance(hours=1)
    await work.run()

    assert await drafts(alice) == ["a=1", "b=2", "c=3"]
    assert str(await work.report()) == "0 waiting, 0 running, 1 done, 0 failed"


def _environment() -> dict[str, str]:
    import os  # noqa: PLC0415 - for the child only
    from pathlib import Path  # noqa: PLC0415

    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}


async def test_a_job_that_kills_its_workers_is_given_up(here: ScopedMemory) -> None:
    work, pauses = orchestrated(here, LineExtractor(), max_attempts=2)
    await here.chat("c").add("a is 1")
    await work.enqueue_new()
    for _ in range(2):
        assert await work._queue.reserve() is not None  # and no more is heard of it
        pauses.clock.advance(hours=1)

    await work.run()

    (failed,) = (await work.report()).failed
    assert failed.error == "its worker was killed each time"


async def test_a_crash_between_the_job_and_the_cursor_loses_nothing_and_queues_nothing_twice(
    here: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractor = LineExtractor()
    work, _ = orchestrated(here, extractor, batch=2)
    chat = here.chat("c")
    await chat.add(["a is 1", "b is 2", "c is 3"])

    def crash(*_: object) -> ExtractionMemory:
        raise StorageError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(_queue, "cursor_at", crash)
        with pytest.raises(StorageError):
            await work.enqueue(chat)
    await work.run()
    await chat.add("d is 4")

    assert await work.enqueue(chat) == 1
    await work.run()

    assert extractor.seen == [["a is 1", "b is 2"], ["c is 3", "d is 4"]]


async def test_it_works_in_the_background_and_gives_back_what_is_under_way(
    here: ScopedMemory,
) -> None:
    begun = asyncio.Event()

    class Slow(LineExtractor):
        async def extract(
            self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
        ) -> list[ProposedFact]:
            begun.set()
            await asyncio.sleep(3_600)
            return []

    await here.chat("c").add("a is 1")
    slow = MemoryOrchestrator(here, Slow(), max_attempts=1)
    await slow.enqueue_new()
    async with slow:
        await begun.wait()
        assert (await slow.report()).running == 1
    assert str(await slow.report()) == "1 waiting, 0 running, 0 done, 0 failed"

    done = asyncio.Event()
    quick = MemoryOrchestrator(here, LineExtractor(lambda _: done.set()), poll=0.01, max_attempts=1)
    await quick.start()
    await quick.start()
    await done.wait()
    while not (await quick.report()).done:  # noqa: ASYNC110 - it is the store that tells
        await asyncio.sleep(0.01)
    assert await drafts(here) == ["a=1"]
    await quick.close()
    await quick.close()


async def test_a_store_that_fails_for_a_moment_is_told_and_outlived(
    here: ScopedMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await here.chat("c").add("a is 1")
    done = asyncio.Event()
    work = MemoryOrchestrator(here, LineExtractor(lambda _: done.set()), poll=0.01)
    await work.enqueue_new()
    reserve, failures = work._queue.reserve, [StorageError("secret")] * 3

    async def failing() -> ExtractionMemory | None:
        if failures:
            raise failures.pop()
        return await reserve()

    monkeypatch.setattr(work._queue, "reserve", failing)
    with pytest.raises(StorageError):
        await work.run()
    failures[:] = [StorageError("secret")] * 3
    async with work:
        await done.wait()

    assert "nothing is lost: StorageError" in caplog.text
    assert "secret" not in caplog.text


async def test_closing_the_memory_stops_it(here: ScopedMemory) -> None:
    work = MemoryOrchestrator(here, LineExtractor())
    await work.start()

    await here._core.close()

    assert work._task is None
    assert not here._core.is_open


async def test_messages_that_were_forgotten_are_not_read(alice: ScopedMemory) -> None:
    extractor = LineExtractor()
    work, _ = orchestrated(alice, extractor)
    said = await alice.chat("c").add(["a is 1", "b is 2"])
    await work.enqueue_new()
    await alice.forget(said[0])

    await work.run()

    assert extractor.seen == [["b is 2"]]


async def test_a_handle_sees_its_own_jobs_only(alice: ScopedMemory, bob: ScopedMemory) -> None:
    def fail(_: Sequence[MemoryItem]) -> None:
        raise ExtractionError("no")

    work, _ = orchestrated(alice, LineExtractor(fail), max_attempts=1)
    await alice.chat("c").add("a is 1")
    await work.enqueue_new()
    await work.run()
    (failed,) = (await work.report()).failed
    theirs, _ = orchestrated(bob, LineExtractor())

    assert await theirs.enqueue_new() == 0
    assert (await theirs.report()).failed == ()
    with pytest.raises(ItemNotFoundError, match="report"):
        await theirs.retry(failed.job_id)


async def test_the_server_itself_holds_it_to_one_user(role_dsn: str, open_memory: Open) -> None:
    memory = open_memory(role_dsn, row_security=True)
    alice, bob = memory.scope(user_id="alice"), memory.scope(user_id="bob")
    for handle in (alice, bob):
        await handle.chat("c").add("a is 1")
    work, _ = orchestrated(alice, LineExtractor())

    assert await work.enqueue_new() == 1
    await work.run()

    assert await drafts(alice) == ["a=1"]
    assert await drafts(bob) == []
    with pytest.raises(AccessError, match="user_id"):
        await orchestrated(memory, LineExtractor())[0].enqueue_new()


@pytest.mark.parametrize(
    "settings",
    [{"batch": 0}, {"concurrency": 0}, {"max_attempts": 0}, {"timeout": 0}, {"poll": -1}],
)
async def test_senseless_settings_are_refused(
    settings: dict[str, float], open_memory: Open
) -> None:
    with pytest.raises(QueryError, match=next(iter(settings))):
        MemoryOrchestrator(open_memory("memory://"), LineExtractor(), **settings)  # type: ignore[arg-type]  # as the test says
