"""The open door: a store of under 80 lines passes the kit, and then serves everywhere."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from examples.toy_store import ToyStore
from hypothesis import settings
from tests.timing import HANG

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem, MemoryMetadata, ShortTermMemory
from orbiter.memory.backends import registry
from orbiter.memory.backends.adapter import StoreAdapter, as_agent_store
from orbiter.memory.backends.sqlite import SQLiteMemoryStore
from orbiter.memory.backends.vector import VectorMemoryStore
from orbiter.memory.errors import AccessError, QueryError, UnsupportedError, VersionConflict
from orbiter.memory.model.agent_store import AgentStore
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing import Capabilities, HashEmbeddings, Recipe, StoreConformance
from orbiter.memory.testing.contracts.filter_contract import WhereContract
from orbiter.memory.testing.contracts.insert_contract import InsertContract
from orbiter.memory.testing.contracts.order_contract import OrderContract
from orbiter.memory.testing.contracts.paging_contract import PagingContract
from orbiter.memory.transfer import export_file, import_file, migrate

ROOT = Path(__file__).parents[2]


def test_it_is_short() -> None:
    lines = (ROOT / "examples" / "toy_store.py").read_text().splitlines()

    assert len([line for line in lines if line.strip()]) < 80


class TestToyStore(StoreConformance):
    """The kit, with what a store declares that wants to carry `AgentMemory`."""

    capabilities = Capabilities.for_agent_memory(shared=False)
    model_settings = settings(StoreConformance.model_settings, max_examples=10)

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[ToyStore]:
        store = ToyStore(f"toy://{tmp_path}/notes.json")
        await store.init()
        yield store
        await store.close()

    def recipe(self, store: MemoryStore) -> Recipe:
        made: Any = store
        return Recipe("examples.toy_store:ToyStore", (f"toy://{made._path}",))


class TestAdapted(OrderContract, PagingContract, InsertContract, WhereContract):
    """What a toy lacks, done by the adapter as the kit wants it."""

    capabilities = Capabilities(
        paging=True, where=True, insert=True, bulk_delete=True, durable=False, shared=False
    )

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[AgentStore]:
        async with as_agent_store(ToyStore(f"toy://{tmp_path}/notes.json")) as store:
            yield store


for _name in dir(TestAdapted):
    _needs = getattr(getattr(TestAdapted, _name), "needs", {})
    if any(getattr(TestAdapted.capabilities, key) != value for key, value in _needs.items()):
        setattr(TestAdapted, _name, None)  # it is not declared


# Under AgentMemory


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a toy store, whose scheme is registered in this process."""
    monkeypatch.setattr(registry, "_schemes", {**registry._schemes, "toy": ToyStore})
    return f"toy://{tmp_path}/notes.json"


def kinds(tmp_path: Path) -> list[MemoryStore]:
    return [
        ToyStore(f"toy://{tmp_path}/kinds.json"),
        ShortTermMemory(),
        VectorMemoryStore(HashEmbeddings(64)),
    ]


@pytest.mark.parametrize("number", range(3), ids=["toy", "short-term", "vector"])
async def test_any_store_carries_a_memory(tmp_path: Path, number: int) -> None:
    store = kinds(tmp_path)[number]
    async with AgentMemory(store=store, embeddings="auto" if number == 2 else None) as memory:
        ann, bob = memory.scope(user_id="ann"), memory.scope(user_id="bob")
        tea = await ann.remember("I like green tea", tags=["drinks"])
        await ann.remember_many(["The cat is called Momo", "The bike is red"])
        await bob.remember("I like coffee")

        found = await ann.recall("what tea do I like?")
        assert found[0].item.id == tea.id
        assert {item.content for item in await bob.list()} == {"I like coffee"}
        changed = await ann.update(tea.id, "I like white tea")
        assert (changed.version, changed.content) == (2, "I like white tea")
        with pytest.raises(VersionConflict):
            await ann.update(tea.id, "no", expected_version=1)
        first = await ann.list(limit=2)
        second = await ann.list(limit=2, cursor=first.next)
        assert len({item.id for item in [*first, *second]}) == 3
        assert [i.id for i in await ann.list(where={"tags": {"$contains": "drinks"}})] == [tea.id]
        assert (await ann.stats()).items == 3
        assert len(await ann.forget(tea.id)) == 1
        assert await ann.get(tea.id) is None
        assert await memory.erase(user_id="ann")
        assert (await ann.stats()).items == 0
        assert (await bob.stats()).items == 1


@pytest.mark.parametrize("number", range(3), ids=["toy", "short-term", "vector"])
async def test_conversations_are_kept_and_read(tmp_path: Path, number: int) -> None:
    store = kinds(tmp_path)[number]
    async with AgentMemory(store=store, embeddings="auto" if number == 2 else None) as memory:
        chat = memory.scope(user_id="ann").chat("monday")
        await chat.add({"role": "user", "content": "How warm is it?"})
        await chat.add({"role": "assistant", "content": "20 degrees."})
        await chat.add({"role": "user", "content": "And tomorrow?"})

        context = await chat.context(budget=1_000)

        assert [m["content"] for m in context.messages("openai").messages][-3:] == [
            "How warm is it?",
            "20 degrees.",
            "And tomorrow?",
        ]
        (info,) = await memory.scope(user_id="ann").chats()
        assert (info.metadata.session_id, info.items) == ("monday", 3)


async def test_facts_and_idempotency_keys_work_on_a_plain_store(toy: str) -> None:
    async with AgentMemory(toy, embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        once = [await ann.remember("tea", idempotency_key="k") for _ in range(3)]
        assert len({item.id for item in once}) == 1
        assert (await ann.stats()).items == 1
        await ann.facts.put("city", "Rome")
        await ann.facts.put("city", "Paris")
        city = await ann.facts.get("city")
        assert city is not None
        assert city.value == "Paris"


async def test_what_a_store_cannot_do_is_refused_by_name(toy: str, tmp_path: Path) -> None:
    async with AgentMemory(toy, embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        item = await ann.remember("tea")
        for call in (
            lambda: ann.history(item.id),
            lambda: ann.restore(item.id),
            lambda: ann.list(forgotten=True),
            memory.verify,
            memory.stats,
            memory.reindex,
            lambda: memory.backup(tmp_path / "copy.db"),
        ):
            with pytest.raises(UnsupportedError, match="Toy|toy://"):
                await call()
    with pytest.raises(UnsupportedError, match="ToyStore keeps no audit log"):
        AgentMemory(toy, audit="writes")


class _NoDelete:
    """A store with nothing but what `MemoryStore` has."""

    def __init__(self) -> None:
        inner = ShortTermMemory()
        self.add, self.get = inner.add, inner.get
        self.search, self.clear = inner.search, inner.clear


async def test_a_store_that_removes_nothing_single_refuses_to_forget_and_does_the_rest() -> None:
    async with AgentMemory(store=_NoDelete(), embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        item = await ann.remember("tea")

        with pytest.raises(UnsupportedError, match="`_NoDelete` cannot remove.*`delete_many`"):
            await ann.forget(item.id)

        assert await memory.erase(user_id="ann")


def test_what_is_no_store_is_refused_and_so_are_two_places(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="`dict` is not a store: it has no `add`"):
        AgentMemory(store={}, embeddings=None)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="either `url` or `store`"):
        AgentMemory(tmp_path / "a.db", store=ShortTermMemory(), embeddings=None)
    with pytest.raises(QueryError, match="give `audit` to the store"):
        AgentMemory(store=ShortTermMemory(), embeddings=None, audit="writes")
    with pytest.raises(QueryError, match="give `embeddings` to the store"):
        AgentMemory(store=VectorMemoryStore(HashEmbeddings(8)), embeddings=HashEmbeddings(8))
    with pytest.raises(QueryError, match="`store` is decided where the store is"):
        AgentMemory("http://127.0.0.1:1", store=ShortTermMemory())


async def test_a_whole_store_is_used_as_it_is(tmp_path: Path) -> None:
    store = SQLiteMemoryStore(tmp_path / "a.db")
    memory = AgentMemory(store=store)

    assert memory.store is store
    assert isinstance(AgentMemory(store=ShortTermMemory(), embeddings=None).store, StoreAdapter)
    async with memory:
        item = await memory.scope(user_id="ann").remember("tea")
        assert len(await memory.scope(user_id="ann").history(item.id)) == 1


def test_no_password_of_a_url_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "_schemes", {**registry._schemes, "toy": ToyStore})

    for url in ("toy://ann:s3cret@host/x", "toy://a:s3/cr?et@host/x", "toy://host/x?key=s3cret"):
        memory = AgentMemory(url, embeddings=None)
        assert "s3" not in memory.url + repr(memory)
        assert memory.url == "toy://host/x"


async def test_writes_are_conditional_and_stay_within_their_scope(toy: str) -> None:
    async with registry.open_store(toy) as store:
        ann, bob = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
        await store.add(HumanMemory(id="a", content="tea", metadata=ann), expected_version=0)

        with pytest.raises(VersionConflict):
            await store.add(HumanMemory(id="a", content="no", metadata=ann), expected_version=0)
        mine = HumanMemory(id="a", content="mine", metadata=bob)
        with pytest.raises(AccessError):
            await store.add(mine, within=bob)
        with pytest.raises(AccessError):
            await store.add_many([mine], within=bob)
        with pytest.raises(AccessError):
            await store.add(mine, expected_version=1, within=bob)

        found = await store.get("a")
        assert found is not None
        assert found.content == "tea"


# Moving


async def _filled(path: Path) -> list[MemoryItem]:
    async with SQLiteMemoryStore(path) as store:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        items: list[MemoryItem] = [
            HumanMemory(
                id=f"n{n}",
                content=f"note {n}",
                created_at=start + timedelta(seconds=n // 3),
                metadata=MemoryMetadata(user_id=f"u{n % 2}"),
            )
            for n in range(50)
        ]
        await store.add_many(items)
        await store.add(items[7].model_copy(update={"content": "changed"}))
        await store.delete("n3")
        return await store.search(limit=100)


async def test_a_store_moves_into_a_toy_and_back(toy: str, tmp_path: Path) -> None:
    before = await _filled(tmp_path / "a.db")

    there = await migrate(f"sqlite:///{tmp_path}/a.db", toy)
    again = await migrate(f"sqlite:///{tmp_path}/a.db", toy)
    back = await migrate(toy, f"sqlite:///{tmp_path}/b.db")

    assert (bool(there), there.copied, there.left_out) == (True, 49, 1)
    assert (bool(again), again.copied, again.already_there) == (True, 0, 49)
    assert (bool(back), back.copied) == (True, 49)
    async with SQLiteMemoryStore(tmp_path / "b.db") as store:
        assert await store.search(limit=100) == before
    with pytest.raises(QueryError, match="both addresses are of one store"):
        await migrate(toy, toy)


async def test_files_are_written_and_read(toy: str, tmp_path: Path) -> None:
    async with AgentMemory(toy, embeddings=None) as memory:
        await memory.scope(user_id="ann").remember_many(["tea", "cat"])
        written = await export_file(memory.unscoped(), tmp_path / "all.jsonl")
        assert written.records == 2
        await memory.erase(user_id="ann")
        await import_file(memory.unscoped(), tmp_path / "all.jsonl")
        assert {item.content for item in await memory.unscoped().list()} == {"tea", "cat"}


# As an installed package, under the command line


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which a little distribution with the toy store is installed."""
    folder = tmp_path / "site"
    info = folder / "toy_store-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-store\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[orbiter_memory.stores]\ntoy = toy_store:ToyStore\n")
    source = (ROOT / "examples" / "toy_store.py").read_text()
    (folder / "toy_store.py").write_text(source)
    return {
        **os.environ,
        "PYTHONPATH": str(folder),
        "XDG_DATA_HOME": str(folder),
        "ORBITER_MEMORY_MODEL": "none",
    }


def test_the_command_line_takes_the_scheme_of_an_installed_package(
    installed: dict[str, str], tmp_path: Path
) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "orbiter.memory.cli", *arguments]
        done = subprocess.run(
            command,
            check=False,
            env=installed,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    toy = ("--url", f"toy://{tmp_path}/notes.json", "--user", "ann")

    run("remember", "I like green tea", *toy)
    run("remember", "The cat is called Momo", *toy)

    found = json.loads(run("recall", "which tea?", "--json", *toy))
    assert "green tea" in json.dumps(found)
    assert "Momo" in run("list", *toy)
    run("migrate", f"toy://{tmp_path}/notes.json", f"sqlite:///{tmp_path}/all.db")
    assert "green tea" in run("list", "--url", f"{tmp_path}/all.db", "--user", "ann")
    run("doctor", *toy[:2])
    run("keys", "create", *toy)
    assert "user ann" in run("keys", "list", *toy[:2])


async def test_erasing_a_session_leaves_the_rest_of_a_store_that_filters_by_user_alone() -> None:
    async with AgentMemory(store=ShortTermMemory(scope="user"), embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        await ann.remember("a note")
        await ann.chat("c1").add({"role": "user", "content": "one"})
        await ann.chat("c2").add({"role": "user", "content": "two"})

        done = await memory.erase(user_id="ann", session_id="c1")

        assert done.items == 1
        assert {item.content for item in await ann.list()} == {"a note", "two"}


def test_a_store_that_shows_a_window_only_cannot_carry_a_memory() -> None:
    with pytest.raises(QueryError, match="max_rounds=0"):
        AgentMemory(store=ShortTermMemory(max_rounds=2), embeddings=None)
