"""Random content in every format: what can be read is stored, the rest is reported."""

import copy
import csv
import json
import sqlite3
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from tests.agent.conftest import Open
from tests.transfer._import import document, lines, take

from orbiter.memory import AgentMemory
from orbiter.memory.errors import TransferError
from orbiter.memory.transfer import FORMATS

CASES = 30
"""Of each format."""

JUNK: tuple[object, ...] = (
    None, True, 0, -1, 3, 1e308, -0.5, 10**30, "", " ", "x", "x" * 300, "a\0b", "2024-13-45",
    "9999-12-31T23:59:59.999999", "\ud800", "é" * 20, [], {}, [[]], [None], ["x", 1, None],
    {"a": {}}, {"": [1]}, [{"type": "text"}], [{"type": 5, "text": []}], {"text": None, "id": 4},
)  # fmt: skip


def _block(kind: str, **fields: object) -> dict[str, object]:
    return {"type": kind, **fields}


_AT = "2024-06-01T10:00:00Z"
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
_MESSAGES: list[dict[str, object]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [_block("text", text="Hi")], "created_at": 1_700_000_000},
    {"role": "assistant", "content": None, "tool_calls": [_CALL], "id": "m1"},
    {"role": "tool", "content": "done", "tool_call_id": "c1", "name": "look"},
    {"role": "function", "content": "done", "name": "old"},
    {"role": "assistant", "content": "Bye", "function_call": {"name": "f", "arguments": "{}"}},
]
_SAID = {"content_type": "text", "parts": ["Hi", {"content_type": "image_asset_pointer"}]}
_ABOUT = {"model_slug": "m", "attachments": [{"name": "a.pdf"}]}
_OWN = {"content_type": "user_editable_context", "user_profile": "I", "user_instructions": "am"}
_THOUGHT = {"content_type": "thoughts", "thoughts": [{"content": "Hm"}]}


def _node(parent: str | None, role: str, content: object, **fields: object) -> dict[str, object]:
    message = {"id": role, "author": {"role": role, "name": "py"}, "content": content, **fields}
    message |= {"create_time": 1_700_000_000.5, "metadata": _ABOUT, "weight": 1.0}
    return {"message": message, "parent": parent, "children": []}


_LINE: dict[str, object] = {"sessionId": "s", "uuid": "u", "timestamp": _AT, "cwd": "/a"}
_USE = _block("tool_use", id="t1", name="look", input={"a": 1})
_RESULT = _block("tool_result", tool_use_id="t1", content=[_block("text", text="yes")])

SAMPLES: dict[str, Any] = {
    "chatgpt": [
        {
            "conversation_id": "c",
            "title": "Tea",
            "create_time": 1_700_000_000,
            "current_node": "e",
            "gizmo_id": "g",
            "mapping": {
                "a": _node(None, "user", _OWN),
                "b": _node("a", "user", _SAID),
                "c": _node("b", "assistant", _THOUGHT),
                "d": _node("c", "assistant", _SAID, recipient="py"),
                "e": _node("d", "tool", {"content_type": "execution_output", "text": "4"}),
            },
        }
    ],
    "claude-ai": [
        {
            "uuid": "c",
            "name": "Tea",
            "created_at": _AT,
            "current_leaf_message_uuid": "b",
            "chat_messages": [
                {
                    "uuid": "a",
                    "sender": "human",
                    "text": "Hi",
                    "created_at": _AT,
                    "attachments": [{"file_name": "a", "extracted_content": "b"}],
                    "files": [{"file_name": "c"}],
                },
                {
                    "uuid": "b",
                    "sender": "assistant",
                    "parent_message_uuid": "a",
                    "content": [_block("thinking", thinking="Hm"), _USE, _RESULT],
                },
            ],
        },
        {
            "uuid": "p",
            "name": "Trip",
            "prompt_template": "Be brief.",
            "docs": [{"uuid": "d", "filename": "a.md", "content": "b", "created_at": _AT}],
        },
    ],
    "claude-code": [
        {"type": "summary", "summary": "Tea", "leafUuid": "l"},
        {**_LINE, "type": "user", "message": {"role": "user", "content": "Hi"}, "uuid": "v"},
        {
            **_LINE,
            "type": "assistant",
            "message": {"id": "m", "model": "x", "content": [_block("text", text="a"), _USE]},
        },
        {**_LINE, "type": "assistant", "message": {"id": "m", "content": [_USE]}},
        {**_LINE, "type": "user", "message": {"content": [_RESULT]}, "uuid": "w"},
    ],
    "mcp": [
        {"type": "entity", "name": "Ann", "entityType": "person", "observations": ["tall", "old"]},
        {"type": "relation", "from": "Ann", "to": "Acme", "relationType": "works_at"},
    ],
    "letta": {
        "agents": [{"name": "sam", "block_ids": ["b"], "messages": _MESSAGES}],
        "blocks": [{"id": "b", "label": "human", "value": "Chad", "created_at": _AT}],
    },
    "langgraph": [
        ["memories.alice", "tea", {"text": "green", "tags": ["a"]}, _AT, _AT, None],
        ["memories.alice", "x", {"content": {"content": "vegan"}}, _AT, None, "2999-01-01"],
    ],
    "openai-agents": [
        ["s", 1, {"role": "user", "content": "Hi"}, _AT],
        ["s", 2, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, _AT],
        ["s", 3, {"type": "function_call_output", "call_id": "c", "output": "4"}, _AT],
        ["s", 4, {"role": "assistant", "content": [_block("output_text", text="4")]}, _AT],
    ],
    "openai": [
        {"messages": _MESSAGES, "id": "c", "title": "Tea"},
        {"messages": [*_MESSAGES, {"role": "user", "content": "And?"}]},
    ],
    "mem0": {
        "results": [
            {
                "id": "a",
                "memory": "Likes tea",
                "user_id": "alice",
                "run_id": "r",
                "agent_id": "g",
                "hash": "x",
                "categories": ["a", "b"],
                "metadata": {"tags": ["c"], "importance": 0.5, "source": "user", "fact": "tea"},
                "created_at": _AT,
                "updated_at": _AT,
                "expiration_date": "2999-01-01",
            },
            {"id": "b", "memory": "Likes cake", "user_id": "alice"},
        ],
        "relations": [{"source": "alice", "relationship": "likes", "target": "tea"}],
    },
    "csv": [
        ["id", "text", "when", "user_id"],
        [1, "Likes tea", _AT, "alice"],
        [2, "a, b", "", "alice"],
    ],
    "json": [
        {"text": "Likes tea", "date": _AT, "more": {"a": [1]}},
        {"text": "Likes cake", "id": 4},
    ],
    "markdown": {"title": "Tea", "tags": ["a", "b"], "date": date(2024, 1, 2), "session_id": "s"},
}


def _places(value: Any, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    found = [path] if path else []
    keys = list(value) if isinstance(value, dict) else []
    keys = list(range(len(value))) if isinstance(value, list) else keys
    for key in keys:
        found += _places(value[key], (*path, key))
    return found


def _spoiled(value: object, dice: Random) -> Any:
    """Return a copy with junk in it, in one to three places."""
    spoiled: Any = copy.deepcopy(value)
    for _ in range(dice.randint(1, 3)):
        *path, last = dice.choice(_places(spoiled))
        inside = spoiled
        for key in path:
            inside = inside[key]
        if dice.random() < 0.3:
            del inside[last]
        else:
            inside[last] = copy.deepcopy(dice.choice(JUNK))
        if not _places(spoiled):
            break
    return spoiled


def _written(folder: Path, format: str, value: Any) -> Path:
    if format == "csv":
        rows = [row if isinstance(row, list) else [row] for row in value]
        path = folder / "a.csv"
        with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
            csv.writer(file).writerows(rows)
        return path
    if format in ("claude-code", "mcp", "openai"):
        return lines(folder / "a.jsonl", value)
    if format == "markdown":
        front = yaml.safe_dump(value, allow_unicode=True)
        path = folder / "a.md"
        path.write_bytes(f"---\n{front}---\nGreen tea\n".encode(errors="surrogatepass"))
        return path
    if format in ("langgraph", "openai-agents"):
        return _table(folder / "a.db", format, value)
    return document(folder / "a.json", value)


def _table(path: Path, format: str, rows: list[Any]) -> Path:
    path.unlink(missing_ok=True)
    make = {
        "langgraph": "store (prefix, key, value, created_at, updated_at, expires_at)",
        "openai-agents": "agent_messages (session_id, id, message_data, created_at)",
    }[format]
    width = make.count(",") + 1
    with closing(sqlite3.connect(path)) as made, made:
        made.execute(f"CREATE TABLE {make}")
        for row in rows:
            cells = [_cell(each) for each in row] if isinstance(row, list) else []
            cells = (cells + [None] * width)[:width]
            marks = ", ".join("?" * width)
            made.execute(f"INSERT INTO {make.split()[0]} VALUES ({marks})", cells)
    return path


def _cell(value: object) -> object:
    if isinstance(value, dict | list | datetime):
        return json.dumps(value)
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return value if not isinstance(value, int) or abs(value) < 2**62 else str(value)


@pytest.mark.parametrize("format", FORMATS[1:])
async def test_junk_at_any_place_ends_no_import(
    format: str, tmp_path: Path, open_memory: Open
) -> None:
    memory: AgentMemory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    dice = Random(format)  # the same cases each time
    whole = await take(memory, alice, _written(tmp_path, format, SAMPLES[format]), format=format)
    assert whole.stored
    assert not whole.skipped
    for _ in range(CASES):
        spoiled = _spoiled(SAMPLES[format], dice)
        try:
            await take(memory, alice, _written(tmp_path, format, spoiled), format=format)
        except TransferError as exc:
            assert "cannot be read on" not in str(exc)  # noqa: PT017 - no file may end so
