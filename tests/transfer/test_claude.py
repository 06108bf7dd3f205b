"""Claude.ai's export, and the transcripts of Claude Code."""

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Open
from tests.transfer._import import assert_legal, document, everything, lines, places, take

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import AIMemory, MemoryItem, ToolMemory


@pytest.fixture
def memory(tmp_path: Path, open_memory: Open) -> AgentMemory:
    return open_memory(f"sqlite:///{tmp_path}/m.db")


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


def _shown(items: list[MemoryItem]) -> list[tuple[str, str]]:
    return [(item.memory_type, item.content) for item in items]


# Claude.ai


def _message(id: str, sender: str, text: str = "", *blocks: object, **fields: object) -> object:
    return {
        "uuid": id,
        "text": text,
        "content": list(blocks),
        "sender": sender,
        "created_at": "2024-06-01T10:00:00.123456Z",
        "updated_at": "2024-06-01T10:00:00.123456Z",
        "attachments": [],
        "files": [],
        **fields,
    }


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text, "start_timestamp": None, "citations": []}


def _conversation(*messages: object, id: str = "c-1", **fields: object) -> dict[str, object]:
    return {
        "uuid": id,
        "name": "Tea",
        "created_at": "2024-06-01T09:59:00Z",
        "updated_at": "2024-06-01T11:00:00Z",
        "account": {"uuid": "acc-1"},
        "chat_messages": list(messages),
        **fields,
    }


def _rich() -> dict[str, object]:
    pasted = {"file_name": "", "file_size": 9, "file_type": "txt", "extracted_content": "green"}
    notes = {"file_name": "notes.txt", "extracted_content": "Sencha is green."}
    return _conversation(
        _message("m1", "human", "Which tea?", attachments=[notes, pasted]),
        _message(
            "m2",
            "assistant",
            "ignored: the blocks say it",
            {"type": "thinking", "thinking": "Let me look."},
            _text("I look it up."),
            {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "tea"}},
            {"type": "tool_use", "id": None, "name": "fetch", "input": {}},
            {"type": "tool_result", "tool_use_id": "t1", "name": "search", "content": [_text("A")]},
            {"type": "tool_result", "name": "fetch", "content": "B", "is_error": True},
            {"type": "token_budget"},
            _text("Oolong."),
            {"type": "tool_use", "id": "t3", "name": "search", "input": {"q": "why"}},
        ),
        _message("m3", "human", "", _text("Why?"), files=[{"file_name": "leaf.png"}]),
        _message("m4", "assistant", "Taste."),
        _message("m5", "robot", "?"),
        _message("m6", "human", ""),
    )


async def test_every_block_becomes_a_message_in_order(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = document(tmp_path / "conversations.json", [_rich()])

    report = await take(memory, alice, path)

    assert report.format == "claude-ai"
    assert places(report) == ["conversation 1, message 5"]
    items = await everything(alice)
    assert _shown(items) == [
        (
            "human",
            "Which tea?\n\n[file: notes.txt]\nSencha is green.\n\n[file: pasted text]\ngreen",
        ),
        ("ai", "I look it up."),
        ("tool", "A"),
        ("tool", "B"),
        ("ai", "Oolong."),
        ("human", "Why?\n\n[file: leaf.png]"),
        ("ai", "Taste."),
    ]
    call, first, second = items[1:4]
    assert isinstance(call, AIMemory)
    assert isinstance(first, ToolMemory)
    assert isinstance(second, ToolMemory)
    assert [each.id for each in call.calls] == [first.tool_call_id, second.tool_call_id]
    assert (second.tool_name, second.is_error) == ("fetch", True)
    assert call.native["claude-ai"]["thinking"] == ["Let me look."]
    assert items[0].created_at == datetime(2024, 6, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert items[0].metadata.extra["title"] == "Tea"
    assert items[0].metadata.session_id == "claude-ai:c-1"
    await assert_legal(alice)
    assert len((await alice.chat("claude-ai:c-1").messages()).messages) == 7
    assert items[4].native["claude-ai"]["calls"][0]["id"] == "t3"
    assert (await take(memory, alice, path)).stored == 0


async def test_of_branches_the_last_is_read(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    root = "00000000-0000-4000-8000-000000000000"
    messages = [
        _message("a", "human", "one", parent_message_uuid=root),
        _message("b", "assistant", "first try", parent_message_uuid="a"),
        _message("c", "assistant", "second try", parent_message_uuid="a"),
        _message("d", "human", "thanks", parent_message_uuid="c"),
    ]
    named = _conversation(*messages, id="c-2", current_leaf_message_uuid="b")
    round_ = [
        _message("x", "human", "round", parent_message_uuid="y"),
        _message("y", "assistant", "and round", parent_message_uuid="x"),
    ]
    values = [_conversation(*messages), named, _conversation(*round_, id="c-3")]

    await take(memory, alice, document(tmp_path / "c.json", values))

    async def read(id: str) -> list[str]:
        return [item.content for item in await alice.chat(f"claude-ai:{id}").items()]

    assert await read("c-1") == ["one", "second try", "thanks"]
    assert await read("c-2") == ["one", "first try"]
    assert await read("c-3") == ["round", "and round"]


async def test_the_whole_export_brings_what_claude_kept_in_mind(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = tmp_path / "data.zip"
    plan = {"uuid": "d1", "filename": "plan.md", "content": "Pack.", "created_at": "2024-06-02"}
    empty = {"uuid": "d2", "filename": "photo.png", "content": ""}
    projects = [
        {"uuid": "p1", "name": "Trip", "prompt_template": "Be brief.", "docs": [plan, empty]},
        {"uuid": "p2", "name": "Bare", "docs": []},
    ]
    minds = [{"conversations_memory": "Likes tea.", "project_memories": {"p1": "Ships on Monday."}}]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("conversations.json", json.dumps([_rich()]))
        file.writestr("memories.json", json.dumps(minds))
        file.writestr("users.json", '[{"uuid": "acc-1", "email_address": "alice@example.com"}]')
        file.writestr("projects.json", json.dumps(projects))

    report = await take(memory, alice, path)

    assert report.format == "claude-ai"
    kept = [i for i in await everything(alice) if i.memory_type == "item"]
    assert [(i.content, i.metadata.extra.get("project")) for i in kept] == [
        ("Pack.", "Trip"),
        ("Likes tea.", None),
        ("Ships on Monday.", "p1"),
        ("Be brief.", "Trip"),
    ]
    assert kept[0].metadata.extra["title"] == "plan.md"
    assert kept[0].created_at == datetime(2024, 6, 2, tzinfo=UTC)
    assert places(report) == ["conversation 1, message 5", "projects.json, project 1, document 2"]
    assert (await take(memory, alice, path)).stored == 0


# Claude Code


def _line(kind: str, id: str, content: object, *, at: int = 0, **fields: Any) -> object:
    message = {"role": kind, "content": content, **fields.pop("message", {})}
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/alice/tea",
        "sessionId": "s-1",
        "version": "2.0.1",
        "gitBranch": "main",
        "type": kind,
        "message": message,
        "uuid": id,
        "timestamp": f"2025-03-01T08:00:{at:02}.000Z",
        **fields,
    }


def _use(id: str) -> dict[str, object]:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {"path": id}}


def _result(id: str, text: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": id, "content": text}


def _transcript() -> list[object]:
    one: dict[str, Any] = {"message": {"id": "msg_1", "model": "claude-x"}}
    return [
        {"type": "summary", "summary": "Fix the kettle", "leafUuid": "leaf"},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        _line("user", "u0", "Caveat: made by the program", isMeta=True),
        _line("user", "u00", "<command-name>/clear</command-name>"),
        _line("user", "u1", "Fix the kettle", at=1),
        _line("assistant", "a1", [{"type": "thinking", "thinking": "Hm", "signature": "s"}], **one),
        _line("assistant", "a2", [{"type": "text", "text": "I look."}], at=2, **one),
        _line("assistant", "a3", [_use("t1")], at=3, **one),
        _line("assistant", "a4", [_use("t2")], at=4, **one),
        {
            "type": "system",
            "subtype": "note",
            "content": "a notice",
            "uuid": "s",
            "sessionId": "s-1",
        },
        _line("user", "u2", [_result("t1", "lid")], at=5, toolUseResult={"file": "lid"}),
        _line("user", "side1", "Look inside", at=5, isSidechain=True),
        _line(
            "assistant",
            "side2",
            [{"type": "text", "text": "Limescale."}],
            at=6,
            isSidechain=True,
            parentUuid="side1",
        ),
        _line("user", "u3", [_result("t2", [{"type": "text", "text": "base"}])], at=7),
        _line(
            "assistant", "a5", [{"type": "text", "text": "Done."}], at=8, message={"id": "msg_2"}
        ),
        _line("assistant", "e", [{"type": "text", "text": "API Error"}], isApiErrorMessage=True),
        _line("user", "u4", "This session is being continued …", isCompactSummary=True),
    ]


async def test_a_transcript_is_a_session_with_whole_tool_groups(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = lines(tmp_path / "s-1.jsonl", _transcript())

    report = await take(memory, alice, path)

    assert (report.format, report.problems) == ("claude-code", ())
    items = await alice.chat("claude-code:s-1").items()
    assert _shown(items) == [
        ("human", "Fix the kettle"),
        ("ai", "I look."),
        ("tool", "lid"),
        ("tool", "base"),
        ("ai", "Done."),
    ]
    call, first = items[1], items[2]
    assert isinstance(call, AIMemory)
    assert isinstance(first, ToolMemory)
    assert [each.id for each in call.calls] == ["t1", "t2"]
    assert first.tool_name == "Read"
    assert call.metadata.extra["model"] == "claude-x"
    assert call.metadata.extra["folder"] == "/home/alice/tea"
    assert items[0].created_at == datetime(2025, 3, 1, 8, 0, 1, tzinfo=UTC)
    side = await alice.chat("claude-code:s-1/side1").items()
    assert [item.content for item in side] == ["Look inside", "Limescale."]
    titles = [i.content for i in await everything(alice) if i.memory_type == "item"]
    assert titles == ["Fix the kettle"]
    await assert_legal(alice)
    assert (await take(memory, alice, path)).stored == 0


async def test_a_session_that_went_on_is_added_to(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    whole = _transcript()
    await take(memory, alice, lines(tmp_path / "s-1.jsonl", whole[:10]))

    report = await take(memory, alice, lines(tmp_path / "s-1.jsonl", whole))

    assert (report.stored, report.unchanged) == (5, 3)
    assert {item.version for item in await everything(alice)} == {1}


async def test_a_folder_of_projects_is_read_file_by_file(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    folder = tmp_path / "projects"
    (folder / "-home-tea" / "s-1" / "subagents").mkdir(parents=True)
    lines(folder / "-home-tea" / "s-1.jsonl", _transcript())
    agent: dict[str, Any] = {"isSidechain": True, "agentId": "a7"}
    lines(
        folder / "-home-tea" / "s-1" / "subagents" / "agent-a7.jsonl",
        [_line("user", "q", "Count the cups", **agent), b"{", _line("user", "r", 5, **agent)],
    )
    (folder / "-home-tea" / "notes.txt").write_text("no transcript")

    report = await take(memory, alice, folder)

    assert report.format == "claude-code"
    assert places(report) == [
        "-home-tea/s-1/subagents/agent-a7.jsonl, line 2",
        "-home-tea/s-1/subagents/agent-a7.jsonl, line 3",
        "`-home-tea/notes.txt`",
    ]
    side = await alice.chat("claude-code:s-1/a7").items()
    assert [item.content for item in side] == ["Count the cups"]
