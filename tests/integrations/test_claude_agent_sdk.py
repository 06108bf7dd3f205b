"""The session store of the Claude Agent SDK: its contracts, races, and what was said."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import (
    ClaudeAgentOptions,
    get_session_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
    project_key_for_directory,
)
from claude_agent_sdk.testing import run_session_store_conformance
from tests.docs.pages import run_page

from orbiter.memory import AgentMemory, ScopedMemory, sync
from orbiter.memory.integrations.claude_agent_sdk import OrbiterSessionStore

DISTRIBUTION = "claude-agent-sdk"
CONTRACTS = 14
KEY: Any = {"project_key": "project", "session_id": "session"}


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        yield memory


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


def _line(kind: str, number: int, text: str) -> Any:
    message = {"role": kind, "content": [{"type": "text", "text": text}]}
    return {
        "type": kind,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012}" if number else None,
        "sessionId": "session",
        "timestamp": f"2026-01-01T10:00:{number:02}.000Z",
        "message": message,
    }


async def test_the_contracts_of_the_sdk_hold(
    memory: AgentMemory, record_suite: Callable[[str, int, int], None]
) -> None:
    stores = 0

    def new_store() -> OrbiterSessionStore:
        nonlocal stores
        stores += 1
        return OrbiterSessionStore(memory.scope(user_id=f"user {stores}"))

    await run_session_store_conformance(new_store)

    assert stores == 1 + CONTRACTS
    record_suite("session store conformance", CONTRACTS, CONTRACTS)


async def test_appends_at_once_are_all_kept_and_a_repeated_uuid_is_not(
    alice: ScopedMemory,
) -> None:
    stores = [OrbiterSessionStore(alice) for _ in range(4)]
    await asyncio.gather(
        *(
            store.append(KEY, [_line("user", number, f"{number}"), {"type": "mode"}])
            for number in range(20)
            for store in stores
        )
    )

    lines: Any = await stores[0].load(KEY)
    sessions = await stores[0].list_sessions("project")

    uuids = [line["uuid"] for line in lines if "uuid" in line]
    assert len(uuids) == len(set(uuids)) == 20
    assert len(lines) == 20 + 80
    assert [session["session_id"] for session in sessions] == ["session"]


async def test_what_was_said_is_recalled_and_tools_and_notes_are_not(alice: ScopedMemory) -> None:
    store = OrbiterSessionStore(alice)
    result = _line("user", 3, "")
    result["message"]["content"] = [
        {"type": "tool_result", "tool_use_id": "t", "content": "rm: done"}
    ]
    await store.append(
        KEY,
        [
            _line("user", 1, "The deploy key is in the blue folder."),
            _line("assistant", 2, "Noted."),
            result,
            {**_line("user", 4, "a note of the program"), "isMeta": True},
        ],
    )

    (hit, *_) = await alice.recall("Where is the deploy key?")

    assert hit.item.content == "The deploy key is in the blue folder."
    assert [item.content for item in await alice.chat("session").items()] == [
        "The deploy key is in the blue folder.",
        "Noted.",
    ]


async def test_another_user_sees_no_session(memory: AgentMemory, alice: ScopedMemory) -> None:
    await OrbiterSessionStore(alice).append(KEY, [_line("user", 1, "hello")])
    bob = OrbiterSessionStore(memory.scope(user_id="bob"))

    assert await bob.load(KEY) is None
    assert await bob.list_sessions("project") == []


async def test_without_remember_nothing_goes_to_a_chat(alice: ScopedMemory) -> None:
    await OrbiterSessionStore(alice, remember=False).append(KEY, [_line("user", 1, "hello")])

    assert list(await alice.list()) == []


async def test_transcripts_of_claude_code_are_moved_over_by_the_sdk(
    alice: ScopedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_key_for_directory(tmp_path)
    session = "11111111-1111-4111-8111-111111111111"
    folder = tmp_path / "config/projects" / project
    folder.mkdir(parents=True)
    lines = [_line("user", 0, "Fix the tests."), _line("assistant", 1, "Fixed.")]
    (folder / f"{session}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    store = OrbiterSessionStore(alice)

    await import_session_to_store(session, store, directory=str(tmp_path))
    found = await list_sessions_from_store(store, directory=str(tmp_path))
    messages = await get_session_messages_from_store(store, session, directory=str(tmp_path))

    assert [each.session_id for each in found] == [session]
    assert [message.type for message in messages] == ["user", "assistant"]
    assert ClaudeAgentOptions(session_store=store).session_store is store


def test_a_blocking_memory_serves_as_well(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        store = OrbiterSessionStore(memory.scope(user_id="alice"))

        async def write_and_read() -> Any:
            await store.append(KEY, [_line("user", 1, "hello")])
            return await store.load(KEY)

        assert asyncio.run(write_and_read()) == [_line("user", 1, "hello")]


@pytest.mark.filterwarnings("ignore:recall uses words")
def test_its_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(Path(__file__).parents[2] / "docs/integrations/claude-agent-sdk.md")
