"""Imports from other programs: what is kept and lost, and what a file may not set."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Open
from tests.transfer._import import document, everything, lines, places, said, take

from orbiter.memory import AgentMemory, SQLiteMemoryStore
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError, StorageError, TransferError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.trust import Trust, trust_of
from orbiter.memory.transfer import export_file, import_file


@pytest.fixture
def memory(open_memory: Open, tmp_path: Path) -> AgentMemory:
    return open_memory(f"sqlite:///{tmp_path}/m.db", embeddings=None)


@pytest.fixture
def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


def _mem0(path: Path, *records: dict[str, Any], **beside: object) -> Path:
    rows = [{"id": str(n), "user_id": "alice", **each} for n, each in enumerate(records)]
    return document(path, {"results": rows, **beside})


async def _by_text(handle: ScopedMemory) -> dict[str, MemoryItem]:
    return {item.content: item for item in await everything(handle)}


# When it ends


async def test_a_memory_of_mem0_ends_when_it_did_there(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = _mem0(
        tmp_path / "a.json",
        {"memory": "a day", "expiration_date": "2999-01-31"},
        {"memory": "an instant", "expiration_date": "2999-01-31T12:00:00+02:00"},
        {"memory": "the last day", "expiration_date": "9999-12-31"},
        {"memory": "over", "expiration_date": "2024-01-31"},
        {"memory": "no time", "expiration_date": "soon"},
    )

    report = await take(memory, alice, path)

    ends = {text: item.expires_at for text, item in (await _by_text(alice)).items()}
    assert ends == {
        "a day": datetime(2999, 2, 1, tzinfo=UTC),  # mem0 counts the day itself
        "an instant": datetime(2999, 1, 31, 10, tzinfo=UTC),
        "the last day": datetime(9999, 12, 31, tzinfo=UTC),
        "no time": None,
    }
    assert (report.stored, report.skipped) == (4, 1)
    assert {str(each) for each in report.problems} == {
        "`3`: it expired on 2024-02-01 00:00 UTC",
        "memory 5: its `expiration_date` is not a valid time: 'soon'",
    }


async def test_what_is_over_in_a_store_of_langgraph_is_told_and_so_are_checkpoints(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE store (prefix, key, value, expires_at)")
        made.execute("CREATE TABLE checkpoints (thread_id, checkpoint)")
        over = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        for key, end in (("kept", None), ("gone", over)):
            value = json.dumps({"text": key})
            made.execute("INSERT INTO store VALUES ('m.alice', ?, ?, ?)", [key, value, end])

    report = await take(memory, alice, path)

    assert list(await _by_text(alice)) == ["kept"]
    assert report.problems[0].place == "table `checkpoints`"
    assert "expired on" in report.problems[1].why


# Whose it is


async def test_two_owners_with_the_same_ids_do_not_overwrite_each_other(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    for owner in ("u1", "u2"):
        path = _mem0(tmp_path / f"{owner}.json", {"memory": f"of {owner}", "user_id": owner})
        report = await take(memory, alice, path, owner=owner)
        assert (report.stored, report.updated) == (1, 0)

    assert set(await _by_text(alice)) == {"of u1", "of u2"}


async def test_who_imports_it_makes_no_other_memory_of_it(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = _mem0(tmp_path / "a.json", {"memory": "one"}, {"memory": "two", "run_id": "trip"})
    await take(memory, alice, path)

    for handle in (memory.unscoped(), memory.scope(user_id="alice")):
        report = await take(memory, handle, path)
        assert (report.stored, report.unchanged) == (0, 2)
    report = await take(memory, memory.unscoped(), path, owner="alice")
    assert (report.stored, report.unchanged) == (0, 2)


async def test_nobodys_memories_are_not_stored_unasked(memory: AgentMemory, tmp_path: Path) -> None:
    everyone = memory.unscoped()
    chat = lines(tmp_path / "chat.jsonl", [said("user", "hello")])
    nobody = document(tmp_path / "a.json", [{"memory": "x", "hash": "h"}])
    some = document(
        tmp_path / "b.json", [{"memory": "y", "user_id": "bob"}, {"memory": "z", "hash": "h"}]
    )

    for path in (chat, nobody):
        with pytest.raises(TransferError, match=r"whose memories.*`memory.scope\(user_id=…\)`"):
            await import_file(everyone, path)
    report = await take(memory, everyone, some)

    assert (report.stored, report.skipped) == (1, 1)
    assert "1 memories without an owner were not imported" in str(report)
    assert [item.content for item in await everything(everyone)] == ["y"]
    await export_file(memory.scope(user_id="bob"), tmp_path / "own.jsonl")
    assert (await import_file(everyone, tmp_path / "own.jsonl")).unchanged == 1


@pytest.mark.parametrize("move", [import_file, export_file])
async def test_only_a_handle_can_be_moved_into(
    move: Any, memory: AgentMemory, tmp_path: Path
) -> None:
    with pytest.raises(QueryError, match=r"needs to know whose.*`memory.scope\(user_id=…\)`"):
        await move(memory, tmp_path / "a.jsonl")
    with pytest.raises(QueryError, match=r"takes a handle .*not a `str`"):
        await move("sqlite:///agent.db", tmp_path / "a.jsonl")


async def test_what_is_no_path_is_said_so(alice: ScopedMemory) -> None:
    found: Any = {"results": []}
    with pytest.raises(QueryError, match=r"not a `dict`; write it to one first: `json.dump"):
        await import_file(alice, found)
    for path in (b"a.json", "", 5):
        with pytest.raises(QueryError, match="takes the path of a file or a folder"):
            await import_file(alice, path)  # type: ignore[arg-type]  # that is the test


async def test_a_label_says_whose_rows_of_langgraph_are_where_the_handle_does_not(
    memory: AgentMemory, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE store (prefix, key, value)")
        for user in ("alice", "bob"):
            value = json.dumps({"text": f"of {user}"})
            made.execute("INSERT INTO store VALUES (?, 'k', ?)", [f"memories.{user}", value])

    with pytest.raises(TransferError, match="does not say whose"):
        await take(memory, memory.unscoped(), path)
    report = await take(memory, memory.unscoped(), path, owner="bob")

    assert (report.stored, report.skipped) == (1, 1)
    assert set(await _by_text(memory.scope(user_id="bob"))) == {"of bob"}


async def test_what_was_taken_back_is_counted_and_can_be_restored(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = _mem0(tmp_path / "a.json", {"memory": "one"}, {"memory": "two"})
    await take(memory, alice, path)
    await alice.undo("import:mem0")

    report = await take(memory, alice, path)

    assert (report.stored, report.skipped, report.forgotten) == (0, 2, 2)
    assert "2 were forgotten here and stay forgotten; `list(forgotten=True)` shows them" in str(
        report
    )
    for item in await alice.list(forgotten=True):
        await alice.restore(item.id)
    assert set(await _by_text(alice)) == {"one", "two"}


# What it says


async def test_a_graph_of_mem0_becomes_memories_of_its_owner(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    graph: list[object] = [
        {"source": "alice", "relationship": "works_at", "target": "acme"},
        {"source": "acme", "relationship": "makes", "destination": "tea"},
        {"source": "acme"},
    ]
    ours = _mem0(tmp_path / "a.json", {"memory": "x"}, relations=graph)
    first = tmp_path / "b.json"
    first.write_text(json.dumps({"relations": graph, **json.loads(ours.read_text())}))
    both = _mem0(
        tmp_path / "c.json", {"memory": "x"}, {"memory": "b", "user_id": "bob"}, relations=graph
    )
    bob, carol = memory.scope(user_id="bob"), memory.scope(user_id="carol")

    report = await take(memory, alice, ours)
    again = await take(memory, alice, first)
    shared = await take(memory, bob, both)

    items = await _by_text(alice)
    assert set(items) == {"x", "alice works at acme", "acme makes tea"}
    assert items["acme makes tea"].metadata.extra["relation"] == {
        "from": "acme",
        "relationType": "makes",
        "to": "tea",
    }
    assert places(report) == ["relation 3"]
    assert (again.stored, again.unchanged) == (0, 3)
    assert set(await _by_text(bob)) == {"b"}
    assert "relation 1: the file has memories of several people" in str(shared)
    with pytest.raises(TransferError, match="no memories of `carol`, only of `alice`"):
        await take(memory, carol, ours)


async def test_what_is_empty_or_of_no_time_is_told(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = _mem0(
        tmp_path / "a.json",
        {"memory": ""},
        {"note": "x"},
        {"memory": "kept", "created_at": "yesterday"},
    )

    report = await take(memory, alice, path)

    assert [str(each) for each in report.problems] == [
        "memory 1: it is empty",
        "memory 2: it has none of `memory`, `text`, `content`, `data`",
        "memory 3: its `created_at` is not a valid time: 'yesterday'",
    ]
    assert report.stored == 1


async def test_keys_that_mean_something_here_are_checked(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    path = _mem0(
        tmp_path / "a.json",
        {"memory": "good", "metadata": {"importance": 1, "tags": ["a", "b"]}},
        {"memory": "text", "metadata": {"importance": 0.5, "tags": "a, #b,"}},
        {"memory": "bad", "metadata": {"importance": 7, "tags": ["a", {"b": 1}]}},
        {"memory": "worse", "metadata": {"importance": "high", "tags": {"a": 1}}},
        {
            "memory": "liar",
            "metadata": {"source": "user", "trust": 5, "fact": "tea", "imported": "1"},
        },
    )

    report = await take(memory, alice, path)

    extras = {text: item.metadata.extra for text, item in (await _by_text(alice)).items()}
    assert (extras["good"]["importance"], extras["good"]["tags"]) == (1, ["a", "b"])
    assert (extras["text"]["importance"], extras["text"]["tags"]) == (0.5, ["a", "b"])
    assert extras["bad"].keys().isdisjoint({"importance", "tags"})
    assert extras["bad"]["mem0_importance"] == 7
    assert extras["bad"]["mem0_tags"] == ["a", {"b": 1}]
    assert extras["worse"]["mem0_importance"] == "high"
    assert extras["liar"]["source"] == "import:mem0"
    assert extras["liar"]["mem0_source"] == "user"
    assert (extras["liar"]["mem0_fact"], "fact" in extras["liar"]) == ("tea", False)
    assert trust_of((await _by_text(alice))["liar"]) is Trust.IMPORT
    assert places(report) == ["`2`", "`2`", "`3`", "`3`", "`4`", "`4`"]
    assert (await take(memory, alice, path)).unchanged == 5


async def test_a_note_is_never_lost_for_its_front_matter(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    texts = {
        "bad.md": "---\na: [1\n---\nbody",
        "bomb.md": "---\na: &a [x, x]\nb: [*a, *a]\n---\nbody",
        "month.md": "---\ndate: 2024-13-45 10:00:00\n---\nbody",
        "rules.md": "---\njust words\n---\nbody",
        "numbers.md": "---\ntags: [2024, tea]\n---\nbody",
    }
    for name, text in {**texts, "empty.md": " \n", "bare.md": "---\na: 1\n---\n"}.items():
        (notes / name).write_text(text)
    (notes / "photo.png").write_bytes(b"\x89PNG")

    report = await take(memory, alice, notes, format="markdown")

    items = {str(item.metadata.extra["note"]): item for item in await everything(alice)}
    for name in ("bad.md", "bomb.md", "month.md", "rules.md"):
        assert items[name].content == texts[name]
    assert items["numbers.md"].metadata.extra["tags"] == ["2024", "tea"]
    told = {each.place: each.why for each in report.problems}
    assert set(told) == {
        "`bad.md`", "`bare.md`", "`bomb.md`", "`empty.md`", "`month.md`", "`photo.png`",
    }  # fmt: skip
    assert told["`empty.md`"] == "it is empty"
    assert told["`photo.png`"] == "not read: not part of `markdown`"
    assert "the note was taken whole" in told["`bad.md`"]


async def test_every_file_that_is_not_read_has_its_name_in_the_report(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path
) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "note.md").write_text("a note")
    for number in range(60):
        (folder / f"{number:02}.png").write_bytes(b"\x89PNG\xff\xff\xff\xff")

    report = await take(memory, alice, folder)

    (problem,) = report.problems
    assert problem.place.startswith("`00.png`, `01.png`, ")
    assert problem.place.endswith("`49.png` and 10 others")


# What is stopped


@pytest.mark.parametrize("kind", ["mem0", "native"])
async def test_an_import_that_is_cancelled_leaves_no_write_under_way(
    memory: AgentMemory, alice: ScopedMemory, tmp_path: Path, kind: str, open_memory: Open
) -> None:
    path = _mem0(tmp_path / "a.json", {"memory": "tea"}, {"memory": "milk"})
    if kind == "native":
        other = open_memory(f"sqlite:///{tmp_path}/other.db", embeddings=None).scope("alice")
        await other.remember_many(["tea", "milk"])
        path = tmp_path / "a.jsonl"
        await export_file(other, path)
    await memory.init()
    store: Any = memory.store
    name = "put_records" if kind == "native" else "insert"
    write, begun, may_end = getattr(store, name), asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **options: Any) -> Any:
        begun.set()
        await may_end.wait()
        return await write(*args, **options)

    setattr(store, name, slow)
    work = asyncio.ensure_future(import_file(alice, path))
    await begun.wait()
    work.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert (await alice.stats()).items == 2


async def test_an_import_that_fails_says_how_much_was_stored_and_goes_on_when_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, out = tmp_path / "notes.csv", tmp_path / "out.jsonl"
    table.write_text("text\n" + "".join(f"note {number}\n" for number in range(1_200)))
    async with AgentMemory(tmp_path / "a.db", embeddings=None) as memory:
        ann = memory.scope("ann")
        insert, calls = SQLiteMemoryStore.insert, count()

        async def fails_later(self: SQLiteMemoryStore, *args: Any, **more: Any) -> Any:
            if next(calls) in (0, 3):
                raise StorageError("the disk is full")
            return await insert(self, *args, **more)

        monkeypatch.setattr(SQLiteMemoryStore, "insert", fails_later)
        with pytest.raises(StorageError) as at_once:
            await import_file(ann, table)
        with pytest.raises(StorageError) as failed:
            await import_file(ann, table)
        kept = (await ann.stats()).items
        done = await import_file(ann, table)
        await export_file(ann, out)

    assert not hasattr(at_once.value, "__notes__")
    assert failed.value.__notes__ == [
        (
            f"{kept:,} from this file were stored before this, and stay; import it again to "
            "continue: nothing is stored twice"
        )
    ]
    assert (done.stored, done.unchanged) == (1_200 - kept, kept)
    put, calls = SQLiteMemoryStore.put_records, count()

    async def fails_at_second(self: SQLiteMemoryStore, *args: Any, **more: Any) -> Any:
        if next(calls) == 1:
            raise StorageError("the disk is full")
        return await put(self, *args, **more)

    monkeypatch.setattr(SQLiteMemoryStore, "put_records", fails_at_second)
    async with AgentMemory(tmp_path / "b.db", embeddings=None) as memory:
        with pytest.raises(StorageError) as failed:
            await import_file(memory.scope("ann"), out)
        kept = (await memory.scope("ann").stats()).items
    assert failed.value.__notes__[0].startswith(f"{kept:,} from this file were stored")
