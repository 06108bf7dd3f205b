"""A memory on a server has the types of a local one: programs need not know which it is."""

from typing import assert_type

from orbiter.memory import AgentMemory, MemoryItem, sync
from orbiter.memory.agent import Chat, EventStream, Facts, Page, ScopedMemory
from orbiter.memory.client import RemoteMemory
from orbiter.memory.recall import RecallResult


async def the_calls(alice: ScopedMemory) -> None:
    """Never called: its types are what is looked at."""
    assert_type(await alice.remember("tea"), MemoryItem)
    assert_type(await alice.list(), Page)
    assert_type(await alice.recall("tea"), RecallResult)


def test_a_memory_on_a_server_is_a_memory() -> None:
    memory = AgentMemory("http://127.0.0.1:1", token="om_key")
    remote = RemoteMemory("http://127.0.0.1:1", token="om_key", timeout=5.0)
    taken: AgentMemory = remote
    alice = taken.scope(user_id="alice")

    assert_type(memory, AgentMemory)
    assert_type(alice, ScopedMemory)
    assert_type(alice.facts, Facts)
    assert_type(alice.chat("c"), Chat)
    assert_type(alice.events(), EventStream)
    assert_type(sync.AgentMemory("http://127.0.0.1:1", token="k"), sync.AgentMemory)
