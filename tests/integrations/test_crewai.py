"""The storage of CrewAI's memory: its own tests, races, what people see, and under an agent."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.integrations.sdists import run_sdist_tests, unpacked_sdist

if find_spec("crewai"):  # before it is imported; elsewhere, it would end the spans of other tests
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
pytest.importorskip("crewai")

from crewai import Agent, BaseLLM, Memory
from crewai.memory.storage.backend import StorageBackend
from crewai.memory.types import MemoryRecord

from orbiter.memory import AgentMemory, sync
from orbiter.memory.integrations.crewai import OrbiterStorage

DISTRIBUTION = "crewai"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of CrewAI itself
_ESCAPING = "test_percent_underscore_and_backslash_in_scope_names_match_literally"
NOT_OURS = [
    # It wants a scope to be found by the beginning of its name; with us by whole names.
    f"tests/memory/test_lancedb_filter_escaping.py::{_ESCAPING}",
    # The largest scan of LanceDB.
    "tests/memory/test_unified_memory.py::test_lancedb_list_records_exceeding_scan_cap",
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[sync.AgentMemory]:
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        yield memory


@pytest.fixture
def alice(memory: sync.AgentMemory) -> sync.ScopedMemory:
    return memory.scope(user_id="alice")


def _vectors(texts: list[str]) -> list[list[float]]:
    """Return a vector of the words of each text."""
    vectors = [[0.0] * 64 for _ in texts]
    for vector, text in zip(vectors, texts, strict=True):
        for word in text.lower().split():
            vector[sum(word.strip(".?!").encode()) % 64] += 1.0
    return vectors


def _record(text: str, **fields: Any) -> MemoryRecord:
    return MemoryRecord(content=text, embedding=_vectors([text])[0], **fields)


def test_the_tests_of_crewai_pass(
    request: pytest.FixtureRequest, record_suite: Callable[[str, int, int], None]
) -> None:
    assert request.config.cache is not None
    folder = unpacked_sdist(DISTRIBUTION, request.config.cache)
    names = ("unified_memory", "dimension_mismatch", "lancedb_update", "lancedb_filter_escaping")
    files = [f"tests/memory/test_{name}.py" for name in (*names, "memory_root_scope")]

    passed, total = run_sdist_tests(folder, files, plugin="swapped_crewai", leave_out=NOT_OURS)

    record_suite("memory tests of its sdist", passed, total)
    assert passed == total
    assert total >= 100


@pytest.mark.parametrize("url", ["sqlite", "postgres", "redis", "memory"], indirect=True, ids=str)
def test_records_come_back_exactly_on_every_store(url: str) -> None:
    records = [
        _record("Tea is in the kitchen.", scope="/home", categories=["a"], metadata={"n": [1]}),
        _record("Coffee is in the office.", scope="/office/floor", importance=0.9, source="s"),
        MemoryRecord(content="\0 \ud800", scope="/odd"),
    ]
    with sync.AgentMemory(url, embeddings=None) as memory:
        storage = OrbiterStorage(memory.scope(user_id=f"alice {uuid4()}"))
        storage.save(records)

        assert isinstance(storage, StorageBackend)
        assert [storage.get_record(record.id) for record in records] == records
        found = storage.search(_vectors(["Where is the coffee?"])[0], limit=2)
        assert found[0][0] == records[1]
        assert 1 >= found[0][1] > found[1][1] >= 0
        assert storage.list_scopes() == ["/home", "/odd", "/office"]
        assert asyncio.run(storage.asearch([1.0] * 64, scope_prefix="/off")) == []
        assert asyncio.run(storage.adelete(categories=["a"])) == 1
        storage.reset()
        assert storage.count() == 0


def test_a_record_is_a_memory_that_can_be_edited_and_forgotten(alice: sync.ScopedMemory) -> None:
    storage = OrbiterStorage(alice)
    tea, coffee = _record("Alice likes tea.", categories=["taste"]), _record("Coffee is out.")
    storage.save([tea, coffee])
    (item,) = [hit.item for hit in alice.recall("What does Alice like?")][:1]

    assert (item.content, item.metadata.extra["tags"]) == ("Alice likes tea.", ["taste"])
    alice.update(item.id, "Alice likes green tea.")
    edited = storage.get_record(tea.id)
    assert edited is not None
    assert edited.content == "Alice likes green tea."
    alice.forget(item.id)
    assert storage.get_record(tea.id) is None
    assert storage.count() == 1
    storage.delete(record_ids=[coffee.id])
    assert list(alice.list()) == []


def test_an_updated_record_stays_one_memory_with_its_history(alice: sync.ScopedMemory) -> None:
    storage = OrbiterStorage(alice)
    record = _record("The key is red.")
    storage.save([record])
    storage.update(record.model_copy(update={"content": "The key is blue."}))
    storage.touch_records([record.id, "none"])

    (item,) = alice.list()
    assert item.content == "The key is blue."
    assert len(alice.history(item.id)) == 2
    read = storage.get_record(record.id)
    assert read is not None
    assert read.last_accessed > record.last_accessed


def test_private_records_and_those_of_other_users_are_not_seen(
    memory: sync.AgentMemory, alice: sync.ScopedMemory
) -> None:
    storage = OrbiterStorage(alice)
    storage.save([_record("The code is 1234.", private=True, source="ops"), _record("Hello.")])
    OrbiterStorage(alice, remember=False).save([_record("Not to be recalled.")])

    assert [item.content for item in alice.list()] == ["Hello."]
    assert storage.count() == 3
    assert OrbiterStorage(memory.scope(user_id="bob")).count() == 0


@pytest.mark.parametrize("change", [{"private": True}, {"content": "x\0y"}], ids=["private", "odd"])
def test_a_record_that_becomes_private_or_unreadable_is_no_memory_any_more(
    alice: sync.ScopedMemory, change: dict[str, Any]
) -> None:
    storage = OrbiterStorage(alice)
    record = _record("The code is 1234.")
    storage.save([record])

    storage.update(record.model_copy(update=change))

    assert list(alice.list()) == []
    assert list(alice.recall("What is the code?")) == []
    assert storage.get_record(record.id) == record.model_copy(update=change)
    assert storage.delete(record_ids=[record.id]) == 1
    storage.save([record, record.model_copy(update=change)])
    assert list(alice.list()) == []


def test_a_storage_that_remembers_nothing_forgets_what_another_remembered(
    alice: sync.ScopedMemory,
) -> None:
    record = _record("The code is 1234.")
    OrbiterStorage(alice).save([record])

    storage = OrbiterStorage(alice, remember=False)
    storage.update(record)

    assert list(alice.list()) == []
    assert storage.get_record(record.id) == record


def test_an_empty_list_of_ids_deletes_nothing(alice: sync.ScopedMemory) -> None:
    storage = OrbiterStorage(alice)
    storage.save([_record("Hello.")])

    assert storage.delete(record_ids=[]) == 0
    assert asyncio.run(storage.adelete(record_ids=[])) == 0
    assert storage.count() == 1


def test_writers_at_once_lose_nothing(alice: sync.ScopedMemory) -> None:
    storage = OrbiterStorage(alice)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: storage.save([_record(f"{number}.")]), range(24)))

    assert {record.content for record in storage.list_records()} == {f"{n}." for n in range(24)}


async def test_an_async_memory_serves_other_threads(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        storage = OrbiterStorage(memory.scope(user_id="alice"))
        await storage.asave([_record("Hello.")])

        assert await asyncio.to_thread(storage.count) == 1
        assert len(await storage.asearch(_vectors(["Hello."])[0])) == 1


class _Script(BaseLLM):  # type: ignore[misc]  # types of CrewAI are not read
    """A model that says one thing, and keeps what it was sent; it analyses nothing."""

    answer: str = ""
    sent: list[str] = []  # noqa: RUF012 - a field of pydantic

    def call(self, messages: Any, *_: Any, response_model: Any = None, **__: Any) -> str:
        if response_model is not None:
            raise ValueError("no analysis")
        self.sent.append(str(messages))
        return self.answer


def _kickoff(memory: sync.AgentMemory, user: str, text: str, answer: str) -> str:
    model = _Script(model="scripted", answer=answer, sent=[])
    storage = OrbiterStorage(memory.scope(user_id=user))
    crew_memory = Memory(storage=storage, llm=model, embedder=_vectors)
    agent = Agent(role="Helper", goal="Help", backstory="Helps.", llm=model, memory=crew_memory)
    agent.kickoff(text)
    crew_memory.drain_writes()
    return next(each for each in model.sent if text in each)


def test_told_in_one_run_known_in_the_next_and_nobody_elses(tmp_path: Path) -> None:
    told, question = "I live in Oslo and my cat is called Tom.", "What is my cat called?"
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        _kickoff(memory, "alice", told, "Nice to meet you.")
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        prompt = _kickoff(memory, "alice", question, "Tom.")
        other = _kickoff(memory, "bob", question, "I do not know.")
        recalled = memory.scope(user_id="alice").recall(question)

    assert "called Tom" in prompt
    assert "Tom" not in other
    assert any("called Tom" in hit.item.content for hit in recalled)
