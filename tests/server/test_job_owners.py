"""A job is done only while its key may do it, and an administrator of everything ends any."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key
from tests.server.test_jobs import BARE, NOW, Gate, ended
from tests.timing import until

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, OIDCSettings, Principal
from orbiter.memory.backends.sql import erase
from orbiter.memory.server import Settings, create_app
from orbiter.memory.wire import OPERATIONS

COUNT = 40
ERASE: dict[str, Any] = {"json": {"user_id": "ann"}, "headers": NOW}


def _set(keys: KeyFile, key_id: str, **fields: object) -> None:
    """Change what the file says of a key, as whoever edits it."""
    content = json.loads(keys.path.read_text())
    for each in content["keys"]:
        if each["id"] == key_id:
            each.update(fields)
    keys.path.write_text(json.dumps(content))


def _remove(keys: KeyFile, key_id: str) -> None:
    keys.revoke(key_id)
    keys.remove(key_id)


ENDS: dict[str, Callable[[KeyFile, str], object]] = {
    "revoked": lambda keys, key_id: keys.revoke(key_id),
    "removed": _remove,
    "expired": lambda keys, key_id: _set(
        keys, key_id, expires_at=(datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    ),
    "lower-role": lambda keys, key_id: _set(keys, key_id, role="write", scope={"user_id": "ann"}),
    "narrower-scope": lambda keys, key_id: _set(keys, key_id, scope={"user_id": "bob"}),
}


class _Slices:
    """Holds an erasure after a few of its slices."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.middle, self.opened = asyncio.Event(), asyncio.Event()
        checkpoint, count = vars(erase)["checkpoint"], 0

        async def held(state: Any) -> None:
            nonlocal count
            await checkpoint(state)
            count += 1
            if count == 3:
                self.middle.set()
                await self.opened.wait()

        patch.setattr(erase, "SLICE", 5)
        patch.setattr(erase, "checkpoint", held)


async def _left(memory: AgentMemory) -> int:
    return (await memory.scope("ann").stats()).items


async def _fill(memory: AgentMemory) -> None:
    await memory.scope("ann").remember_many([f"note {number}" for number in range(COUNT)])


def _admin(keys: KeyFile) -> tuple[str, str]:
    token = new_key(keys, "admin")
    return token, token.split("_")[1]


def _check_refused(job: dict[str, Any], key_id: str) -> None:
    assert (job["state"], job["report"], job["owner"]) == ("failed", None, key_id)
    assert job["problem"]["status"] == 403
    assert f"the key `{key_id}` was revoked, has expired" in job["problem"]["detail"]


@pytest.mark.parametrize("end", ENDS)
async def test_an_erasure_stops_at_the_next_step_when_its_key_ends(
    end: str,
    memory: AgentMemory,
    served: Served,
    client: Client,
    keys: KeyFile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await _fill(memory)
    slices = _Slices(monkeypatch)
    url = await served(keys=keys, **BARE)
    (leaked, key_id), (owner, _) = _admin(keys), _admin(keys)
    job = (await client(url, leaked).post("/v1/erase", **ERASE)).json()
    await slices.middle.wait()
    before = await _left(memory)

    ENDS[end](keys, key_id)
    slices.opened.set()

    _check_refused(await ended(client(url, owner), job), key_id)
    assert before - 5 <= await _left(memory) <= before < COUNT


@asynccontextmanager
async def _inside(memory: AgentMemory, keys: KeyFile) -> AsyncIterator[Callable[[str], Any]]:
    """Run a server that ends with the block; give what makes its clients."""
    app = create_app(memory, settings=replace(Settings(port=0), **BARE), keys=keys)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))

        def http(token: str) -> httpx.AsyncClient:
            return httpx.AsyncClient(
                transport=transport,
                base_url=f"http://127.0.0.1:{app.state.port}",
                headers={"Authorization": f"Bearer {token}"},
            )

        yield http


@pytest.mark.parametrize("end", ENDS)
async def test_a_restarted_server_does_not_resume_the_job_of_a_key_that_ended(
    end: str, tmp_path: Any, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    (leaked, key_id), (owner, _) = _admin(keys), _admin(keys)
    place = tmp_path / "agent.db"
    slices = _Slices(monkeypatch)
    async with AgentMemory(place, embeddings=None, summaries=None) as memory:
        await _fill(memory)
        async with _inside(memory, keys) as http:
            job = (await http(leaked).post("/v1/erase", **ERASE)).json()
            await slices.middle.wait()
        left = await _left(memory)
    slices.opened.set()

    ENDS[end](keys, key_id)

    async with AgentMemory(place, embeddings=None, summaries=None) as memory:
        async with _inside(memory, keys) as http:
            _check_refused(await ended(http(owner), job), key_id)
        async with _inside(memory, keys) as http:  # which reads the record of what has ended
            _check_refused((await http(owner).get(f"/v1/jobs/{job['id']}")).json(), key_id)
        assert 0 < await _left(memory) == left


async def test_a_queued_job_of_a_revoked_key_does_not_begin_and_one_without_steps_ends(
    served: Served, client: Client, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)  # nobody opens it
    url = await served(keys=keys, **BARE)
    (leaked, key_id), (owner, _) = _admin(keys), _admin(keys)
    jobs = [
        (await client(url, leaked).post("/v1/store/verify", headers=NOW)).json() for _ in range(3)
    ]
    await gate.began.wait()

    keys.revoke(key_id)

    for job in jobs:  # only one reads the whole store at a time
        _check_refused(await ended(client(url, owner), job), key_id)


async def test_an_administrator_of_everything_lists_and_stops_any_job(
    served: Served, client: Client, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    url = await served(keys=keys, **BARE)
    (other, key_id), (owner, _) = _admin(keys), _admin(keys)
    job = (await client(url, other).post("/v1/store/verify", headers=NOW)).json()
    await gate.began.wait()
    http = client(url, owner)

    listed = (await http.get("/v1/jobs")).json()["jobs"]
    assert [(each["id"], each["owner"]) for each in listed] == [(job["id"], key_id)]
    assert (await http.get(f"/v1/jobs/{job['id']}")).json()["state"] == "running"
    assert (await http.delete(f"/v1/jobs/{job['id']}")).status_code == 204

    assert (await client(url, other).get(f"/v1/jobs/{job['id']}")).status_code == 404
    assert (await http.get("/v1/jobs")).json() == {"jobs": []}


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_job_of_a_token_is_done_until_the_token_expires(
    memory: AgentMemory, served: Served, keys: KeyFile, is_over: bool
) -> None:
    issuer = OIDCSettings("https://issuer.example", ("https://memory.example",))
    await served(keys=keys, oidc=issuer, **BARE)
    jobs = served.app.state.orbiter.jobs  # type: ignore[attr-defined]  # see the fixture
    verify = next(each for each in OPERATIONS if each.id == "memory.verify")
    until_ = datetime.now(UTC) + timedelta(hours=-1 if is_over else 1)
    subject = Principal("admin", key_id="oidc:0123", expires_at=until_)

    job = await jobs.begin(verify, subject, memory, {})
    await until(lambda: job.is_finished, "the end of the job")

    assert job.state == ("failed" if is_over else "done")
    assert not is_over or "has expired" in job.problem["detail"]


async def test_keys_that_cannot_be_read_hold_a_job_until_they_can(
    memory: AgentMemory,
    served: Served,
    client: Client,
    keys: KeyFile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await _fill(memory)
    slices = _Slices(monkeypatch)
    http = client(await served(keys=keys, **BARE), _admin(keys)[0])
    job = (await http.post("/v1/erase", **ERASE)).json()
    await slices.middle.wait()
    content = keys.path.read_bytes()

    keys.path.write_bytes(b"")  # which opens nothing
    slices.opened.set()
    jobs = served.app.state.orbiter.jobs._jobs  # type: ignore[attr-defined]  # see the fixture
    assert (await http.get("/v1/jobs")).status_code == 503
    assert not jobs[job["id"]].is_finished
    keys.path.write_bytes(content)

    assert (await ended(http, job))["state"] == "done"
