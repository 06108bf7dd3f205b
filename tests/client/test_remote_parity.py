"""A memory behind a server does what a local one does: files, event loops, sync, the shell."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.client.conftest import Beside, new_key
from tests.server.conftest import Served

from orbiter.memory import AgentMemory, MemoryItem, sync
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.client import _remote_calls
from orbiter.memory.client._remote_memory import RemoteEngine
from orbiter.memory.errors import TransferError, UnsupportedError
from orbiter.memory.extraction import MemoryOrchestrator
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

    with pytest.raises(TransferError, match="does not exist"):
        await import_file(alice, tmp_path / "missing.jsonl")
    with pytest.raises(TransferError):
        await import_file(alice, tmp_path / "odd.bin")
    with pytest.raises(UnsupportedError, match="limits"):
        await import_file(alice, tmp_path / "odd.bin", limits=Limits())
    with pytest.raises(TransferError, match="format"):
        await export_file(alice, tmp_path / "out.xml")
    assert not (tmp_path / "out.xml").exists()


# The same values, and the same errors

HALF, LONG = "\ud800", "x" * 300
EXACT: dict[str, Callable[[ScopedMemory], Awaitable[object]]] = {
    "forget bytes": lambda it: it.forget(b"x"),  # type: ignore[arg-type]
    "forget a long id": lambda it: it.forget(LONG),
    "recall bytes": lambda it: it.recall(b"x"),  # type: ignore[arg-type]
    "recall by a wide query": lambda it: it.recall("漢" * 250_000, mode="words"),
    "recall an item": lambda it: it.recall(MemoryItem(content="x")),  # type: ignore[arg-type]
    "recall half a character": lambda it: it.recall(HALF),
    "get half a character": lambda it: it.get(HALF),
    "get a long id": lambda it: it.get("x" * 100_000),
    "get nothing": lambda it: it.get(""),
    "history of a long id": lambda it: it.history("x" * 100_000),
    "history of half a character": lambda it: it.history(HALF),
    "update a long id": lambda it: it.update(LONG, "tea"),
    "restore a long id": lambda it: it.restore(LONG),
    "fork at a long id": lambda it: it.chat("c").fork(LONG),
    "a long key": lambda it: it.facts.get("k" * 100_000),
    "the history of a long key": lambda it: it.facts.history("k" * 100_000),
    "end a long key": lambda it: it.facts.end(LONG),
    "put a long key": lambda it: it.facts.put(LONG, 1),
    "a bad format": lambda it: it.remember({"role": "user", "content": "x"}, format="bad"),  # type: ignore[arg-type]
    "messages in a bad format": lambda it: it.chat("c").messages(format=None),  # type: ignore[arg-type]
    "half a character": lambda it: it.remember(HALF),
    "too long a text": lambda it: it.remember("x" * 2_000_000),
    "far too long a text": lambda it: it.remember("x" * 20_000_000),
    "a fact that is no JSON": lambda it: it.facts.put("k", {1: 2}),
    "a set as a fact": lambda it: it.facts.put("k", {"a"}),
    "an end in seconds": lambda it: it.remember("x", expires=60),  # type: ignore[arg-type]
    "an end in words": lambda it: it.remember("x", expires="in 2040"),
    "an end beyond time": lambda it: it.remember("x", expires=timedelta.max),
    "tags that are a word": lambda it: it.remember("x", tags="abc"),
    "a filter of nothing": lambda it: it.list(where=[], query="nowhere"),  # type: ignore[arg-type]
    "a long filter": lambda it: it.list(where={"n": {"$in": [f"{n:032x}" for n in range(1_900)]}}),
    "a long query": lambda it: it.list(query="w " * 40_000),
    "the past by a long filter": lambda it: it.as_of(datetime.now(UTC)).list(query="w " * 40_000),
    "a limit that is none": lambda it: it.list(limit=-1),
}


@pytest.mark.filterwarnings("ignore:no memory")  # once for both, as they are one process
async def test_what_is_odd_ends_the_same_way(remote: AgentMemory, memory: AgentMemory) -> None:
    ends: list[dict[str, str]] = []
    for each in (memory, remote):
        ends.append({})
        for name, call in EXACT.items():
            try:
                ends[-1][name] = repr(await call(each.scope(user_id="alice")))
            except Exception as exc:  # noqa: BLE001 - which is what is compared
                ends[-1][name] = type(exc).__name__

    assert ends[0] == ends[1]


async def test_what_can_be_kept_can_be_kept_there(remote: AgentMemory, memory: AgentMemory) -> None:
    alice = remote.scope(user_id="alice")
    odd, words, end = "\x01" * 2**20, ("a", "b"), timedelta(days=366 * 150)
    item = await alice.remember("tea", tags={"a"}, expires=end)  # type: ignore[arg-type]
    native = MemoryItem(content="n", native={"openai": {"blob": "x" * (7 * 2**20)}})

    await alice.remember(native)
    changed = await alice.update(item.id, odd, tags=(word for word in words))  # type: ignore[arg-type]

    assert (await memory.scope(user_id="alice").get(native.id)) == await alice.get(native.id)
    assert changed.content == odd
    assert changed.metadata.extra["tags"] == ["a", "b"]
    assert changed.expires_at is not None


async def test_a_page_may_be_longer_than_the_server_gives(
    remote: AgentMemory, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_remote_calls, "_PAGE", 3)
    there, alice = memory.scope(user_id="alice"), remote.scope(user_id="alice")
    await there.remember_many([f"{number}" for number in range(10)])

    for limit in (4, 6, 9, 10, 2_000):
        here, direct = await alice.list(limit=limit), await there.list(limit=limit)
        assert (here, here.next) == (direct, direct.next)
    moment = datetime.now(UTC)
    assert await alice.as_of(moment).list(limit=8) == await there.as_of(moment).list(limit=8)


# What needs the store itself


async def test_what_needs_the_store_says_why_and_what_to_do(
    remote: AgentMemory, tmp_path: Path
) -> None:
    alice = remote.scope(user_id="alice")

    for name, reach in (
        ("store", lambda: remote.store),
        ("activity", lambda: alice.activity),
        ("MemoryOrchestrator", lambda: MemoryOrchestrator(alice, _Nothing())),
    ):
        with pytest.raises(UnsupportedError, match=f"`{name}` .* behind a server; do it there"):
            reach()
    with pytest.raises(UnsupportedError, match="orbiter-memory backup"):
        await remote.backup(tmp_path / "copy.db")
    with pytest.raises(UnsupportedError, match="orbiter-memory restore FILE"):
        await remote.restore(tmp_path / "copy.db")


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
        [hit] = alice.recall("hiking", mode="words", min_relevance=0.01)
        assert 0.01 < hit.relevance < 1
        assert alice.recall("hiking", mode="words", min_relevance=1) == []
        assert "mountains" in chat.context("Who loves hiking?").text
        assert "mountains" not in chat.context("Who loves hiking?", min_relevance=1).text
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
    assert len(shell.json("show", item_id, "--history")) == 2
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
    config = shell("doctor", "--token", token)
    local = shell("list", "--url", str(tmp_path / "a.db"), "--token", token)
    backup = shell("backup", str(tmp_path / "copy.db"), "--token", token)

    assert (refused.exit_code, allowed.exit_code) == (1, 0), refused.output
    assert "token is set (--token)" in config.output
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
    assert isinstance(AgentMemory(cli.url)._engine, RemoteEngine)


async def test_a_matter_is_covered_over_time_behind_a_server_too(served: Served) -> None:
    url = await served(rate=1e6, burst=10**6)

    def blocking() -> list[tuple[str | None, bool]]:
        with sync.AgentMemory(url) as memory:
            alice = memory.scope(user_id="alice")
            days = (datetime(2025, 1, 5, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
            for text, at in zip(
                ("I live in Oslo", "I moved from Oslo to Paris"), days, strict=True
            ):
                alice.remember(text, created_at=at)
            best = alice.recall("Where do I live now? Oslo?")
            in_order = alice.recall("Oslo", spread=True)
            assert best[1].replaced_by == best[0].item.id
            return [(in_order[0].item.content, in_order.spread)]

    assert await asyncio.to_thread(blocking) == [("I live in Oslo", True)]
