"""Stores of other packages under `AgentMemory(store=…)`: order, errors, opening and closing."""

import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from examples.toy_store import ToyStore
from tests.rows import each_row
from tests.servers.databases import RedisServer, postgres_server, redis_server
from tests.stores.conftest import postgres_dsn

from orbiter.memory import (
    AgentMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    PostgresMemoryStore,
    RedisMemoryStore,
    ShortTermMemory,
    VectorMemoryStore,
)
from orbiter.memory.backends.adapter import StoreAdapter, as_agent_store
from orbiter.memory.backends.sqlite import SQLiteMemoryStore
from orbiter.memory.errors import (
    NotInitializedError,
    QueryError,
    UnsupportedError,
    VersionConflict,
)
from orbiter.memory.model.agent_store import AgentStore
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.transfer.export_formats import RecordStore

__all__ = ["postgres_dsn", "postgres_server", "redis_server"]

ANN = MemoryMetadata(user_id="ann")
TALK = MemoryMetadata(user_id="ann", session_id="monday")


class OldestFirst:
    """A store of another package that returns the oldest first."""

    def __init__(self) -> None:
        inner = ShortTermMemory()
        self.add, self.get = inner.add, inner.get
        self.search, self.clear = inner.search, inner.clear


STORES: dict[str, Callable[[Path], MemoryStore]] = {
    "toy": lambda folder: ToyStore(f"toy://{folder}/notes.json"),
    "short-term": lambda _: ShortTermMemory(),
    "vector": lambda _: VectorMemoryStore(HashEmbeddings(8)),
}


@pytest.fixture(params=STORES)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryStore:
    return STORES[request.param](tmp_path)


# Order


def _of_one_instant(*ids: str, metadata: MemoryMetadata = ANN) -> list[MemoryItem]:
    first = HumanMemory(id=ids[0], content=ids[0], metadata=metadata)
    when = first.created_at
    others = [HumanMemory(id=i, content=i, metadata=metadata, created_at=when) for i in ids[1:]]
    return [first, *others]


@pytest.mark.parametrize("ids", [("c", "b", "a"), ("a", "b", "c"), ("b", "c", "a"), ("b", "a")])
async def test_items_of_one_instant_keep_the_order_of_insertion(
    any_store: MemoryStore, ids: tuple[str, ...]
) -> None:
    async with StoreAdapter(any_store) as store:
        for item in _of_one_instant(*ids):
            await store.add(item)

        assert [item.id for item in await store.search()] == [*reversed(ids)]
        assert [record.id for record in await store.records()] == [*ids]


async def test_a_store_that_returns_the_oldest_first_is_turned_round() -> None:
    store = StoreAdapter(OldestFirst())
    await store.add(HumanMemory(id="z", content="z", metadata=ANN))
    for item in _of_one_instant("c", "b", "a"):
        await store.add(item)

    assert [item.id for item in await store.search()] == ["a", "b", "c", "z"]


async def test_a_conversation_in_short_term_memory_is_in_the_order_of_insertion() -> None:
    store = StoreAdapter(ShortTermMemory())
    late, early = HumanMemory(content="first", metadata=TALK), HumanMemory(content="second")
    early = early.model_copy(update={"metadata": TALK, "created_at": late.created_at.replace(2020)})
    await store.add_many([late, early])

    said = await store.search(metadata=TALK, order="insertion")
    by_time = await store.search(metadata=TALK)

    assert [item.content for item in said] == ["second", "first"]
    assert [item.content for item in by_time] == ["first", "second"]


async def test_a_call_without_its_result_is_listed_and_erased_in_short_term_memory() -> None:
    store = ShortTermMemory()
    async with AgentMemory(store=store, embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        await ann.chat("c").add({"role": "assistant", "content": "hm", "tool_calls": [call]})
        assert [item.content for item in await ann.list()] == ["hm"]

        done = await memory.erase(user_id="ann")

        assert (done.items, len(store)) == (1, 0)


# What is not a store, and secrets


class Blocking:
    """A store whose methods are not coroutines."""

    def add(self, item: MemoryItem) -> None: ...

    def get(self, item_id: str) -> None: ...

    def search(self, **_: object) -> list[MemoryItem]:
        return []

    def clear(self, **_: object) -> int:
        return 0


class Delegating:
    """A store whose methods return what is awaited, and are no coroutines themselves."""

    def __init__(self, inner: MemoryStore | None = None) -> None:
        self._inner = inner or ShortTermMemory()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class WithPassword(OldestFirst):
    def __repr__(self) -> str:
        return "WithPassword('db://ann:s3cret@host')"


def test_a_class_in_place_of_a_store_is_refused() -> None:
    with pytest.raises(QueryError, match=re.escape("`ToyStore` is a class; pass `ToyStore(…)`")):
        AgentMemory(store=ToyStore, embeddings=None)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`SQLiteMemoryStore` is a class"):
        as_agent_store(SQLiteMemoryStore)


@each_row("name", ["add", "get", "search", "clear", "delete_many", "init"])
def test_a_store_whose_methods_are_not_coroutines_is_refused(name: str) -> None:
    store = OldestFirst()
    setattr(store, name, lambda *_, **__: None)

    with pytest.raises(QueryError, match=f"`OldestFirst.{name}` is not a coroutine.*`async def`"):
        AgentMemory(store=store, embeddings=None)


def test_a_blocking_store_is_refused_by_its_first_method() -> None:
    with pytest.raises(QueryError, match="`Blocking.add` is not a coroutine"):
        as_agent_store(Blocking())


async def test_a_store_that_delegates_is_taken() -> None:
    store: Any = Delegating()
    async with AgentMemory(store=store, embeddings=None) as memory:
        await memory.scope(user_id="ann").remember("tea")

    assert len(store._inner) == 1


async def test_a_store_that_delegates_can_do_what_the_other_can(tmp_path: Path) -> None:
    def wrapped() -> AgentMemory:
        store: Any = Delegating(SQLiteMemoryStore(tmp_path / "a.db"))
        return AgentMemory(store=store, embeddings=None)

    async with wrapped() as one, wrapped() as two:
        item = await one.scope(user_id="ann").remember("tea", idempotency_key="k")
        again = await two.scope(user_id="ann").remember("tea", idempotency_key="k")
        await two.scope(user_id="ann").update(item.id, "coffee", expected_version=1)

        assert again.id == item.id
        assert not isinstance(one.store, StoreAdapter)
        with pytest.raises(VersionConflict):
            await one.scope(user_id="ann").update(item.id, "milk", expected_version=1)
        assert len(await one.scope(user_id="ann").history(item.id)) == 2
        assert [hit.item.id for hit in await one.scope(user_id="ann").recall("coffee")] == [item.id]


def test_what_a_delegate_lacks_it_is_not_taken_for() -> None:
    store: Any = Delegating(ShortTermMemory())

    assert isinstance(store, MemoryStore)
    assert not isinstance(store, LexicalStore | AgentStore)
    assert not isinstance(Delegating(), SQLiteMemoryStore)
    vars(store)["search"] = None
    assert not isinstance(store, MemoryStore)


def test_a_protocol_that_somebody_derives_keeps_no_other_store_from_being_taken() -> None:
    class Wider(AgentStore, Protocol):
        @property
        def size(self) -> int: ...

    class Own(ShortTermMemory):
        """Of a class about which nobody has asked yet."""

    assert isinstance(AgentMemory(store=Own(), embeddings=None).store, StoreAdapter)
    assert Wider.__mro__[1] is AgentStore


def test_no_secret_in_the_repr_of_a_store_is_shown() -> None:
    memory = AgentMemory(store=WithPassword(), embeddings=None)

    shown = f"{memory!r} {memory.url} {memory.store!r} {memory.audit!r}"

    assert "s3cret" not in shown
    assert (memory.url, repr(memory.store)) == ("<WithPassword>", "StoreAdapter(<WithPassword>)")


def test_our_stores_say_where_they_are(tmp_path: Path) -> None:
    pytest.importorskip("asyncpg")
    pytest.importorskip("redis")
    secret = "ann:s3cret@h/1"
    urls: dict[MemoryStore, str] = {
        SQLiteMemoryStore(tmp_path / "a.db"): f"sqlite:///{tmp_path}/a.db",
        SQLiteMemoryStore(":memory:"): "memory://",
        PostgresMemoryStore(f"postgresql://{secret}"): "postgresql://ann@h/1",
        RedisMemoryStore(f"redis://{secret}"): "redis://ann@h/1",
        ShortTermMemory(): "<ShortTermMemory>",
    }

    for store, url in urls.items():
        assert AgentMemory(store=store, embeddings=None).url == url


# Opening and closing


class Opened(OldestFirst):
    """A store of another package with a life of its own, which says of itself only errors."""

    def __init__(self) -> None:
        super().__init__()
        self._get, self.get = self.get, self._get_if_open
        self.calls: list[str] = []
        self._is_there = False

    async def init(self) -> None:
        self.calls.append("init")
        self._is_there = True

    async def close(self) -> None:
        self.calls.append("close")
        self._is_there = False

    async def _get_if_open(self, item_id: str) -> MemoryItem | None:
        if not self._is_there:
            raise ValueError("no active connection")
        return await self._get(item_id)


@pytest.mark.parametrize("kind", ["toy", "sqlite", "sqlite in memory"])
async def test_a_store_that_the_caller_opened_stays_open(kind: str, tmp_path: Path) -> None:
    path = ":memory:" if kind == "sqlite in memory" else tmp_path / "a.db"
    made = STORES["toy"](tmp_path) if kind == "toy" else SQLiteMemoryStore(path)
    async with as_agent_store(made) as store:
        for _ in range(2):
            async with AgentMemory(store=made, embeddings=None) as memory:
                await memory.scope(user_id="ann").remember("tea")

        assert await store.count() == 2


@pytest.mark.parametrize("kind", ["toy", "sqlite"])
async def test_a_store_that_nobody_opened_is_opened_and_closed(kind: str, tmp_path: Path) -> None:
    store = STORES["toy"](tmp_path) if kind == "toy" else SQLiteMemoryStore(tmp_path / "a.db")
    memory = AgentMemory(store=store, embeddings=None)
    for number in range(2):
        async with memory:
            await memory.scope(user_id="ann").remember("tea")
            assert (await memory.scope(user_id="ann").stats()).items == number + 1

        with pytest.raises(NotInitializedError):
            await store.get("a")


async def test_who_opened_a_store_is_seen_by_its_errors() -> None:
    ours, theirs = Opened(), Opened()
    await theirs.init()
    for store in (ours, theirs):
        async with AgentMemory(store=store, embeddings=None) as memory:
            await memory.scope(user_id="ann").remember("tea")

    assert ours.calls == ["init", "close"]
    assert theirs.calls == ["init", "init"]


async def test_a_store_that_is_embedded_anew_is_closed_by_who_opened_it(tmp_path: Path) -> None:
    store = SQLiteMemoryStore(tmp_path / "a.db", embeddings=HashEmbeddings(8))
    async with AgentMemory(store=store) as memory:
        await memory.scope(user_id="ann").remember("tea")
    other = SQLiteMemoryStore(tmp_path / "a.db", embeddings=HashEmbeddings(16))
    memory = AgentMemory(store=other)

    assert await memory.reindex() == 1
    await memory.close()

    with pytest.raises(NotInitializedError):
        await other.get("a")


async def test_looking_whether_a_store_is_open_is_not_logged(tmp_path: Path) -> None:
    async with SQLiteMemoryStore(tmp_path / "a.db", audit="all") as store:
        async with AgentMemory(store=store) as memory:
            before = await memory.audit.entries()
        async with AgentMemory(store=store) as memory:
            assert len(await memory.audit.entries()) - len(before) <= 1


# Refusals


async def test_recall_by_meaning_without_a_model_names_the_store(tmp_path: Path) -> None:
    async with AgentMemory(store=STORES["toy"](tmp_path), embeddings=None) as memory:
        with pytest.raises(UnsupportedError, match="this `ToyStore` has no `embeddings`"):
            await memory.scope(user_id="ann").recall("tea", mode="meaning")


async def test_what_a_store_cannot_do_is_refused_by_its_own_name(tmp_path: Path) -> None:
    async with AgentMemory(store=STORES["toy"](tmp_path), embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        item = await ann.remember("tea")
        refusals: dict[Callable[[], Any], str] = {
            memory.stats: "does not support `stats`",
            memory.verify: "does not support `verify`",
            memory.reindex: "does not support `reindex`",
            memory.audit.entries: "keeps no audit log",
            lambda: memory.backup(tmp_path / "copy.db"): "has no file to copy",
            lambda: ann.history(item.id): "keeps no earlier versions",
        }
        for call, what in refusals.items():
            with pytest.raises(UnsupportedError) as caught:
                await call()
            told = str(caught.value)
            assert told.startswith(f"`ToyStore` {what}"), told
            assert "SQLite" in told
            assert "StoreAdapter" not in told


def test_a_model_for_a_store_that_would_not_use_it_is_refused(tmp_path: Path) -> None:
    store = SQLiteMemoryStore(tmp_path / "a.db")

    with pytest.raises(QueryError, match="`SQLiteMemoryStore` .*; give `embeddings` to the store"):
        AgentMemory(store=store, embeddings=HashEmbeddings(8))


async def test_a_model_for_a_plain_store_is_used(tmp_path: Path) -> None:
    model = HashEmbeddings(8)
    async with AgentMemory(store=STORES["toy"](tmp_path), embeddings=model) as memory:
        ann = memory.scope(user_id="ann")
        tea = await ann.remember("green tea")

        found = await ann.recall("green tea", mode="meaning")

        assert [hit.item.id for hit in found] == [tea.id]


async def _check_closed_by_who_opened_it(store: PostgresMemoryStore | RedisMemoryStore) -> None:
    user = MemoryMetadata(user_id=secrets.token_hex(8))
    async with AgentMemory(store=store, embeddings=None) as memory:
        await memory.scope(user_id=user.user_id).remember("tea")
    assert not store.is_open
    async with store:
        async with AgentMemory(store=store, embeddings=None) as memory:
            await memory.scope(user_id=user.user_id).remember("cake")
        assert await store.count(metadata=user) == 2


async def test_a_database_is_closed_by_who_opened_it(postgres_dsn: str) -> None:
    await _check_closed_by_who_opened_it(PostgresMemoryStore(postgres_dsn))


async def test_a_redis_is_closed_by_who_opened_it(redis_server: RedisServer) -> None:
    await _check_closed_by_who_opened_it(RedisMemoryStore(redis_server.url()))


def test_a_store_is_adapted_where_exports_are_loaded() -> None:
    class New(ShortTermMemory):
        """A class that was never asked what it can do."""

    # `isinstance` asks what extends a protocol, too: one kind of `Protocol` must not meet another.
    assert AgentStore in RecordStore.__mro__
    assert isinstance(as_agent_store(New()), StoreAdapter)
