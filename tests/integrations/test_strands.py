"""The session repository and the memory store for Strands, with its own agents and tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.sdists import run_sdist_tests, unpacked_sdist

pytest.importorskip("strands")

from strands import Agent, tool
from strands.memory import (
    AddMessagesContext,
    ExtractionConfig,
    InvocationTrigger,
    MemoryManager,
)
from strands.models import Model
from strands.session import FileSessionManager, RepositorySessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from orbiter.memory import AgentMemory, sync
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations.strands import OrbiterMemoryStore, OrbiterSessionRepository

DISTRIBUTION = "strands-agents"

_OF_FILES = (
    "test__get_agent_path_invalid_agent_id",
    "test__get_message_path_invalid_message_id",
    "test__get_session_path_invalid_session_id",
    "test_corrupted_json_file",
    "test_create_agent",
    "test_create_message",
    "test_create_multi_agent",
    "test_create_session",
    "test_create_session_multi_agent_directory_structure",
    "test_delete_session",
    "test_message_durable_id_persists",
    "test_permission_error_handling",
)
"""Tests of where `FileSessionManager` puts its files."""


class ScriptedModel(Model):  # type: ignore[misc]  # types of theirs are not read
    """Says the cat's name if it sees it; *steps* come first."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)

    def update_config(self, **model_config: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError  # a model must have it, and no agent here calls it

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        known = "Tom" in json.dumps(messages)
        block: Any = {"text": "It is called Tom." if known else "I do not know."}
        block = self.steps.pop(0) if self.steps else block
        yield {"messageStart": {"role": "assistant"}}
        if "redact" in block:
            yield {"redactContent": {"redactUserContentMessage": block["redact"]}}
        if "name" in block:
            use = {"name": block["name"], "toolUseId": "t1"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {
                "contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(block["input"])}}}
            }
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": block["text"]}}}
        yield {"contentBlockStop": {}}
        reason = "guardrail_intervened" if "redact" in block else "end_turn"
        yield {"messageStop": {"stopReason": "tool_use" if "name" in block else reason}}


@pytest.fixture
def memory(url: str) -> Iterator[sync.AgentMemory]:
    with sync.AgentMemory(url, embeddings=None) as memory:
        yield memory


@pytest.fixture
def alice(memory: sync.AgentMemory) -> sync.ScopedMemory:
    return memory.scope(user_id="alice")


def agent(handle: sync.ScopedMemory, session_id: str, *steps: Any, **more: Any) -> Agent:
    """Return an agent whose session and memory are of a handle."""
    manager = RepositorySessionManager(session_id, OrbiterSessionRepository(handle))
    more.setdefault("plugins", [MemoryManager(stores=[OrbiterMemoryStore(handle)])])
    return Agent(
        model=ScriptedModel(*steps),
        session_manager=manager,
        agent_id="helper",
        callback_handler=None,
        **more,
    )


def test_the_session_tests_of_the_sdist(
    cache: pytest.Cache, record_suite: Callable[[str, int, int], None]
) -> None:
    folder = "tests/strands/session"
    files = [
        f"{folder}/test_repository_session_manager.py",
        f"{folder}/test_file_session_manager.py",
    ]

    passed, total = run_sdist_tests(
        unpacked_sdist(DISTRIBUTION, cache),
        files,
        plugin="swapped_repository",
        leave_out=[f"{files[1]}::{name}" for name in _OF_FILES],
    )

    record_suite("session tests of its sdist", passed, total)
    assert passed == total > 60


# The agent loop


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis", "memory"], indirect=True)
def test_what_was_told_in_one_session_is_known_in_another_and_to_nobody_else(
    memory: sync.AgentMemory, alice: sync.ScopedMemory
) -> None:
    bob = memory.scope(user_id="bob")

    agent(alice, "one")("My cat is called Tom.")
    known = agent(alice, "two")("What is my cat called?")
    looks = {"name": "search_memory", "input": {"query": "What is my cat called?"}}
    found = agent(alice, "three", looks)("Look it up.")
    others = agent(bob, "two")("What is my cat called?")

    assert str(known).strip() == str(found).strip() == "It is called Tom."
    assert str(others).strip() == "I do not know."
    assert [item.content for item in alice.chat("one").items()] == [
        "My cat is called Tom.",
        "It is called Tom.",
    ]
    for user_id in ("alice", "bob"):  # as tests share one Redis
        assert memory.erase(user_id=user_id)


def test_a_session_goes_on_after_a_restart(tmp_path: Any) -> None:
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"Sun in {city}, says Tom."

    step = {"name": "weather", "input": {"city": "Oslo"}}
    for question, steps in [("What is the weather?", [step]), ("Who said so?", [])]:
        with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
            helper = agent(
                memory.scope(user_id="alice"), "one", *steps, tools=[tool(weather)], plugins=[]
            )
            helper.state.set("asked", question)
            result = helper(question)

    assert str(result).strip() == "It is called Tom."
    assert [message["role"] for message in helper.messages] == [
        *("user", "assistant", "user", "assistant"),
        *("user", "assistant"),
    ]
    assert helper.state.get("asked") == "Who said so?"


async def test_an_agent_may_be_awaited(alice: sync.ScopedMemory) -> None:
    await agent(alice, "one").invoke_async("My cat is called Tom.")

    result = await agent(alice, "two").invoke_async("What is my cat called?")

    assert str(result).strip() == "It is called Tom."


async def test_an_async_memory_serves_agents_that_are_awaited(tmp_path: Any) -> None:
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        await alice.remember("My cat is called Tom.")
        manager = MemoryManager(stores=[OrbiterMemoryStore(alice)])
        helper = Agent(model=ScriptedModel(), plugins=[manager], callback_handler=None)

        result = await helper.invoke_async("What is my cat called?")

    assert str(result).strip() == "It is called Tom."


def test_what_a_guardrail_redacts_is_not_recalled(alice: sync.ScopedMemory) -> None:
    helper = agent(alice, "one", {"redact": "[redacted]", "text": "I cannot help."}, plugins=[])

    helper("The secret word is abracadabra.")

    assert [item.content for item in alice.chat("one").items()] == ["[redacted]", "I cannot help."]
    assert list(alice.list(query="abracadabra")) == []
    again = agent(alice, "one", plugins=[])
    assert "abracadabra" not in json.dumps(again.messages)


# The repository


@pytest.fixture
def repository(alice: sync.ScopedMemory) -> OrbiterSessionRepository:
    repository = OrbiterSessionRepository(alice)
    repository.create_session(Session(session_id="one", session_type=SessionType.AGENT))
    repository.create_agent("one", SessionAgent("helper", {"n": 1}, {}))
    return repository


def message(text: str, number: int, **more: Any) -> SessionMessage:
    content = [{"text": text}, *more.pop("blocks", [])]
    return SessionMessage.from_message({"role": "user", "content": content, **more}, number)


def test_messages_are_kept_exactly(repository: OrbiterSessionRepository) -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"\xff\x00"}}}
    written = [message("\0 🐈", 0, blocks=[image], tracking_id="t"), message("  ", 1)]
    for each in written:
        repository.create_message("one", "helper", each)

    assert repository.list_messages("one", "helper") == written
    assert repository.read_message("one", "helper", 0) == written[0]
    assert repository.list_messages("one", "helper", limit=1, offset=1) == written[1:]
    assert repository.list_messages("one", "nobody") == []


def test_of_two_who_append_at_one_position_one_is_told(
    repository: OrbiterSessionRepository, alice: sync.ScopedMemory
) -> None:
    repository.create_message("one", "helper", message("first", 0))

    with pytest.raises(SessionException, match="Message 0 already exists"):
        OrbiterSessionRepository(alice).create_message("one", "helper", message("second", 0))

    assert [item.content for item in alice.chat("one").items()] == ["first"]


def test_what_is_not_there_is_a_session_exception(repository: OrbiterSessionRepository) -> None:
    stranger = SessionAgent("stranger", {}, {})

    with pytest.raises(SessionException):
        repository.create_session(Session("one", SessionType.AGENT))
    with pytest.raises(SessionException):
        repository.create_agent("two", stranger)
    with pytest.raises(SessionException):
        repository.create_agent("one", SessionAgent("helper", {}, {}))
    with pytest.raises(SessionException):
        repository.update_agent("one", stranger)
    with pytest.raises(SessionException):
        repository.create_message("one", "stranger", message("hello", 0))
    with pytest.raises(SessionException):
        repository.update_message("one", "helper", message("hello", 7))
    with pytest.raises(SessionException):
        repository.delete_session("two")


def test_a_deleted_session_is_gone_and_forgotten(
    repository: OrbiterSessionRepository, alice: sync.ScopedMemory
) -> None:
    repository.create_message("one", "helper", message("secret", 0))

    repository.delete_session("one")

    assert repository.read_session("one") is None
    assert repository.list_messages("one", "helper") == []
    assert list(alice.list()) == []
    repository.create_session(Session("one", SessionType.AGENT))
    repository.create_agent("one", SessionAgent("helper", {}, {}))
    repository.create_message("one", "helper", message("again", 0))
    assert [item.content for item in alice.chat("one").items()] == ["again"]


def test_an_erased_session_leaves_nothing(
    repository: OrbiterSessionRepository, memory: sync.AgentMemory
) -> None:
    repository.create_message("one", "helper", message("secret", 0))

    assert memory.erase(user_id="alice", session_id="one")

    assert repository.read_session("one") is None
    assert repository.list_messages("one", "helper") == []


def test_another_user_sees_no_session(
    repository: OrbiterSessionRepository, memory: sync.AgentMemory
) -> None:
    assert OrbiterSessionRepository(memory.scope(user_id="bob")).read_session("one") is None


def test_without_remember_nothing_goes_to_a_chat(alice: sync.ScopedMemory) -> None:
    repository = OrbiterSessionRepository(alice, remember=False)
    repository.create_session(Session("one", SessionType.AGENT))
    repository.create_agent("one", SessionAgent("helper", {}, {}))

    repository.create_message("one", "helper", message("hello", 0))
    repository.update_message("one", "helper", message("hello!", 0))

    assert list(alice.list()) == []


def test_a_repository_takes_a_blocking_handle() -> None:
    alice = AgentMemory("memory://", embeddings=None).scope(user_id="alice")

    with pytest.raises(QueryError, match=r"of `orbiter\.memory\.sync`"):
        OrbiterSessionRepository(alice)  # type: ignore[arg-type]  # that is the point


def test_sessions_of_files_are_moved_over(alice: sync.ScopedMemory, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/integrations/strands.md").read_text()
    code = page.rpartition("```python\n")[2].partition("```")[0]
    namespace: dict[str, Any] = {}
    exec(compile(code, "strands.md", "exec"), namespace)
    old = FileSessionManager("one", storage_dir=str(tmp_path))
    Agent(model=ScriptedModel(), session_manager=old, agent_id="helper", callback_handler=None)(
        "My cat is called Tom."
    )

    namespace["move"](old, OrbiterSessionRepository(alice), "one", ["helper"])

    result = agent(alice, "one", plugins=[])("What is my cat called?")
    assert str(result).strip() == "It is called Tom."
    assert len(alice.chat("one").items()) == 4


# The memory store


async def test_a_store_finds_what_was_added_best_first(alice: sync.ScopedMemory) -> None:
    store = OrbiterMemoryStore(alice)
    await store.add("The garage code is 4711.", {"topic": "codes", "at": {1}})
    await store.add("The cat is called Tom.")

    found = await store.search("What is the garage code?", {"max_search_results": 1})

    assert [entry.content for entry in found] == ["The garage code is 4711."]
    assert found[0].metadata is not None
    assert found[0].metadata["topic"] == "codes"
    assert await store.search("  ") == []


async def test_a_batch_that_is_tried_again_is_added_once(alice: sync.ScopedMemory) -> None:
    store = OrbiterMemoryStore(alice, chat_id="talk")
    batch: Any = [
        {"role": "user", "content": [{"text": "ok"}]},
        {"role": "assistant", "content": [{"text": "fine"}]},
        {"role": "user", "content": [{"text": "ok"}]},
    ]
    for _ in range(2):
        await store.add_messages(batch, AddMessagesContext(sequence_numbers=[0, 1, 4]))
    await store.add_messages(
        [{"role": "user", "content": [{"text": "of another agent"}]}],
        AddMessagesContext(sequence_numbers=[0]),
    )

    items = await asyncio.to_thread(alice.chat("talk").items)
    assert [item.content for item in items] == ["ok", "fine", "ok", "of another agent"]


async def test_extraction_adds_what_was_said_without_a_repository(
    alice: sync.ScopedMemory,
) -> None:
    extraction = ExtractionConfig(trigger=[InvocationTrigger()])
    manager = MemoryManager(stores=[OrbiterMemoryStore(alice, extraction=extraction)])
    helper = Agent(model=ScriptedModel(), plugins=[manager], callback_handler=None)

    await helper.invoke_async("My cat is called Tom.")
    await manager.flush()

    items = await asyncio.to_thread(alice.chat("strands").items)
    assert [item.content for item in items] == ["My cat is called Tom.", "It is called Tom."]


async def test_the_tool_for_adding_remembers(alice: sync.ScopedMemory) -> None:
    manager = MemoryManager(stores=[OrbiterMemoryStore(alice)], add_tool_config=True)
    step = {"name": "add_memory", "input": {"entries": ["The cat is called Tom."]}}
    helper = Agent(model=ScriptedModel(step), plugins=[manager], callback_handler=None)

    await helper.invoke_async("Remember that.")

    listed = await asyncio.to_thread(alice.list)
    assert [item.content for item in listed] == ["The cat is called Tom."]
