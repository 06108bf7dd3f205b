"""Errors for a key bound to a scope never show where the store is."""

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.mcp.conftest import over_http, refusal
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.agent.runtime import versioned
from orbiter.memory.auth import LOCAL, KeyFile, Principal
from orbiter.memory.backends.redis.store import RedisMemoryStore
from orbiter.memory.errors import MemoryConnectionError, UnsupportedError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.reports import Erasure
from orbiter.memory.server.http.access_log import formatter
from orbiter.memory.server.http.error_responses import problem_for, report_for

BARE = {"with_mcp": False, "with_dashboard": False}
BOB = Principal("admin", MemoryMetadata(user_id="bob"), "bob", "12345678")
FAULT = MemoryConnectionError("cannot reach `postgresql://me@10.0.0.7/memories`")


async def test_a_key_of_somebodys_is_not_told_the_files_of_the_store(
    served: Served, client: Client, keys: KeyFile, tmp_path: Path
) -> None:
    async with AgentMemory(f"sqlite:///{tmp_path}/secret.db", embeddings=None) as memory:
        await memory.scope(user_id="bob").remember("tea")
        (tmp_path / "secret.db.replaced-1").touch()
        url = await served(memory=memory, keys=keys, **BARE)
        bob = client(url, new_key(keys, "admin", user="bob"))
        everyones = client(url, new_key(keys, "admin"))

        without = await bob.post("/v1/recall", json={"query": "tea", "mode": "meaning"})
        erased = await bob.post("/v1/erase", json={})
        shown = await everyones.post("/v1/erase", json={"user_id": "bob"})
        keys.path.chmod(0o644)
        closed = await client(url).get("/v1/openapi.json")

    assert without.status_code == 501
    assert erased.json()["items"] == 1
    assert set(erased.json()["files"]) == {"a file of this store"}
    assert (erased.json()["store"], erased.json()["not_searched"]) == ("", ["a file of this store"])
    assert closed.status_code == 503
    for answer in (without, erased, closed):
        assert "secret.db" not in answer.text
        assert str(tmp_path) not in answer.text
    assert f"{tmp_path}/secret.db" in shown.json()["files"]
    assert shown.json()["store"].endswith("secret.db")
    (copy,) = shown.json()["not_searched"]
    assert f"`{tmp_path}/secret.db.replaced-1`" in copy


async def test_a_store_that_fails_is_told_of_without_its_name(
    served: Served,
    client: Client,
    keys: KeyFile,
    memory: AgentMemory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = await served(keys=keys, with_dashboard=False)
    token = new_key(keys, user="bob")
    bob, everyones = client(url, token), client(url, new_key(keys, "admin"))
    await memory.store.close()
    with caplog.at_level(logging.ERROR):
        hidden = await bob.get("/v1/memories", headers={"X-Request-ID": "r-1"})
        shown = await everyones.get(
            "/v1/memories", params={"user_id": "bob"}, headers={"X-Request-ID": "r-2"}
        )
        async with over_http(f"{url}/mcp", token) as agent:
            told = await refusal(agent, "memory_list")

    assert hidden.status_code == shown.status_code == 503
    assert hidden.json()["type"] == shown.json()["type"]
    assert "agent.db" in shown.text
    for text in (hidden.text, told):
        assert "agent.db" not in text
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(lines) == 3, lines
    for line, name in zip(lines, ("request=r-1", "request=r-2", "request="), strict=True):
        assert "NotInitializedError at " in line
        assert "agent.db') is not initialized; " in line
        assert name in line
    await memory.store.init()


@pytest.mark.parametrize("who", ["nobody", "bob", "admin"])
async def test_a_damaged_file_is_one_line_of_the_log_with_its_reason_and_the_request(
    who: str,
    served: Served,
    client: Client,
    keys: KeyFile,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    token = None
    if who != "nobody":
        token = new_key(keys, "admin", user=None if who == "admin" else who)
    path = tmp_path / "damaged.db"
    memory = AgentMemory(f"sqlite:///{path}", embeddings=None)
    async with memory:
        http = client(await served(memory=memory, keys=keys if token else None, **BARE), token)
        named = {"user_id": "bob"}
        made = await http.post("/v1/memories", params=named, json={"what": "my secret tea"})
        with closing(sqlite3.connect(path)) as other:  # so that what is cached is read again
            other.execute("CREATE TABLE other (id)")
            for each in (path, path.with_name("damaged.db-wal")):
                with each.open("r+b") as file:
                    file.write(b"\xff" * each.stat().st_size)
        with caplog.at_level(logging.ERROR):
            answer = await http.post(
                "/v1/memories",
                params=named,
                json={"what": "my secret coffee"},
                headers={"X-Request-ID": "r-7"},
            )

    lines = [each for each in caplog.records if "r-7" in each.getMessage()]
    assert (made.status_code, answer.status_code) == (201, 503), answer.text
    assert len(lines) == 1, caplog.text
    line = json.loads(formatter("json").format(lines[0]))
    assert (line["level"], line["request"]) == ("error", "r-7")
    assert "StorageError at " in line["message"]
    assert f"`{path}`: " in line["message"]
    assert "damaged" in line["message"] or "not a SQLite database" in line["message"]
    assert "secret" not in caplog.text


def test_what_failed_is_told_to_those_who_may_know_it() -> None:
    held = [problem_for(each, FAULT)[1] for each in (BOB, None)]
    status, whole = problem_for(LOCAL, FAULT)

    assert status == 503
    assert "10.0.0.7" in whole["detail"]
    for told in held:
        assert "10.0.0.7" not in str(told)
        assert told["type"] == whole["type"]


def test_what_an_erasure_left_is_in_the_log_and_not_in_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = Erasure(items=1, files=("/srv/a.db", "/srv/a.db-wal"), problems=("`/srv/a.db` holds 2",))

    told = report_for(BOB, done)

    assert "/srv" not in str(told)
    assert (told.items, len(told.files), len(told.problems), bool(told)) == (1, 2, 1, False)
    assert "`/srv/a.db` holds 2" in caplog.text
    assert report_for(LOCAL, done) is done


def test_what_a_store_cannot_do_is_told_without_its_address() -> None:
    store = RedisMemoryStore("redis://cache.internal:6380/3")

    with pytest.raises(UnsupportedError) as told:
        versioned(store, "reading the past")

    assert "cache.internal" not in str(told.value)
    assert "RedisMemoryStore" in str(told.value)
