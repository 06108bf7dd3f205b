"""What the table of jobs holds of somebody: answers for who asks again, until an erasure."""

import asyncio
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

from orbiter.memory import AgentMemory
from orbiter.memory.agent import ScopedMemory

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
    dead = "SELECT pg_stat_get_dead_tuples('orbiter_jobs'::regclass)"
    assert (await query(postgres_dsn, dead))[0][0] == 0


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
