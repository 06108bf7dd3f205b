"""What type checkers are told of the blocking classes: checked by mypy, and run once as well."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import assert_type

import pytest

from orbiter.memory import Context, EpisodicMemory, MemoryItem, MemoryMetadata
from orbiter.memory.agent import (
    ChatList,
    ForgetResult,
    ItemList,
    MemoryEvent,
    Page,
    ScopeStats,
    VersionList,
)
from orbiter.memory.extraction import ProposedFact
from orbiter.memory.messages import ProviderMessages
from orbiter.memory.model import StoreStats
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.recall import RecallResult
from orbiter.memory.sync import (
    AgentMemory,
    Chat,
    Facts,
    LongTermMemory,
    MemoryOrchestrator,
    ScopedMemory,
    ShortTermMemoryManager,
    Stream,
    export_file,
    import_file,
    run,
)
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.transfer import ExportResult, ImportResult


class _Silent:
    async def extract(
        self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
    ) -> list[ProposedFact]:
        del messages, known
        return []


def test_the_blocking_names_have_the_types_they_claim() -> None:
    with AgentMemory("memory://", embeddings=HashEmbeddings(), episodic="memory://") as memory:
        assert_type(memory, AgentMemory)
        alice = memory.scope(user_id="alice")
        assert_type(alice, ScopedMemory)
        item = alice.remember("tea", tags=["drink"])
        assert_type(item, MemoryItem)
        assert_type(alice.remember_many(["a", "b"]), ItemList)
        assert_type(alice.recall("tea", mode="words"), RecallResult)
        assert_type(alice.get(item.id), MemoryItem | None)
        assert_type(alice.list(), Page)
        assert_type(alice.history(item.id), VersionList)
        assert_type(alice.forget(item), ForgetResult)
        assert_type(alice.stats(), ScopeStats)
        assert_type(alice.chats(), ChatList)
        assert_type(alice.scope, MemoryMetadata)
        with alice.events() as events:
            assert_type(events, Stream[MemoryEvent])
        chat = alice.chat("c")
        assert_type(chat, Chat)
        said = chat.add("hello")
        assert_type(chat.messages(format="anthropic"), ProviderMessages)
        assert_type(chat.context("tea"), Context)
        assert_type(chat.fork(said[0]), Chat)
        assert_type(chat.summary(), str | None)
        activity = alice.activity
        assert_type(activity, ShortTermMemoryManager)
        assert_type(activity.agent_id, str)
        assert_type(activity.get_recent(), list[EpisodicMemory])
        with activity.stream() as stream:
            assert_type(stream, Stream[EpisodicMemory])
        assert_type(memory.stats(), StoreStats)
        assert_type(run(memory.store.count()), int)
        known = LongTermMemory(alice, _Silent())
        assert_type(known.facts, Facts)
        assert_type(known.extract([item]), list[FactMemory])
        with MemoryOrchestrator(memory, _Silent()) as jobs:
            assert_type(jobs, MemoryOrchestrator)
            assert_type(jobs.enqueue(chat), int)


def test_what_moves_memories_has_the_types_it_claims(tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "a.db", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        path = tmp_path / "alice.jsonl"
        assert_type(export_file(alice, path), ExportResult)
        assert_type(import_file(alice, path), ImportResult)


def test_a_misspelt_name_is_an_error_for_both() -> None:
    memory = AgentMemory("memory://", embeddings=None)

    with pytest.raises(AttributeError, match="no attribute 'scoop'"):
        memory.scoop(user_id="alice")  # type: ignore[attr-defined]  # as it should be
    with pytest.raises(TypeError):
        memory.scope(user="alice")  # type: ignore[call-arg]  # as it should be
    memory.close()
