"""The session of the OpenAI Agents SDK: exact, shared, trimmed legally, seen in the chat."""

import asyncio
import json
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.sdists import run_sdist_tests, unpacked_sdist
from tests.rows import each_row

pytest.importorskip("agents")

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.memory import Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call

from orbiter.memory import AgentMemory, AIMemory, HumanMemory, ScopedMemory, sync
from orbiter.memory.agent import KeyValue
from orbiter.memory.integrations.openai_agents import OrbiterSession, _is_settled, _Row, _whole
from orbiter.memory.integrations.tools import memory_tools
from orbiter.memory.transfer import import_file

DISTRIBUTION = "openai-agents"

set_tracing_disabled(disabled=True)

_OF_SQLITE = (
    "close_closes_worker_thread_connections",
    "reaps_connections_from_exited_worker_threads",
    "closes_retired_connections_before_the_next_allocation",
    "keeps_connections_of_live_worker_threads",
    "closed_rejects_empty_add_items",
    "pop_item_skips_corrupt_most_recent",
    "pop_item_returns_none_after_dropping_only_corrupt_rows",
    "get_items_limit_skips_corrupt_newest_rows",
    "get_items_session_settings_limit_skips_corrupt_rows",
    "file_lock_is_shared_across_instances",
    "failed_add_items_releases_write_lock",
    "failed_clear_session_rolls_back",
    "failed_pop_item_releases_write_lock",
    "rollback_failure_evicts_connection",
    "close_retries_quarantined_connection",
    "post_commit_cancellation_propagates_after_known_outcome",
)
_TEARS_PAIRS = "test_session_limit_drops_unmatched_history_function_call_output"
THEIR_INTERNALS = [
    # Connections, locks and rows of their SQLite session.
    *(f"tests/memory/test_session.py::test_sqlite_session_{name}" for name in _OF_SQLITE),
    # It wants `get_items(limit=2)` to return an output without its call, for the runner to drop.
    f"tests/memory/test_session_limit.py::{_TEARS_PAIRS}",
]

TURN: list[Any] = [
    {"role": "user", "content": "How is the weather in Oslo?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is sunny.", "annotations": []}],
    },
]


@pytest.fixture
async def alice(tmp_path: Path) -> AsyncIterator[ScopedMemory]:
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        yield memory.scope(user_id="alice")


def test_the_tests_of_the_sdk_pass(
    request: pytest.FixtureRequest, record_suite: Callable[[str, int, int], None]
) -> None:
    assert request.config.cache is not None
    folder = unpacked_sdist(DISTRIBUTION, request.config.cache)
    files = [f"tests/memory/test_session{each}.py" for each in ("", "_limit", "_context_wrapper")]

    passed, total = run_sdist_tests(
        folder, files, plugin="swapped_session", leave_out=THEIR_INTERNALS
    )

    record_suite("session tests of its sdist", passed, total)
    assert passed == total
    assert total >= 60


async def test_items_come_back_exactly_as_they_were_added(alice: ScopedMemory) -> None:
    session = OrbiterSession(alice, "s")
    odd: list[Any] = [
        {"type": "of_tomorrow", "text": "\0\ud800", "number": 2**70, "deep": [{"a": [None, 0.1]}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:," + "x" * 9**7}]},
        {"type": "function_call_output", "call_id": "nobody", "output": ""},
    ]

    await session.add_items([*TURN, *odd])

    assert isinstance(session, Session)
    assert await session.get_items() == [*TURN, *odd]


async def test_a_limit_never_tears_a_call_from_its_output_or_its_reasoning(
    alice: ScopedMemory,
) -> None:
    session = OrbiterSession(alice, "s")
    await session.add_items(TURN)

    windows = [await session.get_items(limit) for limit in range(7)]

    assert windows == [[], TURN[4:], TURN[4:], TURN[4:], TURN[1:], TURN, TURN]


async def test_the_limit_of_the_settings_holds_unless_another_is_given(
    alice: ScopedMemory,
) -> None:
    session = OrbiterSession(alice, "s", session_settings=SessionSettings(limit=1))
    await session.add_items(TURN)

    assert await session.get_items() == TURN[-1:]
    assert await session.get_items(100) == TURN


async def test_what_is_said_is_recalled_and_a_forgotten_message_is_not_given_any_more(
    alice: ScopedMemory,
) -> None:
    session = OrbiterSession(alice, "s")
    await session.add_items([{"role": "user", "content": "My cat is called Tom."}, *TURN])
    (hit, *_) = await alice.recall("What is the cat called?")
    await alice.forget(hit.item.id)

    assert hit.item.content == "My cat is called Tom."
    assert await session.get_items() == TURN


async def test_an_edited_message_says_what_it_says_now(alice: ScopedMemory) -> None:
    session = OrbiterSession(alice, "s")
    await session.add_items(TURN)
    messages = await alice.chat("s").items()
    for message in messages:
        if message.content:
            await alice.update(message.id, message.content.upper())

    items: list[Any] = await session.get_items()

    assert items[0]["content"] == "HOW IS THE WEATHER IN OSLO?"
    assert items[3] == {**TURN[3], "output": "SUNNY"}
    assert items[4]["content"][0]["text"] == "IT IS SUNNY."
    assert items[1:3] == TURN[1:3]


async def test_rows_that_cannot_be_read_do_not_count(alice: ScopedMemory) -> None:
    session = OrbiterSession(alice, "s")
    await session.add_items(TURN[:1])
    await session.add_items(TURN[-1:])
    await alice.chat("s").kv.append(("openai-agents", "items"), [b"{", b"[]", b'{"item": 1}'])

    assert await session.get_items(2) == [TURN[0], TURN[-1]]
    assert await session.pop_item() == TURN[-1]
    assert await session.pop_item() == TURN[0]
    assert await session.pop_item() is None


async def test_a_cancelled_caller_leaves_all_items_or_none(alice: ScopedMemory) -> None:
    session = OrbiterSession(alice, "s")
    for number in range(30):
        task = asyncio.create_task(
            session.add_items([{"role": "user", "content": f"{number}"}] * 3)
        )
        for _ in range(number % 10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    items = await session.get_items()
    messages = await alice.chat("s").items()

    assert len(items) % 3 == 0
    assert [item["content"] for item in items] == [each.content for each in messages]  # type: ignore[typeddict-item]


async def test_several_sessions_and_agents_write_one_log(alice: ScopedMemory) -> None:
    sessions = [OrbiterSession(alice, "s") for _ in range(5)]
    await asyncio.gather(
        *(
            session.add_items([{"role": "user", "content": f"{place}.{number}"}] * 2)
            for place, session in enumerate(sessions)
            for number in range(10)
        )
    )
    popped = await asyncio.gather(*(session.pop_item() for session in sessions))

    texts = [item["content"] for item in await sessions[0].get_items()]  # type: ignore[typeddict-item]

    assert len(texts) == 95
    assert len(popped) == 5
    assert None not in popped


async def test_another_user_and_another_session_see_nothing(alice: ScopedMemory) -> None:
    await OrbiterSession(alice, "s").add_items(TURN)
    memory = AgentMemory("memory://", embeddings=None)
    bob = memory.scope(user_id="bob")

    assert await OrbiterSession(alice, "t").get_items() == []
    assert await OrbiterSession(bob, "s").get_items() == []
    await memory.close()


async def test_a_cleared_session_is_forgotten_in_the_chat_and_nothing_else_is(
    alice: ScopedMemory,
) -> None:
    await alice.remember("Alice likes tea.")
    await OrbiterSession(alice, "other").add_items(TURN)
    session = OrbiterSession(alice, "s")
    await session.add_items(TURN)

    await session.clear_session()

    assert await session.get_items() == []
    assert await alice.chat("s").items() == []
    assert len(await alice.list()) == 1 + len(TURN)


async def test_the_runner_goes_on_after_a_restart_and_uses_the_tools(tmp_path: Path) -> None:
    calls = []

    @function_tool
    def weather(city: str) -> str:
        """Tell the weather."""
        calls.append(city)
        return "sunny"

    first = ScriptedModel(
        [
            [function_call("weather", {"city": "Oslo"}, call_id="c1")],
            [function_call("remember", {"text": "Alice lives in Oslo."}, call_id="c2")],
            [assistant_message("It is sunny in Oslo.")],
        ]
    )
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        agent = Agent("a", model=first, tools=[weather, *memory_tools(alice).openai_agents()])
        await Runner.run(agent, "I live in Oslo. Weather?", session=OrbiterSession(alice, "s"))
    second = ScriptedModel([[assistant_message("In Oslo.")]])
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        agent = Agent("b", model=second)
        result = await Runner.run(agent, "Where do I live?", session=OrbiterSession(alice, "s"))
        session = await OrbiterSession(alice, "s").get_items()
        known = await alice.recall("Where does Alice live?")

    assert calls == ["Oslo"]
    assert result.final_output == "In Oslo."
    sent: Any = second.calls[0].input
    assert [each.get("role", each.get("type")) for each in sent] == [
        "user", "function_call", "function_call_output", "function_call", "function_call_output",
        "assistant", "user",
    ]  # fmt: skip
    assert len(session) == 8
    assert "Alice lives in Oslo." in [hit.item.content for hit in known]


@pytest.fixture
def default_loop() -> Iterator[None]:
    """Close the loop that `Runner.run_sync` leaves open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.usefixtures("default_loop")
def test_a_blocking_program_uses_a_blocking_memory(tmp_path: Path) -> None:
    model = ScriptedModel([[assistant_message(text)] for text in ("one", "two")])
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        session = OrbiterSession(memory.scope(user_id="alice"), "s")
        for text in ("first", "second"):
            Runner.run_sync(Agent("a", model=model), text, session=session)
        said = [item.content for item in memory.scope(user_id="alice").chat("s").items()]

    assert said == ["first", "one", "second", "two"]


def _database(path: Path, items: Sequence[Any]) -> Path:
    """Write a database of the SDK with the session `s`."""
    with sqlite3.connect(path) as theirs:
        theirs.execute(
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, "
            "created_at)"
        )
        theirs.executemany(
            "INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)",
            [("s", json.dumps(item), "2026-01-01 10:00:00") for item in items],
        )
    theirs.close()
    return path


async def test_sessions_of_the_sdk_go_on_after_they_are_imported(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    await import_file(alice, _database(tmp_path / "theirs.db", TURN))
    session = OrbiterSession(alice, "s")

    before = await session.get_items()
    await session.add_items([{"role": "user", "content": "Thanks"}])

    assert before == TURN
    assert await session.get_items() == [*TURN, {"role": "user", "content": "Thanks"}]
    await session.clear_session()
    assert await session.get_items() == []


async def test_what_is_imported_after_the_first_item_comes_before_it(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    session = OrbiterSession(alice, "s")
    new: Any = [{"role": "user", "content": "Hello again"}, {"role": "user", "content": "Thanks"}]
    await session.add_items(new[:1])
    await import_file(alice, _database(tmp_path / "theirs.db", TURN))

    assert await session.get_items() == [*TURN, *new[:1]]
    await session.add_items(new[1:])
    assert await OrbiterSession(alice, "s").get_items() == [*TURN, *new]
    assert await session.get_items(limit=1) == new[1:]
    popped = [await session.pop_item() for _ in range(len(TURN) + 3)]
    assert popped == [*new[::-1], *TURN[::-1], None]
    assert await session.get_items() == []


async def test_what_was_said_since_an_import_follows_it_when_it_is_imported(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    first: Any = {"role": "user", "content": "First"}
    later: Any = {"role": "user", "content": "Said to the SDK's session meanwhile"}
    new: Any = {"role": "user", "content": "Said here"}
    session = OrbiterSession(alice, "s")
    await import_file(alice, _database(tmp_path / "a.db", [first]))
    await session.add_items([new])
    await import_file(alice, _database(tmp_path / "b.db", [first, later]))

    assert await session.get_items() == [first, later, new]
    await session.clear_session()
    assert await session.get_items() == []


@pytest.mark.parametrize(
    ("forgotten", "left"),
    [(0, [1, 2, 3, 4]), (1, [0, 4]), (2, [0, 4]), (3, [0, 4]), (4, [0, 1, 2, 3])],
)
async def test_with_a_forgotten_message_goes_what_the_api_would_refuse_without_it(
    alice: ScopedMemory, forgotten: int, left: list[int]
) -> None:
    session = OrbiterSession(alice, "s")
    await session.add_items(TURN)
    another: list[Any] = [{**item, "call_id": "c2"} for item in TURN[2:4]]
    await session.add_items(another)
    messages = await alice.chat("s").items()
    await alice.forget(messages[forgotten].id)
    kept = [*(TURN[place] for place in left), *another]

    assert await session.get_items() == kept
    assert [await session.pop_item() for _ in range(len(kept) + 1)] == [*kept[::-1], None]


async def test_a_session_that_begins_while_another_adds_does_not_repeat_it(
    alice: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = OrbiterSession(alice, "s"), OrbiterSession(alice, "s")
    seen: list[Any] = []
    append = KeyValue.append

    async def append_after_the_other(kv: KeyValue, path: Any, values: Any) -> list[str]:
        monkeypatch.setattr(KeyValue, "append", append)
        seen.extend(await second.get_items())
        await second.add_items([{"role": "user", "content": "b"}])
        return await append(kv, path, values)

    monkeypatch.setattr(KeyValue, "append", append_after_the_other)
    await first.add_items([{"role": "user", "content": "a"}])

    assert seen == []
    items: list[Any] = await OrbiterSession(alice, "s").get_items()
    assert [item["content"] for item in items] == ["b", "a"]


async def test_a_long_chat_goes_on_as_a_session(alice: ScopedMemory) -> None:
    texts = [f"{number}" for number in range(10_050)]
    await alice.chat("s").add([{"role": "user", "content": text} for text in texts])
    session = OrbiterSession(alice, "s")
    await session.add_items([{"role": "user", "content": "new"}])
    await alice.chat("s").add("Not said to the session.")

    items: list[Any] = await session.get_items()
    assert [item["content"] for item in items] == [*texts, "new"]
    popped: list[Any] = [await session.pop_item() for _ in range(3)]
    assert [item["content"] for item in popped] == ["new", "10049", "10048"]
    assert len(await OrbiterSession(alice, "s").get_items()) == 10_048


async def test_the_items_of_one_message_of_a_chat_are_popped_one_by_one(
    alice: ScopedMemory,
) -> None:
    call = {"id": "c1", "name": "look", "arguments": "{}"}
    await alice.chat("s").add(
        [HumanMemory(content="Look!"), AIMemory(content="Yes.", tool_calls=[call])]
    )
    session = OrbiterSession(alice, "s")
    items = await session.get_items()

    assert len(items) == 3
    assert await session.pop_item() == items[2]
    assert await session.get_items() == items[:2]
    assert [await session.pop_item() for _ in range(3)] == [items[1], items[0], None]
    assert await alice.chat("s").items() == []


async def test_to_pop_costs_what_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    listed = KeyValue.list

    async def counted(kv: KeyValue, *args: Any, **options: Any) -> Any:
        entries = await listed(kv, *args, **options)
        read.append(len(entries))
        return entries

    async with AgentMemory("memory://", embeddings=None) as memory:
        session = OrbiterSession(memory.scope(user_id="alice"), "s")
        said: list[Any] = [{"role": "user", "content": str(number)} for number in range(1_000)]
        await session.add_items([*said, *TURN])
        monkeypatch.setattr(KeyValue, "list", counted)
        popped = [await session.pop_item() for _ in range(len(TURN) + 1)]

    assert popped == [*TURN[::-1], said[-1]]
    assert sum(read) <= 10 * len(popped)


@each_row("seed", range(20))
def test_what_is_popped_is_the_same_however_little_is_read(seed: int) -> None:
    dice = random.Random(seed)
    kinds: list[Any] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"type": "reasoning", "id": "r", "summary": []},
        *({"type": "function_call", "call_id": each} for each in "ab"),
        *({"type": "function_call_output", "call_id": each} for each in "ab"),
    ]
    for _ in range(200):
        rows = [_Row(dice.choice(kinds), None, is_there=dice.random() < 0.7) for _ in range(12)]
        for start in range(len(rows)):
            if _is_settled(rows[start:]):
                assert _whole(rows[start:])[-1] is _whole(rows)[-1]
