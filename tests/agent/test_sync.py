"""The blocking classes do what the async ones do, on every store and from any thread."""

import asyncio
import contextlib
import gc
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.timing import until_blocking

from orbiter.memory import SummaryConfig
from orbiter.memory.agent.inputs import date_items
from orbiter.memory.errors import ItemNotFoundError, MessageError, QueryError, UnsupportedError
from orbiter.memory.sync import AgentMemory, Chat, ScopedMemory, Stream, run
from orbiter.memory.testing import HashEmbeddings, ScriptedSummarizer


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    settings = {"embeddings": HashEmbeddings(), "episodic": "memory://"}
    with AgentMemory(tmp_path / "agent.db", summaries=None, **settings) as memory:  # type: ignore[arg-type]
        yield memory


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


def test_every_store_remembers_recalls_and_talks(any_local_url: str, who: str) -> None:
    with AgentMemory(any_local_url, embeddings=HashEmbeddings(), summaries=None) as memory:
        alice = memory.scope(user_id=who)

        kept = alice.remember("I love hiking in the mountains")
        chat = alice.chat("trip")
        said = chat.add(["Where to?", "And when?"])
        branch = chat.fork(said[0])

        assert [hit.item.id for hit in alice.recall("hiking", min_relevance=0.1)] == [kept.id]
        assert [item.content for item in branch.items()] == ["Where to?"]
        assert isinstance(branch, Chat)
        assert "hiking" in chat.context("mountains", budget=2_000).text
        assert alice.forget(kept).items == (kept,)


def test_the_first_use_opens_it_and_close_may_be_repeated(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path / "agent.db", embeddings=None)

    kept = memory.scope(user_id="a").remember("tea")
    memory.close()
    memory.close()
    found = memory.scope(user_id="a").get(kept.id)
    memory.close()

    assert found == kept


def test_an_error_comes_with_its_type_and_where_it_arose(alice: ScopedMemory) -> None:
    with pytest.raises(ItemNotFoundError) as caught:
        alice.update("nothing", "new")

    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[0] == "test_an_error_comes_with_its_type_and_where_it_arose"
    assert frames[-1] == "must_find"
    with pytest.raises(QueryError):
        alice.chat("")
    with pytest.raises(TypeError, match="unexpected keyword"):
        alice.remember("tea", colour="green")  # type: ignore[call-arg]


def test_what_a_callback_raises_comes_through_and_ends_nothing(alice: ScopedMemory) -> None:
    def count_tokens(text: str) -> int:
        raise SystemExit(3)

    with AgentMemory("memory://", embeddings=None, count_tokens=count_tokens) as other:
        chat = other.scope(user_id="a").chat("c")
        chat.add("hello")
        with pytest.raises(SystemExit):
            chat.items(budget=10)

    assert alice.remember("still here").content == "still here"


async def test_it_works_where_a_loop_is_running_and_leaves_that_alone(
    alice: ScopedMemory,
) -> None:
    here = asyncio.get_running_loop()
    ran: list[str] = []
    here.call_soon(ran.append, "mine")

    kept = alice.remember("from a notebook")
    found = alice.recall("notebook")

    assert found[0].item == kept
    assert ran == []  # a blocking call blocks; nothing else of the loop's was run by it
    assert asyncio.get_running_loop() is here
    await asyncio.sleep(0)
    assert ran == ["mine"]


def test_many_threads_at_once_lose_nothing(memory: AgentMemory) -> None:
    def work(number: int) -> str:
        handle = memory.scope(user_id=f"user-{number % 4}")
        with handle.events() as stream:
            kept = handle.remember(f"memory {number}")
            assert next(stream).scope.user_id == f"user-{number % 4}"
        return kept.id

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(work, range(80)))

    assert len(set(ids)) == 80
    assert memory.unscoped().stats().items == 80
    assert sum(thread.name == "orbiter-memory" for thread in threading.enumerate()) == 1


def test_a_stream_is_a_plain_iterator_until_the_memory_is_closed(memory: AgentMemory) -> None:
    alice = memory.scope(user_id="alice")
    stream = alice.events()

    alice.remember("one")
    memory.scope(user_id="bob").remember("two")
    alice.remember("three")
    memory.close()

    assert isinstance(stream, Stream)
    assert [event.kind for event in stream] == ["remembered", "remembered"]


@pytest.mark.parametrize("kind", ["events", "activity"])
def test_closing_a_stream_ends_a_loop_over_it_on_another_thread(
    alice: ScopedMemory, kind: str
) -> None:
    stream: Stream[Any] = alice.events() if kind == "events" else alice.activity.stream()
    heard: list[object] = []
    thread = threading.Thread(target=lambda: heard.extend(stream))
    thread.start()
    time.sleep(0.05)  # now it waits inside the stream

    stream.close()
    thread.join(5)

    assert not thread.is_alive()
    assert heard == []
    assert list(stream) == []


def test_activity_is_blocking_too(memory: AgentMemory, who: str) -> None:
    alice = memory.scope(user_id=who)
    stream = alice.activity.stream()
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append(next(stream).content))
    thread.start()
    time.sleep(0.05)

    alice.activity.add_interaction("call", "said hello", platform="phone")
    thread.join(5)

    assert heard == ["said hello"]
    assert [one.content for one in alice.activity.get_recent()] == ["said hello"]
    assert alice.activity.agent_id.startswith("scope-")
    assert not hasattr(alice.activity, "nothing")
    stream.close()


def test_a_call_from_a_callback_is_refused_and_not_a_deadlock(
    memory: AgentMemory, tmp_path: Path
) -> None:
    alice = memory.scope(user_id="alice")
    alice.remember("tea")
    refused: list[str] = []

    def ask(*_: object) -> None:
        with pytest.raises(UnsupportedError, match="would wait for itself"):
            alice.stats()
        with pytest.raises(UnsupportedError, match="would wait for itself"):
            run(asyncio.sleep(0))
        refused.append("refused")

    def count_tokens(text: str) -> int:
        ask()
        return 1

    memory.backup(tmp_path / "copy.db", progress=ask)  # called on a thread of the store's
    memory.reindex(progress=ask)
    assert memory.restore(tmp_path / "copy.db", progress=ask).items == 1
    with AgentMemory("memory://", embeddings=None, count_tokens=count_tokens) as other:
        chat = other.scope(user_id="a").chat("c")  # called on the loop itself
        chat.add("hello")
        chat.items(budget=10)

    assert len(refused) >= 3
    assert alice.stats().items == 1


def test_run_waits_for_what_only_the_async_objects_offer(memory: AgentMemory) -> None:
    memory.init()

    assert run(memory.store.count()) == 0
    with pytest.raises(ZeroDivisionError):
        run(_fails())


async def _fails() -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError


def test_a_memory_that_is_dropped_is_closed(tmp_path: Path) -> None:
    handle = AgentMemory(tmp_path / "agent.db", embeddings=None).scope(user_id="a")
    gc.collect()

    handle.remember("tea")  # a handle keeps its memory
    assert (tmp_path / "agent.db-wal").exists()
    del handle
    gc.collect()

    until_blocking(lambda: not (tmp_path / "agent.db-wal").exists(), "the end of the journal")


def test_an_error_keeps_nothing_alive_once_it_is_handled(alice: ScopedMemory) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with contextlib.suppress(ItemNotFoundError):
                alice.update("nothing", "new")
        # The thread of the loop lets go of the last one when it has the processor again.
        until_blocking(
            lambda: not any(isinstance(each, ItemNotFoundError) for each in gc.get_objects()),
            "letting go of the errors",
        )
    finally:
        gc.enable()


def test_summaries_are_made_in_the_background(tmp_path: Path) -> None:
    config = SummaryConfig(message_threshold=4, keep_recent=1)
    settings = {"summarizer": ScriptedSummarizer("in short"), "summaries": config}
    with AgentMemory(tmp_path / "agent.db", embeddings=None, **settings) as memory:  # type: ignore[arg-type]
        chat = memory.scope(user_id="a").chat("c")
        chat.add([f"message {number}" for number in range(8)])
        memory.flush()

        assert chat.summary() == "in short"


def _frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_the_traceback_of_a_wrong_argument_ends_at_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ORBITER_DEBUG", raising=False)
    with AgentMemory("memory://", embeddings=None) as memory:
        with pytest.raises(QueryError) as caught:
            memory.default_user.recall("tea", k=-1)
        assert len(_frames(caught.value)) == 2  # this test, and the call
        with pytest.raises(TypeError) as wrong:
            memory.default_user.recall("tea", kk=1)  # type: ignore[call-arg]  # the mistake
        assert len(_frames(wrong.value)) == 2


def test_the_traceback_of_a_row_that_is_no_message_ends_at_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ORBITER_DEBUG", raising=False)
    with (
        AgentMemory("memory://", embeddings=None) as memory,
        pytest.raises(MessageError) as caught,
    ):
        memory.default_user.remember_many([{"text": "a row"}])

    assert len(_frames(caught.value)) == 2  # this test, and the call
    assert "".join(traceback.format_exception(caught.value)).count("it has no `role`") == 1


def test_the_cause_of_an_error_is_short_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        try:
            date_items([], "soon", None)
        except QueryError as exc:
            raise QueryError("refused") from exc

    monkeypatch.delenv("ORBITER_DEBUG", raising=False)
    monkeypatch.setattr("orbiter.memory.agent.scope.date_items", refuse)
    with AgentMemory("memory://", embeddings=None) as memory, pytest.raises(QueryError) as caught:
        memory.scope("ann").remember("tea")

    assert caught.value.__cause__ is not None
    assert _frames(caught.value.__cause__) == ["refuse"]


def test_the_traceback_of_another_error_has_no_threads_in_it() -> None:
    def advance(done: int, total: int) -> None:
        raise ZeroDivisionError

    with AgentMemory("memory://", embeddings=None) as memory:
        memory.default_user.remember("tea")
        with pytest.raises(ZeroDivisionError) as caught:
            memory.default_user.forget(query="tea", progress=advance)

    frames = _frames(caught.value)
    assert frames[-1] == "advance"
    assert not {"result", "_carry", "_wait"} & set(frames)


def test_a_type_error_from_deep_inside_shows_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(*_: object) -> None:
        raise TypeError("ours")

    monkeypatch.setattr("orbiter.memory.agent.scope.date_items", mistaken)
    with AgentMemory("memory://", embeddings=None) as memory, pytest.raises(TypeError) as caught:
        memory.scope("ann").remember("tea")

    assert _frames(caught.value)[-2:] == ["remember", "mistaken"]


def test_all_of_a_traceback_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITER_DEBUG", "1")
    with (
        AgentMemory("memory://", embeddings=None) as memory,
        pytest.raises(QueryError) as caught,
    ):
        memory.default_user.recall("tea", k=-1)

    assert "check_size" in _frames(caught.value)


async def test_async_with_is_answered_with_the_class_that_takes_it() -> None:
    with pytest.raises(TypeError, match=r"write `with`.*`AgentMemory` of `orbiter\.memory`"):
        async with AgentMemory("memory://", embeddings=None):  # type: ignore[attr-defined]
            pass
