"""Two servers over one Postgres, as on two machines: each knows, stops and goes on with any job."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from tests.server.conftest import Client, Served, until
from tests.server.test_jobs import BARE, NOW, Gate, ended
from tests.servers.databases import postgres_server
from tests.stores.conftest import postgres_dsn
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyTable
from orbiter.memory.backends.postgres.driver import SmallPool
from orbiter.memory.errors import MemoryConnectionError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server.api import job_table
from orbiter.memory.server.api import jobs as _jobs
from orbiter.memory.server.api.job_files import JobFiles, JobFolder
from orbiter.memory.server.api.job_table import JobTable
from orbiter.memory.server.http import state
from orbiter.memory.tasks.progress import advance, checkpoint, resumed

__all__ = ["postgres_dsn", "postgres_server"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have servers hear of each other at once."""
    monkeypatch.setattr(_jobs, "_BEAT", 0.05)


@pytest.fixture
async def memories(postgres_dsn: str) -> AsyncIterator[list[AgentMemory]]:
    """Return the memory of each server; both are of one database."""
    made = [AgentMemory(postgres_dsn, embeddings=None, summaries=None) for _ in range(2)]
    for each in made:
        await each.init()
    yield made
    for each in made:
        await each.close()


@pytest.fixture
async def pair(
    memories: list[AgentMemory], served: Served, client: Client
) -> list[httpx.AsyncClient]:
    """Return a client of each of two servers."""
    return [client(await served(each, **BARE)) for each in memories]


async def query(dsn: str, sql: str, *args: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(sql, *args)
    finally:
        await connection.close()


async def begun(http: httpx.AsyncClient, call: str, **more: Any) -> Any:
    headers = {**NOW, **more.pop("headers", {})}
    answer = await http.post(f"/v1/store/{call}", headers=headers, **more)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def until_reported(http: httpx.AsyncClient, job: Any, is_so: Callable[[Any], object]) -> Any:
    """Return what a server says of a job once it says so."""
    async with asyncio.timeout(HANG):
        while not is_so(now := (await http.get(f"/v1/jobs/{job['id']}")).json()):  # noqa: ASYNC110 - another's
            await asyncio.sleep(0.02)
    return now


async def test_a_job_of_one_server_is_followed_through_the_other(
    pair: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    gate = Gate(monkeypatch)
    job = await begun(one, "verify")
    await gate.began.wait()

    listed = [each["id"] for each in (await two.get("/v1/jobs")).json()["jobs"]]
    async with two.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
        lines = stream.aiter_lines()
        first = [await anext(lines) for _ in range(3)]
        gate.opened.set()
        rest = [line async for line in lines]

    assert listed == [job["id"]]
    assert "event: progress" in first
    assert "event: done" in rest
    there = await ended(two, job)
    here = (await one.get(f"/v1/jobs/{job['id']}")).json()
    assert there == here
    assert there["report"]["checked"] == 0


async def test_how_far_a_job_is_shows_through_the_other_server(
    pair: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair

    async def reindex(_: AgentMemory) -> int:
        advance(3, 8)
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(AgentMemory, "reindex", reindex)
    job = await begun(one, "reindex")

    now = await until_reported(two, job, lambda now: now["progress"]["done"])

    assert (now["state"], now["progress"]) == ("running", {"done": 3, "total": 8})


async def test_one_idempotency_key_begins_one_job_whichever_servers_are_asked(
    pair: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    async def counts(_: AgentMemory) -> int:
        calls.append(1)
        await asyncio.sleep(0.1)
        return len(calls)

    monkeypatch.setattr(AgentMemory, "reindex", counts)
    headers = {"Idempotency-Key": "k", "Prefer": "wait=20"}

    answers = await asyncio.gather(
        *(http.post("/v1/store/reindex", headers=headers) for http in [*pair, *pair, *pair])
    )
    other = await pair[1].post("/v1/store/verify", headers=headers)
    again = await pair[1].post("/v1/store/reindex", headers={**headers, "Idempotency-Key": "l"})

    assert [each.json() for each in answers] == [{"count": 1}] * 6
    assert other.status_code == 422, other.text
    assert "another request" in other.json()["detail"]
    assert again.json() == {"count": 2}


async def test_a_job_is_stopped_through_the_other_server(
    pair: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    stopped = []

    async def reindex(_: AgentMemory) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)
        return 0

    monkeypatch.setattr(AgentMemory, "reindex", reindex)
    job = await begun(one, "reindex")
    await until_reported(two, job, lambda now: now["state"] == "running")

    answer = await two.delete(f"/v1/jobs/{job['id']}")

    assert answer.status_code == 204
    assert stopped == [1]
    assert [(await http.get(f"/v1/jobs/{job['id']}")).status_code for http in pair] == [404, 404]


async def test_a_server_that_stops_hands_its_jobs_over(
    memories: list[AgentMemory], pair: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch,
    served: Served, client: Client,
) -> None:  # fmt: skip
    monkeypatch.setattr(job_table, "LEASE", timedelta(hours=1))  # nobody has to wait for it
    third = AgentMemory(memories[0].store._dsn, embeddings=None)  # type: ignore[attr-defined]
    begins = []

    async def reindex(memory: AgentMemory) -> int:
        begins.append(memory)
        if memory is not third:
            return 7
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(AgentMemory, "reindex", reindex)
    http = client(await served(third, **BARE))
    ends = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    job = await begun(http, "reindex")
    await until(lambda: begins)

    await ends.stop()
    found = await ended(pair[0], job)

    assert found["report"] == {"count": 7}
    assert begins[0] is third
    assert len(begins) == 2
    await third.close()


async def test_a_server_whose_job_was_taken_over_leaves_it(
    pair: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch, postgres_dsn: str
) -> None:
    one, two = pair
    left = asyncio.Event()

    async def reindex(_: AgentMemory) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return 0

    monkeypatch.setattr(AgentMemory, "reindex", reindex)
    job = await begun(one, "reindex")

    await query(postgres_dsn, "UPDATE orbiter_jobs SET server = 'another'")

    async with asyncio.timeout(HANG):
        await left.wait()
    for http in (one, two):
        found = await http.get(f"/v1/jobs/{job['id']}")
        assert found.json()["state"] in ("queued", "running"), found.text  # as the other says


async def test_what_a_silent_server_has_left_is_done_again_from_its_checkpoint(
    memories: list[AgentMemory], monkeypatch: pytest.MonkeyPatch, served: Served, client: Client
) -> None:
    monkeypatch.setattr(job_table, "LEASE", timedelta(seconds=0.5))
    saved: list[object] = []

    async def reindex(memory: AgentMemory) -> int:
        saved.append(dict(resumed()))
        await checkpoint({"step": 1})
        if memory is memories[0]:
            await asyncio.Event().wait()
        return 5

    monkeypatch.setattr(AgentMemory, "reindex", reindex)
    one = client(await served(memories[0], **BARE))
    silent = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    job = await begun(one, "reindex")
    await until(lambda: saved)
    silent._beating.cancel()  # as one that hangs
    two = client(await served(memories[1], **BARE))

    found = await ended(two, job)

    assert found["report"] == {"count": 5}
    assert saved == [{}, {"step": 1}]


async def test_an_erasure_through_one_server_takes_reports_from_the_other(
    pair: list[httpx.AsyncClient], memories: list[AgentMemory], postgres_dsn: str
) -> None:
    one, two = pair
    await memories[0].scope(user_id="ann").remember("a canarybird")
    answer = await one.post(
        "/v1/forget", params={"user_id": "ann"}, json={"query": "canarybird"}, headers=NOW
    )
    job = await ended(one, answer.json())
    assert "canarybird" in str(job["report"])
    assert (await two.get(f"/v1/jobs/{job['id']}")).json() == job

    erased = await two.post("/v1/erase", json={"user_id": "ann"}, headers={"Prefer": "wait=20"})

    assert erased.json()["problems"] == []
    await until_reported(one, job, lambda now: now["report"] is None)
    rows = await query(postgres_dsn, "SELECT t::text FROM orbiter_jobs AS t")
    assert len(rows) == 2
    assert not any(word in str(rows) for word in ("canarybird", '"ann"'))


async def test_a_job_is_its_keys_own_on_every_server(
    memories: list[AgentMemory], served: Served, client: Client, postgres_dsn: str
) -> None:
    table = KeyTable(postgres_dsn)
    whose = (MemoryMetadata(), MemoryMetadata(user_id="ann"), MemoryMetadata())
    admins = [(await table.create(scope=each, role="admin"))[1] for each in whose]
    urls = [await served(each, keys=KeyTable(postgres_dsn), **BARE) for each in memories]
    await table.close()
    job = await ended(client(urls[0], admins[0]), await begun(client(urls[0], admins[0]), "verify"))

    answers = [await client(urls[1], each).get(f"/v1/jobs/{job['id']}") for each in admins]

    assert [each.status_code for each in answers] == [200, 404, 200]
    assert (await client(urls[1], admins[1]).get("/v1/jobs")).json() == {"jobs": []}
    listed = (await client(urls[1], admins[2]).get("/v1/jobs")).json()["jobs"]
    assert [(each["id"], each["owner"]) for each in listed] == [
        (job["id"], admins[0].split("_")[1])
    ]


async def test_a_report_that_was_sent_is_kept_for_its_idempotency_key_alone(
    pair: list[httpx.AsyncClient], postgres_dsn: str
) -> None:
    one, two = pair
    soon = {"Prefer": "wait=20"}
    await one.post("/v1/store/settle", headers=soon)
    assert (await two.get("/v1/jobs")).json() == {"jobs": []}

    first = await one.post("/v1/store/verify", headers={**soon, "Idempotency-Key": "k"})
    again = await two.post("/v1/store/verify", headers={**soon, "Idempotency-Key": "k"})

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert len(await query(postgres_dsn, "SELECT id FROM orbiter_jobs WHERE once IS NOT NULL")) == 1


async def test_a_role_that_may_not_make_the_table_keeps_jobs_beside_the_server(
    memories: list[AgentMemory],
    served: Served,
    client: Client,
    postgres_dsn: str,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for sql in (
        "DROP ROLE IF EXISTS served",
        "CREATE ROLE served LOGIN PASSWORD 'served'",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO served",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO served",
    ):
        await query(postgres_dsn, sql)
    who, _, where = postgres_dsn.partition("@")
    url = f"{who.partition('://')[0]}://served:served@{where}"
    try:
        async with AgentMemory(url, embeddings=None, summaries=None) as memory:
            http = client(await served(memory, **BARE))
            assert (await http.post("/v1/store/settle", headers={"Prefer": "wait=20"})).is_success
            assert "jobs are kept on this computer" in caplog.text
            assert "permission denied for schema" in caplog.text
            server = served.app.state.orbiter  # type: ignore[attr-defined]
            assert isinstance(server.jobs._store, JobFolder)
    finally:
        await query(postgres_dsn, "DROP OWNED BY served")
        await query(postgres_dsn, "DROP ROLE served")


async def test_old_records_are_removed(
    memories: list[AgentMemory], postgres_dsn: str, tmp_path: Path
) -> None:
    table = JobTable(memories[0], instead=JobFolder(JobFiles(tmp_path)))
    assert await table.open() is table
    now = datetime.now(UTC)
    for number, (ended_at, is_answered, is_erasure) in enumerate(
        [
            (now - timedelta(days=2), False, False),  # too old
            (now - timedelta(hours=1), True, False),  # sent long ago
            (now - timedelta(hours=1), True, True),  # others have to hear of it
            (now - timedelta(minutes=9), False, False),  # one too many of its key
            (now - timedelta(minutes=8), False, False),
            (now - timedelta(minutes=7), True, False),
            (None, False, False),
        ]
    ):
        await query(
            postgres_dsn,
            "INSERT INTO orbiter_jobs"
            " VALUES ($1, $6, NULL, 's', now(), 'done', 0, 0, $2, false, $3, $4, $5)",
            *(str(number), ended_at, is_answered, is_erasure, json.dumps({})),
            "x" if number == 2 else "o",
        )

    await table.prune(oldest=now - timedelta(days=1), answered=now - timedelta(minutes=10), most=2)

    rows = await query(postgres_dsn, "SELECT id FROM orbiter_jobs ORDER BY id")
    assert [row["id"] for row in rows] == ["2", "4", "5", "6"]


@pytest.mark.parametrize("call", ["erase", "store/verify"])
async def test_an_idempotency_key_is_free_again_when_its_answer_is_no_longer_kept(
    call: str, pair: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jobs, "_AGAIN", timedelta(0))
    request: dict[str, Any] = {
        "headers": {"Prefer": "wait=20", "Idempotency-Key": "k"},
        "json": {"user_id": "ann"} if call == "erase" else None,
    }

    answers = [await http.post(f"/v1/{call}", **request) for http in (pair[0], *pair)]

    assert [each.status_code for each in answers] == [200] * 3, answers[-1].text


async def test_whoever_follows_a_job_elsewhere_hears_how_it_ended_once_it_was_answered(
    pair: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    gate = Gate(monkeypatch)
    asked = asyncio.create_task(one.post("/v1/store/verify", headers={"Prefer": "wait=20"}))
    await gate.began.wait()
    [job] = (await two.get("/v1/jobs")).json()["jobs"]

    async with two.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        gate.opened.set()
        assert (await asked).status_code == 200
        rest = [line async for line in lines]

    assert "event: done" in rest
    assert [(await http.get(f"/v1/jobs/{job['id']}")).status_code for http in pair] == [404, 404]


async def test_an_erasure_that_is_forgotten_at_once_still_takes_reports_from_the_other(
    pair: list[httpx.AsyncClient],
    memories: list[AgentMemory],
    postgres_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = pair
    await memories[0].scope(user_id="ann").remember("a canarybird")
    answer = await one.post(
        "/v1/forget", params={"user_id": "ann"}, json={"query": "canarybird"}, headers=NOW
    )
    job = await ended(one, answer.json())
    hear, held = JobTable.beat, asyncio.Event()

    async def beat(table: JobTable, jobs: Any) -> Any:
        await held.wait()
        return await hear(table, jobs)

    monkeypatch.setattr(JobTable, "beat", beat)
    erased = await ended(
        two, (await two.post("/v1/erase", json={"user_id": "ann"}, headers=NOW)).json()
    )

    assert (await two.delete(f"/v1/jobs/{erased['id']}")).status_code == 204
    held.set()

    await until_reported(one, job, lambda now: now["report"] is None)
    assert [(await http.get(f"/v1/jobs/{erased['id']}")).status_code for http in pair] == [404] * 2
    rows = await query(postgres_dsn, "SELECT record FROM orbiter_jobs WHERE is_erasure")
    assert [row["record"] for row in rows] == ["{}"]


async def test_records_that_cannot_be_read_stop_no_server(
    memories: list[AgentMemory], served: Served, client: Client, postgres_dsn: str
) -> None:
    first = client(await served(memories[0], **BARE))
    jobs = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    for text in ("{", "[]", '{"format": 2, "id": "z"}', '{"format": 1}'):
        await query(
            postgres_dsn,
            "INSERT INTO orbiter_jobs VALUES"
            " ($1, NULL, NULL, 's', '-infinity', 'running', 0, 0, NULL, false, false, false, $1)",
            text,
        )
    second = client(await served(memories[1], **BARE))  # reads what was left, and starts

    job = await ended(second, await begun(second, "verify"))

    assert [each["id"] for each in (await first.get("/v1/jobs")).json()["jobs"]] == [job["id"]]
    assert not jobs._beating.done()


async def test_a_store_in_another_schema_has_jobs_of_its_own(
    postgres_dsn: str, served: Served
) -> None:
    await query(postgres_dsn, "CREATE SCHEMA tenant")
    url = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}search_path=tenant,public"
    async with (
        AgentMemory(url, embeddings=None) as tenant,
        AgentMemory(postgres_dsn, embeddings=None) as other,
    ):
        for memory in (other, tenant):  # the other one's table is there first
            await served(memory, **BARE)

        rows = await query(
            postgres_dsn, "SELECT schemaname FROM pg_tables WHERE tablename = 'orbiter_jobs'"
        )
    assert sorted(row["schemaname"] for row in rows) == ["public", "tenant"]


async def test_a_database_that_is_away_for_a_moment_keeps_no_jobs_beside_the_server(
    memories: list[AgentMemory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def run(*_: object) -> None:
        raise MemoryConnectionError("too many connections")

    monkeypatch.setattr(SmallPool, "run", run)
    table = JobTable(memories[0], instead=JobFolder(JobFiles(tmp_path)))

    with pytest.raises(MemoryConnectionError):
        await table.open()


def test_the_page_for_operators_has_the_statements_that_make_the_tables() -> None:
    page = (Path(__file__).parents[2] / "docs/operate/workers.md").read_text(encoding="utf-8")
    statements = re.findall(r"CREATE TABLE .*?\n\);", page, re.DOTALL)

    assert len(statements) == 2
    for statement, made in zip(statements, (job_table._CREATE, state._CREATE), strict=True):
        assert statement.replace("TABLE ", "TABLE IF NOT EXISTS ") in made
