"""A store is replaced by a backup whole or not at all, and no killed process's log spoils it."""

import asyncio
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tests.crash._children import Child

from orbiter.memory import AgentMemory, HumanMemory, SQLiteMemoryStore
from orbiter.memory.backends.sqlite.file_checks import ANY, MAX_MARKS, marks_in_file
from orbiter.memory.errors import StorageError
from orbiter.memory.testing import HashEmbeddings


def write(pipe: Connection, path: str, word: str, count: int) -> None:
    """Write items, say so, and wait for what the parent does."""

    async def run() -> None:
        async with SQLiteMemoryStore(path) as store:
            for number in range(count):
                await store.add(HumanMemory(content=f"{word} {number} " + "x" * 200))
            pipe.send("written")
            pipe.poll(60)

    asyncio.run(run())


def restore_and_die(pipe: Connection, path: str, copy: str, calls: int) -> None:
    """Restore, and be killed before the call of the system that follows *calls* others."""
    left = calls

    def mortal(call: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object, **options: object) -> object:
            nonlocal left
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return call(*args, **options)

        return called

    for name in ("link", "replace", "unlink", "fsync"):
        setattr(os, name, mortal(getattr(os, name)))
    asyncio.run(AgentMemory(path, embeddings=None).restore(copy))
    pipe.send("restored")


def killed_after(path: Path, word: str, count: int = 40) -> None:
    """Have another process write *count* items and kill it, so that its log is left."""
    child = Child(write, str(path), word, count)
    assert child.receive() == "written"
    child.kill()
    child.process.join()
    assert Path(f"{path}-wal").stat().st_size > 0


async def fill(path: Path, *words: str) -> None:
    async with SQLiteMemoryStore(path) as store:
        for word in words:
            await store.add(HumanMemory(content=word))


async def words_in(path: Path) -> set[str]:
    async with SQLiteMemoryStore(path) as store:
        assert await store.verify()
        return {item.content.split()[0] for item in await store.search(limit=10_000)}


# A log that is another file's


async def own_backup(path: Path, copy: Path) -> None:
    async with SQLiteMemoryStore(path) as store:
        await store.backup(copy)


async def plain_copy(path: Path, copy: Path) -> None:
    shutil.copy(path, copy)


async def opened_backup(path: Path, copy: Path) -> None:
    await own_backup(path, copy)
    await fill(copy, "opened")


async def copy_by_sqlite(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


async def vacuumed_copy(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source:
        source.execute("VACUUM INTO ?", [str(copy)])


BACKUPS = {
    each.__name__: each
    for each in (own_backup, plain_copy, opened_backup, copy_by_sqlite, vacuumed_copy)
}


@pytest.mark.parametrize("how", BACKUPS)
@pytest.mark.parametrize("place", [shutil.copy, shutil.move], ids=["cp", "mv"])
async def test_a_log_of_the_file_that_was_there_before_is_not_replayed(
    tmp_path: Path, how: str, place: object
) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "backup.db"
    await fill(path, "old")
    await BACKUPS[how](path, copy)
    await fill(path, "between")
    killed_after(path, "later")
    expected, log = copy.read_bytes(), Path(f"{path}-wal").read_bytes()
    place(copy, path)  # type: ignore[operator]  # either

    for _ in range(2):
        with pytest.raises(StorageError, match=r"log of another file.*restore"):
            await SQLiteMemoryStore(path).init()

    assert path.read_bytes() == expected
    assert Path(f"{path}-wal").read_bytes() == log
    for ending in ("-wal", "-shm"):  # the cure that the error names
        Path(f"{path}{ending}").unlink()
    assert await words_in(path) == ({"old", "opened"} if how == "opened_backup" else {"old"})


async def test_a_log_that_has_begun_anew_is_not_replayed_into_a_copy(tmp_path: Path) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "backup.db"
    await fill(path, "old")
    await plain_copy(path, copy)
    killed_after(path, "later", count=1_000)  # most of which is in the file, and its mark
    shutil.copy(copy, path)
    log = Path(f"{path}-wal").read_bytes()

    with pytest.raises(StorageError, match=r"log of another file.*restore"):
        await SQLiteMemoryStore(path).init()

    assert path.read_bytes() == copy.read_bytes()
    assert Path(f"{path}-wal").read_bytes() == log


async def test_a_link_to_a_store_is_the_store(tmp_path: Path) -> None:
    path, copy, link = tmp_path / "m.db", tmp_path / "backup.db", tmp_path / "links" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    await fill(path, "old")
    await own_backup(path, copy)
    killed_after(path, "later")
    shutil.copy(copy, path)

    with pytest.raises(StorageError, match="log of another file"):
        await SQLiteMemoryStore(link).init()
    done = await AgentMemory(link, embeddings=None).restore(copy)

    assert (done.path, link.is_symlink()) == (path, True)
    assert done.replaced is not None
    assert done.replaced.parent == tmp_path
    assert await words_in(path) == await words_in(link) == {"old"}
    assert [each.name for each in link.parent.iterdir()] == ["link.db"]


async def test_a_log_of_its_own_is_always_replayed(tmp_path: Path) -> None:
    """Kills, copies of file and log together, VACUUM, other writers: nothing is refused."""
    path, dice, expected = tmp_path / "m.db", random.Random(7), set()

    for number in range(10):
        expected.add(f"w{number}")
        killed_after(path, f"w{number}", count=dice.randint(1, 30))
        if number % 5 == 1:
            pair = tmp_path / f"pair{number}.db"
            for ending in ("", "-wal"):
                shutil.copy(f"{path}{ending}", f"{pair}{ending}")
            assert await words_in(pair) == expected
        if number % 5 == 2:
            with closing(sqlite3.connect(path)) as other:
                other.execute("VACUUM")
        if number % 5 == 3:
            assert await words_in(path) == expected
    assert await words_in(path) == expected


async def test_many_writers_at_once_that_are_all_killed_leave_their_own_log(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await fill(path, "first")

    for _ in range(2):
        children = [Child(write, str(path), f"c{number}", 5) for number in range(4)]
        assert [child.receive() for child in children] == ["written"] * 4
        for child in children:
            child.kill()
            child.process.join()

        assert await words_in(path) == {"first", *(f"c{number}" for number in range(4))}


async def test_marks_of_writers_stay_few(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    for number in range(5):
        await fill(path, f"{number}")
    assert len(marks_in_file(str(path))) == 2

    stores = [SQLiteMemoryStore(path) for _ in range(MAX_MARKS + 10)]
    for store in stores:  # in one process, where nobody may look into the file itself
        await store.init()
        await store.add(HumanMemory(content="x"))
    for store in stores:
        await store.close()

    marks = marks_in_file(str(path))
    assert len(marks) <= MAX_MARKS + 1
    assert ANY in marks
    assert await words_in(path) == {"0", "1", "2", "3", "4", "x"}


async def test_reading_a_store_writes_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await fill(path, "one")
    before = path.read_bytes()

    assert await words_in(path) == {"one"}

    assert path.read_bytes() == before


# Restoring


@pytest.mark.parametrize("how", BACKUPS)
async def test_a_restore_puts_a_backup_in_place_of_a_store_and_its_log(
    tmp_path: Path, how: str
) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "backup.db"
    await fill(path, "old")
    await BACKUPS[how](path, copy)
    killed_after(path, "later")
    expected = {"old", "opened"} if how == "opened_backup" else {"old"}

    done = await AgentMemory(path, embeddings=None).restore(copy)

    assert (done.path, done.items) == (path, len(expected))
    assert await words_in(path) == expected
    assert path.stat().st_mode & 0o777 == 0o600
    assert done.replaced is not None
    assert await words_in(done.replaced) == {"old", "later"}
    assert await words_in(copy) == expected


@pytest.mark.parametrize("is_there", [True, False], ids=["store", "folder"])
async def test_what_is_restored_belongs_to_whom_the_store_did(
    tmp_path: Path, *, is_there: bool
) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    path, copy = folder / "m.db", tmp_path / "backup.db"
    await fill(path, "old")
    await own_backup(path, copy)
    path.chmod(0o640)
    owner = 10001 if os.getuid() == 0 else os.getuid()  # only root may give files away
    os.chown(folder, owner, -1)
    os.chown(path, owner, -1)
    if not is_there:
        path.unlink()

    await AgentMemory(path, embeddings=None).restore(copy)

    assert path.stat().st_uid == owner
    assert path.stat().st_mode & 0o777 == (0o640 if is_there else 0o600)


@pytest.mark.parametrize("how", ["own_backup", "plain_copy"])
@pytest.mark.parametrize("count", [40, 400], ids=["short log", "log begun anew"])
async def test_a_restore_mends_what_a_copy_over_a_log_has_mixed_up(
    tmp_path: Path, how: str, count: int
) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "backup.db"
    await fill(path, "old")
    await BACKUPS[how](path, copy)
    await fill(path, "between")
    killed_after(path, "later", count)
    shutil.copy(copy, path)

    log = Path(f"{path}-wal").read_bytes()

    done = await AgentMemory(path, embeddings=None).restore(copy)

    assert await words_in(path) == {"old"}
    assert not Path(f"{path}-wal").exists()
    assert done.replaced is not None
    assert await words_in(done.replaced) == {"old"}  # it opens, without the log of another file
    assert Path(f"{done.replaced}.foreign-wal").read_bytes() == log


async def test_a_store_that_another_process_has_open_is_not_replaced(tmp_path: Path) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "backup.db"
    await fill(path, "old")
    await own_backup(path, copy)
    child = Child(write, str(path), "later", 3)
    assert child.receive() == "written"
    memory = AgentMemory(path, embeddings=None)

    with pytest.raises(StorageError, match="open in another process"):
        await memory.restore(copy)
    child.pipe.send("go on")
    child.process.join()

    assert await words_in(path) == {"old", "later"}
    await memory.restore(copy)
    assert await words_in(path) == {"old"}


async def test_a_store_that_this_process_has_open_is_not_replaced(tmp_path: Path) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "backup.db"
    await fill(path, "old")
    await own_backup(path, copy)

    async with SQLiteMemoryStore(path) as other:
        with pytest.raises(StorageError, match="open in this process"):
            await AgentMemory(path, embeddings=None).restore(copy)
        await other.add(HumanMemory(content="still here"))
    async with AgentMemory(path, embeddings=HashEmbeddings(), summaries=None) as memory:
        alice = memory.scope(user_id="alice")
        await alice.remember("mine")
        await memory.restore(copy)  # its own connections it closes itself
        assert await alice.list() == []
        await alice.remember("mine again")

    assert await words_in(path) == {"old", "mine"}


def _damaged(path: Path) -> None:
    text = bytearray(path.read_bytes())
    text[8192:] = random.Random(3).randbytes(len(text) - 8192)
    path.write_bytes(text)


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def _others(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")


SPOILT = {
    "damaged": (_damaged, "damaged|cannot be read"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:9000]), "damaged|cannot be read"),
    "text": (lambda path: path.write_text("hello"), "not a SQLite database"),
    "empty": (lambda path: path.write_bytes(b""), "not a SQLite database"),
    "newer": (_newer, "upgrade"),
    "another program's": (_others, "not a store of orbiter-memory"),
    "missing": (lambda path: path.unlink(), "no file"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "is a folder"),
}


@pytest.mark.parametrize("what", SPOILT)
async def test_what_is_no_sound_backup_is_refused_and_nothing_is_touched(
    tmp_path: Path, what: str
) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "backup.db"
    await fill(path, *(f"old{number}" for number in range(50)))
    await own_backup(path, copy)
    spoil, told = SPOILT[what]
    spoil(copy)
    before = path.read_bytes()

    with pytest.raises(StorageError, match=told):
        await AgentMemory(path, embeddings=None).restore(copy)

    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} <= {"m.db", "backup.db"}


async def test_a_store_is_no_backup_of_itself(tmp_path: Path) -> None:
    await fill(tmp_path / "m.db", "old")

    with pytest.raises(StorageError, match="the store itself"):
        await AgentMemory(tmp_path / "m.db", embeddings=None).restore(tmp_path / "m.db")


async def test_a_folder_is_not_replaced_by_a_backup(tmp_path: Path) -> None:
    await fill(tmp_path / "m.db", "old")
    (tmp_path / "folder").mkdir()

    with pytest.raises(StorageError, match="is not a file"):
        await AgentMemory(tmp_path / "folder", embeddings=None).restore(tmp_path / "m.db")


async def test_a_store_that_is_not_there_is_made_from_a_backup(tmp_path: Path) -> None:
    path, copy = tmp_path / "new.db", tmp_path / "backup.db"
    await fill(tmp_path / "m.db", "old")
    await own_backup(tmp_path / "m.db", copy)
    Path(f"{path}-wal").write_bytes(b"left over" * 100)

    done = await AgentMemory(path, embeddings=None).restore(copy)

    assert done.replaced is None
    assert await words_in(path) == {"old"}


async def test_a_restore_that_is_killed_anywhere_leaves_one_of_both_whole(tmp_path: Path) -> None:
    sample = tmp_path / "sample"
    sample.mkdir()
    await fill(sample / "m.db", "old")
    await own_backup(sample / "m.db", tmp_path / "backup.db")
    killed_after(sample / "m.db", "later")

    outcomes: list[str] = []
    for calls in range(40):
        folder = tmp_path / f"{calls}"
        shutil.copytree(sample, folder)
        child = Child(restore_and_die, str(folder / "m.db"), str(tmp_path / "backup.db"), calls)
        said = child.receive()
        child.process.join()
        outcomes.append(said or await _left_behind(folder / "m.db", tmp_path / "backup.db"))
        if said:
            break

    assert set(outcomes) == {"the old one", "the new one beside the old log", "restored"}
    assert outcomes[-1] == "restored"


async def _left_behind(path: Path, copy: Path) -> str:
    """Return which of both a killed restore has left; the other must not be lost either."""
    assert copy.exists()
    try:
        found = await words_in(path)
    except StorageError:
        with pytest.raises(StorageError, match="log of another file"):
            await SQLiteMemoryStore(path).init()
        kept = [each for each in path.parent.glob("*.replaced-*") if each.name.endswith("Z")]
        assert [await words_in(each) for each in kept] == [{"old", "later"}]
        await AgentMemory(path, embeddings=None).restore(copy)
        assert await words_in(path) == {"old"}
        return "the new one beside the old log"
    return {2: "the old one", 1: "restored"}[len(found)]
