"""What the table of jobs holds of somebody: answers for who asks again, until an erasure."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.server.conftest import until
from tests.server.test_job_table import (
    memories,
    pair,
    postgres_dsn,
    postgres_server,
    query,
    soon,
)
from tests.stores.test_postgres_security import plain_role
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError
from orbiter.memory.server.api import job_table
from orbiter.memory.server.api import jobs as _jobs

__all__ = ["memories", "pair", "postgres_dsn", "postgres_server", "soon"]


async def forgets(http: httpx.AsyncClient, user: str, text: str) -> Any:
    params, body = {"user_id": user}, {"query": text}
    answer = await http.post(
        "/v1/forget", params=params, json=body, headers={"Prefer": "respond-async"}
    )
    assert answer.status_code == 202, answer.text
    return answer.json()


async def test_an_erasure_in_any_process_takes_the_jobs_of_whom_it_erases(
    pair: list[httpx.AsyncClient],
    memories: list[AgentMemory],
    postgres_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that runs, and one of another version, which nobody goes on with."""
    one, two = pair
    running: list[str | None] = []

    async def forget(scope: ScopedMemory, **_: Any) -> None:
        user = scope.scope.user_id
        running.append(user)
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(user)

    monkeypatch.setattr(ScopedMemory, "forget", forget)
    jobs = [await forgets(one, user, "a canarybird") for user in ("ann", "ann", "bob")]
    await until(lambda: len(running) == len(jobs))
    left = "replace(record, 'scope.forget', 'scope.forgot'), alive_until = '-infinity'"
    await query(
        postgres_dsn,
        f"UPDATE orbiter_jobs SET server = 'ended', record = {left} WHERE id = $1",
        jobs[0]["id"],
    )

    done = await memories[1].erase(user_id="ann")

    assert done.proven, done
    rows = await query(postgres_dsn, "SELECT id, t::text FROM orbiter_jobs AS t")
    assert [row["id"] for row in rows] == [jobs[2]["id"]]
    assert "ann" not in str(rows)
    await until(lambda: running == ["bob"])
    assert (await two.get(f"/v1/jobs/{jobs[1]['id']}")).status_code == 404
    cleaned = "SELECT pg_stat_get_vacuum_count('orbiter_jobs'::regclass)"
    assert (await query(postgres_dsn, cleaned))[0][0] > 0


async def test_an_erasure_says_which_jobs_it_could_not_take(
    pair: list[httpx.AsyncClient], memories: list[AgentMemory], postgres_dsn: str
) -> None:
    assert pair
    role = "forgetter"
    dsn = await plain_role(postgres_dsn, role)
    try:
        every = "ALL TABLES IN SCHEMA public"
        await query(postgres_dsn, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {every} TO {role}")
        await query(postgres_dsn, f"REVOKE ALL ON orbiter_jobs FROM {role}")
        async with AgentMemory(dsn, embeddings=None, summaries=None) as memory:
            done = await memory.erase(user_id="ann")
    finally:
        await query(postgres_dsn, f"DROP OWNED BY {role} CASCADE")
        await query(postgres_dsn, f"DROP ROLE {role}")

    assert any("orbiter_jobs" in each and "through the server" in each for each in done.problems)


async def asks(http: httpx.AsyncClient, call: str, key: str, user: str, **body: Any) -> Any:
    return await http.post(
        f"/v1/{call}",
        params={"user_id": user},
        json=body,
        headers={"Prefer": "wait=20", "Idempotency-Key": key},
    )


async def test_a_request_that_is_repeated_has_the_same_answer_through_every_server(
    pair: list[httpx.AsyncClient], memories: list[AgentMemory], postgres_dsn: str
) -> None:
    one, two = pair
    ann = memories[0].scope(user_id="ann")
    await ann.remember_many(["a canarybird", "a grey cat", "a grey cat", "rain"])
    rain = (await ann.list(query="rain"))[0]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("forget", {"query": "canarybird"}),
        ("forget", {}),
        ("evict", {"max_items": 2}),
    ]
    last = ("forget", {"item": rain.id, "permanently": True})

    first = [await asks(one, call, f"{n}", "ann", **body) for n, (call, body) in enumerate(calls)]
    again = [
        await asks(http, call, f"{n}", "ann", **body)
        for http in (two, one)
        for n, (call, body) in enumerate(calls)
    ]
    proofs = [await asks(http, last[0], "last", "ann", **last[1]) for http in (one, two, one)]

    assert [each.status_code for each in first] == [200, 422, 200]
    assert "canarybird" in first[0].text
    assert [each.text for each in again] == [each.text for each in first * 2]
    assert [each.status_code for each in again] == [each.status_code for each in first * 2]
    assert [each.json()["erased"] for each in proofs] == [[rain.id]] * 3
    assert len({each.text for each in proofs}) == 1
    rows = await query(postgres_dsn, "SELECT scope FROM orbiter_jobs WHERE scope IS NOT NULL")
    assert [row["scope"] for row in rows] == ['{"user_id": "ann"}']  # the proof quotes nothing


async def test_a_job_that_ends_at_once_is_written_down_as_ended(
    pair: list[httpx.AsyncClient], postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(*_: Any, **__: Any) -> None:
        raise QueryError("no")

    monkeypatch.setattr(ScopedMemory, "forget", forget)

    answers = [await asks(pair[0], "forget", f"{n}", "ann", query="tea") for n in range(20)]

    assert [each.status_code for each in answers] == [422] * 20
    left = "SELECT id FROM orbiter_jobs WHERE ended_at IS NULL"
    assert await query(postgres_dsn, left) == []


async def test_an_erasure_in_any_process_takes_the_answers_that_quote_whom_it_erases(
    pair: list[httpx.AsyncClient], memories: list[AgentMemory], postgres_dsn: str
) -> None:
    one, two = pair
    for user in ("ann", "bob"):
        await memories[0].scope(user_id=user).remember(f"the canarybird of {user}")
    before = [await asks(one, "forget", user, user, query="canarybird") for user in ("ann", "bob")]
    assert "canarybird" in before[0].text

    done = await memories[1].erase(user_id="ann")

    assert done.proven, done
    rows = str(await query(postgres_dsn, "SELECT t::text FROM orbiter_jobs AS t"))
    assert "ann" not in rows
    assert "canarybird of bob" in rows
    for http in pair:
        gone = await asks(http, "forget", "ann", "ann", query="canarybird")
        assert gone.status_code == 410, gone.text
    same = await asks(two, "forget", "bob", "bob", query="canarybird")
    assert same.text == before[1].text


async def test_answers_take_no_more_room_than_they_may(
    pair: list[httpx.AsyncClient],
    memories: list[AgentMemory],
    postgres_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = pair
    ann = memories[0].scope(user_id="ann")
    await ann.remember_many(["a canarybird " + "x" * 2_000, "a cat " + "y" * 2_000])
    monkeypatch.setattr(job_table, "_MAX_BYTES", 4_000)
    monkeypatch.setattr(_jobs, "_EVERY", timedelta(0))

    for text in ("canarybird", "cat"):
        assert (await asks(one, "forget", text, "ann", query=text)).is_success

    rows = "SELECT answer FROM orbiter_jobs WHERE answer IS NOT NULL"
    async with asyncio.timeout(HANG):
        while len(await query(postgres_dsn, rows)) > 1:  # noqa: ASYNC110 - another's
            await asyncio.sleep(0.02)
    assert (await asks(two, "forget", "cat", "ann", query="cat")).is_success
    assert (await asks(two, "forget", "canarybird", "ann", query="canarybird")).status_code == 410
