"""What is SQLite's own: plans, files, hand-made changes, backups, repair."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.rows import each_row

from orbiter.memory import HumanMemory, MemoryMetadata, ShortTermMemoryManager, SQLiteMemoryStore
from orbiter.memory.backends.sql.operations import Operations
from orbiter.memory.backends.sqlite import migrations, schema
from orbiter.memory.backends.sqlite.dialect import SQLiteDialect
from orbiter.memory.backends.sqlite.run import FACTORY
from orbiter.memory.errors import StorageError
from orbiter.memory.model import Query
from orbiter.memory.model.query import Cursor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteMemoryStore]:
    async with SQLiteMemoryStore(path) as made:
        yield made


def _by_hand(path: Path, sql: str, *args: object) -> list[Any]:
    """Do what a person with the `sqlite3` shell does."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            return connection.execute(sql, args).fetchall()
    finally:
        connection.close()


# Plans

ANN = MemoryMetadata(user_id="ann")
NOW = datetime(2025, 1, 1, tzinfo=UTC)
PLANS = {
    "newest of all": (Query(), {}, "memory_items_created"),
    "a user": (Query(metadata=ANN), {}, "memory_items_user"),
    "a session": (Query(metadata=MemoryMetadata(session_id="s")), {}, "memory_items_session"),
    "a task": (Query(metadata=MemoryMetadata(task_id="t")), {}, "memory_items_task"),
    "an agent": (Query(metadata=MemoryMetadata(agent_id="a")), {}, "memory_items_agent"),
    "a user's session": (
        Query(metadata=MemoryMetadata(user_id="ann", session_id="s")), {},
        "memory_items_user_session",
    ),
    "a user's drafts": (
        Query(metadata=ANN, memory_type="ai", status="draft"), {}, "memory_items_user",  # type: ignore[arg-type]
    ),
    "a user's facts": (
        Query(metadata=ANN, memory_type="fact", where={"fact": "home"}), {}, "memory_items_facts",
    ),
    "a user since": (Query(metadata=ANN, since=NOW), {}, "memory_items_user"),
    "the next page": (Query(metadata=ANN), {"before": Cursor("one")}, "memory_items_user"),
    "the page before": (Query(metadata=ANN), {"after": Cursor("one")}, "memory_items_user"),
    "the page after what is gone": (
        Query(metadata=ANN), {"before": Cursor("gone", NOW)}, "memory_items_user",
    ),
    "a user's words": (Query("apple", metadata=ANN), {}, "memory_items_user"),
}  # fmt: skip


@pytest.mark.parametrize("asked", PLANS)
async def test_no_filtered_read_scans_or_sorts_the_table(
    store: SQLiteMemoryStore, path: Path, asked: str
) -> None:
    query, cursors, index = PLANS[asked]
    await store.add(HumanMemory(id="one", content="hi"))
    steps = Operations(SQLiteDialect()).search(query, cursors.get("before"), cursors.get("after"))

    statement = next(steps)
    if cursors:
        is_gone = any(cursor.item_id == "gone" for cursor in cursors.values())
        statement = steps.send([] if is_gone else [("2025", 1, "one")])
    connection = sqlite3.connect(path, factory=FACTORY)
    connection.create_function("orbiter_has", 2, lambda *_: False, deterministic=True)
    connection.create_function("orbiter_where", 2, lambda *_: False, deterministic=True)
    explained = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.args)
    plan = [row[3] for row in explained]
    connection.close()

    first = plan[0] if "CO-ROUTINE" not in plan[0] else plan[1]
    assert f"INDEX {index} " in f"{first} ", plan
    if asked != "newest of all":
        assert first.startswith("SEARCH"), plan
    if query.text == "":
        assert not any("TEMP B-TREE" in line for line in plan), plan


async def test_a_selective_needle_is_looked_up_and_not_read_for(path: Path) -> None:
    async with SQLiteMemoryStore(path, durability="normal") as store:
        items = [HumanMemory(content=f"memory number {n}", metadata=ANN) for n in range(3000)]
        await store.add_many(items)
        await store.optimize()
        seen: list[str] = []
        await store._file.read(lambda connection: connection.set_trace_callback(seen.append))

        found = await store.search(query="number 77", metadata=ANN, limit=50)

        assert len(found) == 11
        assert any("memory_words MATCH" in sql for sql in seen)
        assert any("memory_items NOT INDEXED" in sql for sql in seen)


# Files


def test_the_repr_names_the_file() -> None:
    assert repr(SQLiteMemoryStore("a.db")) == "SQLiteMemoryStore('a.db')"
    assert repr(SQLiteMemoryStore()) == "SQLiteMemoryStore(':memory:')"


@each_row(
    ("arguments", "named"),
    [
        ({"db_path": ""}, "db_path"),
        ({"db_path": "a\0b"}, "db_path"),
        ({"durability": "most"}, "durability"),
        ({"busy_timeout": 0}, "busy_timeout"),
        ({"readers": 0}, "readers"),
    ],
)
def test_the_constructor_refuses_what_means_nothing(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SQLiteMemoryStore(**arguments)


@pytest.mark.parametrize(("durability", "mode"), [("full", 2), ("normal", 1)])
async def test_the_writer_syncs_as_promised(path: Path, durability: Any, mode: int) -> None:
    async with SQLiteMemoryStore(path, durability=durability) as store:

        def ask(pragma: str) -> Any:
            return store._file.read(
                lambda connection: connection.execute(f"PRAGMA {pragma}").fetchone()[0],
                writing=True,
            )

        assert await ask("synchronous") == mode
        assert await ask("journal_mode") == "wal"


async def test_a_closed_store_is_one_file(tmp_path: Path) -> None:
    for number in range(40):  # two that close at once would leave their journal, now and then
        async with SQLiteMemoryStore(tmp_path / f"{number}.db") as store:
            await store.add(HumanMemory(content="x"))
            await asyncio.gather(*(store.search() for _ in range(4)))

    assert {path.suffix for path in tmp_path.iterdir()} == {".db"}


async def test_a_migration_is_applied_once_to_an_older_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteMemoryStore(path) as old:
        await old.add(HumanMemory(id="one", content="kept"))
    second = "CREATE TABLE memory_more (n INTEGER); INSERT INTO memory_more VALUES (1);"
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, second))

    for _ in range(2):
        async with SQLiteMemoryStore(path) as new:
            found = await new.get("one")
            assert found is not None
            assert found.content == "kept"
            assert (await new.stats()).schema == len(migrations.MIGRATIONS)

    assert _by_hand(path, "SELECT n FROM memory_more") == [(1,)]
    monkeypatch.undo()
    with pytest.raises(StorageError, match=f"schema {len(migrations.MIGRATIONS) + 1}"):
        await SQLiteMemoryStore(path).init()


async def nothing(_: SQLiteMemoryStore) -> None:
    """Do what stores of the past did about things to come."""


async def test_a_file_of_every_past_version_is_brought_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(1, len(migrations.MIGRATIONS)):
        monkeypatch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:version])
        monkeypatch.setattr(SQLiteMemoryStore, "_begin_audit", nothing)  # there was none then
        old_path = path.with_name(f"{version}.db")
        async with SQLiteMemoryStore(old_path) as old:
            await old.add(HumanMemory(id="one", content="kept"))
        monkeypatch.undo()

        async with (
            ShortTermMemoryManager(f"sqlite:///{old_path}") as episodes,
            SQLiteMemoryStore(old_path) as store,
        ):
            await episodes.add_interaction("note", "beside it")
            assert [each.content for each in await episodes.get_recent()] == ["beside it"]
            assert [each.content for each in await store.search()] == ["kept"]
            assert await store.verify()


async def test_a_migration_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteMemoryStore(path) as old:
        await old.add(HumanMemory(id="one", content="kept"))
    broken = "CREATE TABLE memory_more (n INTEGER); INSERT INTO nowhere VALUES (1);"
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, broken))

    with pytest.raises(StorageError, match="nowhere"):
        await SQLiteMemoryStore(path).init()
    monkeypatch.undo()

    async with SQLiteMemoryStore(path) as old:
        assert await old.count() == 1
        assert await old.verify()
    assert _by_hand(path, "SELECT count(*) FROM sqlite_master WHERE name = 'memory_more'") == [(0,)]


# Changes by hand


async def test_a_change_made_by_hand_is_seen_searched_and_kept_as_a_version(
    store: SQLiteMemoryStore, path: Path
) -> None:
    await store.add(HumanMemory(id="one", content="apples", metadata=ANN))
    await store.optimize()

    _by_hand(path, "UPDATE memory_items SET content = 'PEARS' WHERE id = 'one'")

    found = await store.get("one")
    assert found is not None
    assert (found.content, found.version) == ("PEARS", 2)
    assert await store.search(query="apples") == []
    assert [item.content for item in await store.search(query="pears")] == ["PEARS"]
    assert [each.item.content for each in await store.history("one")] == ["apples", "PEARS"]
    await store.optimize()
    assert await store.verify()


async def test_a_row_removed_by_hand_leaves_nothing_behind(
    store: SQLiteMemoryStore, path: Path
) -> None:
    await store.add_many([HumanMemory(id=f"i{n}", content=f"text {n}") for n in range(9)])
    await store.add(HumanMemory(id="i8", content="text 8 again"))
    await store.optimize()

    _by_hand(path, "DELETE FROM memory_items WHERE id IN ('i3', 'i8')")
    await store.add(HumanMemory(id="new", content="something else"))
    await store.optimize()

    assert await store.search(query="text 8") == []
    assert [item.id for item in await store.search(query="something")] == ["new"]
    assert await store.history("i8") == []
    assert await store.verify()


@pytest.mark.parametrize(
    "change",
    [
        "metadata = '{'",
        "metadata = '[]'",
        "metadata = '{\"user_id\": 7}'",
        "extra_json = 'x'",
        "status = 'nope'",
        "created_at = 'yesterday'",
        "content = x'00ff'",
    ],
)
async def test_a_row_spoilt_by_hand_is_named_and_hides_no_other(
    store: SQLiteMemoryStore, path: Path, change: str
) -> None:
    await store.add(HumanMemory(id="good", content="hi", metadata=ANN))
    await store.add(HumanMemory(id="bad", content="hi", metadata=MemoryMetadata(user_id="bob")))
    if "metadata = '{'" in change:
        with pytest.raises(sqlite3.OperationalError, match="malformed JSON"):
            _by_hand(path, f"UPDATE memory_items SET {change} WHERE id = 'bad'")
        return
    _by_hand(path, f"UPDATE memory_items SET {change} WHERE id = 'bad'")

    with pytest.raises(StorageError, match="row `bad`"):
        await store.get("bad")
    assert len(await store.search(metadata=ANN)) == 1
    report = await store.verify()
    assert not report
    assert [problem for problem in report.problems if "`bad`" in problem]


async def test_calls_spoilt_by_hand_do_not_come_back_as_calls(
    store: SQLiteMemoryStore, path: Path
) -> None:
    await store.add(HumanMemory(id="one", content="hi"))
    _by_hand(
        path,
        "UPDATE memory_items SET memory_type = 'ai', extra_json = '{\"tool_calls\": [7]}'",
    )

    found = await store.get("one")

    assert found is not None
    assert found.model_extra == {"tool_calls": [7]}


# Looking after the file


async def test_verify_finds_a_damaged_index_and_repair_builds_it_anew(
    store: SQLiteMemoryStore, path: Path
) -> None:
    await store.add_many([HumanMemory(content=f"apple number {n}") for n in range(30)])
    await store.optimize()
    assert await store.verify()
    connection = sqlite3.connect(path)
    connection.execute(
        "INSERT INTO memory_words (memory_words, rowid, text)"
        " VALUES ('delete', 7, 'apple number 6')"
    )
    connection.execute("INSERT INTO memory_words (rowid, text) VALUES (999, 'a stranger')")
    connection.commit()
    connection.close()

    found = await store.verify()
    repaired = await store.verify(repair=True)

    assert not found
    assert any("row 7" in problem for problem in found.problems)
    assert any("do not exist" in problem for problem in found.problems)
    assert repaired
    assert repaired.repaired
    assert repaired.checked == 30
    assert (await store.stats()).unindexed == 0
    assert await store.verify()


async def test_a_lost_index_is_found_out_and_rebuilt(store: SQLiteMemoryStore, path: Path) -> None:
    await store.add_many([HumanMemory(content=f"apple number {n}") for n in range(30)])
    await store.optimize()
    _by_hand(path, "DROP TABLE memory_words")

    assert len(await store.search(query="apple", limit=100)) == 30
    assert await store.verify(repair=True)
    assert len(await store.search(query="number 2", limit=100)) == 11


async def test_a_backup_is_a_store_of_its_own(store: SQLiteMemoryStore, tmp_path: Path) -> None:
    await store.add_many([HumanMemory(id=f"i{n}", content=f"text {n}" * 50) for n in range(900)])
    await store.add(HumanMemory(id="i0", content="changed"))
    told: list[tuple[int, int]] = []
    target = tmp_path / "copy.db"

    await store.backup(target, progress=lambda done, pages: told.append((done, pages)))
    await store.add(HumanMemory(content="later"))

    assert told[-1][0] == told[-1][1] > 0
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir() if "copy" in each.name) == ["copy.db"]
    async with SQLiteMemoryStore(target) as copy:
        assert await copy.count() == 900
        assert len(await copy.history("i0")) == 2
        assert await copy.verify()


async def test_a_backup_never_replaces_a_file(store: SQLiteMemoryStore, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")

    with pytest.raises(StorageError, match="exists already"):
        await store.backup(target)
    with pytest.raises(StorageError, match="nowhere"):
        await store.backup(tmp_path / "nowhere" / "copy.db")

    assert target.read_text() == "precious"


async def test_purging_and_vacuum_give_room_back_and_keep_every_place(
    store: SQLiteMemoryStore,
) -> None:
    items = [
        HumanMemory(id=f"i{n}", content=f"text {n} " + "x" * 2000, created_at=NOW)
        for n in range(400)
    ]
    await store.add_many(items)
    await store.optimize()
    before = await store.stats()
    for item in items[::2]:
        await store.delete(item.id)
    await store.purge()

    await store.vacuum()

    after = await store.stats()
    assert after.bytes < 0.7 * before.bytes
    assert (after.items, after.deleted) == (200, 0)
    found = await store.search(limit=1000)
    assert [item.id for item in found] == [item.id for item in reversed(items[1::2])]
    assert [item.id for item in await store.search(query="text 399 ")] == ["i399"]
    assert await store.verify()


async def test_stats_count_what_is_there(store: SQLiteMemoryStore) -> None:
    await store.add_many([HumanMemory(id=f"i{n}", content="hi") for n in range(5)])
    await store.add(HumanMemory(id="i0", content="ho"), by="someone")
    await store.delete("i1")

    found = await store.stats()

    assert (found.items, found.deleted, found.versions, found.unindexed) == (4, 1, 2, 5)
    assert (found.schema, found.bytes > 4096) == (len(migrations.MIGRATIONS), True)
    await store.optimize()
    assert (await store.stats()).unindexed == 0


async def test_texts_folded_by_another_unicode_version_are_read_until_repaired(
    store: SQLiteMemoryStore, path: Path
) -> None:
    await store.add_many([HumanMemory(content=f"ÄPFEL {n}", metadata=ANN) for n in range(700)])
    await store.optimize()
    await store.close()
    _by_hand(path, "UPDATE memory_meta SET value = '3.2.0' WHERE key = 'unicode'")

    await store.init()
    seen: list[str] = []
    await store._file.read(lambda connection: connection.set_trace_callback(seen.append))
    found = await store.search(query="äpfel 7", metadata=ANN, limit=900)

    assert len(found) == 11
    assert not any("MATCH" in sql for sql in seen)
    await store.verify(repair=True)
    assert len(await store.search(query="äpfel 7", metadata=ANN, limit=900)) == 11
    assert any("MATCH" in sql for sql in seen)


async def test_without_trigrams_everything_works_and_finds_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "WORDS", schema.WORDS.replace("trigram", "unheardof"))
    async with SQLiteMemoryStore(path) as store:
        await store.add_many([HumanMemory(id=f"i{n}", content=f"ÄPFEL {n}") for n in range(600)])
        await store.optimize()
        await store.delete("i77")
        await store.purge()

        assert len(await store.search(query="äpfel 7", limit=100)) == 10
        assert await store.verify(repair=True)
    assert _by_hand(path, "SELECT count(*) FROM sqlite_master WHERE name = 'memory_words'") == [
        (0,)
    ]
    monkeypatch.undo()

    async with SQLiteMemoryStore(path) as store:  # by another Python, whose SQLite has them
        await store.optimize()
        assert len(await store.search(query="äpfel 7", limit=100)) == 10
        assert await store.verify()


async def test_a_blob_made_by_hand_stops_no_upkeep(store: SQLiteMemoryStore, path: Path) -> None:
    await store.add_many([HumanMemory(id=f"i{n}", content=f"text {n}") for n in range(9)])
    _by_hand(path, "UPDATE memory_items SET content = x'00ff' WHERE id = 'i3'")

    await store.optimize()
    report = await store.verify(repair=True)

    assert [problem for problem in report.problems if "`i3`" in problem] == list(report.problems)
    assert len(await store.search(query="text", limit=100)) == 8


async def _check_counts(store: SQLiteMemoryStore) -> None:
    """See that what is counted is what is there, of each user and of all."""
    for user in ("ann", "bob", "nobody", None):
        whose = None if user is None else MemoryMetadata(user_id=user)
        there = len(await store.search(metadata=whose, limit=1000))
        gone = len(await store.search(metadata=whose, limit=1000, deleted=True))
        assert await store.count(metadata=whose) == there
        assert await store.count(metadata=whose, include_deleted=True) == there + gone
    assert (await store.stats()).items == there


@pytest.mark.parametrize("seed", range(4))
async def test_counts_follow_every_change_whenever_it_is_indexed(tmp_path: Path, seed: int) -> None:
    """Counts are kept beside the index of terms, and corrected by what that does not hold yet."""
    dice = Random(seed)
    async with SQLiteMemoryStore(tmp_path / "memories.db") as store:
        for number in range(60):
            user = dice.choice(("ann", "bob", None))
            name = f"m{dice.randrange(25)}"
            kind = dice.choice(("add", "add", "add", "delete", "restore", "purge", "index", "end"))
            if kind in ("add", "end"):
                over = datetime.now(UTC) + timedelta(milliseconds=dice.choice((1, 10**7)))
                await store.add(
                    HumanMemory(
                        id=name,
                        content=f"tune {number}" * dice.randrange(2),
                        metadata=MemoryMetadata(user_id=user),
                        expires_at=over if kind == "end" else None,
                    )
                )
            elif kind == "delete":
                await store.delete(name)
            elif kind == "restore":
                await store.restore(name)
            elif kind == "purge":
                await store.purge()
            else:
                await store.optimize()
            await asyncio.sleep(0.003)
            await _check_counts(store)
        await store.erase(metadata=MemoryMetadata(user_id="ann"))
        await _check_counts(store)
        await store.optimize()
        await _check_counts(store)
        assert await store.verify()


async def test_a_file_without_counts_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "memories.db", migrations.MIGRATIONS
    monkeypatch.setattr(migrations, "MIGRATIONS", whole[: whole.index(migrations.COUNTS)])
    async with SQLiteMemoryStore(path) as old:
        for user in ("ann", None):
            whose = MemoryMetadata(user_id=user)
            tunes = [
                HumanMemory(id=f"{user}{n}", content=f"tune {n}", metadata=whose) for n in range(9)
            ]
            await old.add_many(tunes)
            await old.optimize() if user else None
        await old.delete("ann3")
        await old.add(HumanMemory(id="ann4", content="another", metadata=MemoryMetadata()))
    monkeypatch.setattr(migrations, "MIGRATIONS", whole)
    async with SQLiteMemoryStore(path) as store:
        await _check_counts(store)
        assert await store.count(metadata=MemoryMetadata(user_id="ann")) == 7
        await store.optimize()
        await _check_counts(store)
        assert await store.verify()
