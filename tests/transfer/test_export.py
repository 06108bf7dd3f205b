"""Exports for other programs: all current memories, and nothing else."""

import csv
import gzip
import json
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from tests.rows import each_row

from orbiter.memory import (
    AgentMemory,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    ToolMemory,
)
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent.interface import session_of
from orbiter.memory.errors import StorageError, TransferError
from orbiter.memory.model.derived import ExtractionMemory, SummaryMemory
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.transfer import export_file, import_file
from orbiter.memory.transfer.export_formats import safe_cell
from orbiter.memory.transfer.io.output_file import new_file, new_folder

NOW = datetime.now(UTC)
YEAR = timedelta(days=365)


@pytest.fixture
async def alice(tmp_path: Path) -> AsyncIterator[ScopedMemory]:
    async with AgentMemory(tmp_path / "agent.db", embeddings=None, summaries=None) as memory:
        yield memory.scope(user_id="alice")


async def _store(handle: ScopedMemory, *items: MemoryItem) -> None:
    session = session_of(handle)
    core, scope = session.core, session.scope
    store = await core.opened(scope)
    await store.add_many(items)


async def _rows(handle: ScopedMemory, path: Path) -> list[dict[str, str]]:
    await export_file(handle, path)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


async def _written(handle: ScopedMemory, folder: Path) -> dict[str, str]:
    """Return everything that each format says."""
    said = {}
    for format in ("csv", "mcp", "openai", "markdown"):
        await export_file(handle, folder / format, format=format)
        inner = [folder / format] if (folder / format).is_file() else folder.rglob("*.md")
        said[format] = "\n".join(path.read_text(encoding="utf-8") for path in sorted(inner))
    return said


def _front(path: Path) -> dict[str, object]:
    _, head, _ = path.read_text(encoding="utf-8").split("---\n", 2)
    found: dict[str, object] = yaml.safe_load(head)
    return found


async def _facts(alice: ScopedMemory) -> None:
    facts = alice.facts
    await facts.put("employer", "Initech", valid_from=NOW - 3 * YEAR)
    await facts.put("employer", {"name": "Acme"}, valid_from=datetime(2024, 3, 1, tzinfo=UTC))
    await facts.put("employer", "Hooli", valid_from=NOW + YEAR)
    await facts.put("city", "Ghosttown")
    await facts.end("city")
    wrong = await facts.put("pet", "Unicorn")
    await facts.retract(wrong.id)
    await facts.put("visa", "Stamped", valid_from=NOW - 2 * YEAR, valid_to=NOW - YEAR)
    hidden = await facts.put("sport", "Quidditch")
    await alice.forget(hidden.id)
    source = await alice.remember("I may move to Atlantis")
    await facts.propose("home", "Proposed", source=source)
    turned_down = await facts.propose("job", "Discarded", source=source)
    assert turned_down is not None
    await facts.discard(turned_down.id)


AT_OTHER_TIMES = ("Initech", "Hooli", "Ghosttown", "Stamped")
GONE = ("Unicorn", "Quidditch", "Proposed", "Discarded")


async def test_tables_and_notes_have_facts_of_every_time_and_a_graph_those_of_now(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    await _facts(alice)

    said = await _written(alice, tmp_path)

    for format in ("csv", "mcp", "markdown"):
        assert "Acme" in said[format], format
        assert [word for word in GONE if word in said[format]] == [], format
    for format in ("csv", "markdown"):
        assert [word for word in AT_OTHER_TIMES if word not in said[format]] == [], format
    assert [word for word in AT_OTHER_TIMES if word in said["mcp"]] == []
    assert "(1 Mar 2024 to " in said["mcp"]
    assert "(1 Mar 2024 to " in said["markdown"]


async def test_a_row_of_a_table_tells_what_the_fact_says_and_when(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    await _facts(alice)
    await _store(
        alice, FactMemory(key="always", value=[1], metadata=MemoryMetadata(user_id="alice"))
    )

    table = await _rows(alice, tmp_path / "out.csv")
    rows = {row["key"]: row for row in table if "Initech" not in row["content"]}
    [before] = [row for row in table if "Initech" in row["content"]]
    rows["employer"] = next(row for row in table if "Acme" in row["content"])

    assert rows.keys() == {"employer", "always", "", "city", "visa"}
    assert (before["key"], before["valid_to"]) == ("employer", rows["employer"]["valid_from"])
    assert rows["city"]["valid_to"] != ""
    assert json.loads(rows["employer"]["value"]) == {"name": "Acme"}
    assert rows["employer"]["valid_from"] == "2024-03-01T00:00:00+00:00"
    assert rows["employer"]["valid_to"] == (NOW + YEAR).isoformat()  # another follows then
    assert "fact" not in json.loads(rows["employer"]["extra"])
    assert (rows["always"]["valid_from"], rows["always"]["valid_to"]) == ("", "")
    assert (rows[""]["value"], rows[""]["content"]) == ("", "I may move to Atlantis")


async def test_the_facts_of_each_scope_speak_for_themselves(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    await alice.facts.put("mood", "happy")
    await _store(
        alice,
        FactMemory(
            key="mood",
            value="tired",
            valid_from=NOW,
            metadata=MemoryMetadata(user_id="alice", session_id="late"),
        ),
    )

    rows = await _rows(alice, tmp_path / "out.csv")

    assert {(row["session_id"], row["value"]) for row in rows} == {
        ("", '"happy"'), ("late", '"tired"'),
    }  # fmt: skip


async def test_neither_bookkeeping_nor_drafts_go_out_but_the_native_file_has_them(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    whose = MemoryMetadata(user_id="alice", session_id="s")
    await alice.chat("s").add([HumanMemory(content="Hello")])
    await alice.forget((await alice.remember("Secret-forgotten")).id)
    await _store(
        alice,
        SummaryMemory(content="Secret-summary", metadata=whose),
        SummaryMemory(content="Secret-rolled", metadata=whose, status=MemoryStatus.ACCEPTED),
        ExtractionMemory(content="Secret-job", metadata=whose, status=MemoryStatus.ACCEPTED),
        MemoryItem(content="Secret-draft", metadata=whose, status=MemoryStatus.DRAFT),
        HumanMemory(content="Secret-no", metadata=whose, status=MemoryStatus.DISCARD),
    )

    said = await _written(alice, tmp_path)
    everything = await export_file(alice, tmp_path / "all.jsonl")

    assert all("Hello" in text and "Secret" not in text for text in said.values())
    assert everything.records == 7
    assert (tmp_path / "all.jsonl").read_text().count(
        '"content":"Secret-'
    ) == 7  # one has a version


async def test_the_ending_chooses_the_format(alice: ScopedMemory, tmp_path: Path) -> None:
    await alice.remember("x")
    names = ("a.csv", "a.CSV.gz", "a.jsonl", "a.jsonl.gz", "a", "a.gz", "notes/")

    for name in names:
        await export_file(alice, f"{tmp_path}/{name}")

    texts = {}
    for name in names[:-1]:
        data = (tmp_path / name).read_bytes()
        texts[name] = (gzip.decompress(data) if name.endswith("gz") else data).decode()
    assert [name for name, text in texts.items() if text.startswith("id,")] == ["a.csv", "a.CSV.gz"]
    assert texts["a.csv"] == texts["a.CSV.gz"]
    assert all("orbiter-memory records" in texts[name] for name in names[2:-1])
    assert len(list((tmp_path / "notes").glob("*.md"))) == 1


@pytest.mark.parametrize(
    ("name", "format", "why"),
    [
        ("a.csv", "jsonl", r"`\.csv`, which is not `jsonl` but `csv`"),
        ("a.csv.gz", "openai", r"`\.csv`, which is not `openai`"),
        ("a.jsonl", "csv", r"`\.jsonl`, which is not `csv` but `jsonl` or"),
        ("a.jsonl", "markdown", "which is not `markdown`"),
        ("a.gz", "markdown", r"`\.gz`, and `markdown` is a folder"),
        ("a.md", "csv", "which is not `csv` but `markdown`"),
        ("a.md", "auto", "notes are written as a folder"),
        ("a.xlsx", "auto", r"`\.xlsx`, which names no format.*`csv`"),
        ("a.tar.gz", "auto", r"`\.tar`, which names no format"),
        ("a", "word", "there is no format `word`.*`auto`, `jsonl`"),
    ],
)
async def test_a_name_and_a_format_that_disagree_are_refused(
    alice: ScopedMemory, tmp_path: Path, name: str, format: str, why: str
) -> None:
    with pytest.raises(TransferError, match=why):
        await export_file(alice, tmp_path / name, format=format)

    assert not (tmp_path / name).exists()


async def test_a_name_that_ends_in_gz_is_packed(alice: ScopedMemory, tmp_path: Path) -> None:
    await alice.chat("s").add([HumanMemory(content="Hello"), AIMemory(content="Hi")])

    for format in ("csv", "mcp", "openai"):
        await export_file(alice, tmp_path / f"{format}.gz", format=format)
        await export_file(alice, tmp_path / format, format=format)

        packed = (tmp_path / f"{format}.gz").read_bytes()
        assert gzip.decompress(packed) == (tmp_path / format).read_bytes()


async def test_a_label_of_the_users_never_takes_the_place_of_ours(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    labels = {
        "id": "fake", "created_at": "1999", "session_id": "other", "memory_type": "system",
        "valid_to": "never", "extra": 1, "colour": "🔵", "yes": "a\x85b\x7f", "strange: key": None,
    }  # fmt: skip
    item = await alice.remember("x", extra=labels)

    await export_file(alice, tmp_path / "notes", format="markdown")
    [note] = (tmp_path / "notes").glob("*.md")
    head = _front(note)

    assert (head["id"], head["memory_type"]) == (item.id, "item")
    assert head["created_at"] == item.created_at.isoformat()
    assert "session_id" not in head
    ours = ("id", "created_at", "session_id", "memory_type", "valid_to", "extra")
    assert head["extra"] == {name: labels[name] for name in ours}
    assert (head["colour"], head["yes"], head["strange: key"]) == ("🔵", "a\x85b\x7f", None)


async def test_notes_of_like_names_do_not_collide(alice: ScopedMemory, tmp_path: Path) -> None:
    whose = MemoryMetadata(user_id="alice")
    ids = ("one/000000000001", "two/000000000001", "two-000000000001")
    await _store(alice, *(MemoryItem(id=id, content="x", metadata=whose) for id in ids))

    done = await export_file(alice, tmp_path / "notes", format="markdown")

    assert done.records == len(list((tmp_path / "notes").glob("*.md"))) == 3


async def test_a_table_holds_calls_and_results(alice: ScopedMemory, tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    whose = MemoryMetadata(user_id="alice", session_id="s", extra={"tool_name": "mine", "a": 1})
    await alice.chat("s").add([HumanMemory(content="?"), AIMemory(content="", tool_calls=[call])])
    answer = ToolMemory(
        content="no", tool_call_id="c1", tool_name="f", is_error=True, metadata=whose
    )
    await _store(alice, answer)

    rows = {row["memory_type"]: row for row in await _rows(alice, tmp_path / "out.csv")}

    assert json.loads(rows["ai"]["extra"]) == {"tool_calls": [call]}
    assert json.loads(rows["tool"]["extra"]) == {
        "tool_call_id": "c1", "tool_name": "f", "is_error": True,
        "a": 1, "extra": {"tool_name": "mine"},
    }  # fmt: skip
    assert rows["human"]["extra"] == ""


async def test_a_conversation_keeps_its_title_in_notes(alice: ScopedMemory, tmp_path: Path) -> None:
    def said(role: str, text: str, parent: str | None) -> dict[str, object]:
        message = {"author": {"role": role}, "content": {"content_type": "text", "parts": [text]}}
        return {"id": text, "parent": parent, "message": {"id": text, **message}}

    mapping = {"Hi": said("user", "Hi", None), "Yo": said("assistant", "Yo", "Hi")}
    talk = {"id": "c", "title": 'A "trip" 🚂', "mapping": mapping, "current_node": "Yo"}
    (tmp_path / "conversations.json").write_text(json.dumps([talk]))
    await import_file(alice, tmp_path / "conversations.json")

    await export_file(alice, tmp_path / "notes", format="markdown")

    [note] = (tmp_path / "notes" / "conversations").iterdir()
    assert _front(note)["title"] == 'A "trip" 🚂'
    assert "-a-trip-" in note.name


@each_row(
    "text",
    ["=1", "  =1", "\u00a0\u200b@x", "＝1", "＋1", "－1", "＠x", "'x", "''", "\tx", " \r\n-1"],
)
def test_a_cell_that_could_be_a_formula_is_quoted_and_can_be_read_back(text: str) -> None:
    assert safe_cell(text) == f"'{text}"
    assert safe_cell(safe_cell(text)) == f"''{text}"  # one is added, one can be taken away


@each_row("text", ["x", "1-1", " x", "a=b", "it's", ""])
def test_a_plain_cell_is_left_as_it_is(text: str) -> None:
    assert safe_cell(text) == text


async def test_an_error_of_the_store_is_told_as_its_own(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    await alice.remember("x")
    with sqlite3.connect(tmp_path / "agent.db") as db:
        db.execute("ALTER TABLE memory_versions RENAME TO elsewhere")
    db.close()

    for make in (new_file, new_folder):
        refused = pytest.raises(TransferError, match="`.*new` was not written: the disk is sick")
        with refused, make(tmp_path / "new"):
            raise StorageError("the disk is sick")
    with pytest.raises(
        TransferError, match=r"out\.csv` was not written: .*memory_versions"
    ) as told:
        await export_file(alice, tmp_path / "out.csv")

    assert isinstance(told.value.__cause__, StorageError)
    assert {path.name for path in tmp_path.iterdir() if "agent.db" not in path.name} == set()
