import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Open
from tests.transfer._import import assert_legal, document, everything, places, take

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.items import AIMemory, MemoryItem, ToolMemory

Tree = dict[str, dict[str, object]]


def _node(
    tree: Tree,
    id: str,
    parent: str | None,
    role: str = "",
    *parts: object,
    at: float | None = None,
    **fields: Any,
) -> None:
    author = fields.pop("author", None) or {"role": role, "name": None, "metadata": {}}
    content = fields.pop("content", None) or {"content_type": "text", "parts": list(parts)}
    message = {"id": id, "author": author, "create_time": at, "content": content, "weight": 1.0}
    message |= {"recipient": "all", "metadata": {}, **fields}
    tree[id] = {"id": id, "message": message if role else None, "parent": parent, "children": []}
    if parent in tree:
        tree[parent]["children"].append(id)  # type: ignore[attr-defined]  # it is a list


def _conversation(tree: Tree, current: str | None, **fields: object) -> dict[str, object]:
    return {
        "title": "Tea",
        "create_time": 1_700_000_000.25,
        "update_time": 1_700_000_900.0,
        "mapping": tree,
        "moderation_results": [],
        "current_node": current,
        "conversation_id": "c-1",
        "id": "c-1",
        **fields,
    }


def _rich() -> dict[str, object]:
    tree: Tree = {}
    hidden: dict[str, Any] = {"metadata": {"is_visually_hidden_from_conversation": True}}
    _node(tree, "root", None)
    _node(tree, "sys", "root", "system", "", **hidden)
    profile = {
        "content_type": "user_editable_context",
        "user_profile": "I live in Rome.",
        "user_instructions": "Be brief.",
    }
    _node(tree, "ctx", "sys", "user", content=profile, **hidden)
    _node(tree, "tip", "ctx", "assistant", "What the program told the model", **hidden)
    _node(tree, "ask", "tip", "user", "Which tea?", at=1_700_000_010.5)
    _node(tree, "old", "ask", "assistant", "An answer that was made anew", at=1_700_000_020.0)
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "Hm, tea."}]}
    _node(tree, "think", "ask", "assistant", content=thoughts)
    recap = {"content_type": "reasoning_recap", "content": "Thought for 2 seconds"}
    _node(tree, "recap", "think", "assistant", content=recap)
    code = {"content_type": "code", "language": "python", "text": "print('tea')"}
    _node(tree, "call", "recap", "assistant", content=code, recipient="python", at=1_700_000_030)
    out = {"content_type": "execution_output", "text": "tea\n"}
    _node(
        tree, "out", "call", "tool", content=out, author={"role": "tool", "name": "python"}, at=None
    )
    _node(tree, "empty", "out", "assistant", "", at=1_700_000_031)
    slug: dict[str, Any] = {"metadata": {"model_slug": "gpt-4o"}}
    # Dated before its question: the tree counts.
    _node(tree, "answer", "empty", "assistant", "Oolong.", "Or sencha.", at=1_700_000_005, **slug)
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    both = {"content_type": "multimodal_text", "parts": [picture, "And this one?"]}
    file: dict[str, Any] = {"metadata": {"attachments": [{"id": "f", "name": "leaf.pdf"}]}}
    _node(tree, "look", "answer", "user", content=both, at=1_700_000_040, **file)
    _node(tree, "off", "look", "assistant", "not in the context", at=1_700_000_041, weight=0.0)
    quote = {"content_type": "tether_quote", "url": "https://tea", "text": "Tea is a plant."}
    by = {"role": "tool", "name": "browser"}
    _node(tree, "quote", "off", "tool", content=quote, author=by, at=1_700_000_042)
    _node(tree, "last", "quote", "assistant", "A leaf.", at=1_700_000_043)
    return _conversation(tree, "last", default_model_slug="gpt-4")


@pytest.fixture
def memory(tmp_path: Path, open_memory: Open) -> AgentMemory:
    return open_memory(f"sqlite:///{tmp_path}/m.db")


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


def _shown(items: list[MemoryItem]) -> list[tuple[str, str]]:
    return [(item.memory_type, item.content) for item in items]


async def test_the_branch_that_was_shown_is_read_in_the_order_of_the_tree(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = document(tmp_path / "conversations.json", [_rich()])

    report = await take(memory, alice, path)

    assert report.problems == ()
    assert _shown(await alice.chat("chatgpt:c-1").items()) == [
        ("human", "Which tea?"),
        ("ai", ""),
        ("tool", "tea\n"),
        ("ai", "Oolong.\n\nOr sencha."),
        ("human", "[image]\n\nAnd this one?\n\n[file: leaf.pdf]"),
        ("ai", "A leaf."),
    ]
    await assert_legal(alice)
    assert (await take(memory, alice, path)).stored == 0


async def test_messages_keep_what_they_were(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    await take(memory, alice, document(tmp_path / "conversations.json", [_rich()]))
    items = {item.metadata.extra.get("original_id"): item for item in await everything(alice)}

    ask, call, out, answer = (items[name] for name in ("ask", "call", "out", "answer"))
    assert ask.created_at == datetime.fromtimestamp(1_700_000_010.5, UTC)
    assert ask.metadata.extra["title"] == "Tea"
    assert ask.metadata.session_id == "chatgpt:c-1"
    assert answer.metadata.extra["model"] == "gpt-4o"
    assert "model" not in ask.metadata.extra
    assert isinstance(call, AIMemory)
    assert [(each.name, each.args) for each in call.calls] == [
        ("python", {"input": "print('tea')"})
    ]
    assert call.native["chatgpt"]["thoughts"] == ["Hm, tea."]
    assert isinstance(out, ToolMemory)
    assert (out.tool_call_id, out.tool_name) == ("call", "python")
    order = [item.id for item in await alice.chat("chatgpt:c-1").items()]
    assert order.index(ask.id) < order.index(call.id) < order.index(out.id) < order.index(answer.id)
    picture = items["look"].native["chatgpt"]["parts"]
    assert picture[0]["asset_pointer"] == "file-service://x"
    # A result that nothing called for is remembered, but shown to no model.
    assert items["quote"].content == "Tea is a plant."


async def test_custom_instructions_are_remembered_once(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    second = {**_rich(), "id": "c-2", "conversation_id": "c-2"}
    await take(memory, alice, document(tmp_path / "conversations.json", [_rich(), second]))

    found = [i for i in await everything(alice) if i.memory_type == "item"]

    assert [item.content for item in found] == ["I live in Rome.\n\nBe brief."]
    assert found[0].metadata.extra["kind"] == "custom_instructions"
    assert found[0].metadata.session_id is None
    assert len(await alice.chats()) == 2


async def test_the_whole_export_is_read_and_nothing_else_in_it(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    tree: Tree = {}
    _node(tree, "a", None, "user", "In the second file", at=1_700_000_000)
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("conversations-000.json", json.dumps([_rich()]))
        file.writestr("conversations-001.json", json.dumps([_conversation(tree, "a", id="c-2")]))
        file.writestr("user.json", '{"id": "user-1", "email": "alice@example.com"}')
        file.writestr("shared_conversations.json", '[{"conversation_id": "c-9"}]')
        file.writestr("chat.html", "<html></html>")
        file.writestr("file-1.png", b"\x89PNG")

    report = await take(memory, alice, path)

    assert report.format == "chatgpt"
    assert places(report) == ["`file-1.png`"]  # what holds nothing to remember is not missed
    text = " ".join(item.content for item in await everything(alice))
    assert "In the second file" in text
    assert "example.com" not in text


async def test_times_may_be_missing_everywhere(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    tree: Tree = {}
    _node(tree, "a", None, "user", "one")
    _node(tree, "b", "a", "assistant", "two")
    _node(tree, "c", "b", "user", "three")
    path = document(tmp_path / "c.json", [_conversation(tree, "c", create_time=None)])

    await take(memory, alice, path)

    assert [item.content for item in await everything(alice)] == ["one", "two", "three"]
    assert (await take(memory, alice, path)).unchanged == 3


async def test_trees_that_are_none_are_read_as_far_as_they_go(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    ring: Tree = {}
    _node(ring, "a", "b", "user", "round")
    _node(ring, "b", "a", "assistant", "and round")
    lost: Tree = {}
    _node(lost, "x", "gone", "user", "no root", at=5)
    _node(lost, "y", "x", "assistant", "and no current node", at=6)
    strange: Tree = {}
    _node(strange, "s", None, "narrator", "who?")
    nothing = {"id": "n", "title": None, "mapping": None}
    values = [
        _conversation(ring, "b", id="r", conversation_id="r"),
        _conversation(lost, None, id="l", conversation_id=None),
        _conversation(strange, "s", id="s", conversation_id="s"),
        nothing,
        "text",
        _conversation({"z": {"message": {"content": None, "author": None}}}, "z"),
    ]

    report = await take(memory, alice, document(tmp_path / "c.json", values))

    assert {item.content for item in await everything(alice)} == {
        "round",
        "and round",
        "no root",
        "and no current node",
    }
    assert places(report) == [
        "conversation 1",
        "conversation 2",
        "conversation 3, message `s`",
        "conversation 4",
        "conversation 5",
    ]


async def test_what_no_store_can_hold_is_cut_or_left_out_and_told(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    tree: Tree = {}
    _node(tree, "long", None, "user", "é" * 2**20, at=1)
    parts = [{"content_type": "image_asset_pointer", "size": 2**70}, "seen"]
    _node(tree, "odd", "long", "user", content={"parts": parts}, at=2)
    path = document(tmp_path / "c.json", [_conversation(tree, "odd")])

    report = await take(memory, alice, path)

    long, odd = await everything(alice)
    assert len(long.content) == 2**19
    assert (odd.content, odd.native) == ("[image]\n\nseen", {})
    assert [problem.why.split(":")[0] for problem in report.problems] == [
        "its text of 2,097,152 bytes was cut after 1,048,576",
        "everything except its text was left out",
    ]
