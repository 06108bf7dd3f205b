"""Erasing a user takes along everything: chats, facts, summaries, activity, vectors, indexes."""

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from tests.agent.conftest import Open
from tests.servers.databases import RedisServer
from tests.stores.test_postgres_security import plain_role, run

from orbiter.memory import AgentMemory, MemoryMetadata
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent._erase import erase
from orbiter.memory.agent.interface import ScopeSession
from orbiter.memory.embeddings import CachedEmbeddings
from orbiter.memory.errors import EmptyFilterError, QueryError
from orbiter.memory.model.episode import activity_name
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.wire import operations_of

CANARIES = ("gingerbreadtrombone", "Quittenmarmelade", "zeppelinwhisper", "activityharmonium")


async def talk(user: ScopedMemory) -> None:
    """Say something in a chat, call a tool, note a fact, and be active."""
    await user.remember("I like gingerbreadtrombone music")
    chat = user.chat("kitchen")
    for number in range(6):
        await chat.add({"role": "user", "content": f"Quittenmarmelade number {number}?"})
        call = {"name": "look", "arguments": '{"for": "zeppelinwhisper"}'}
        calls = [{"id": f"c{number}", "type": "function", "function": call}]
        await chat.add({"role": "assistant", "content": None, "tool_calls": calls})
        told = {"role": "tool", "tool_call_id": f"c{number}", "content": "zeppelinwhisper found"}
        await chat.add(told)
        await chat.add({"role": "assistant", "content": "Yes, Quittenmarmelade."})


async def be_active(memory: AgentMemory, **scope: str) -> None:
    await memory.scope(**scope).activity.add_interaction("search", "activityharmonium")


def bytes_of(folder: Path) -> bytes:
    files = [str(each) for each in sorted(folder.iterdir()) if each.is_file()]
    return subprocess.run(["cat", *files], capture_output=True, check=True).stdout


async def test_a_dry_run_counts_entries_and_is_true_only_without_any(
    any_memory: AgentMemory, who: str
) -> None:
    if any_memory.url.startswith("memory:"):
        assert await any_memory.erase(user_id=who, dry_run=True)
        return
    await any_memory.scope(user_id=who).kv.put(("threads",), "t1", b"state")
    await any_memory.scope(user_id=who, session_id="s").kv.put(("threads",), "t2", b"state")
    await any_memory.scope(user_id=f"{who}-other").kv.put(("threads",), "t1", b"state")

    counted = await any_memory.erase(user_id=who, dry_run=True)
    nobody = await any_memory.erase(user_id=f"{who}-nobody", dry_run=True)
    done = await any_memory.erase(user_id=who)
    again = await any_memory.erase(user_id=who, dry_run=True)

    assert (counted.items, counted.entries, bool(counted)) == (0, 2, False)
    assert "entries" in str(counted)
    assert (nobody.total, bool(nobody)) == (0, True)
    assert (done.entries, bool(done)) == (2, True)
    assert (again.entries, bool(again)) == (0, True)


async def test_nothing_of_a_user_is_left_in_any_file(tmp_path: Path, open_memory: Open) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    cache = CachedEmbeddings(HashEmbeddings(), folder / "cache.db")
    memory = open_memory(
        f"sqlite:///{folder}/agent.db",
        embeddings=cache,
        episodic=f"sqlite:///{folder}/recent.db",
        summaries=SummaryConfig(message_threshold=4),
    )
    alice, bob = memory.scope(user_id="alice-nightjar"), memory.scope(user_id="bob-nightjar")
    await talk(alice)
    await alice.facts.put("favourite", "the zeppelinwhisper opera")
    assert await alice.chat("kitchen").summarize()
    await bob.remember("bob likes gingerbreadtrombone music, too")
    await be_active(memory, user_id="alice-nightjar")
    await be_active(memory, user_id="alice-nightjar", session_id="kitchen")
    await be_active(memory, user_id="bob-nightjar")
    await alice.recall("gingerbreadtrombone")
    assert all(each.encode() in bytes_of(folder) for each in (*CANARIES, "alice-nightjar"))

    done = await memory.erase(user_id="alice-nightjar")

    assert done, done
    assert done.items >= 25
    assert done.episodes == 2
    assert done.cached > 0
    left = bytes_of(folder)
    assert not [each for each in (*CANARIES[1:3], "alice-nightjar") if each.encode() in left]
    assert left.count(b"activityharmonium") >= 1  # bob's
    assert (await alice.stats()).items == 0
    found = await bob.recall("gingerbreadtrombone")
    assert [hit.item.content for hit in found] == ["bob likes gingerbreadtrombone music, too"]
    cache.close()


async def test_a_user_is_gone_from_every_kind_of_store(
    any_memory: AgentMemory, any_alice: ScopedMemory, any_bob: ScopedMemory, who: str
) -> None:
    await talk(any_alice)
    await any_bob.remember("bob likes gingerbreadtrombone music, too")
    assert await any_alice.recall("gingerbreadtrombone")

    done = await any_memory.erase(user_id=f"alice-{who}")

    assert done, done
    assert done.items == 25
    assert await any_alice.recall("gingerbreadtrombone") == []
    assert await any_alice.chats() == []
    found = await any_bob.recall("gingerbreadtrombone")
    assert [hit.item.content for hit in found] == ["bob likes gingerbreadtrombone music, too"]
    assert not re.search("|".join(CANARIES), str(done))


async def test_activity_in_redis_is_found_by_its_user(
    redis_server: RedisServer, open_memory: Open, who: str
) -> None:
    memory = open_memory("memory://", episodic=redis_server.url())
    for scope in (
        {"user_id": f"alice-{who}"},
        {"user_id": f"alice-{who}", "session_id": "s", "task_id": "t"},
        {"user_id": f"bob-{who}", "session_id": "s"},
        {"agent_id": f"nova-{who}"},
    ):
        await be_active(memory, **scope)

    done = await memory.erase(user_id=f"alice-{who}")

    assert done, done
    assert (done.episodes, done.redis_keys) == (2, 6)
    async with Redis.from_url(redis_server.url()) as client:
        alice = activity_name(MemoryMetadata(user_id=f"alice-{who}")).split("-")[1]
        assert [key async for key in client.scan_iter(match=f"agent:scope-{alice}*")] == []
        bob = activity_name(MemoryMetadata(user_id=f"bob-{who}")).split("-")[1]
        assert len([key async for key in client.scan_iter(match=f"agent:scope-{bob}*")]) == 4
    assert (await memory.erase(agent_id=f"nova-{who}")).episodes == 1


async def test_activity_in_memory_is_found_by_session(open_memory: Open) -> None:
    memory = open_memory("memory://", episodic="memory://erasing")
    await be_active(memory, user_id="alice", session_id="one")
    await be_active(memory, user_id="alice", session_id="two")

    done = await memory.erase(session_id="one")

    assert done.episodes == 1
    assert (await memory.erase(user_id="alice")).episodes == 1


async def test_row_security_holds_while_a_user_is_erased(
    postgres_dsn: str, open_memory: Open
) -> None:
    role = "agent_" + urlsplit(postgres_dsn).path.removeprefix("/test_")
    dsn = await plain_role(postgres_dsn, role)
    try:
        memory = open_memory(dsn, row_security=True)
        alice, bob = memory.scope(user_id="alice"), memory.scope(user_id="bob")
        await alice.remember("I like gingerbreadtrombone music")
        await bob.remember("bob likes gingerbreadtrombone music, too")

        done = await memory.erase(user_id="alice")

        assert done, done
        assert done.items == 1
        assert (await alice.stats()).items == 0
        assert [hit.item.metadata.user_id for hit in await bob.recall("trombone music")] == ["bob"]
        await memory.close()
    finally:
        await run(postgres_dsn, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


async def test_a_report_says_whose_when_by_whom_and_where(
    any_memory: AgentMemory, who: str
) -> None:
    await any_memory.scope(user_id=who, session_id="s").remember("xylophone tea")
    before = datetime.now(UTC)

    would = await any_memory.erase(user_id=who, session_id="s", dry_run=True)
    done = await any_memory.erase(user_id=who, session_id="s", by="officer")
    again = await any_memory.erase(user_id=f"{who}-misspelt")
    report = done.to_dict()

    assert (would.erased, would.found, would.proven) == (done.erased, True, False)
    assert done.erased == {"user_id": who, "session_id": "s"}
    assert done.at is not None
    assert before <= done.at <= datetime.now(UTC)
    assert (done.by, done.found, done.proven) == ("officer", True, True)
    assert done.store.partition(":")[0] in ("sqlite", "memory", "redis", "postgresql")
    assert (again.found, again.proven, again.by) == (False, True, None)
    assert json.loads(json.dumps(report)) == {**report, "files": list(done.files)} | {
        "problems": [],
        "not_searched": list(done.not_searched),
    }
    assert bool(done.not_searched) is done.store.startswith("postgresql")
    assert (report["erased"], report["found"], report["proven"]) == (done.erased, True, True)
    assert datetime.fromisoformat(report["at"]) == done.at
    assert "xylophone" not in str(report)


async def test_a_server_sends_the_report_that_the_library_makes(tmp_path: Path) -> None:
    async with AgentMemory(f"sqlite:///{tmp_path}/a.db", embeddings=None) as memory:
        await memory.scope("ann").remember("tea")
        (tmp_path / "a.db.replaced-1").touch()

        done = await memory.erase(user_id="ann")

    report = operations_of("memory")["erase"].returns
    sent = report.dump(done)
    (copy,) = done.not_searched
    assert f"`{tmp_path}/a.db.replaced-1`" in copy
    assert sent == json.loads(json.dumps(done.to_dict()))
    assert report.load(sent) == done
    assert not any("call `" in each or "()" in each for each in done.problems)


async def test_everyone_is_not_erased(open_memory: Open) -> None:
    memory = open_memory("memory://", episodic="memory://everyone")

    with pytest.raises(QueryError, match="needs at least one"):
        await memory.erase()
    with pytest.raises(EmptyFilterError):
        await erase(ScopeSession(memory._engine, MemoryMetadata()))
    with pytest.raises(QueryError, match="everyone's"):
        await memory._core.activity("nova").erase_agents("*")


async def test_what_the_index_of_a_redis_had_embedded_is_forgotten(
    redis_server: RedisServer, open_memory: Open, tmp_path: Path, who: str
) -> None:
    cache = CachedEmbeddings(HashEmbeddings(), tmp_path / "cache.db")
    memory = open_memory(redis_server.url(), embeddings=cache)
    alice = memory.scope(user_id=f"alice-{who}")
    await alice.remember("I like gingerbreadtrombone music")
    assert await alice.recall("music", mode="meaning")

    done = await memory.erase(user_id=f"alice-{who}")

    assert done, done
    assert (done.items, done.cached) == (1, 1)
    assert await alice.recall("music") == []
    cache.close()


async def test_a_report_names_its_store_from_the_root_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, store in (
        ("a.db", f"{tmp_path / 'a.db'}"),
        ("sqlite:///b.db", f"sqlite:///{tmp_path / 'b.db'}"),
        ("memory://", "memory://"),
    ):
        async with AgentMemory(url, embeddings=None) as memory:
            assert (await memory.erase(user_id="ann", dry_run=True)).store == store
            assert (await memory.erase(user_id="ann")).store == store
