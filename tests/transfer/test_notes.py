"""Graphs, agents and notes: formats of programs that write them in another language, or by hand."""

import csv
import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orbiter.memory import AgentMemory, AIMemory, HumanMemory, ToolMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import TransferError
from orbiter.memory.messages import validate
from orbiter.memory.transfer import export_file, import_file

GRAPH = (
    '{"type":"entity","name":"Ann","entityType":"person","observations":["likes tea","is tall"]}'
    '{"type":"relation","from":"Ann","to":"Acme","relationType":"works_at"}\n'
    '{"type":"entity","name":"Acme","entityType":"company","observations":[]}\n'
    '{"type":"relation","from":"Ann"}\n'
    "not json at all\n"
)


@pytest.fixture
async def memory(tmp_path: Path) -> AgentMemory:
    return AgentMemory(tmp_path / "agent.db", embeddings=None)


@pytest.fixture
async def alice(memory: AgentMemory) -> ScopedMemory:
    return memory.scope(user_id="alice")


async def _texts(handle: ScopedMemory) -> list[str]:
    return [item.content for item in reversed(await handle.list(limit=100))]


async def test_a_graph_is_read_also_where_two_objects_share_a_line(
    tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    (tmp_path / "memory.jsonl").write_text(GRAPH)
    async with memory:
        done = await import_file(alice, tmp_path / "memory.jsonl")

        assert set(await _texts(alice)) == {
            "Ann: likes tea", "Ann: is tall", "Ann works at Acme", "Acme (company)",
        }  # fmt: skip
    assert done.format == "mcp"
    assert [problem.place for problem in done.problems] == ["line 3", "line 4"]


async def test_a_graph_that_came_in_goes_out_as_it_was(
    tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    (tmp_path / "memory.jsonl").write_text(GRAPH)
    async with memory:
        await import_file(alice, tmp_path / "memory.jsonl")
        await alice.remember("has a cat")
        await export_file(alice, tmp_path / "out.jsonl", format="mcp")

    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    entities = {line["name"]: line["observations"] for line in lines if line["type"] == "entity"}
    assert entities == {"Ann": ["likes tea", "is tall"], "Acme": [], "alice": ["has a cat"]}
    assert {"type": "relation", "from": "Ann", "to": "Acme", "relationType": "works_at"} in lines


def _agent(name: str) -> dict[str, object]:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = json.dumps({"type": "user_message", "message": "Who am I?", "time": "2026-01-01"})
    return {
        "name": name,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be kind."}], "id": "m0"},
            {"role": "user", "content": [{"type": "text", "text": said}], "id": "m1"},
            {"role": "assistant", "content": None, "tool_calls": [call], "id": "m2"},
            {"role": "tool", "content": "Chad", "tool_call_id": "c1", "id": "m3"},
            {"role": "assistant", "content": [{"type": "text", "text": "Chad!"}], "id": "m4"},
            {"role": "wizard", "content": "?", "id": "m5"},
        ],
    }


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("shape", ["one agent", "several"])
async def test_an_agent_file_has_blocks_and_a_legal_conversation(
    shape: str, twice: bool, tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    block = {"label": "human", "value": "\nFirst name: Chad\n", "description": "About the user"}
    file: object = {**_agent("sam"), "core_memory": [block], "version": "0.6"}
    if shape == "several":
        file = {"agents": [{**_agent("sam"), "block_ids": ["b"]}], "blocks": [{**block, "id": "b"}]}
    text = json.dumps(file)
    (tmp_path / "sam.af").write_text(json.dumps(text) if twice else text)
    async with memory:
        done = await import_file(alice, tmp_path / "sam.af")
        again = await import_file(alice, tmp_path / "sam.af")
        # The agent's name is the session's, behind the format's, and the agent's.
        talk = memory.scope(user_id="alice", agent_id="sam").chat("letta:sam")
        sent = await talk.messages()
        blocks = [item for item in await alice.list() if "block" in item.metadata.extra]

    assert (done.format, again.stored) == ("letta", 0)
    assert [block.content for block in blocks] == ["First name: Chad"]
    assert not validate(sent.messages, "openai")
    assert [message["content"] for message in sent.messages if message["role"] != "assistant"] == [
        "Be kind.", "Who am I?", "Chad",
    ]  # fmt: skip
    assert [problem.place for problem in done.problems] == ["message 5 of `sam`"]


async def test_notes_come_with_their_front_matter(
    tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    notes = tmp_path / "notes"
    (notes / "inner").mkdir(parents=True)
    (notes / "tea.md").write_text(
        "---\ntitle: Tea\ntags: [drink, green]\ndate: 2024-03-05\ntrust: 5\n---\n# Tea\n\nGreen.\n"
    )
    (notes / "inner" / "plain.md").write_text("\ufeffJust a line\n")
    (notes / "rule.md").write_text("---\nno front matter here\n")
    (notes / "bad.md").write_text("---\na: [1\n---\nbody\n")
    (notes / "bomb.md").write_text("---\na: &a [x, x]\nb: [*a, *a]\n---\nbody\n")
    (notes / "picture.png").write_bytes(b"\x89PNG")
    async with memory:
        done = await import_file(alice, notes, format="markdown")
        items = {item.metadata.extra["note"]: item for item in await alice.list()}

    assert done.stored == 5
    tea = items["tea.md"]
    assert tea.content == "# Tea\n\nGreen."
    assert tea.created_at == datetime(2024, 3, 5, tzinfo=UTC)
    assert tea.metadata.extra["tags"] == ["drink", "green"]
    assert tea.metadata.extra["trust"] == 2  # a file cannot make itself trusted
    assert items["inner/plain.md"].content == "Just a line"
    told = {problem.place for problem in done.problems}
    assert told == {"`bad.md`", "`bomb.md`", "`picture.png`"}


async def test_no_cell_of_a_table_is_a_formula(
    tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    texts = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", 'plain, with "quotes"\nand more']
    async with memory:
        await alice.remember_many(texts, tags=["=tag"])
        done = await export_file(alice, tmp_path / "out.csv", format="csv")

    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert done.records == len(rows) == len(texts)
    assert [row["content"] for row in rows] == [f"'{text}" for text in texts[:5]] + [texts[5]]
    assert {row["tags"] for row in rows} == {"'=tag"}
    assert stat.S_IMODE((tmp_path / "out.csv").stat().st_mode) == 0o600


async def test_notes_that_were_written_come_back(
    tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    async with memory:
        await alice.remember("---\nnot: front matter\n---\n# Title", tags=["a: b", "#c"])
        await alice.remember("../../escape", extra={"title": "../../etc/passwd"})
        await alice.chat("trip").add([HumanMemory(content="Hi"), AIMemory(content="Hello")])
        await export_file(alice, tmp_path / "notes", format="markdown")
        bob = memory.scope(user_id="bob")
        await import_file(bob, tmp_path / "notes", format="markdown")
        back = {item.content: item.metadata.extra for item in await bob.list()}

    assert back["---\nnot: front matter\n---\n# Title"]["tags"] == ["a: b", "#c"]
    assert back["../../escape"]["title"] == "../../etc/passwd"
    assert len(list((tmp_path / "notes" / "conversations").iterdir())) == 1
    inside = list(tmp_path.rglob("*.md"))
    assert len(inside) == 3
    assert all(path.is_relative_to(tmp_path / "notes") for path in inside)


async def test_conversations_go_out_as_messages_and_come_back(
    tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    talk = [
        HumanMemory(content="Weather?"),
        AIMemory(content="", tool_calls=[call]),
        ToolMemory(content="sun", tool_call_id="c1"),
        AIMemory(content="Sun."),
    ]
    async with memory:
        await alice.chat("one").add(talk)
        await alice.remember("no message")
        await export_file(alice, tmp_path / "out.jsonl", format="openai")
        bob = memory.scope(user_id="bob")
        await import_file(bob, tmp_path / "out.jsonl")
        session = (await bob.chats())[0].metadata.session_id
        assert session is not None
        back = await bob.chat(session).messages()

    [line] = (tmp_path / "out.jsonl").read_text().splitlines()
    assert not validate(json.loads(line)["messages"], "openai")
    assert back.messages == json.loads(line)["messages"]


async def test_a_file_that_is_there_is_never_overwritten(
    tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    (tmp_path / "mine.csv").write_text("precious")
    (tmp_path / "link.csv").symlink_to(tmp_path / "elsewhere.csv")
    async with memory:
        await alice.remember("x")
        for name, format in (("mine.csv", "csv"), ("link.csv", "csv"), (".", "markdown")):
            with pytest.raises(TransferError, match="exists already"):
                await export_file(alice, tmp_path / name, format=format)
        with pytest.raises(TransferError, match=r"no format `word`.*`csv`"):
            await export_file(alice, tmp_path / "a", format="word")

    assert (tmp_path / "mine.csv").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir() if "agent.db" not in path.name) == [
        "link.csv", "mine.csv",
    ]  # fmt: skip


async def test_a_text_that_is_too_long_is_cut_and_told(
    tmp_path: Path, memory: AgentMemory, alice: ScopedMemory
) -> None:
    long = "x" * (2**20 + 1)
    entity = {"type": "entity", "name": "Ann", "entityType": "p", "observations": [long]}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(entity)}\n{GRAPH.splitlines()[1]}\n")
    two = [{"memory": "kept", "user_id": "alice"}, {"memory": long, "user_id": "alice"}]
    (tmp_path / "b.json").write_text(json.dumps(two))
    block = [{"label": "long", "value": long}, {"label": "short", "value": "also kept"}]
    (tmp_path / "c.af").write_text(json.dumps({"name": "sam", "core_memory": block}))
    async with memory:
        done = [await import_file(alice, tmp_path / name) for name in ("a.jsonl", "b.json", "c.af")]

        texts = await _texts(alice)
    assert {"Acme (company)", "kept", "also kept"} <= set(texts)
    assert sum(len(text) == 2**20 for text in texts) == 3
    assert [each.problems[0].place for each in done] == ["line 1", "memory 2", "block `long`"]
    assert all("was cut after 1,048,576" in each.problems[0].why for each in done)
