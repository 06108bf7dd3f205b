"""`kill -9` at any moment: nothing acknowledged is lost, nothing is half done."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.crash._children import Child, die_during
from tests.crash._faults import Figures, kill_writers

from orbiter.memory import HumanMemory, MemoryMetadata, SQLiteMemoryStore


async def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    dice, figures = random.Random(1), Figures()

    for number in range(25):
        figures += await kill_writers(tmp_path / f"{number // 5}.db", dice, f"w{number}")

    assert figures.is_clean, figures
    assert figures.acknowledged >= 200


async def test_a_first_init_killed_anywhere_leaves_a_file_that_opens(tmp_path: Path) -> None:
    killed = 0
    for steps in range(0, 60, 3):
        path = tmp_path / f"{steps}.db"

        said = _die(path, "init", steps)

        killed += said != ["survived"]
        async with SQLiteMemoryStore(path) as store:
            await store.add(HumanMemory(id="a", content="x"))
            assert await store.get("a")
            assert await store.verify()
    assert killed >= 5


@pytest.mark.parametrize("task", ["index", "optimize", "vacuum", "purge", "repair", "backup"])
async def test_upkeep_killed_anywhere_loses_nothing(tmp_path: Path, task: str) -> None:
    template, kept = tmp_path / "template.db", MemoryMetadata(user_id="kept")
    async with SQLiteMemoryStore(template) as store:
        length = 1000 if task == "backup" else 30
        for who, count in (("kept", 300), ("gone", 20), ("kept", 100)):
            metadata = MemoryMetadata(user_id=who)
            texts = [f"{who} {number} " * length for number in range(count)]
            await store.add_many([HumanMemory(content=text, metadata=metadata) for text in texts])
        before = await store.search(metadata=kept, limit=1000)
    killed = 0
    while True:
        path = tmp_path / f"{killed}.db"
        shutil.copy(template, path)

        said = _die(path, task, 0 if not killed else int(1.8**killed))

        if "survived" in said:
            break
        killed += 1
        async with SQLiteMemoryStore(path) as store:
            assert await store.search(metadata=kept, limit=1000) == before
            for item_id in said[0] if said else ():
                assert await store.get(item_id)
            assert await store.verify()
            assert len(await store.search(query="kept 299 ", limit=1000)) == 1
            if task == "backup":
                copy = Path(f"{path}.copy")
                if not copy.exists():  # what has its name is whole
                    await store.backup(copy)
                async with SQLiteMemoryStore(copy) as again:
                    assert await again.search(metadata=kept, limit=1000) == before
    assert killed >= 2


async def test_a_file_half_written_back_is_completed_from_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    items = [HumanMemory(content="x" * 5000) for _ in range(50)]
    async with SQLiteMemoryStore(path) as store:
        await store.add_many(items)
        whole = path.read_bytes(), Path(f"{path}-wal").read_bytes()
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint")
        written_back = path.read_bytes()
    assert len(written_back) > len(whole[0])
    cut = tmp_path / "cut.db"
    cut.write_bytes(written_back[: len(written_back) // 2])
    Path(f"{cut}-wal").write_bytes(whole[1])

    async with SQLiteMemoryStore(cut) as store:
        assert await store.count() == 50
        assert await store.verify()


def _die(path: Path, task: str, steps: int) -> list[Any]:
    child = Child(die_during, str(path), task, steps)
    said = child.rest()
    child.end()
    return said
