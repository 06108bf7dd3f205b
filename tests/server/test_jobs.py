"""Long calls are jobs: answered with 202, followed, kept, and nobody else's."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key, until
from tests.timing import scaled

from orbiter.memory.agent import AgentMemory, AuditLog, ScopedMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.errors import StorageError
from orbiter.memory.server import Settings, create_app
from orbiter.memory.server.api import jobs as _jobs
from orbiter.memory.server.api.job_files import JobFiles
from orbiter.memory.server.http.json_body import compact_json
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.wire import OPERATIONS, Operation

LONG = [each for each in OPERATIONS if each.is_long]
NOW = {"Prefer": "respond-async"}
BARE: dict[str, Any] = {"with_mcp": False, "with_dashboard": False, "rate": 1e6, "burst": 10**6}
GIVEN: dict[str, dict[str, Any]] = {
    "memory.erase": {"user_id": "ann"},
    "scope.forget": {"query": "tea"},
    "scope.evict": {"max_items": 2},
    "scope.quarantine": {"source": "web:example.com"},
    "scope.release": {"source": "web:example.com"},
    "scope.undo": {"source": "web:example.com"},
}
CLASSES = {"memory": AgentMemory, "scope": ScopedMemory, "audit": AuditLog}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[list[AgentMemory]]:
    """Return two memories that hold the same."""
    made = []
    for name in ("one", "two"):
        memory = AgentMemory(
            tmp_path / f"{name}.db", embeddings=HashEmbeddings(), summaries=None, audit="writes"
        )
        made.append(memory)
    await fill(made[0])
    await made[0].close()
    (tmp_path / "two.db").write_bytes((tmp_path / "one.db").read_bytes())
    yield made
    for memory in made:
        await memory.close()


async def fill(memory: AgentMemory) -> None:
    ann = memory.scope(user_id="ann")
    await ann.remember_many(["I like tea", "I like tea", "the cat is grey", "it rains"])
    web = await ann.remember("tea is bad for you", source="web:example.com")
    await ann.quarantine("web:example.com")
    await ann.release("web:example.com")
    await ann.update(web.id, content="tea is worse for you")
    await memory.scope(user_id="bob").remember("bob sings")
    await memory.flush()


async def ended(http: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    """Return a job once it is over."""
    async with asyncio.timeout(60):
        while job["state"] not in ("done", "failed"):
            answer = await http.get(f"/v1/jobs/{job['id']}", headers={"Prefer": "wait=10"})
            assert answer.status_code == 200, answer.text
            job = answer.json()
    return job


def ask(http: httpx.AsyncClient, operation: Operation, **headers: str) -> Any:
    given = GIVEN.get(operation.id, {})
    more: dict[str, Any] = {} if operation.verb == "GET" else {"json": given}
    whose = {"user_id": "ann"} if operation.target == "scope" else {}
    return http.request(
        operation.verb, f"/v1/{operation.path}", params=whose, headers=headers, **more
    )


def test_every_call_that_may_take_long_takes_progress() -> None:
    assert {each.id for each in LONG} == {
        "memory.erase", "memory.verify", "memory.reindex", "memory.flush", "scope.forget",
        "scope.evict", "scope.duplicates", "scope.quarantine", "scope.release", "scope.undo",
        "audit.verify",
    }  # fmt: skip
    for each in LONG:
        assert "progress" in getattr(CLASSES[each.target], each.name).__annotations__, each.id
    assert all(each.is_long for each in OPERATIONS if each.is_heavy)


@pytest.mark.parametrize("operation", LONG, ids=lambda each: each.id)
async def test_a_long_call_is_a_job_and_reports_what_the_library_does(
    operation: Operation, pair: list[AgentMemory], served: Served, client: Client
) -> None:
    memory, other = pair
    home = {"memory": other, "audit": other.audit, "scope": other.scope(user_id="ann")}
    http = client(await served(memory, **BARE))
    expected = await getattr(home[operation.target], operation.name)(**GIVEN.get(operation.id, {}))

    answer = await ask(http, operation, **NOW)

    assert answer.status_code == 202, answer.text
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
    job = await ended(http, answer.json())
    assert (job["state"], job["problem"]) == ("done", None)
    assert told(operation, operation.returns.load(job["report"])) == told(operation, expected)
    answers = await http.get("/v1/jobs")
    listed = answers.json()["jobs"]
    assert answers.text == compact_json(answers.json())
    assert [each["id"] for each in listed] == [job["id"]]
    assert all("report" not in each for each in listed)


def told(operation: Operation, found: Any) -> Any:
    """Return what does not depend on when and in which file it was done."""
    if operation.id == "memory.erase":
        return (bool(found), found.items, found.forgotten, found.versions, found.vectors)
    if operation.id == "audit.verify":
        return (bool(found), found.items)
    if operation.id == "scope.evict":
        return [each.text for each in found]
    if operation.id == "scope.duplicates":
        return [[item.content for item in group] for group in found]
    if hasattr(found, "items"):
        return sorted(item.content for item in found.items)
    return getattr(found, "checked", found)


@pytest.mark.parametrize("operation", LONG, ids=lambda each: each.id)
async def test_what_is_soon_done_is_answered_at_once(
    operation: Operation, pair: list[AgentMemory], served: Served, client: Client, tmp_path: Path
) -> None:
    http = client(await served(pair[0], **BARE))

    answer = await ask(http, operation, Prefer="wait=20")

    assert answer.status_code == 200, answer.text
    assert "location" not in answer.headers
    operation.returns.load(answer.json())
    assert (await http.get("/v1/jobs")).json() == {"jobs": []}
    assert not list(tmp_path.glob("*.jobs/*.json"))


async def test_a_problem_of_a_job_is_written_like_every_other(
    served: Served, client: Client
) -> None:
    http = client(await served(**BARE))

    answer = await http.post("/v1/audit/verify")

    assert answer.status_code == 501
    assert answer.text == compact_json(answer.json())


async def test_one_memory_is_forgotten_without_a_job(
    pair: list[AgentMemory], served: Served, client: Client
) -> None:
    http = client(await served(pair[0], **BARE), params={"user_id": "ann"})
    item_id = (await http.get("/v1/memories")).json()["items"][0]["id"]

    answer = await http.post("/v1/forget", json={"item": item_id}, headers=NOW)

    assert answer.status_code == 200
    assert [item["id"] for item in answer.json()["items"]] == [item_id]


class Gate:
    """Holds a call until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type = AgentMemory) -> None:
        self.began, self.opened = asyncio.Event(), asyncio.Event()
        work = kind.verify  # type: ignore[attr-defined]

        async def held(memory: Any, **given: Any) -> Any:
            self.began.set()
            await self.opened.wait()
            return await work(memory, **given)

        monkeypatch.setattr(kind, "verify", held)


async def test_no_deadline_of_a_request_ends_a_job(
    memory: AgentMemory, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    http = client(await served(timeout=scaled(0.2), **BARE))

    answer = await http.post("/v1/store/verify")

    assert answer.status_code == 202
    assert answer.json()["state"] == "running"
    later = await http.get(answer.headers["location"], headers={"Prefer": "wait=60"})
    assert later.json()["state"] == "running"
    gate.opened.set()
    assert (await ended(http, answer.json()))["report"]["checked"] == 0


async def test_a_job_of_another_key_is_not_there(
    served: Served, client: Client, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    url = await served(keys=keys, **BARE)
    mine, bobs, anns = (
        client(url, new_key(keys, "admin", user=user)) for user in (None, "bob", "ann")
    )
    job = (await mine.post("/v1/store/verify", headers=NOW)).json()
    await gate.began.wait()

    for stranger in (bobs, anns):
        for verb, path in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
            answer = await stranger.request(verb, f"/v1/jobs/{job['id']}{path}")
            assert answer.status_code == 404, (verb, path)
            same = await stranger.request(verb, f"/v1/jobs/0{path}")
            assert same.json() == answer.json()
        assert (await stranger.get("/v1/jobs")).json() == {"jobs": []}
    gate.opened.set()
    assert (await ended(mine, job))["state"] == "done"
    assert (await mine.put(f"/v1/jobs/{job['id']}")).status_code == 405


async def test_a_key_of_somebody_erases_as_a_job_what_is_theirs_alone(
    pair: list[AgentMemory], served: Served, client: Client, keys: KeyFile
) -> None:
    memory = pair[0]
    http = client(await served(memory, keys=keys, **BARE), new_key(keys, "admin", user="ann"))

    refused = await http.post("/v1/erase", json={"user_id": "bob"}, headers=NOW)
    answer = await http.post("/v1/erase", json={}, headers=NOW)

    assert refused.status_code == 403
    report = (await ended(http, answer.json()))["report"]
    assert report["items"] == 5
    assert report["files"] == ["a file of this store"] * len(report["files"])
    assert (await memory.scope(user_id="bob").stats()).items == 1


async def test_an_erasure_names_the_keys_that_still_open_what_was_erased(
    pair: list[AgentMemory], served: Served, client: Client, keys: KeyFile
) -> None:
    theirs, gone, other = (new_key(keys, user=name).split("_")[1] for name in ("ann", "ann", "bob"))
    keys.revoke(gone)
    url = await served(pair[0], keys=keys, **BARE)
    admin, bound = client(url, new_key(keys, "admin")), new_key(keys, "admin", user="ann")
    own = bound.split("_")[1]

    counted = await admin.post("/v1/erase", json={"user_id": "ann", "dry_run": True})
    answer = await admin.post("/v1/erase", json={"user_id": "ann"}, headers=NOW)
    report = (await ended(admin, answer.json()))["report"]
    hers = await client(url, bound).post("/v1/erase", json={"dry_run": True})

    for each in (counted.json(), report):
        assert set(each["api_keys"]) == {theirs, own}
        assert each["api_keys"][theirs].startswith(f"orbiter-memory keys revoke {theirs} --url ")
        assert other not in str(each)
        assert "keys" not in each
        assert each["redis_keys"] == 0
    assert hers.json()["api_keys"][own] == f"orbiter-memory keys revoke {own}"
    assert hers.json()["store"] == ""
    assert (await pair[0].erase(user_id="ann")).api_keys == {}


async def test_forgetting_for_good_is_a_job_for_an_administrator(
    pair: list[AgentMemory], served: Served, client: Client, keys: KeyFile
) -> None:
    ann, bob = (pair[0].scope(user_id=name) for name in ("ann", "bob"))
    grey, theirs = (await ann.list(query="grey"))[0], (await bob.list())[0]
    url = await served(pair[0], keys=keys, **BARE)
    path, for_good = f"/v1/memories/{grey.id}", {"permanently": "true"}
    writer = client(url, new_key(keys, "write", user="ann"))
    http = client(url, new_key(keys, "admin", user="ann"))
    duplicates = await ended(http, (await http.get("/v1/duplicates", headers=NOW)).json())
    assert duplicates["report"]["groups"]

    for refused in (
        await writer.delete(path, params=for_good),
        await writer.post("/v1/forget", json={"item": grey.id, "permanently": True}),
        await writer.post("/v1/forget", json={"query": "grey", "permanently": True}),
    ):
        assert refused.status_code == 403, refused.text
        assert "the role `admin`" in refused.text
    assert await ann.get(grey.id)
    answer = await http.delete(path, params=for_good, headers=NOW)
    assert answer.status_code == 202
    report = (await ended(http, answer.json()))["report"]
    others = await http.post("/v1/forget", json={"item": [theirs.id], "permanently": True})

    assert (report["items"], report["erased"], report["erasure"]["items"]) == ([], [grey.id], 1)
    assert set(report["erasure"]["files"]) == {"a file of this store"}
    assert report["erasure"]["problems"] == []
    assert await ann.history(grey.id) == []
    for unknown in (path, f"/v1/memories/{theirs.id}", "/v1/memories/nobody's"):
        for extra in ({}, for_good, for_good | {"dry_run": "true"}):
            none = await http.delete(unknown, params=extra)
            assert none.status_code == 404, (unknown, extra)
            assert none.json()["type"].endswith(":ItemNotFoundError")
    later = await ended(http, (await http.delete(path, params=for_good, headers=NOW)).json())
    assert (later["state"], later["problem"]["status"]) == ("failed", 404)
    assert (others.status_code, others.json()["erased"]) == (200, [])
    assert await bob.get(theirs.id)
    kept = await http.get(f"/v1/jobs/{duplicates['id']}")
    assert kept.json()["report"] is None  # it may hold its words
    assert (await http.delete(f"/v1/memories/{(await ann.list())[0].id}")).status_code == 200


async def test_the_proof_of_an_erasure_outlives_the_next_one(
    pair: list[AgentMemory], served: Served, client: Client
) -> None:
    grey, rain, *_ = await pair[0].scope(user_id="ann").list(query="i")
    url = await served(pair[0], **BARE)
    http = client(url, None)
    asked = [{"item": each.id, "permanently": True} for each in (grey, rain)]
    first, second = [
        await ended(
            http,
            (await http.post("/v1/forget?user_id=ann", json=body, headers=NOW)).json(),
        )
        for body in asked
    ]

    again = await http.get(f"/v1/jobs/{first['id']}")

    assert again.json()["report"] == first["report"]
    assert (first["report"]["erased"], second["report"]["erased"]) == ([grey.id], [rain.id])


async def test_the_same_key_asks_for_the_same_job(
    memory: AgentMemory, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    http = client(await served(**BARE))
    once = {**NOW, "Idempotency-Key": "one"}

    first = await http.post("/v1/store/verify", headers=once)
    again = await http.post("/v1/store/verify", headers=once)
    other = await http.post("/v1/store/verify", headers=once, json={"repair": True})
    another = await http.post("/v1/store/settle", headers=once)

    assert first.json()["id"] == again.json()["id"]
    assert (other.status_code, another.status_code) == (422, 422)
    gate.opened.set()
    await ended(http, first.json())
    done = await http.post("/v1/store/verify", headers=once)
    assert (done.status_code, done.json()["checked"]) == (200, 0)


async def test_an_empty_key_is_refused(served: Served, client: Client) -> None:
    http = client(await served(**BARE))

    answer = await http.post("/v1/store/verify", headers={"Idempotency-Key": ""})

    assert (answer.status_code, "is empty" in answer.text) == (422, True)


async def test_a_key_asks_anew_when_its_job_is_forgotten(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client(await served(**BARE))
    once = {"Prefer": "wait=20", "Idempotency-Key": "one"}
    await http.post("/v1/store/verify", headers=once)

    monkeypatch.setattr(_jobs, "_AGAIN", timedelta(0))
    again = await http.post("/v1/store/verify", headers=once)

    assert (again.status_code, again.json()["checked"]) == (200, 0)


async def test_what_a_job_raises_is_its_problem(
    memory: AgentMemory, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client(await served(**BARE))

    async def breaks(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(AgentMemory, "verify", breaks)
    soon = await http.post("/v1/store/verify")
    job = await ended(http, (await http.post("/v1/store/verify", headers=NOW)).json())
    refused = await http.post("/v1/erase", json={}, headers=NOW)

    assert soon.status_code == 503
    assert soon.headers["content-type"] == "application/problem+json"
    assert (job["state"], job["report"], job["problem"]) == ("failed", None, soon.json())
    assert (await ended(http, refused.json()))["problem"]["status"] == 422


async def test_progress_is_told_as_events(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = asyncio.Event()

    async def counts(_: AgentMemory) -> int:
        from orbiter.memory.tasks.progress import advance  # noqa: PLC0415

        advance(3, 10)
        await step.wait()
        return 10

    monkeypatch.setattr(AgentMemory, "reindex", counts)
    http = client(await served(**BARE))
    job = (await http.post("/v1/store/reindex", headers=NOW)).json()
    events: list[tuple[str, dict[str, Any]]] = []

    async with http.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        kind = ""
        async for line in stream.aiter_lines():
            kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
                events.append((kind, json.loads(data)))
                assert data == compact_json(events[-1][1])
                if events[-1][1]["progress"] == {"done": 3, "total": 10}:
                    step.set()

    assert [kind for kind, _ in events[:-1]] == ["progress"] * (len(events) - 1)
    assert any(told["progress"] == {"done": 3, "total": 10} for _, told in events)
    assert events[-1][0] == "done"
    assert events[-1][1]["report"] == {"count": 10}


async def test_a_job_that_is_dropped_stops_and_is_gone(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    http = client(await served(**BARE))
    job = (await http.post("/v1/store/verify", headers=NOW)).json()
    await gate.began.wait()

    answer = await http.delete(f"/v1/jobs/{job['id']}")

    assert answer.status_code == 204
    assert (await http.get(f"/v1/jobs/{job['id']}")).status_code == 404
    gate.opened.set()
    assert (await http.post("/v1/store/verify", headers={"Prefer": "wait=20"})).status_code == 200


async def test_too_many_jobs_of_one_key_are_refused(
    served: Served, client: Client, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    url = await served(keys=keys, **BARE)
    one, two = (client(url, new_key(keys, "admin")) for _ in range(2))

    answers = [await one.post("/v1/store/verify", headers=NOW) for _ in range(33)]

    assert [answer.status_code for answer in answers] == [202] * 32 + [429]
    assert answers[-1].headers["retry-after"]
    assert (await two.post("/v1/store/verify", headers=NOW)).status_code == 202
    jobs = (await one.get("/v1/jobs")).json()["jobs"]
    states = [job["state"] for job in jobs if job["owner"] == answers[0].json()["owner"]]
    assert states.count("running") <= 1
    gate.opened.set()


async def test_a_server_that_only_reads_begins_no_job_that_writes(
    served: Served, client: Client
) -> None:
    http = client(await served(read_only=True, **BARE))

    assert (await http.post("/v1/erase", json={"user_id": "ann"})).status_code == 403
    assert (await http.get("/v1/duplicates", params={"user_id": "ann"})).status_code == 200


async def test_an_erasure_takes_the_reports_along_that_hold_its_words(
    pair: list[AgentMemory], served: Served, client: Client
) -> None:
    http = client(await served(pair[0], **BARE))
    jobs = []
    for user in ("ann", "bob"):
        answer = await http.get("/v1/duplicates", params={"user_id": user}, headers=NOW)
        jobs.append(await ended(http, answer.json()))
    assert "tea" in json.dumps(jobs[0]["report"])

    erased = await http.post("/v1/erase", json={"user_id": "ann"}, headers=NOW)

    assert (await ended(http, erased.json()))["report"]["problems"] == []
    now = [(await http.get(f"/v1/jobs/{job['id']}")).json()["report"] for job in jobs]
    assert now == [None, {"groups": []}]


# On disk


def record_of(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("*.json")
    return dict(json.loads(file.read_text()))


async def test_a_record_holds_no_word_once_the_job_is_over(
    pair: list[AgentMemory], served: Served, client: Client, tmp_path: Path
) -> None:
    http = client(await served(pair[0], **BARE))
    folder = tmp_path / "one.db.jobs"

    job = (await http.post("/v1/forget", json={"query": "tea"}, params={"user_id": "ann"},
                           headers=NOW)).json()  # fmt: skip
    await ended(http, job)

    text = json.dumps(record_of(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in folder.iterdir()] == [0o600, 0o600]
    assert not any(word in text for word in ("tea", "ann", "given", "saved"))
    job = (await http.post("/v1/erase", json={"user_id": "ann"}, headers=NOW)).json()
    await ended(http, job)
    for file in folder.iterdir():
        assert b"ann" not in file.read_bytes()


async def test_what_a_killed_server_was_writing_is_wiped(
    tmp_path: Path, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a.db.jobs"
    killed, lives = JobFiles(folder), JobFiles(folder)
    record = {"id": "one", "server": killed._server, "ended_at": None, "saved": {"word": "tea"}}
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", lambda *_: None)  # what is written gets no name
        killed.write(record)
        lives.write({**record, "id": "two"})
    assert killed._lock is not None
    os.close(killed._lock)  # as its end does
    held = [os.open(file, os.O_RDONLY) for file in folder.glob("one*.new")]

    client(await served(AgentMemory(tmp_path / "a.db", embeddings=None), **BARE))

    assert [file.name[:4] for file in folder.glob("*.new")] == ["two."]
    assert [set(os.pread(each, 10_000, 0)) for each in held] == [{0}]
    for each in held:
        os.close(each)
    lives.close()


async def test_a_job_that_a_server_has_left_is_taken_over_once(
    tmp_path: Path, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    gate = Gate(monkeypatch)
    first = create_app(AgentMemory(path, embeddings=None), settings=Settings(port=0))
    async with first.router.lifespan_context(first):
        transport = httpx.ASGITransport(first, client=("127.0.0.1", 1))
        url = f"http://127.0.0.1:{first.state.port}"
        async with httpx.AsyncClient(transport=transport, base_url=url) as inside:
            job = (await inside.post("/v1/store/verify", headers=NOW)).json()
        await gate.began.wait()

        second = client(await served(AgentMemory(path, embeddings=None), **BARE))
        seen = (await second.get(f"/v1/jobs/{job['id']}")).json()
        assert seen["state"] in ("queued", "running")  # the other is at it
        assert not served.app.state.orbiter.jobs._tasks  # type: ignore[attr-defined]
    gate.opened.set()

    third = client(await served(AgentMemory(path, embeddings=None), **BARE))

    assert (await ended(third, job))["report"]["checked"] == 0
    assert (await ended(second, job))["report"]["checked"] == 0


async def test_a_job_that_ends_its_server_each_time_is_given_up(
    tmp_path: Path, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    path = tmp_path / "a.db"
    job: dict[str, Any] = {}
    for _ in range(4):
        app = create_app(AgentMemory(path, embeddings=None), settings=Settings(port=0))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
            url = f"http://127.0.0.1:{app.state.port}"
            async with httpx.AsyncClient(transport=transport, base_url=url) as inside:
                if not job:
                    job = (await inside.post("/v1/store/verify", headers=NOW)).json()
            await gate.began.wait()
            gate.began.clear()

    http = client(await served(AgentMemory(path, embeddings=None), **BARE))

    found = (await http.get(f"/v1/jobs/{job['id']}")).json()
    assert found["state"] == "failed"
    assert "interrupted 3 times" in found["problem"]["detail"]


def test_a_record_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    files = JobFiles(tmp_path / "jobs")
    files.write({"id": "one", "server": files._server, "ended_at": None})
    for name, text in (("two", "{"), ("three", "[]"), ("four", '{"format": 1, "id": "one"}')):
        (tmp_path / "jobs" / f"{name}.json").write_text(text)

    assert [record["id"] for record in files.every()] == ["one"]
    files.remove("one")
    files.close()


async def test_reports_are_forgotten_in_time(
    pair: list[AgentMemory], served: Served, client: Client, tmp_path: Path
) -> None:
    http = client(await served(pair[0], job_kept=0.0, **BARE))
    job = (await http.post("/v1/store/verify", headers=NOW)).json()
    jobs = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    await until(lambda: jobs._jobs[job["id"]].is_finished)

    await http.post("/v1/store/settle", headers=NOW)

    assert (await http.get(f"/v1/jobs/{job['id']}")).status_code == 404
