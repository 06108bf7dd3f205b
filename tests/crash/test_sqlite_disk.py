"""Power cuts, failing and full disks: a clear error or success, and never half of anything."""

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from tests.crash._children import Child, fill_up
from tests.crash._faults import Figures, cut_power, fail_disk
from tests.crash._power_cut import Connection, WatchedStore

from orbiter.memory import HumanMemory, SQLiteMemoryStore
from orbiter.memory.errors import StorageError


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_a_power_cut_takes_at_most_the_newest_commits_and_none_with_full_durability(
    durability: Literal["full", "normal"],
) -> None:
    dice, figures = random.Random(2), Figures()

    for _ in range(2):
        figures += await cut_power(durability, dice, cuts=20)

    assert figures.is_clean, figures
    assert figures.acknowledged > 100


async def test_the_power_cut_would_show_a_store_that_does_not_sync() -> None:
    class Careless(WatchedStore):
        def prepare(self, connection: Connection) -> None:
            super().prepare(connection)
            execute = connection.execute
            connection.execute = (  # type: ignore[method-assign]  # one statement is turned
                lambda sql, args=(): execute(
                    "PRAGMA synchronous = OFF" if "synchronous" in sql else sql, args
                )
            )

    figures = await cut_power("full", random.Random(2), cuts=20, store_type=Careless)

    assert figures.lost
    assert figures.torn


@pytest.mark.parametrize("for_good", [False, True])
async def test_a_failing_disk_gives_an_error_and_nothing_half_done(for_good: bool) -> None:
    figures = Figures()

    for number in (*range(1, 31), *range(35, 500, 17)):
        figures += await fail_disk(number, for_good=for_good)

    assert figures.is_clean, figures
    assert figures.acknowledged > 100


async def test_a_full_disk_is_an_error_that_says_so_and_ends_when_there_is_room(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"
    child = Child(fill_up, str(path), 2_000_000)

    acknowledged, errors, went_on = child.receive()
    child.end()

    assert len(acknowledged) > 20
    assert all(kind == "StorageError" and str(path) in text for kind, text in errors), errors
    assert went_on
    async with SQLiteMemoryStore(path) as store:
        for item_id in [*acknowledged, *went_on]:
            assert await store.get(item_id), item_id
        assert await store.verify()


async def test_a_full_file_system_is_an_error_and_ends_when_there_is_room(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small") as folder:
        if folder is None:  # only root may mount one; the test above limits the file instead
            return
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(700_000))
        acknowledged = []
        async with SQLiteMemoryStore(folder / "m.db") as store:
            with pytest.raises(StorageError, match="m.db.*(full|room)"):  # noqa: PT012 - which one?
                for number in range(2000):
                    await store.add(HumanMemory(id=f"a{number}", content="x" * 3000))
                    acknowledged.append(f"a{number}")
            assert all([await store.get(item_id) for item_id in acknowledged])
            ballast.unlink()
            await store.add(HumanMemory(id="after", content="x"))
            acknowledged.append("after")

        async with SQLiteMemoryStore(folder / "m.db") as store:
            assert len(acknowledged) > 20
            assert all([await store.get(item_id) for item_id in acknowledged])
            assert await store.verify()


@contextmanager
def small_file_system(folder: Path) -> Iterator[Path | None]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
