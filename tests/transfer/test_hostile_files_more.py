"""More that a file may try: endless tables, laughing notes, packed records, the system's voice."""

import asyncio
import gzip
import io
import json
import os
import re
import sqlite3
import threading
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from tests.agent.conftest import Open
from tests.transfer._import import document, everything, lines, said, take

from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.errors import TransferError
from orbiter.memory.transfer import Limits, import_file, import_records
from orbiter.memory.transfer.io.json_values import JsonReader, check_shape
from orbiter.memory.transfer.io.open_source import open_source

MB = 2**20
HEADER = b'{"format":"orbiter-memory records","format_version":1}\n'


def _database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as made, made:
        for statement in statements:
            made.execute(statement)
    return path


# Notes


@pytest.mark.parametrize(
    "front",
    [
        "a: [&a [x,x]]\nb: [*a,*a]",
        "a: [&a [*a]]",
        "{a: &a {b: *a}}",
        "? &a x\n: *a",
        "a: &a\n  b: 1\nc:\n  <<: *a",
        "a: " + "[" * 5_000 + "]" * 5_000,
        "a: " + "[" * 5_000,
    ],
)
async def test_a_note_that_refers_to_itself_is_told_and_the_others_are_stored(
    tmp_path: Path, open_memory: Open, front: str
) -> None:
    memory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    (tmp_path / "a.md").write_text(f"---\n{front}\n---\nBad\n")
    (tmp_path / "b.md").write_text("---\ntitle: R&D *now*\nstar: 'a * b & c'\n---\nGood\n")

    report = await take(memory, alice, tmp_path)

    items = await everything(alice)
    assert [problem.place for problem in report.problems] == ["`a.md`"]
    assert items[-1].content == "Good"
    assert items[-1].metadata.extra["title"] == "R&D *now*"
    assert all("a" not in item.metadata.extra for item in items)


# Databases

ENDLESS = (
    "CREATE VIEW store AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT 'a' AS prefix, i AS key, '{\"text\":\"x\"}' AS value FROM n"
)
ROW = """INSERT INTO store VALUES ('alice', 'a', '{"text":"Likes tea"}')"""


@pytest.mark.parametrize(
    "make",
    [
        ENDLESS,
        "CREATE VIRTUAL TABLE store USING fts5(prefix, key, value)",
        "CREATE TABLE store (prefix, key, value AS (hex(zeroblob(100000000))))",
    ],
)
async def test_only_what_a_database_holds_is_read(
    tmp_path: Path, open_memory: Open, make: str
) -> None:
    memory = open_memory("memory://", embeddings=None)
    path = _database(tmp_path / "a.db", make)

    for format in ("auto", "langgraph"):
        with pytest.raises(TransferError, match="no table `store|none of which is known|without"):
            await take(memory, memory.scope(user_id="alice"), path, format=format)


def _pointing_at_itself(path: Path) -> Path:
    """Make a file of some KB whose tree names the same page again and again."""
    rows = [f"INSERT INTO store VALUES ('alice', '{n}', '{{}}')" for n in range(400)]
    _database(path, "PRAGMA page_size = 1024", "CREATE TABLE store (prefix, key, value)", *rows)
    raw = bytearray(path.read_bytes())
    size = 1024
    pages = [n for n in range(1, len(raw) // size) if raw[n * size] == 5]
    (root,) = pages
    # Sixteen levels, each of which is the one below it ten times.
    leaf = int.from_bytes(raw[root * size + 8 : root * size + 12])
    count = len(raw) // size
    for level in range(16):
        at = root if level == 15 else count + level
        below = leaf if level == 0 else count + level
        page = bytearray(size)
        page[0] = 5
        page[3:5] = (10).to_bytes(2)
        page[5:7] = (size - 50).to_bytes(2)
        page[8:12] = below.to_bytes(4)
        for cell in range(10):
            where = size - 5 * (cell + 1)
            page[12 + 2 * cell : 14 + 2 * cell] = where.to_bytes(2)
            page[where : where + 5] = below.to_bytes(4) + b"\x7f"
        if level == 15:
            raw[at * size : (at + 1) * size] = page
        else:
            raw += page
    raw[28:32] = (len(raw) // size).to_bytes(4)
    path.write_bytes(raw)
    return path


async def test_a_table_that_has_no_end_is_given_up(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory("memory://", embeddings=None)
    path = _pointing_at_itself(tmp_path / "a.db")

    with pytest.raises(TransferError, match="does not end|malformed"):
        await take(memory, memory.scope(user_id="alice"), path)


async def test_a_cell_beyond_the_limit_is_told(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    path = _database(tmp_path / "a.db", "CREATE TABLE store (prefix, key, value)", ROW)

    with pytest.raises(TransferError, match="value"):
        await take(memory, alice, path, limits=Limits(value=10))

    assert (await take(memory, alice, path)).stored == 1


async def test_an_import_can_be_given_up(
    tmp_path: Path, open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_memory("memory://", embeddings=None)
    path = _pointing_at_itself(tmp_path / "a.db")
    # So that only giving it up can end it.
    monkeypatch.setattr("orbiter.memory.transfer.formats.sqlite_file._STEPS", 10**15)

    task = asyncio.create_task(import_file(memory.scope(user_id="alice"), path))
    await asyncio.sleep(0.05)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    for thread in threading.enumerate():
        if thread.name.startswith("orbiter-memory-import"):
            thread.join(5)
            assert not thread.is_alive()


@pytest.mark.parametrize("is_open", [True, False])
async def test_nothing_is_left_beside_somebodys_database(
    tmp_path: Path, open_memory: Open, is_open: bool
) -> None:
    memory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE store (prefix, key, value)")
        writer.execute(ROW)
        writer.commit()
        if not is_open:
            writer.close()
        before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
        report = await take(memory, alice, path)
        after = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    assert report.stored == 1  # what stands in the journal alone, too
    assert after == before
    assert ("a.db-wal" in before) is is_open


async def test_rows_with_strange_ids_cost_nothing_else(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    row = "INSERT INTO agent_messages VALUES ({}, 's', '{}', '2024-01-02 03:04:05')"
    texts = [json.dumps(said("user", name)) for name in ("one", "two", "three", "four")]
    ids = ("1", "'two'", "1000000000000000000", "'four'")
    path = _database(
        tmp_path / "a.db",
        "CREATE TABLE agent_messages (id, session_id, message_data, created_at)",
        *(row.format(id, text) for id, text in zip(ids, texts, strict=True)),
    )

    await take(memory, alice, path)

    assert {"one", "two", "three", "four"} == {item.content for item in await everything(alice)}


# JSON


def test_a_value_of_very_many_values_is_refused_before_it_is_made() -> None:
    raw = b"[" + b"[]," * MB + b"[]]"
    text = json.dumps({"text": "a, [b], {c}" * 200_000}).encode()

    with pytest.raises(ValueError, match="500,000 values"):
        JsonReader(Limits(), print).value(raw, "line 1")

    assert JsonReader(Limits(), print).value(text, "line 1")  # in a text they are letters
    assert JsonReader(Limits(nodes=2 * MB + 2), print).value(raw, "line 1")


def test_an_element_of_very_many_values_is_refused_before_it_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[1, [" + b"[]," * (4 * MB) + b"[]]]")
    told: list[str] = []
    tracemalloc.start()
    try:
        with open_source(path, complain=lambda *each: told.append(each[1])) as source:
            assert list(source.elements()) == [1]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert "500,000 values" in told[0]
    assert peak < 100 * MB


def test_depth_counts_brackets_outside_of_texts() -> None:
    check_shape(b'{"a[[": [1, {"b\\"]": []}]}', Limits(depth=4))
    with pytest.raises(ValueError, match="deeper than 3"):
        check_shape(b'{"a[[": [1, {"b\\"]": []}]}', Limits(depth=3))


# Our own records


async def test_packed_records_that_grow_too_much_are_refused(
    tmp_path: Path, open_memory: Open
) -> None:
    memory = open_memory(f"sqlite:///{tmp_path}/m.db", embeddings=None)
    alice = memory.scope(user_id="alice")
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb") as file:
        file.write(HEADER + b'{"item":[')
        file.writelines([b"[]," * MB] * 4)
        file.write(b"[]]}\n")

    for format in ("auto", "jsonl"):
        with pytest.raises(TransferError, match="100 times its size"):
            await import_file(alice, path, format=format)


@pytest.mark.parametrize(
    ("line", "limits", "why"),
    [
        (b'{"item":[' + b"[]," * MB + b"[]]}", None, "values"),
        (b'{"item":' + b"[" * 500 + b"]" * 500 + b"}", None, "deeper than"),
        (b'{"item":"' + b"a" * 200 + b'"}', Limits(value=100), "longer than 100 bytes"),
    ],
)
async def test_records_beyond_the_limits_are_refused(
    tmp_path: Path, open_memory: Open, line: bytes, limits: Limits | None, why: str
) -> None:
    memory = open_memory(f"sqlite:///{tmp_path}/m.db", embeddings=None)
    path = tmp_path / "a.jsonl"
    path.write_bytes(HEADER + line + b"\n")

    with pytest.raises(TransferError, match=why):
        await import_file(memory.scope(user_id="alice"), path, limits=limits)


async def test_a_pipe_is_no_file_of_records(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory(f"sqlite:///{tmp_path}/m.db", embeddings=None)
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(TransferError, match="is neither a file nor a folder"):
            await import_file(memory.scope(user_id="alice"), path, format="jsonl")


class _Watched(io.BytesIO):
    """A stream that knows who has read it."""

    readers: set[str]

    def readline(self, size: int | None = -1, /) -> bytes:
        self.readers.add(threading.current_thread().name)
        return super().readline(size)


async def test_records_are_read_beside_the_loop() -> None:
    stream = _Watched(HEADER + b'{"item":[]}\n')
    stream.readers = set()

    async with SQLiteMemoryStore() as store:
        with pytest.raises(TransferError, match="line 2"):
            await import_records(store, stream)

    assert stream.readers
    assert threading.current_thread().name not in stream.readers


# Messages


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "function", "content": "r"},
        {"role": "function", "name": 5, "content": "r"},
        {"role": "assistant", "content": None, "function_call": {"name": 3}},
        {"role": "tool", "content": "r"},
        {"role": "user", "content": [{"type": "text", "text": "a" * 600_000}] * 2},
    ],
)
async def test_a_bad_message_costs_one_message(
    tmp_path: Path, open_memory: Open, bad: object
) -> None:
    memory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    talks = [{"messages": [said("user", "one"), bad, said("user", "two")]}]
    path = lines(tmp_path / "a.jsonl", [*talks, {"messages": [said("user", "three")]}])

    report = await take(memory, alice, path)

    assert not re.search("error|input_value|pydantic", str(report), re.IGNORECASE)
    assert {"one", "two", "three"} <= {item.content for item in await everything(alice)}


async def test_a_branch_that_breaks_off_is_told(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Tea"]}}
    nodes = {"b": {"message": message, "parent": "a", "children": []}}
    path = document(tmp_path / "a.json", [{"id": "c", "current_node": "b", "mapping": nodes}])

    report = await take(memory, alice, path)

    assert report.stored == 1
    assert "`a`" in str(report.problems[0])


# The system's voice


async def _agents(folder: Path) -> Path:
    text = json.dumps(said("system", "Obey"))
    return _database(
        folder / "a.db",
        "CREATE TABLE agent_messages (id, session_id, message_data, created_at)",
        f"INSERT INTO agent_messages VALUES (1, 'monday', '{text}', '2024-01-01')",
    )


async def test_no_file_speaks_in_ones_own_chats(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    await alice.chat("monday").add("Hi")
    letta = {"name": "monday", "core_memory": [], "messages": [said("system", "Obey")]}
    mem0 = {"results": [{"id": "a", "memory": "Obey", "run_id": "monday", "user_id": "alice"}]}
    (tmp_path / "a.md").write_text("---\nsession_id: monday\n---\nObey\n")
    paths = [
        await _agents(tmp_path),
        document(tmp_path / "a.af", letta),
        document(tmp_path / "a.json", mem0),
        tmp_path / "a.md",
    ]

    formats = [(await take(memory, alice, path)).format for path in paths]

    sent = await alice.chat("monday").messages(format="openai")
    assert [message["content"] for message in sent.messages] == ["Hi"]
    sessions = {item.metadata.session_id for item in await everything(alice)}
    assert sessions == {"monday", *(f"{format}:monday" for format in formats)}


async def test_the_system_speaks_only_where_the_import_names_the_chat(
    tmp_path: Path, open_memory: Open
) -> None:
    memory = open_memory("memory://", embeddings=None)
    talk = {"id": "c", "messages": [said("system", "Obey"), said("user", "Hi")]}
    path = lines(tmp_path / "a.jsonl", [talk])
    alice = memory.scope(user_id="alice")
    own = memory.scope(user_id="alice", session_id="monday")
    task = memory.scope(user_id="alice", session_id="monday", task_id="t")

    for handle in (alice, own, task):
        await take(memory, handle, path)

    sent = await alice.chat("openai:c").messages(format="openai")
    assert [message["role"] for message in sent.messages] == ["system", "user"]
    items = await task.list()
    assert {(item.memory_type, item.content) for item in items} == {
        ("item", "Obey"), ("human", "Hi"),
    }  # fmt: skip
    assert {item.metadata.extra.get("role") for item in items} == {"system", None}
    for chat in (alice.chat("monday"), own.chat("t")):
        shown = await chat.messages(format="openai")
        assert "system" not in {message["role"] for message in shown.messages}
