"""Recall structures in a SQLite file: upkeep, damage, old files, changes by hand."""

import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.stores.recall_reference import Detailed, check_details, check_meaning, check_words
from tests.timing import until

from orbiter.memory import HumanMemory, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.backends.sqlite import (
    migrations,
    schema,
    term_index,
    term_search,
    vector_cache,
    vectors,
)
from orbiter.memory.errors import NotInitializedError, StorageError
from orbiter.memory.model.query import Query
from orbiter.memory.recall import recall
from orbiter.memory.text import words

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
EMBEDDINGS = Detailed(16)


def by_hand(path: Path, sql: str, *args: object) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql, args).fetchall()


def items(count: int, user: str = "ann") -> list[HumanMemory]:
    return [
        HumanMemory(
            id=f"{user}{n}",
            content=f"painting number {n} by {user}",
            metadata=MemoryMetadata(user_id=user, session_id=f"s{n // 10}"),
        )
        for n in range(count)
    ]


async def check(store: SQLiteMemoryStore) -> None:
    assert await store.catch_up() == 0
    first = MemoryMetadata(user_id="ann", session_id="s0")
    for metadata, limit in ((ANN, 20), (BOB, 20), (None, 20), (first, 10)):
        asked = Query(metadata=metadata, limit=limit)
        await check_words(store, ["paint", "7", "bob", "hand"], asked)
        if store.embeddings is not None:
            await check_meaning(store, EMBEDDINGS, "number 7 by bob", asked)
            await check_details(store, EMBEDDINGS)
    assert (await store.verify()).problems == ()


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Return a file with two users' items, indexed and embedded."""
    path = tmp_path / "memory.db"
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        await store.add_many([*items(60), *items(60, "bob")])
        await store.catch_up()
    return path


async def test_vacuum_backup_optimize_and_purge_keep_every_structure(path: Path) -> None:
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        for item in items(60)[::3]:
            await store.delete(item.id)
        await store.purge()
        await store.vacuum()
        await check(store)
        await store.optimize()
        await check(store)
        await store.backup(path.with_name("copy.db"))
    async with SQLiteMemoryStore(path.with_name("copy.db"), embeddings=EMBEDDINGS) as copy:
        assert (await copy.stats()).unembedded == 0
        await check(copy)


async def test_purged_texts_are_nowhere_in_the_file(path: Path) -> None:
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        await store.add(HumanMemory(id="s", content="the secretword is out", metadata=ANN))
        await store.catch_up()
        await store.delete("s")
        await store.purge()

        assert by_hand(path, "SELECT count(*) FROM memory_unlisted") == [(0,)]
        assert by_hand(path, "SELECT count(*) FROM memory_details") == [(120,)]
        await store.optimize()
        await store.vacuum()
        await check(store)
    kept = path.read_bytes()
    assert b"secretword" not in kept
    assert EMBEDDINGS.rows("secretword") not in kept
    assert EMBEDDINGS.rows("painting") in kept


async def test_a_place_given_out_again_belongs_to_the_new_item(path: Path) -> None:
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        await check(store)
        for _ in range(3):
            await store.delete("bob59")
            await store.purge()
            await store.add(HumanMemory(id="ann99", content="a hand of ann", metadata=ANN))
            await check(store)
            await store.delete("ann99")
            await store.purge()
            await store.add(items(60, "bob")[-1])
            await check(store)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM memory_vectors WHERE place % 7 = 0",
        "UPDATE memory_vectors SET digest = x'00' WHERE place % 9 = 0",
        "UPDATE memory_vectors SET vectors = x'0000' WHERE place = 5",
        "UPDATE memory_vectors SET vectors = zeroblob(length(vectors)) WHERE place % 9 = 0",
        "INSERT INTO memory_vectors VALUES (9999, 1, 9999, x'00', x'')",
        "INSERT INTO memory_details VALUES (9999, '[4]', x'00000000')",
        "UPDATE memory_details SET sizes = '[4, 4]' WHERE id % 9 = 0",
        "UPDATE memory_details SET sizes = 'four' WHERE id = 5",
        "UPDATE memory_details SET details = x'0000' WHERE id = 5",
        "DELETE FROM memory_terms_data WHERE id > 10",
        "DROP TABLE memory_terms",
        "UPDATE memory_owners SET passages = 5",
        "UPDATE memory_counts SET items = 5",
        "INSERT INTO memory_terms (rowid, terms) VALUES (640000, 'stray')",
        "UPDATE memory_meta SET value = 0 WHERE key = 'listed_to'",
    ],
)
async def test_damage_is_found_and_repaired(path: Path, damage: str) -> None:
    by_hand(path, damage)
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        if "DROP" not in damage:  # which is made anew at once
            await store.optimize() if "listed_to" in damage else None
            found = await store.verify()
            assert found.problems, damage

        assert (await store.verify(repair=True)).problems == ()
        await check(store)


async def test_changes_by_hand_count(path: Path) -> None:
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        await check(store)
        by_hand(path, "UPDATE memory_items SET content = 'made by hand 7' WHERE id = 'ann3'")
        by_hand(path, "UPDATE memory_items SET metadata = '{}' WHERE id = 'ann4'")
        by_hand(path, "DELETE FROM memory_items WHERE id = 'bob7'")
        by_hand(path, "UPDATE memory_items SET deleted = 1 WHERE id = 'bob8'")

        await check(store)


async def test_a_file_of_version_2_is_indexed_after_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    monkeypatch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:2])

    async def nothing(_: SQLiteMemoryStore) -> None:
        """Do what such a store did about a log: there was none."""

    monkeypatch.setattr(SQLiteMemoryStore, "_begin_audit", nothing)
    async with SQLiteMemoryStore(path) as old:
        await old.add_many(items(300))
        await old.delete("ann5")
    monkeypatch.undo()
    assert by_hand(path, "PRAGMA user_version") == [(2,)]

    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        assert (await store.stats()).schema == len(migrations.MIGRATIONS)
        await check(store)


async def test_terms_made_differently_are_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "VERSION", 99)
    async with SQLiteMemoryStore(path) as store:
        assert by_hand(path, "SELECT value FROM memory_meta WHERE key = 'terms'") == [(99,)]
        await check(store)


async def test_without_fts5_words_are_found_among_the_newest(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "has_terms", lambda _: False)
    monkeypatch.setattr(schema, "has_words", lambda _: False)
    async with SQLiteMemoryStore(path) as store:
        await store.add(HumanMemory(id="new", content="a new painting by hand", metadata=ANN))
        for metadata in (ANN, BOB):
            await check_words(store, ["paint", "7", "hand"], Query(metadata=metadata, limit=9))
        monkeypatch.setattr(term_search, "SCANNED", 10)
        found = await store.match_words(["paint"], Query(metadata=ANN, limit=50))
        assert (len(found.items), found.passages) == (10, 10)


async def test_common_terms_cost_no_more_than_their_newest_passages(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PROBED", 4), ("MOST", 20), ("BUDGET", 20), ("CHUNK", 16)):
        monkeypatch.setattr(term_index if name == "CHUNK" else term_search, name, value)
    async with SQLiteMemoryStore(path) as store:
        found = await store.match_words(["paint", "7", "nothing"], Query(metadata=ANN, limit=100))
        session = MemoryMetadata(user_id="ann", session_id="s0")
        early = await store.match_words(["paint", "7"], Query(metadata=session, limit=100))

        assert found.items[0].id == "ann7"
        assert 20 <= len(found.items) <= 22
        assert found.frequency["7"] == 1
        assert abs(found.frequency["paint"] - 60) <= 5
        assert {item.id for item in early.items} == {f"ann{n}" for n in range(10)}
        assert early.items[0].id == "ann7"


@pytest.mark.parametrize("room", [1, 3000, 2**30])
async def test_shelves_that_are_evicted_or_far_behind_are_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(vectors, "CHANGES", 8)
    monkeypatch.setattr(vectors, "CHUNK", 2)
    loads = 0
    load = vector_cache._load

    def counted(*args: Any) -> Any:
        nonlocal loads
        loads += 1
        return load(*args)

    monkeypatch.setattr(vector_cache, "_load", counted)
    dice = random.Random(room)
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS, vector_cache=room) as store:
        for _ in range(6):
            for n in dice.sample(range(60), dice.choice((1, 12))):
                whose = dice.choice((ANN, BOB))
                await store.add(HumanMemory(id=f"ann{n}", content=f"hand {n}", metadata=whose))
            await check(store)
        await store.add(HumanMemory(id="ann1", content="once more", metadata=ANN))
        await check(store)
    assert loads >= (3 if room == 2**30 else 15)


async def test_two_stores_on_one_file_see_each_others_changes(path: Path) -> None:
    dice = random.Random(5)
    async with (
        SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as one,
        SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as two,
    ):
        for _ in range(15):
            writer, reader = dice.sample([one, two], 2)
            item_id = f"ann{dice.randrange(70)}"
            if dice.random() < 0.5:
                whose = dice.choice((ANN, BOB))
                await writer.add(HumanMemory(id=item_id, content="by hand", metadata=whose))
            else:
                await writer.delete(item_id)
            await check(reader)


async def test_a_recall_reads_a_few_times_however_many_it_weighs(path: Path) -> None:
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        await recall(store, "which painting is number 7?", scope=ANN)
        reads: list[object] = []
        read = store._file.read

        async def noting(work: Any, **options: Any) -> Any:
            reads.append(work)
            return await read(work, **options)

        store._file.read = noting  # type: ignore[method-assign]
        hits = await recall(store, "which painting is number 8?", scope=ANN)

        assert hits
        assert len(reads) <= 6


async def test_what_a_recall_weighs_and_reads_is_done_on_one_thread(path: Path) -> None:
    async with SQLiteMemoryStore(path) as store:
        await recall(store, "which painting is number 7?", scope=ANN, mode="words")
        await store.catch_up()
        seen: list[threading.Thread] = []
        read = store._file.read

        async def noting(work: Any, **options: Any) -> Any:
            seen.append(threading.current_thread())
            return await read(work, **options)

        store._file.read = noting  # type: ignore[method-assign]
        hits = await recall(store, "which painting is number 8?", scope=ANN, mode="words")

        assert hits
        assert len(seen) > 1
        assert len(set(seen)) == 1
        assert threading.current_thread() not in seen


async def test_work_that_must_wait_begins_again_on_the_event_loop(path: Path) -> None:
    threads: list[threading.Thread] = []

    async with SQLiteMemoryStore(path) as store:

        async def work() -> bool:
            threads.append(threading.current_thread())
            assert await store.get("ann1") is not None
            await store.add(HumanMemory(id="new", content="tea"))  # by the thread that writes
            return await store.get("new") is not None

        assert await store.offload(work)

    assert len(threads) == 3  # once more after what mostly is waited for was done
    assert threads[2] is threading.current_thread()
    assert threads[2] not in threads[:2]


async def test_a_recall_after_a_write_is_done_on_a_thread_too(path: Path) -> None:
    async with SQLiteMemoryStore(path) as store:
        await recall(store, "which painting is number 7?", scope=ANN, mode="words")
        await store.add(HumanMemory(content="painting number 8 was sold", metadata=ANN))
        seen: list[threading.Thread] = []
        match = store.match_words

        async def noting(*args: Any) -> Any:
            found = await match(*args)
            seen.append(threading.current_thread())  # where it was answered, and not given up
            return found

        store.match_words = noting  # type: ignore[method-assign, assignment]  # notes, and asks it
        hits = await recall(store, "was painting number 8 sold?", scope=ANN, mode="words")

        assert "sold" in hits[0].item.content
        assert seen
        assert threading.current_thread() not in seen


async def test_an_error_of_offloaded_work_is_the_callers(path: Path) -> None:
    async def work() -> None:
        await store._file.read(lambda connection: connection.execute("SELECT missing"))

    async with SQLiteMemoryStore(path) as store:
        with pytest.raises(StorageError, match="no such column"):
            await store.offload(work)
        assert await store.get("ann1") is not None
    with pytest.raises(NotInitializedError):
        await store.offload(work)


async def test_hits_are_the_callers_own(path: Path) -> None:
    async with SQLiteMemoryStore(path) as store:
        asked = "which painting is number 8?"
        first = await recall(store, asked, scope=ANN, mode="words", explain=True)
        for item in (*(hit.item for hit in first), *(each.item for each in first.left_out)):
            item.metadata.extra["spoiled"] = True
            item.content = "spoiled"
        again = await recall(store, asked, scope=ANN, mode="words", explain=True)

        assert "painting number 8" in again[0].item.content
        for each in (*again, *again.left_out):
            assert each.item == await store.get(each.item.id)


async def test_a_recall_never_has_an_earlier_version(path: Path) -> None:
    asked = "which painting is number 8?"
    async with SQLiteMemoryStore(path) as one, SQLiteMemoryStore(path) as other:
        await one.catch_up()
        assert (await recall(one, asked, scope=ANN, mode="words"))[0].item.id == "ann8"
        await other.add(HumanMemory(id="ann8", content="painting number 8, sold", metadata=ANN))
        await one.catch_up()  # else the first answer is not of the thread that keeps items
        assert "sold" in (await recall(one, asked, scope=ANN, mode="words"))[0].item.content
        await other.delete("ann8")
        hits = await recall(one, asked, scope=ANN, mode="words")

        assert "ann8" not in {hit.item.id for hit in hits}


async def test_a_recall_of_a_conversation_reads_five_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(3)
    vocabulary = ["".join(dice.choices("abcdefghij", k=6)) for _ in range(300)]
    async with SQLiteMemoryStore(tmp_path / "talk.db", embeddings=EMBEDDINGS) as store:
        talk = items(400)
        for item in talk:  # no two alike: else the store is asked for others
            item.content = " ".join(dice.choices(vocabulary, k=8))
        await store.add_many(talk)
        assert await store.catch_up() == 0
        assert await recall(store, talk[7].content, scope=ANN)  # what is read once is read
        reads, read = [], store._file.read

        async def counted(*args: Any, **options: Any) -> Any:
            reads.append(args)
            return await read(*args, **options)

        monkeypatch.setattr(store._file, "read", counted)

        hits = await recall(store, talk[8].content, scope=ANN)

    assert hits[0].item.id == "ann8"
    assert len(reads) == 5  # newest, words, nearest, neighbours with cosines, word vectors


# Two versions over one file, whose terms differ

LISTED = "SELECT value FROM memory_meta WHERE key = 'listed_to'"


@contextmanager
def newer_version() -> Iterator[None]:
    """Have this process be of a version that makes other terms."""
    made = words.terms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "VERSION", words.VERSION + 1)
        patch.setattr(words, "terms", lambda text: [f"{term}z" for term in made(text)])
        yield


def made_by(path: Path) -> int:
    return int(by_hand(path, "SELECT value FROM memory_meta WHERE key = 'terms'")[0][0])


async def ids(store: SQLiteMemoryStore, term: str, owner: MemoryMetadata = ANN) -> list[str]:
    found = await store.match_words([term], Query(metadata=owner, limit=50))
    return sorted(item.id for item in found.items)


async def test_an_older_version_leaves_the_terms_of_a_newer_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with SQLiteMemoryStore(path) as store:
        await store.add_many(items(3))
        assert await ids(store, "paint") == ["ann0", "ann1", "ann2"]
    with newer_version():
        async with SQLiteMemoryStore(path) as store:
            assert await ids(store, "paintz") == ["ann0", "ann1", "ann2"]

    async with SQLiteMemoryStore(path) as older:
        await older.add(HumanMemory(id="ann3", content="painting more", metadata=ANN))
        await older.delete("ann1")
        assert await ids(older, "paint") == ["ann0", "ann2", "ann3"]
        assert (await older.verify()).problems == ()

    assert made_by(path) == words.VERSION + 1
    with newer_version():
        async with SQLiteMemoryStore(path) as store:
            assert await ids(store, "paintz") == ["ann0", "ann2", "ann3"]
            assert (await store.verify()).problems == ()


async def test_a_running_older_version_writes_beside_a_newer_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with SQLiteMemoryStore(path) as older:
        await older.add_many(items(600))
        assert len(await ids(older, "paint")) == 50
        for turn in range(3):
            with newer_version():
                async with SQLiteMemoryStore(path) as newer:
                    assert len(await ids(newer, "paintz")) == 50
                    assert await ids(newer, "zebraz") == [f"more{n}" for n in range(turn)]
                    assert (await newer.verify()).problems == ()
                listed = by_hand(path, LISTED)
            more = HumanMemory(id=f"more{turn}", content="zebra", metadata=ANN)
            await older.add(more)
            await older.add(HumanMemory(id=f"ann{turn}", content="changed", metadata=ANN))
            assert await ids(older, "zebra") == [f"more{n}" for n in range(turn + 1)]
            await older.catch_up()
            assert made_by(path) == words.VERSION + 1
            assert by_hand(path, LISTED) == listed


def list_as_older(path: Path, places: str, *, was: str | None = None) -> None:
    """Do what a version that looks at no mark does when it lists rows: under its own terms.

    With *was*, they are rows whose text that was, which were noted to be listed again.
    """
    with closing(sqlite3.connect(path)) as file, file:
        rows = file.execute(f"SELECT rowid, content FROM memory_items WHERE rowid {places}")
        for place, content in rows.fetchall():
            for text, sign in ((was, -1), (content, 1)):
                if text is None:
                    continue
                old = [f"{term}old" for term in words.terms(text)]
                who = term_index.owner("ann")
                document = " ".join([who, *old, *[who + each for each in old]])
                put = "(rowid, terms) VALUES (?, ?)"
                take = "(memory_terms, rowid, terms) VALUES ('delete', ?, ?)"
                sql = f"INSERT INTO memory_terms {put if sign > 0 else take}"
                file.execute(sql, (place * term_index.PASSAGES, document))
                file.executemany(
                    "INSERT INTO memory_owners VALUES (?1, ?2)"
                    " ON CONFLICT (token) DO UPDATE SET passages = passages + excluded.passages",
                    [(who, sign), ("_", sign)],
                )
                file.executemany(
                    "INSERT INTO memory_counts VALUES (?1, ?2)"
                    " ON CONFLICT (owner) DO UPDATE SET items = items + excluded.items",
                    [("ann", sign), (1, sign)],
                )
            file.execute("DELETE FROM memory_unlisted WHERE place = ?", [place])
            if was is None:
                file.execute("UPDATE memory_meta SET value = ? WHERE key = 'listed_to'", [place])


async def test_rows_that_an_older_version_lists_are_listed_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with SQLiteMemoryStore(path) as store:
        with store._file.without_chores():
            await store.add_many(items(30))
            assert len(await ids(store, "paint")) == 30
            new, changed = (
                HumanMemory(id=id, content="a zebra", metadata=ANN) for id in ("new", "ann3")
            )
            await store.add(new)
            list_as_older(path, "= 31")
            assert await ids(store, "zebra") == ["new"]
            assert (await store.verify()).problems == ()

            await store.add(changed)
            list_as_older(path, "= 4", was="painting number 3 by ann")
            assert await ids(store, "zebra") == ["ann3", "new"]
            assert await ids(store, "3") == []
            assert (await store.verify()).problems == ()

            await store.add(HumanMemory(id="last", content="a zebra", metadata=ANN))
            list_as_older(path, "= 32")
    async with SQLiteMemoryStore(path) as store:
        assert await ids(store, "zebra") == ["ann3", "last", "new"]
        assert await store.erase(item_ids=["last"])
        assert (await store.verify()).problems == ()


async def test_idle_time_is_enough_to_list_again_what_an_older_version_listed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.db"
    async with SQLiteMemoryStore(path) as store:
        await store.add_many(items(600))
        assert len(await ids(store, "paint")) == 50
        by_hand(path, "INSERT INTO memory_owners VALUES ('_', 0)")

        await store.add(HumanMemory(content="more", metadata=ANN))  # what wakes the writer

        await until(lambda: not by_hand(path, "SELECT 1 FROM memory_owners WHERE token = '_'"))
        await until(lambda: 601 - by_hand(path, LISTED)[0][0] < term_index.CHUNK)


async def test_what_an_older_version_erases_leaves_no_term_of_a_newer_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    secret = HumanMemory(id="s", content="xylophone", metadata=ANN)
    with newer_version():
        async with SQLiteMemoryStore(path) as store:
            await store.add_many([*items(9), secret])
            assert await ids(store, "xylophonz") == ["s"]

    async with SQLiteMemoryStore(path) as older:
        await older.erase(item_ids=["s"])

    assert b"xylophonz" not in path.read_bytes()
    with newer_version():
        async with SQLiteMemoryStore(path) as store:
            assert await ids(store, "xylophonz") == []
            assert len(await ids(store, "paintz")) == 9
            assert (await store.verify()).problems == ()


async def test_while_the_index_is_rebuilt_a_user_with_few_memories_waits_for_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_search, "REBUILD", 64)
    path = tmp_path / "agent.db"
    async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
        await store.add_many([*items(300, "bob"), *items(4)])
        await store.catch_up()

    with newer_version():
        async with SQLiteMemoryStore(path, embeddings=EMBEDDINGS) as store:
            with store._file.without_chores():
                await store.add(items(5)[4])
                await store.catch_up(within=0.0)  # as a recall does for vectors
                found = await recall(store, "painting number 2", scope=ANN)
                assert {hit.item.id for hit in found} == {f"ann{n}" for n in range(5)}
                await check_words(store, ["paintz", "7z", "annz"], Query(metadata=ANN, limit=9))
                assert by_hand(path, LISTED) == [(0,)]

                assert len(await ids(store, "bobz", BOB)) == 50  # too many to read each
                assert by_hand(path, LISTED) == [(305,)]
                assert (await store.verify()).problems == ()
