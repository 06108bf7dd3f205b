"""What else the local memory does, done through a server: files, loops, blocking, the shell."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.client.conftest import Beside, new_key
from tests.server.conftest import Served

from orbiter.memory import AgentMemory, TransferError, UnsupportedError, sync
from orbiter.memory.client import RemoteMemory
from orbiter.memory.extraction import MemoryOrchestrator
from orbiter.memory.keys import KeyFile
from orbiter.memory.transfer import Limits, export_file, import_file

# Files


@pytest.fixture
async def remote(served: Served) -> Any:
    async with AgentMemory(await served(rate=1e6, burst=10**6)) as memory:
        yield memory


async def test_an_export_comes_back_exactly(
    remote: AgentMemory, memory: AgentMemory, tmp_path: Path
) -> None:
    alice = remote.scope(user_id="alice")
    item = await alice.remember("tea")
    await alice.update(item.id, "green tea")
    await alice.remember_many([f"memory {number}" for number in range(20)])
    told: list[tuple[int, int]] = []

    done = await export_file(
        alice, tmp_path / "out.jsonl.gz", progress=lambda *place: told.append(place)
    )
    direct = await export_file(memory.scope(user_id="alice"), tmp_path / "direct.jsonl")
    stream = io.BytesIO()
    streamed = await export_file(alice, stream)

    assert (done.records, done.versions) == (direct.records, direct.versions) == (21, 1)
    assert (streamed.records, streamed.path) == (21, None)
    assert told[-1] == (21, 21)
    async with AgentMemory("memory://", embeddings=None) as other:
        there = other.scope(user_id="alice")
        assert (await import_file(there, tmp_path / "out.jsonl.gz")).stored == 21
        assert [each.id for each in await there.list()] == [each.id for each in await alice.list()]
    again = await import_file(alice, tmp_path / "out.jsonl.gz")
    assert (again.found, again.unchanged) == (21, 21)
    with pytest.raises(TransferError, match="exists already"):
        await export_file(alice, tmp_path / "out.jsonl.gz")


async def test_folders_go_both_ways(remote: AgentMemory, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (notes / "deep").mkdir(parents=True)
    (notes / "one.md").write_text("# Tea\n\nAlice drinks tea.\n")
    (notes / "deep" / "two.md").write_text("# Cat\n\nThe cat is called Mimi.\n")
    (notes / "leads-out.md").symlink_to("/etc/hostname")
    alice = remote.scope(user_id="alice")
    told: list[tuple[int, int]] = []

    done = await import_file(
        alice, notes, format="markdown", progress=lambda *place: told.append(place)
    )
    written = await export_file(alice, f"{tmp_path}/out/")
    table = await export_file(alice, tmp_path / "out.csv")

    assert (done.format, done.stored) == ("markdown", 2)
    assert told
    assert (written.records, table.records) == (2, 2)
    assert len(list((tmp_path / "out").glob("*.md"))) == 2
    assert "Mimi" in (tmp_path / "out.csv").read_text()


async def test_what_cannot_be_moved_says_why(remote: AgentMemory, tmp_path: Path) -> None:
    alice = remote.scope(user_id="alice")
    (tmp_path / "odd.bin").write_bytes(b"\x00\x01")

    with pytest.raises(TransferError, match="is not there"):
        await import_file(alice, tmp_path / "missing.jsonl")
    with pytest.raises(TransferError):
        await import_file(alice, tmp_path / "odd.bin")
    with pytest.raises(UnsupportedError, match="limits"):
        await import_file(alice, tmp_path / "odd.bin", limits=Limits())
    with pytest.raises(TransferError, match="format"):
        await export_file(alice, tmp_path / "out.xml")
    assert not (tmp_path / "out.xml").exists()


# What needs the store itself


async def test_what_needs_the_store_says_why_and_what_to_do(
    remote: AgentMemory, tmp_path: Path
) -> None:
    alice = remote.scope(user_id="alice")

    for reach in (
        lambda: remote.store,
        lambda: alice.activity,
        lambda: MemoryOrchestrator(alice, _Nothing()),
    ):
        with pytest.raises(UnsupportedError, match="behind a server; do it there"):
            reach()
    with pytest.raises(UnsupportedError, match="orbiter-memory backup"):
        await remote.backup(tmp_path / "copy.db")


class _Nothing:
    """An extractor that finds nothing."""

    async def extract(self, messages: object, known: object) -> list[Any]:
        del messages, known
        return []


# Loops and blocking


def test_one_memory_serves_several_loops(beside: Beside) -> None:
    memory = AgentMemory(beside())
    alice = memory.scope(user_id="alice")

    for number in range(3):
        asyncio.run(alice.remember(f"{number}"))

    async def look() -> int:
        async with memory:
            return len(await alice.list())

    assert [asyncio.run(look()), asyncio.run(look())] == [3, 3]


def test_the_blocking_form_is_the_same_over_the_wire(beside: Beside, keys: KeyFile) -> None:
    url = beside(keys=keys)
    with sync.AgentMemory(url, token=new_key(keys, "admin")) as memory:
        alice = memory.scope(user_id="alice")
        stream = alice.events()

        kept = alice.remember("I love hiking in the mountains")
        chat = alice.chat("trip")
        said = chat.add(["Where to?", "And when?"])
        branch = chat.fork(said[0])
        alice.facts.put("city", "Oslo")

        assert [hit.item.id for hit in alice.recall("hiking", mode="words")] == [kept.id]
        assert [item.content for item in branch.items()] == ["Where to?"]
        assert isinstance(alice, sync.ScopedMemory)
        assert isinstance(branch, sync.Chat)
        assert isinstance(alice.facts, sync.Facts)
        assert isinstance(alice.as_of(kept.created_at).facts, sync.FactsView)
        assert memory.stats().items >= 4
        assert next(stream).item_ids == (kept.id,)
        assert repr(memory) == f"sync.AgentMemory({url!r})"


# The shell


@pytest.fixture
def shell(beside: Beside, keys: KeyFile) -> Cli:
    """Return the command line on a server, as an administrator."""
    token = new_key(keys, "admin")
    return Cli(beside(keys=keys), env={"ORBITER_MEMORY_TOKEN": token})


def test_the_commands_work_on_a_server(shell: Cli, tmp_path: Path) -> None:
    item_id = shell.remember("I love hiking in the mountains", "--tag", "outdoor")

    assert item_id in shell.ok("recall", "hiking")
    assert "hiking" in shell.ok("list")
    assert "outdoor" in shell.ok("show", item_id)
    shell.ok("edit", item_id, "I love climbing")
    assert len(shell.json("history", item_id)) == 2
    shell.ok("facts", "put", "city", "Oslo")
    assert "Oslo" in shell.ok("facts", "list")
    assert "climbing" in shell.ok("context", "new", "climbing")
    assert "1" in shell.ok("stats")
    shell.ok("export", str(tmp_path / "all.jsonl"), "--all")
    assert shell.json("import", str(tmp_path / "all.jsonl"), "--all")["unchanged"] == 2
    shell.ok("doctor")
    shell.ok("forget", item_id, "--yes")


def test_a_key_is_given_on_the_command_line_and_never_told(
    shell: Cli, keys: KeyFile, tmp_path: Path
) -> None:
    token = shell.env.pop("ORBITER_MEMORY_TOKEN")

    refused = shell("list")
    allowed = shell("list", "--token", token)
    config = shell("config", "--token", token)
    local = shell("list", "--url", str(tmp_path / "a.db"), "--token", token)
    backup = shell("backup", str(tmp_path / "copy.db"), "--token", token)

    assert (refused.exit_code, allowed.exit_code) == (1, 0), refused.output
    assert "not shown" in config.output
    assert local.exit_code == 2
    assert "--token" in local.output
    assert backup.exit_code == 1
    assert "does not hand out its file" in backup.output
    for result in (refused, allowed, config, local, backup):
        assert token not in result.output


def test_a_server_that_is_away_is_told_in_one_line() -> None:
    cli = Cli("http://127.0.0.1:1")

    result = cli("list")

    assert result.exit_code == 1
    assert "orbiter-memory serve" in result.output
    assert isinstance(AgentMemory(cli.url), RemoteMemory)
    assert json.loads(cli("config", "--json").stdout)["url"]["value"] == cli.url
