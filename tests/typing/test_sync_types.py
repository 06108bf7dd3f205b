"""What type checkers are told of the blocking classes: checked by mypy, and run once as well."""

from typing import assert_type

import pytest

from orbiter.memory import (
    Context,
    EpisodicMemory,
    Forgotten,
    ItemVersion,
    MemoryEvent,
    MemoryItem,
    MemoryMetadata,
    Page,
    ProviderMessages,
    ScopeStats,
    StoreStats,
)
from orbiter.memory.recall import Recalled
from orbiter.memory.reports import ConversationInfo
from orbiter.memory.sync import (
    AgentMemory,
    Chat,
    ScopedMemory,
    ShortTermMemoryManager,
    Stream,
    run,
)
from orbiter.memory.testing import HashEmbeddings


def test_the_blocking_names_have_the_types_they_claim() -> None:
    with AgentMemory("memory://", embeddings=HashEmbeddings(), episodic="memory://") as memory:
        assert_type(memory, AgentMemory)
        alice = memory.scope(user_id="alice")
        assert_type(alice, ScopedMemory)
        item = alice.remember("tea", tags=["drink"])
        assert_type(item, MemoryItem)
        assert_type(alice.remember_many(["a", "b"]), list[MemoryItem])
        assert_type(alice.recall("tea", mode="words"), Recalled)
        assert_type(alice.get(item.id), MemoryItem | None)
        assert_type(alice.list(), Page)
        assert_type(alice.history(item.id), list[ItemVersion])
        assert_type(alice.forget(item), Forgotten)
        assert_type(alice.stats(), ScopeStats)
        assert_type(alice.chats(), list[ConversationInfo])
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


def test_a_misspelt_name_is_an_error_for_both() -> None:
    memory = AgentMemory("memory://", embeddings=None)

    with pytest.raises(AttributeError, match="no attribute 'scoop'"):
        memory.scoop(user_id="alice")  # type: ignore[attr-defined]  # as it should be
    with pytest.raises(TypeError):
        memory.scope(user="alice")  # type: ignore[call-arg]  # as it should be
    memory.close()
