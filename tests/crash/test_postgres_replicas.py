"""Reads from streaming replicas, and a failover to one of them, on real servers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.crash._postgres_load import Load
from tests.server.worker_servers import serve_workers
from tests.servers.postgres_replicas import (
    PostgresReplicas,
    answers_with,
    postgres_replicas,
    query,
)
from tests.servers.processes import wait_until
from tests.timing import HANG, scaled

from orbiter.memory import AgentMemory, HumanMemory, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.auth.key_table import KeyTable
from orbiter.memory.backends.postgres import replicas as replicas_module
from orbiter.memory.errors import QueryError
from orbiter.memory.server import Settings, create_app, serving
from orbiter.memory.tasks.read_from import reading_from
from orbiter.memory.testing import HashEmbeddings

__all__ = ["postgres_replicas"]

ANN = MemoryMetadata(user_id="ann")
PAUSE, RESUME = "SELECT pg_wal_replay_pause()", "SELECT pg_wal_replay_resume()"
REPLAYED = "pg_last_wal_replay_lsn() - '0/0'"


@pytest.fixture
async def url(postgres_replicas: PostgresReplicas) -> AsyncIterator[str]:
    """A database on healthy servers; what a test stops or pauses goes on after it."""
    dsn = await asyncio.to_thread(postgres_replicas.create_database)
    yield postgres_replicas.url(dsn)
    await asyncio.to_thread(_mend, postgres_replicas)


def _mend(servers: PostgresReplicas) -> None:
    for server in (servers.primary, *servers.replicas):
        if server.pid is not None:
            os.kill(server.pid, signal.SIGCONT)
        server.start_again()
    for replica in servers.replicas:
        query(replica.dsn(), RESUME)


def _on_replicas(servers: PostgresReplicas, sql: str) -> None:
    for replica in servers.replicas:
        query(replica.dsn(), sql)


async def _caught_up(servers: PostgresReplicas) -> None:
    position = "SELECT pg_current_wal_lsn() - '0/0'"
    ((wanted,),) = await asyncio.to_thread(query, servers.primary.dsn(), position)
    for replica in servers.replicas:
        has_all = partial(answers_with, replica.dsn(), f"SELECT {REPLAYED} >= {wanted}", value=True)
        await asyncio.to_thread(wait_until, has_all, what="a replica that has all")


async def test_a_replica_answers_while_the_primary_is_down(
    postgres_replicas: PostgresReplicas, url: str
) -> None:
    async with AgentMemory(url, embeddings=None) as memory:
        item = await memory.scope("ann").remember("The door code is 4711.")
        ann = memory.scope("ann", read_from="replica")
        await ann.recall("door code")  # so that terms are made, and the position is known
        await ann.recall("door code")

        await asyncio.to_thread(postgres_replicas.primary.stop, mode="immediate")

        hits = await asyncio.wait_for(ann.recall("door code"), HANG)
        page = await asyncio.wait_for(ann.list(), HANG)
        found = await asyncio.wait_for(ann.get(item.id), HANG)

    assert [hit.item.id for hit in hits] == [item.id]
    assert [each.id for each in page] == [item.id]
    assert found is not None


@pytest.mark.parametrize("model", [None, HashEmbeddings()], ids=["words", "meaning"])
async def test_who_reads_from_replicas_always_sees_their_own_writes(
    url: str, model: HashEmbeddings | None
) -> None:
    async with AgentMemory(url, embeddings=model) as memory:
        ann = memory.scope("ann", read_from="replica")
        chat = ann.chat("one")
        for number in range(25):
            item = await ann.remember(f"Parcel {number} is at shelf {number}.")
            await chat.add({"role": "user", "content": f"Where is parcel {number}?"})

            hits = await ann.recall(f"parcel {number} shelf", k=50)
            page = await ann.list(limit=1, memory_type="human")
            said = await chat.items()
            context = await chat.context()

            assert item.id in {hit.item.id for hit in hits}
            assert page[0].content == f"Where is parcel {number}?"
            assert await ann.get(item.id) is not None
            assert len(said) == number + 1
            assert f"Where is parcel {number}?" in f"{context.messages()}"


async def test_a_replica_that_lags_is_left_out_for_the_sake_of_own_writes(
    postgres_replicas: PostgresReplicas, url: str
) -> None:
    async with AgentMemory(f"{url}&replica_wait=0.1", embeddings=None) as memory:
        ann = memory.scope("ann", read_from="replica")
        await asyncio.to_thread(_on_replicas, postgres_replicas, PAUSE)

        item = await ann.remember("new")

        assert await ann.get(item.id) is not None
        assert [hit.item.id for hit in await ann.recall("new")] == [item.id]


async def test_what_others_write_may_be_seen_later_unless_all_is_asked_for(
    postgres_replicas: PostgresReplicas, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "REST", 0.0)
    async with (
        AgentMemory(url, embeddings=None) as writer,
        AgentMemory(url, embeddings=None) as reader,
        AgentMemory(f"{url}&replica_sees=all&replica_wait=0.1", embeddings=None) as strict,
    ):
        await _caught_up(postgres_replicas)
        await asyncio.to_thread(_on_replicas, postgres_replicas, PAUSE)

        item = await writer.scope("ann").remember("new")

        # Seen by nobody who asks a replica: so it was a replica that answered.
        assert await reader.scope("ann", read_from="replica").get(item.id) is None
        assert await reader.scope("ann").get(item.id) is not None
        assert await strict.scope("ann", read_from="replica").get(item.id) is not None


def _stopped(servers: PostgresReplicas) -> None:
    for replica in servers.replicas:
        replica.stop(mode="immediate")


def _frozen(servers: PostgresReplicas) -> None:
    for replica in servers.replicas:
        pid = replica.pid
        assert pid is not None
        # The connections are processes of their own.
        for each in (pid, *_children(pid)):
            os.kill(each, signal.SIGSTOP)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123
        return [int(each) for each in file.read().split()]


def _thaw(servers: PostgresReplicas) -> None:
    for replica in servers.replicas:
        if replica.pid is not None:
            for each in (*_children(replica.pid), replica.pid):
                os.kill(each, signal.SIGCONT)


@pytest.mark.parametrize("break_replicas", [_stopped, _frozen], ids=["stopped", "frozen"])
async def test_a_dead_replica_fails_no_read(
    postgres_replicas: PostgresReplicas,
    url: str,
    break_replicas: Callable[[PostgresReplicas], None],
) -> None:
    async with AgentMemory(f"{url}&replica_wait=0.2", embeddings=None) as memory:
        ann = memory.scope("ann", read_from="replica")
        item = await ann.remember("one")
        for _ in range(4):
            assert await ann.get(item.id) is not None

        await asyncio.to_thread(break_replicas, postgres_replicas)
        try:
            answers = await asyncio.wait_for(
                asyncio.gather(*(ann.get(item.id) for _ in range(50))), HANG
            )
            again = await ann.remember("two")
            hits = await ann.recall("two")
        finally:
            await asyncio.to_thread(_thaw, postgres_replicas)

    assert all(answers)
    assert [hit.item.id for hit in hits] == [again.id]


async def test_a_replica_that_comes_back_is_asked_again(
    postgres_replicas: PostgresReplicas, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "REST", 0.0)
    async with AgentMemory(url, embeddings=None) as memory:
        ann = memory.scope("ann", read_from="replica")
        item = await ann.remember("one")
        await asyncio.to_thread(_stopped, postgres_replicas)
        assert await ann.get(item.id) is not None
        await asyncio.to_thread(_mend, postgres_replicas)
        await _caught_up(postgres_replicas)
        assert await ann.get(item.id) is not None

        await asyncio.to_thread(postgres_replicas.primary.stop, mode="immediate")

        assert await asyncio.wait_for(ann.get(item.id), HANG) is not None


async def test_a_handle_that_reads_from_replicas_writes_to_the_primary(url: str) -> None:
    async with AgentMemory(url, embeddings=None) as memory:
        ann = memory.scope("ann", read_from="replica")
        item = await ann.remember("one", tags=["a"])

        changed = await ann.update(item.id, content="two")
        await ann.facts.put("city", "Rome")
        await ann.forget(item.id)

        assert changed.content == "two"
        assert await ann.get(item.id) is None
        assert (await ann.facts.get("city")) is not None


async def test_a_task_that_outlives_a_read_reads_from_the_primary(url: str) -> None:
    async with PostgresMemoryStore(url) as store:
        begin = asyncio.Event()

        async def later() -> bool:
            await begin.wait()
            asked = store._replicas
            assert asked is not None
            before = asked._turn
            await store.count()
            return before == asked._turn

        with reading_from("replica"):
            task = asyncio.create_task(later())
            await store.count()
        begin.set()

        assert await task


async def test_row_security_holds_on_replicas(
    url: str, postgres_replicas: PostgresReplicas
) -> None:
    dsn = url.partition("&replicas")[0]
    for statement in (
        "CREATE ROLE held LOGIN PASSWORD 'held'",
        "GRANT ALL ON SCHEMA public TO held",
    ):
        await asyncio.to_thread(query, dsn, statement)
    await _caught_up(postgres_replicas)
    who = url.partition("@")[0]
    store = PostgresMemoryStore(url.replace(who, "postgresql://held:held"))
    await store.init(row_security=True)
    try:
        item = HumanMemory(content="secret", metadata=ANN)
        await store.acting_for("ann").add(item)

        with reading_from("replica"):
            assert await store.acting_for("ann").get(item.id) is not None
            assert await store.acting_for("bob").get(item.id) is None
            assert await store.acting_for("bob").search() == []
    finally:
        await store.close()


async def test_a_client_of_a_server_may_be_answered_by_a_replica(
    postgres_replicas: PostgresReplicas, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "REST", 0.0)
    settings = Settings(port=0, with_mcp=False, with_dashboard=False)
    async with (
        AgentMemory(url, embeddings=None) as writer,
        AgentMemory(url, embeddings=None) as memory,
        serving(create_app(memory, settings=settings), settings=settings) as address,
        AgentMemory(address) as client,
    ):
        await _caught_up(postgres_replicas)
        await asyncio.to_thread(_on_replicas, postgres_replicas, PAUSE)

        item = await writer.scope("ann").remember("new")

        assert await client.scope("ann", read_from="replica").get(item.id) is None
        assert await client.scope("ann").get(item.id) is not None
        async with httpx.AsyncClient(base_url=address) as plain:
            answer = await plain.get("/v1/memories?user_id=ann&read_from=copy")
        assert answer.status_code == 422
        assert "`read_from` must be `primary` or `replica`, not 'copy'" in answer.text


async def test_a_client_of_several_workers_sees_its_writes_whichever_it_reads_through(
    postgres_replicas: PostgresReplicas, url: str, tmp_path: Path
) -> None:
    with serve_workers(f"{url}&replica_wait=0.1", tmp_path, "--no-mcp") as server:
        await _caught_up(postgres_replicas)
        await asyncio.to_thread(_on_replicas, postgres_replicas, PAUSE)
        writer, reader = server.pids
        path = "/v1/memories?user_id=ann&read_from=replica"

        kept = await asyncio.to_thread(
            server.ask, "POST", "/v1/memories?user_id=ann", {"what": "new"}, pid=writer
        )
        seen = await asyncio.to_thread(server.ask, "GET", path, pid=reader)

    assert kept.status < 300, kept.body
    assert [each["content"] for each in seen.data["items"]] == ["new"]


def test_a_bad_source_or_option_says_what_would_do() -> None:
    with pytest.raises(QueryError, match="`read_from` must be `primary` or `replica`, not 'copy'"):
        AgentMemory("memory://").scope("ann", read_from="copy")
    for option, said in {
        "replicas=one": "`replicas` must be like `host:port,host:port`, not `one`",
        "replicas=": "`replicas` must be like",
        "replicas=a:b@c:1": "not `c:1`; user, password",
        "replicas=c:1&replica_wait=0": "`replica_wait` must be a number of seconds above 0",
        "replicas=c:1&replica_sees=some": "`replica_sees` must be `own` or `all`, not `some`",
        "statement_cache_size=no": "`statement_cache_size` must be a number from 0 on",
    }.items():
        with pytest.raises(ValueError, match=said):
            PostgresMemoryStore(f"postgresql://host/name?{option}")


async def test_the_keys_of_a_store_with_replicas_are_on_its_primary(url: str) -> None:
    keys = KeyTable(f"{url}&statement_cache_size=0")
    try:
        assert not await keys.has_keys()
    finally:
        await keys.close()


async def test_a_store_without_replicas_reads_where_it_is() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann: ScopedMemory = memory.scope("ann", read_from="replica")
        item = await ann.remember("one")

        assert await ann.get(item.id) is not None


async def test_a_failover_under_load_loses_nothing_that_was_acknowledged() -> None:
    with await asyncio.to_thread(PostgresReplicas.start, synchronous=True) as servers:
        dsn = await asyncio.to_thread(servers.create_database)
        address = servers.failover_url(dsn)
        async with PostgresMemoryStore(address, retry_for=scaled(60)) as store:
            async with Load(store) as load:
                await load.goes_on()
                await asyncio.to_thread(servers.cut_off)  # what they lack, nobody was told of
                promoted = await asyncio.to_thread(servers.fail_over)
                await load.goes_on()
            verdict = await load.judge(promoted.dsn(dsn.partition("?")[0].rpartition("/")[2]))

    assert load.errors == []
    assert verdict.lost == []
    assert verdict.doubled == []
