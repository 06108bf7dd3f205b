"""Key-value entries leave with an export, come back, and move with a store."""

import asyncio
import json
from pathlib import Path

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory.agent import Put, ScopedMemory
from orbiter.memory.errors import AccessError, TransferError
from orbiter.memory.model.key_value import StoredEntry
from orbiter.memory.transfer import export_file, import_file, migrate

pytestmark = pytest.mark.asyncio

EVERY = bytes(range(256))


async def _filled(memory: AgentMemory, user: str = "ann") -> ScopedMemory:
    handle = memory.scope(user_id=user)
    await handle.remember("likes tea")
    await handle.kv.write(
        [Put(("a", "b"), "k", EVERY), Put(("a",), "over", b"1", 0.001), Put(("é",), "t", b"", 60)]
    )
    await handle.kv.put(("a", "b"), "k", EVERY * 2)
    await asyncio.sleep(0.01)  # so that `over` has expired
    return handle


async def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    async with AgentMemory("memory://", embeddings=None) as old:
        ann, _ = await _filled(old), await _filled(old, "bob")
        entries = await ann.kv.list()
        done = await export_file(ann, tmp_path / "ann.jsonl")
        assert (done.records, done.entries) == (1, 2)
    async with AgentMemory("memory://", embeddings=None) as new:
        ann = new.scope(user_id="ann")
        told = await import_file(ann, tmp_path / "ann.jsonl")
        assert (told.found, told.stored, told.problems) == (3, 3, ())
        assert await ann.kv.list() == entries
        again = await import_file(ann, tmp_path / "ann.jsonl")
        assert (again.stored, again.unchanged) == (0, 3)
        await ann.kv.put(("a", "b"), "k", b"mine")
        other = await import_file(ann, tmp_path / "ann.jsonl")
        assert (other.skipped, other.problems[0].place) == (1, "entry `a/b/k`")
        assert (await ann.kv.list())[0].value == b"mine"
        assert await new.scope(user_id="bob").kv.list() == []


async def test_entries_of_others_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ann.jsonl"
    async with AgentMemory("memory://", embeddings=None) as memory:
        await export_file(await _filled(memory), path)
        with pytest.raises(AccessError):
            await import_file(memory.scope(user_id="bob"), path)
        text = path.read_bytes()
        lines = text.splitlines(keepends=True)
        for damaged in (
            b"".join(line for line in lines if b'"entry"' not in line),
            text.replace(b'"version":2', b'"version":3'),
            text.replace(b'"value":"', b'"value":"*'),
            text.replace(b'"path":[', b'"path":["\\u0000",'),
        ):
            assert damaged != text
            path.write_bytes(damaged)
            with pytest.raises(TransferError):
                await import_file(memory.scope(user_id="ann"), path)


async def test_a_file_without_entries_is_one_that_earlier_versions_read(tmp_path: Path) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        await ann.remember("likes tea")
        await export_file(ann, tmp_path / "ann.jsonl")
    assert '"format_version":1' in (tmp_path / "ann.jsonl").read_text().partition("\n")[0]


async def test_entries_move_with_their_store(tmp_path: Path) -> None:
    source, target = (f"sqlite:///{tmp_path / name}.db" for name in ("old", "new"))
    async with AgentMemory(source, embeddings=None) as old:
        entries = await (await _filled(old)).kv.list()
    moved = await migrate(source, target)
    assert (bool(moved), moved.entries) == (True, 2)
    async with AgentMemory(target, embeddings=None) as new:
        assert await new.scope(user_id="ann").kv.list() == entries
        await new.scope(user_id="ann").kv.put(("a", "b"), "k", b"mine")
    again = await migrate(source, target)
    assert (bool(again), again.entries, again.conflicts) == (False, 1, ("a/b/k",))
    assert bool(await migrate(source, target, overwrite=True))


async def test_an_entry_that_is_text_can_be_read_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ann.jsonl"
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        for key, value in (
            ("note", "likes\ntea, é".encode()),
            ("raw", EVERY),
            ("long", b"x" * 10**5),
        ):
            await ann.kv.put(("a",), key, value)
        entries = await ann.kv.list()
        await export_file(ann, path)
    lines = [json.loads(line)["entry"] for line in path.read_text().splitlines()[1:-1]]
    assert {each["key"]: each.get("text") for each in lines} == {
        "note": "likes\ntea, é", "raw": None, "long": None,
    }  # fmt: skip

    # Files of versions that wrote no `text` are read as they were.
    async with AgentMemory("memory://", embeddings=None) as new:
        ann = new.scope(user_id="ann")
        await import_file(ann, path)
        assert await ann.kv.list() == entries
    without = [{"entry": {k: v for k, v in each.items() if k != "text"}} for each in lines]
    wrong = {"entry": lines[1] | {"text": "likes coffee"}}
    for line in without:
        assert StoredEntry.from_line(json.dumps(line).encode()).entry in entries
    with pytest.raises(ValueError, match="its `text` is not what its `value` says"):
        StoredEntry.from_line(json.dumps(wrong).encode())
