"""Files of other libraries are imported; these libraries write them in the test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import TransferError
from orbiter.memory.messages import validate
from orbiter.memory.model.trust import Trust, source_of, trust_of
from orbiter.memory.transfer import import_file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of each library."""
    folder = tmp_path_factory.mktemp("peers")
    script = Path(__file__).with_name("_peers.py")
    quiet = {**os.environ, "MEM0_TELEMETRY": "False", "LANGSMITH_TRACING": "false"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, folder],
        env=quiet,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return folder


@pytest.fixture
async def memory(tmp_path: Path) -> AgentMemory:
    return AgentMemory(tmp_path / "agent.db", embeddings=None)


@pytest.fixture
async def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


async def _texts(handle: ScopedMemory) -> set[str]:
    return {item.content for item in await handle.list(limit=100)}


async def test_langgraphs_rows_of_the_user_are_memories(
    made: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    async with memory:
        done = await import_file(alice, made / "langgraph.db")
        again = await import_file(alice, made / "langgraph.db")
        items = {item.metadata.extra["key"]: item for item in await alice.list()}

    assert (done.format, done.stored, again.stored, again.unchanged) == ("langgraph", 4, 0, 4)
    assert items["tea"].content == "Alice likes green tea"
    assert items["vegan"].content == "Alice is a vegan"
    assert items["vegan"].metadata.extra["namespace"] == ["memories", "alice", "diet"]
    assert items["code"].metadata.extra["value"] == {"door": 4711, "tags": ["home"]}
    assert items["soon"].expires_at is not None
    assert trust_of(items["tea"]) is Trust.IMPORT
    assert source_of(items["tea"]) == "import:langgraph"


async def test_sessions_of_the_agents_sdk_are_legal_conversations(
    made: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    async with memory:
        done = await import_file(alice, made / "agents.db")
        again = await import_file(alice, made / "agents.db")
        chats = {info.metadata.session_id for info in await alice.chats()}
        for format in ("openai", "openai-responses", "anthropic", "gemini"):
            sent = await alice.chat("openai-agents:holiday").messages(format=format)
            assert not validate(sent.messages, format)
        said = [item.content for item in await alice.chat("openai-agents:holiday").items()]

    assert done.format == "openai-agents"
    assert (done.problems, again.stored) == ((), 0)
    assert chats == {"openai-agents:holiday", "openai-agents:work"}
    assert [text for text in said if text] == [
        "What is the weather in Rome and Oslo?",
        "sunny",
        "snow",
        "Sunny, and snow.",
        "Then Rome it is.",
    ]


async def test_a_session_of_the_agents_sdk_is_imported_alone(
    made: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    async with memory:
        with pytest.raises(TransferError, match="`trip`.*`holiday`, `work`.*owner="):
            await import_file(alice, made / "agents.db", owner="trip")
        work = await import_file(alice, made / "agents.db", owner="work")
        assert await _texts(alice) == {"Draft the report"}
        bob = memory.scope(user_id="bob", session_id="s1")
        await import_file(bob, made / "agents.db", owner="work")
        assert await _texts(bob) == {"Draft the report"}
        everything = await import_file(alice, made / "agents.db")

    assert (work.stored, work.notes) == (1, ())
    assert work.skipped == work.found - 1
    assert everything.unchanged == 1
    (note,) = everything.notes
    assert "`holiday`, `work`" in note
    assert note in str(everything)


async def test_an_owner_that_no_file_can_name_is_refused(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    note = tmp_path / "note.md"
    note.write_text("Alice likes tea")
    async with memory:
        await alice.remember("Alice likes cocoa")
        with pytest.raises(TransferError, match=r"`markdown`.*owner="):
            await import_file(alice, note, owner="alice")
        assert await _texts(alice) == {"Alice likes cocoa"}


async def test_mem0s_memories_come_with_their_metadata_and_no_one_elses(
    made: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    async with memory:
        done = await import_file(alice, made / "mem0.json")
        again = await import_file(alice, made / "mem0.json")
        tea = (await alice.list(query="green tea"))[0]
        trip = await memory.scope(user_id="alice", session_id="mem0:trip").list()

        assert await _texts(alice) == {"Alice likes green tea", "Alice flies on Monday"}
    assert (done.format, done.stored, done.skipped, again.stored) == ("mem0", 2, 1, 0)
    assert tea.metadata.extra["topic"] == "tea"
    assert tea.metadata.extra["nested"] == {"a": [1, 2.5, None]}
    assert [item.content for item in trip] == ["Alice flies on Monday"]


async def test_a_file_of_several_people_is_refused_where_nobody_says_whose(
    made: Path, memory: AgentMemory
) -> None:
    async with memory:
        carol = memory.scope(user_id="carol")
        with pytest.raises(TransferError, match="`alice`.*owner=") as refused:
            await import_file(carol, made / "mem0.json")
        assert not await carol.list()

        done = await import_file(carol, made / "mem0.json", owner="bob")

        assert await _texts(carol) == {"Bob has a canary"}
    assert "bob" in str(refused.value)
    assert done.stored == 1
