"""The address chooses the store, and nothing else in a program changes with it."""

import contextlib
import io
import logging
import os
import re
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.rows import each_row
from tests.servers.databases import PostgresServer, RedisServer
from tests.servers.redis_topologies import RedisCluster, redis_cluster

from orbiter.memory import (
    AgentMemory,
    MemoryConnectionError,
    MemoryError,
    PostgresMemoryStore,
    RedisMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.backends.registry import URL_VARIABLE, default_url
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.errors import AccessError, QueryError, StorageError, UnsupportedError

__all__ = ["redis_cluster"]

Open = Callable[..., AgentMemory]


# Which store


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("agent.db", "agent.db"),
        ("./some folder/agent memory.db", "./some folder/agent memory.db"),
        ("sqlite:///agent.db", "agent.db"),
        ("sqlite:///some folder/a.db", "some folder/a.db"),
        ("sqlite:////var/lib/agent.db", "/var/lib/agent.db"),
        (Path("folder/agent.db"), "folder/agent.db"),
        (Path("redis.db"), "redis.db"),
        ("postgres-notes.db", "postgres-notes.db"),
        ("memory.db", "memory.db"),
        ("memory://", ":memory:"),
        ("sqlite:///:memory:", ":memory:"),
    ],
)
async def test_a_file_is_sqlites(open_memory: Open, address: str | Path, path: str) -> None:
    memory = open_memory(address)

    assert isinstance(memory.store, SQLiteMemoryStore)
    assert memory.store.db_path == path
    assert memory.url == str(address)
    assert repr(memory) == f"AgentMemory({str(address)!r})"


async def test_servers_are_told_by_their_scheme(open_memory: Open) -> None:
    for address in ("postgresql://ann:s3cret@db:5/x", "postgres://ann:s3cret@db/x"):
        memory = open_memory(address)
        assert isinstance(memory.store, PostgresMemoryStore)
        assert "s3cret" not in memory.url + repr(memory)
        assert "ann" in memory.url
    for address in (
        "redis://:s3cret@cache:6379/0",
        "rediss://ann:s3cret@cache",
        "redis+sentinel://:s3cret@a:1,b:2/main",
        "redis+cluster://:s3cret@a:1",
    ):
        memory = open_memory(address)
        assert isinstance(memory.store, RedisMemoryStore)
        assert "s3cret" not in memory.url + repr(memory)


@each_row(
    "address",
    [
        "mysql://ann:s3cret@db/x",
        "sqlite+aiosqlite:///agent.db",
        "POSTGRES//ann:s3cret@db://x",
        "postgres:ann:s3cret@db/x",
        "redis:s3cret@db",
        "sqlite:agent.db",
        "sqlite://agent.db",
        "sqlite:///",
        "file:agent.db",
        "file:///var/lib/agent.db?mode=ro",
        "FILE:agent.db",
        "memory:",
        "memory://notes",
        "",
        7,
        b"agent.db",
    ],
)
def test_what_is_no_address_is_refused_with_the_ways_that_are(address: object) -> None:
    with pytest.raises(QueryError, match="sqlite:///|memory://") as caught:
        AgentMemory(address, embeddings=None)  # type: ignore[arg-type]  # wrong on purpose

    assert "s3cret" not in "".join(traceback.format_exception(caught.value)[-1:])


@pytest.mark.parametrize(
    ("address", "path"),
    [("file:agent.db", "agent.db"), ("file:///var/lib/agent.db?mode=ro", "/var/lib/agent.db")],
)
def test_an_address_of_a_file_is_refused_with_its_path(address: str, path: str) -> None:
    with pytest.raises(QueryError) as refusal:
        AgentMemory(address, embeddings=None)

    assert f"write the path `{path}`, or `sqlite:///{path}`" in str(refusal.value)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match="embeddings"):
        AgentMemory(tmp_path / "a.db", embeddings="some-model")  # type: ignore[arg-type]  # wrong on purpose


def test_making_a_memory_opens_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(URL_VARIABLE, raising=False)

    AgentMemory(embeddings=None)
    AgentMemory(tmp_path / "a.db", embeddings=None)

    assert list(tmp_path.iterdir()) == []


async def test_a_failed_login_shows_no_password(
    postgres_server: PostgresServer,
    redis_server: RedisServer,
    open_memory: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shown = []

    with caplog.at_level(logging.DEBUG):
        for address in (
            f"postgresql://ann:s3cret@127.0.0.1:{postgres_server.port}/x?sslmode=disable",
            f"redis://ann:s3cret@127.0.0.1:{redis_server.port}/0",
        ):
            memory = open_memory(address)
            with pytest.raises((AccessError, StorageError, MemoryConnectionError)) as caught:
                await memory.scope(user_id="alice").remember("tea")
            shown += traceback.format_exception(caught.value)
            shown += [repr(memory), repr(memory.scope(user_id="a")), repr(memory.store)]

    told = "".join([*shown, caplog.text])
    assert "s3cret" not in told.replace("ann:s3cret@127.0.0.1:{", "")  # this file's own lines


async def test_an_address_that_does_not_open_is_told_without_the_way_there(
    redis_cluster: RedisCluster,
    postgres_server: PostgresServer,
    tmp_path: Path,
    open_memory: Open,
) -> None:
    node = redis_cluster.nodes[0]
    (tmp_path / "notes.db").write_text("no database " * 1_000)

    for address, said, is_of_driver in (
        (node.url(), "is a node of a cluster; use `redis+cluster://`", True),
        (f"postgresql://ann@127.0.0.1:{postgres_server.port}/x?sslmode=disable", "ann", True),
        ("postgresql://127.0.0.1:99999/x", "is not a valid address", False),
        (str(tmp_path / "notes.db"), "is not a SQLite database", False),
    ):
        memory = open_memory(address)
        with pytest.raises((AccessError, StorageError, MemoryConnectionError)) as caught:
            await memory.scope(user_id="alice").remember("tea")
        shown = "".join(traceback.format_exception(caught.value))
        assert said in str(caught.value)
        assert (caught.value.__cause__ is not None) is is_of_driver, address
        assert "site-packages" not in shown, address  # a driver's frames
        assert "backends" not in shown, address  # and ours on the way to it


# The default file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    return tmp_path / "data" / "orbiter-memory"


async def test_without_an_address_memories_lie_in_the_users_own_folder(
    home: Path, open_memory: Open
) -> None:
    old = os.umask(0)
    try:
        memory = open_memory()
        await memory.scope(user_id="alice").remember("tea")
    finally:
        os.umask(old)

    assert memory.url == f"sqlite:///{home}/memory.db"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for file in home.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    again = open_memory()
    assert len(await again.scope(user_id="alice").list()) == 1


async def test_a_folder_that_is_there_stays_as_it_is(home: Path, open_memory: Open) -> None:
    home.mkdir(parents=True, mode=0o755)
    (home / "other").write_text("kept")

    await open_memory().scope(user_id="alice").remember("tea")

    assert stat.S_IMODE(home.stat().st_mode) == 0o755
    assert (home / "other").read_text() == "kept"


async def test_the_environment_names_another_place(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_memory: Open
) -> None:
    (tmp_path / "new folder").mkdir()
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path}/new folder/mine.db")

    memory = open_memory()
    await memory.scope(user_id="alice").remember("tea")

    assert (tmp_path / "new folder" / "mine.db").exists()
    assert not home.exists()
    monkeypatch.setenv(URL_VARIABLE, "memory://")
    assert default_url() == "memory://"
    assert await open_memory().scope(user_id="alice").list() == []
    monkeypatch.setenv(URL_VARIABLE, "mysql://ann:s3cret@db")
    with pytest.raises(QueryError) as caught:
        open_memory()
    assert "s3cret" not in str(caught.value)


async def test_a_named_place_must_be_there(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory(tmp_path / "missing" / "a.db")

    with pytest.raises(StorageError, match="missing"):
        await memory.scope(user_id="alice").remember("tea")

    assert not (tmp_path / "missing").exists()


async def test_paths_and_addresses_of_one_file_are_one_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_memory: Open
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "my agent%20.db"
    await open_memory(Path(name)).scope(user_id="alice").remember("tea")

    for address in (name, f"sqlite:///{name}", f"sqlite:///{tmp_path}/{name}", tmp_path / name):
        assert len(await open_memory(address).scope(user_id="alice").list()) == 1, address


async def test_what_is_in_memory_is_of_one_object_alone(open_memory: Open) -> None:
    first, second = open_memory("memory://"), open_memory("memory://")

    await first.scope(user_id="alice").remember("tea")

    assert await second.scope(user_id="alice").list() == []


# Opening and closing


async def test_the_first_use_opens_and_closing_may_be_repeated(
    url: str, open_memory: Open, who: str
) -> None:
    memory = open_memory(url, embeddings=None)
    await memory.close()
    await memory.scope(user_id=who).remember("tea")
    await memory.init()
    await memory.close()
    await memory.close()

    assert len(await memory.scope(user_id=who).list()) == 1

    await memory.close()


async def test_an_error_inside_the_block_closes_the_memory(tmp_path: Path) -> None:
    with contextlib.suppress(KeyError):
        async with AgentMemory(tmp_path / "a.db", embeddings=None) as memory:
            await memory.scope(user_id="alice").remember("tea")
            raise KeyError

    with pytest.raises(MemoryError):
        await memory.store.count()


async def test_a_memory_looks_after_its_store(
    open_memory: Open, postgres_dsn: str, tmp_path: Path
) -> None:
    for address in (tmp_path / "a.db", postgres_dsn):
        memory = open_memory(address)
        await memory.scope(user_id="alice").remember_many(["tea", "coffee"])

        assert (await memory.stats()).items == 2
        assert await memory.verify()
        assert await memory.verify(repair=True)
        assert await memory.reindex() == 2
        assert len(await memory.scope(user_id="alice").recall("tea", mode="words")) == 1


async def test_a_file_is_copied_while_it_is_in_use_and_servers_have_their_own_ways(
    open_memory: Open, postgres_url: str, tmp_path: Path
) -> None:
    memory = open_memory(tmp_path / "a.db")
    await memory.scope(user_id="alice").remember("tea")

    await memory.backup(tmp_path / "copy.db")

    assert len(await open_memory(tmp_path / "copy.db").scope(user_id="alice").list()) == 1
    with pytest.raises(UnsupportedError, match="pg_dump") as caught:
        await open_memory(postgres_url).backup(tmp_path / "other.db")
    assert str(urlsplit(postgres_url).password) not in str(caught.value)


async def test_a_file_is_restored_and_servers_have_their_own_ways(
    open_memory: Open, postgres_url: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    memory = open_memory(tmp_path / "a.db")
    alice = memory.scope(user_id="alice")
    await alice.remember("tea")
    await memory.backup(tmp_path / "copy.db")
    await alice.remember("coffee")

    done = await memory.restore(tmp_path / "copy.db")

    assert [item.content for item in await alice.list()] == ["tea"]
    assert done.items == 1
    assert len(await open_memory(done.replaced).scope(user_id="alice").list()) == 2
    for url, way in ((postgres_url, "pg_restore"), (redis_server.url(), "a dump for Redis")):
        with pytest.raises(UnsupportedError, match=way):
            await open_memory(url).restore(tmp_path / "copy.db")
    with pytest.raises(UnsupportedError, match="open the backup by its own path"):
        await open_memory("memory://").restore(tmp_path / "copy.db")


# The same program everywhere

MODEL = LocalEmbeddings()


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis", "memory"])
async def test_the_same_program_runs_on_every_store(
    kind: str, who: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = {"sqlite": f"sqlite:///{tmp_path}/agent.db", "memory": "memory://"}.get(kind, "")
    if kind == "postgres":  # the shared one is of another model
        address = request.getfixturevalue("postgres_server").create_database()
    elif kind == "redis":
        address = request.getfixturevalue("redis_server").url()
    said = io.StringIO()

    async with AgentMemory(address, embeddings=MODEL) as memory:
        alice = memory.scope(user_id=f"alice-{who}", session_id="s1")
        await alice.remember("My sister's name is Joan")
        await alice.remember("I love hiking in the mountains")
        await alice.remember("The invoice is due on Friday")
        for hit in await alice.recall("outdoor activities"):
            print(f"{hit.score:.2f}  {hit.item.content}   ({hit.why})", file=said)

    lines = said.getvalue().splitlines()
    assert "I love hiking in the mountains" in lines[0]
    assert "(answers it" in lines[0]


@pytest.mark.parametrize(
    "address", ["localhost:8765", "127.0.0.1:8765", "memory.example.com:443/v1", "[::1]:8765"]
)
def test_a_server_without_its_scheme_is_no_file(address: str, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=f"did you mean `http://{re.escape(address)}`"):
        AgentMemory(address)

    assert AgentMemory(tmp_path / "a.b:12").url.endswith("a.b:12")


class Counted(AgentMemory):
    """A memory of a program's own class, which counts how often it is opened."""

    opened = 0

    async def init(self) -> None:
        self.opened += 1
        await super().init()


async def test_whatever_opens_a_store_calls_the_init_of_an_own_class(tmp_path: Path) -> None:
    memory = Counted(tmp_path / "a.db", embeddings=None)

    await memory.stats()
    await memory.verify()
    await memory.backup(tmp_path / "copy.db")
    await memory.close()

    assert memory.opened == 3
