"""Files that are damaged, foreign, too new, out of reach or oddly named."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash._children import Child, open_as_nobody
from tests.crash._faults import leaks_of
from tests.timing import HANG

from orbiter.memory import HumanMemory, SQLiteMemoryStore
from orbiter.memory.errors import StorageError


async def a_store(path: Path) -> bytes:
    async with SQLiteMemoryStore(path) as store:
        await store.add_many([HumanMemory(content=f"text {n} " * 50) for n in range(100)])
    return path.read_bytes()


async def refused(path: Path) -> str:
    """Return the error that opening *path* gives, after looking that it changed nothing."""
    before = {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    store = SQLiteMemoryStore(path)
    with pytest.raises(StorageError) as error:
        await asyncio.wait_for(store.init(), HANG)
    assert {name: (path.parent / name).read_bytes() for name in before} == before
    assert await leaks_of(path) == []
    return str(error.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[:4096],
        lambda data: data[:99],
        lambda data: data[:1],
        lambda data: b"junk" * 5000,
        lambda data: b"{}",
        lambda data: b"\0" * 8192,
        lambda data: b"SQLite format 3\0" + b"\xff" * 8176,
        lambda data: data[:100] + b"\xff" * (len(data) - 100),
    ],
    ids=[
        "half", "one byte short", "one page", "99 bytes", "one byte", "junk", "json", "zeros",
        "only the magic", "only the header",
    ],
)  # fmt: skip
async def test_a_damaged_file_is_refused_by_name_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "m.db"
    whole = await a_store(path)
    path.write_bytes(damage(whole))

    assert str(path) in await refused(path)


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.touch()

    await a_store(path)

    async with SQLiteMemoryStore(path) as store:
        assert await store.count() == 100


@pytest.mark.parametrize("mode", ["delete", "wal", "wal, not closed", "only an application id"])
async def test_another_programs_database_is_refused_and_left_as_it_is(
    tmp_path: Path, mode: str
) -> None:
    path, original = tmp_path / "m.db", tmp_path / "original.db"
    with closing(sqlite3.connect(original, isolation_level=None)) as other:
        if mode == "only an application id":
            other.execute("PRAGMA application_id = 7")
        else:
            other.execute(f"PRAGMA journal_mode = {mode.partition(',')[0]}")
            other.execute("CREATE TABLE theirs (x)")
        for end in ("", "-wal") if mode == "wal, not closed" else ():
            Path(f"{path}{end}").write_bytes(Path(f"{original}{end}").read_bytes())
    if mode != "wal, not closed":
        path.write_bytes(original.read_bytes())

    assert f"`{path}` belongs to another program" in await refused(path)


async def test_a_newer_schema_is_refused_with_the_way_to_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await a_store(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 999")

    message = await refused(path)

    assert f"`{path}` has schema 999" in message
    assert "pip install -U" in message


async def test_a_missing_folder_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no.*does not exist"):
        await SQLiteMemoryStore(tmp_path / "no" / "m.db").init()
    with pytest.raises(StorageError, match="is a folder"):
        await SQLiteMemoryStore(tmp_path).init()
    assert list(tmp_path.iterdir()) == []


async def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    for name in (path, Path("/dev/null"), Path("/dev/zero")):
        with pytest.raises(StorageError, match=str(name)):
            await asyncio.wait_for(SQLiteMemoryStore(name).init(), HANG)


@pytest.mark.parametrize(
    "name",
    [
        "?mode=memory", "m.db?mode=memory", "a#b", "a%20b", "file:x", "file::memory:", ":memory: ",
        " :memory:", "ünï-文件-🌍.db", "a'b\"c", "-wal", "x-journal", "a;b", "a\nb", "..db", "~",
        "$HOME", "a\\b", "x" * 240,
    ],
)  # fmt: skip
async def test_an_odd_name_names_that_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with SQLiteMemoryStore(name) as store:
        await store.add(HumanMemory(id="a", content="x"))

    assert [each.name for each in tmp_path.iterdir()] == [name]
    async with SQLiteMemoryStore(tmp_path / name) as store:
        assert await store.get("a")


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        async with SQLiteMemoryStore(tmp_path / "m.db") as store:
            await store.add(HumanMemory(content="x"))
            await store.backup(tmp_path / "copy.db")

            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    finally:
        os.umask(umask)

    names = ["copy.db", "m.db", "m.db-shm", "m.db-wal"]
    assert modes == dict.fromkeys(names, 0o600)


@pytest.mark.parametrize("what", ["file", "folder", "new file", "unreadable file"])
async def test_what_may_not_be_written_is_refused_by_name(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    path = place / "m.db"
    if what != "new file":
        await a_store(path)
    modes = {"file": (0o777, 0o444), "folder": (0o555, 0o666), "new file": (0o555, None),
             "unreadable file": (0o777, 0o000)}  # fmt: skip
    folder_mode, file_mode = modes[what]
    place.chmod(folder_mode)
    if file_mode is not None:
        path.chmod(file_mode)
    before = path.read_bytes() if path.exists() else None
    root = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp"))
    for parent in (tmp_path, *tmp_path.parents[:3]):
        if os.getuid() == 0 and parent.stat().st_uid == 0 and root in parent.parents:
            parent.chmod(0o755)

    child = Child(open_as_nobody, str(path))
    kind, message = child.receive()
    child.end()

    assert kind == "StorageError", message
    assert str(path) in message
    assert (path.read_bytes() if path.exists() else None) == before
    place.chmod(0o755)
