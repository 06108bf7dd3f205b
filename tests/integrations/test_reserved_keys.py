"""Keys of our own in `metadata.extra`: refused from outside, and never trusted when read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.beta import (
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818ViewCommand,
)

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations.anthropic_memory import AsyncOrbiterMemoryTool
from orbiter.memory.integrations.langchain import OrbiterRetriever
from orbiter.memory.integrations.langgraph import OrbiterStore
from orbiter.memory.integrations.openai_agents import OrbiterSession
from orbiter.memory.integrations.tools import memory_tools
from orbiter.memory.mcp.graph import Graph
from orbiter.memory.model.derived import ExtractionMemory, SummaryMemory
from orbiter.memory.model.reserved import RESERVED_KEYS
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.transfer import export_file, import_file
from orbiter.memory.transfer.formats.registry import EXPORTS

SHAPES: list[Any] = [
    None, True, 0, -1.5, 2**62, "", " ", "x", ".", "a..b", "x" * 5_000, [], [[]], [None], [1, "a"],
    ["."], ["x" * 5_000], {}, {"a": []}, {"from": 1}, [{"deep": [[[{}]]]}],
]  # fmt: skip
READ_ELSEWHERE = (
    "author", "confidence", "due", "entity", "entity_type", "history", "importance", "note",
    "observation", "path", "relation", "role", "source", "speaker", "tags", "title", "trust",
)  # fmt: skip
"""Labels that people may give, and that some part of the library reads, too."""
KINDS = (HumanMemory, MemoryItem, ExtractionMemory, SummaryMemory)


def _item(number: int, key: str, shape: Any) -> MemoryItem:
    kind = KINDS[number % len(KINDS)]
    chat = {"session_id": "monday"} if kind is HumanMemory else {}
    fields: dict[str, Any] = {"memory_type": "file"} if kind is MemoryItem else {}
    metadata = MemoryMetadata(user_id="ann", extra={key: shape}, **chat)
    return kind(content=f"I like green tea, cup {number}", metadata=metadata, **fields)


async def _langgraph(ann: ScopedMemory, _: Path) -> None:
    store = OrbiterStore(ann, index={"fields": ["text"]})
    found = await store.asearch(("users",), query="green tea", limit=100)
    assert [item.value for item in found] == [{"text": "green tea"}]
    assert await store.asearch((), query="green tea", limit=100)
    assert await store.alist_namespaces() == [("users",)]
    assert await store.aget(("users",), "odd0") is None


async def _anthropic(ann: ScopedMemory, _: Path) -> None:
    tool = AsyncOrbiterMemoryTool(ann)
    await tool.view(BetaMemoryTool20250818ViewCommand(command="view", path="/memories"))
    await tool.rename(
        BetaMemoryTool20250818RenameCommand(
            command="rename", old_path="/memories/tea", new_path="/memories/cup"
        )
    )


async def _langchain(ann: ScopedMemory, _: Path) -> None:
    assert await OrbiterRetriever(handle=ann, k=200, mode="words").ainvoke("green tea")


async def _openai_agents(ann: ScopedMemory, _: Path) -> None:
    assert await OrbiterSession(ann, "monday").get_items()


async def _tools(ann: ScopedMemory, _: Path) -> None:
    assert "tea" in await memory_tools(ann)["recall"]("green tea", 20)


async def _graph(ann: ScopedMemory, _: Path) -> None:
    await Graph(ann).read()


async def _chats(ann: ScopedMemory, _: Path) -> None:
    await ann.chats()
    chat = ann.chat("monday")
    assert await chat.items()
    assert "green tea" in (await chat.context("green tea")).text
    assert await chat.messages()
    branch = await chat.fork(at=(await chat.items())[-1])
    assert await branch.items()


async def _reading(ann: ScopedMemory, _: Path) -> None:
    assert await ann.recall("green tea", k=200)
    assert str(await ann.list(limit=500))
    assert await ann.facts.all() == {}


async def _exports(ann: ScopedMemory, folder: Path) -> None:
    for name in EXPORTS:
        await export_file(ann, folder / f"out-{name}", format=name)


READERS = [
    _langgraph, _anthropic, _langchain, _openai_agents, _tools, _graph, _chats, _reading, _exports
]  # fmt: skip


@pytest.mark.parametrize("read", READERS, ids=[each.__name__.strip("_") for each in READERS])
async def test_whatever_shape_our_keys_have_no_reader_breaks(
    read: Callable[[ScopedMemory, Path], Any], tmp_path: Path
) -> None:
    async with AgentMemory("memory://", embeddings=HashEmbeddings()) as memory:
        ann = memory.scope(user_id="ann")
        await OrbiterStore(ann, index={"fields": ["text"]}).aput(
            ("users",), "tea", {"text": "green tea"}
        )
        await ann.chat("monday").add("I like green tea")
        for number, shape in enumerate(SHAPES):
            value = json.dumps({"value": shape, "items": shape, "ttl": shape}).encode()
            await ann.kv.put(("langgraph", "store", "users"), f"odd{number}", value)
        keys = (*RESERVED_KEYS, *READ_ELSEWHERE)
        cases = [(key, shape) for key in keys for shape in SHAPES for _ in range(3)]
        hostile = [_item(number, key, shape) for number, (key, shape) in enumerate(cases)]
        await memory.store.add_many(hostile)  # as one who is past every check
        await memory.store.add(
            MemoryItem(
                content="tea",
                memory_type="file",
                metadata=MemoryMetadata(user_id="ann", extra={"path": "/memories/tea"}),
            )
        )

        await read(ann, tmp_path)


@pytest.mark.parametrize("key", RESERVED_KEYS)
async def test_keys_of_ours_are_refused_from_outside_by_name(key: str, tmp_path: Path) -> None:
    async with AgentMemory("memory://", embeddings=HashEmbeddings()) as memory:
        ann = memory.scope(user_id="ann")
        item = await ann.remember("tea")
        odd = MemoryItem(content="x", metadata=MemoryMetadata(extra={key: {"a": []}}))
        dump = tmp_path / "mem0.json"
        dump.write_text(json.dumps([{"id": "1", "memory": "I like tea", "metadata": {key: ["x"]}}]))

        for write in (
            lambda: ann.remember("cup", extra={key: "x"}),
            lambda: ann.remember_many(["cup"], extra={key: "x"}),
            lambda: ann.update(item.id, extra={key: "x"}),
            lambda: ann.remember(odd),
            lambda: ann.chat("monday").add(odd),
        ):
            with pytest.raises(QueryError, match=f"`{key}`"):
                await write()
        report = await import_file(ann, dump, format="mem0")

        assert [key in str(problem) for problem in report.problems] == [True]
        (read,) = await ann.list(where={f"mem0_{key}": {"$exists": True}})
        assert read.metadata.extra[f"mem0_{key}"] == ["x"]
        assert read.metadata.extra.get(key) != ["x"]


async def test_what_we_wrote_ourselves_is_remembered_and_imported_again(tmp_path: Path) -> None:
    async with AgentMemory("memory://", embeddings=HashEmbeddings()) as memory:
        ann = memory.scope(user_id="ann")
        await OrbiterStore(ann, index={"fields": ["text"]}).aput(
            ("users",), "tea", {"text": "green tea"}
        )
        note = await ann.remember("cup", source="web:x", index=["a cup", "a mug"])
        await ann.update(note.id, content="big cup", source="agent")
        chat = ann.chat("monday")
        await chat.add("hello")
        await (await chat.fork(at=(await chat.items())[-1])).items()
        every = await ann.list()
        await export_file(ann, tmp_path / "ann.jsonl")
    used = {key for item in every for key in item.metadata.extra}
    assert {"langgraph_key", "langgraph_namespaces", "indexed_by", "forked_from"} <= used

    async with AgentMemory("memory://", embeddings=HashEmbeddings()) as memory:
        ann = memory.scope(user_id="ann")
        await import_file(ann, tmp_path / "ann.jsonl")
        for item in await ann.list():
            await ann.remember(item)
        found = await OrbiterStore(ann, index={"fields": ["text"]}).asearch((), query="green tea")

        assert found[0].score is not None
        assert {i.id: i.metadata for i in await ann.list()} == {i.id: i.metadata for i in every}
