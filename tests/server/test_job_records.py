"""Records of jobs: no more than a key may have, and none of a job that was dropped."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key, until
from tests.server.test_jobs import BARE, NOW, Gate, ended
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, Principal
from orbiter.memory.model.reports import Erasure
from orbiter.memory.server.api import jobs as _jobs
from orbiter.memory.server.api.job_files import JobFiles
from orbiter.memory.server.api.job_record import Job, dump_job, encode_report, load_job
from orbiter.memory.tasks.progress import checkpoint
from orbiter.memory.wire import OPERATIONS

REINDEX = next(each for each in OPERATIONS if each.id == "memory.reindex")
FOLDER = "agent.db.jobs"


def records(folder: Path) -> set[str]:
    return {file.stem for file in folder.glob("*.json")}


def listed(answer: httpx.Response) -> list[str]:
    return [job["id"] for job in answer.json()["jobs"]]


async def do(http: httpx.AsyncClient, served: Served, **headers: str) -> str:
    """Have a job done; return its id when its task has ended."""
    answer = await http.post("/v1/store/settle", headers={**NOW, **headers})
    job = await ended(http, answer.json())
    tasks = served.app.state.orbiter.jobs._tasks  # type: ignore[attr-defined]
    await until(lambda: job["id"] not in tasks)
    return str(job["id"])


# As many as a key may have


async def test_only_the_newest_jobs_that_ended_are_kept(
    served: Served, client: Client, keys: KeyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jobs, "_MAX_ENDED", 3)
    url = await served(keys=keys, **BARE)
    one, two = (client(url, new_key(keys, "admin")) for _ in range(2))
    other = await do(two, served)
    gate = Gate(monkeypatch)
    under_way = (await one.post("/v1/store/verify", headers=NOW)).json()
    await gate.began.wait()

    done = [await do(one, served) for _ in range(7)]

    # An administrator of everything sees those of all keys, and each key has its own newest.
    all_listed = [*reversed(done[-3:]), under_way["id"], other]
    assert listed(await one.get("/v1/jobs")) == all_listed
    assert records(tmp_path / FOLDER) == {*done[-3:], under_way["id"], other}
    assert [(await one.get(f"/v1/jobs/{each}")).status_code for each in done[3:]] == (
        [404, 200, 200, 200]
    )
    assert listed(await two.get("/v1/jobs")) == all_listed
    gate.opened.set()
    assert (await ended(one, under_way))["state"] == "done"


async def test_a_key_of_a_job_that_is_kept_no_longer_counts_as_new(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jobs, "_MAX_ENDED", 2)
    calls = []

    async def counts(_: AgentMemory) -> int:
        calls.append(1)
        return len(calls)

    monkeypatch.setattr(AgentMemory, "reindex", counts)
    http = client(await served(**BARE))

    async def ask(key: str) -> int:
        wait = {"Prefer": "wait=20", "Idempotency-Key": key}
        return int((await http.post("/v1/store/reindex", headers=wait)).json()["count"])

    # Those whose reports were sent are counted, too.
    assert [await ask(key) for key in ("a", "a", "b", "a", "c", "b", "a")] == [1, 1, 2, 1, 3, 2, 4]


async def test_a_server_keeps_no_more_of_what_it_finds(
    served: Served, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    http = client(await served(AgentMemory(path, embeddings=None), **BARE))
    done = [await do(http, served) for _ in range(5)]
    monkeypatch.setattr(_jobs, "_MAX_ENDED", 3)

    listing = listed(await http.get("/v1/jobs"))
    other = client(await served(AgentMemory(path, embeddings=None), **BARE))

    assert listing == listed(await other.get("/v1/jobs")) == done[:1:-1]
    assert records(tmp_path / "a.db.jobs") == set(done[2:])


async def test_records_that_another_server_writes_are_counted(
    served: Served, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jobs, "_MAX_ENDED", 3)
    path = tmp_path / "a.db"
    one = client(await served(AgentMemory(path, embeddings=None), **BARE))
    first = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    two = client(await served(AgentMemory(path, embeddings=None), **BARE))
    done = [await do(two, served) for _ in range(3)]
    for _ in range(2):
        job = await ended(one, (await one.post("/v1/store/settle", headers=NOW)).json())
        done.append(job["id"])
    await until(lambda: not first._tasks)
    assert listed(await one.get("/v1/jobs")) == done[:1:-1]

    first._pruned = datetime.now(UTC) - timedelta(hours=1)
    await first._prune()

    assert records(tmp_path / "a.db.jobs") == set(done[2:])


async def test_a_listing_reads_no_record_of_a_job_it_knows(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client(await served(**BARE))
    done = await do(http, served)
    monkeypatch.delattr(JobFiles, "read")

    assert listed(await http.get("/v1/jobs")) == [done]


# None of a job that was dropped


class HeldWrite:
    """Holds one write of a record in its thread, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holds: Callable[[Any], object]) -> None:
        # One thread is held, so that the other does all the rest in the order it is asked to.
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))
        write = JobFiles.write
        self.began, self.landed = asyncio.Event(), asyncio.Event()
        self._go = threading.Event()

        def held(files: JobFiles, record: Any) -> None:
            if not holds(record) or self._go.is_set():
                write(files, record)
                return
            loop.call_soon_threadsafe(self.began.set)
            assert self._go.wait(HANG)
            write(files, record)
            loop.call_soon_threadsafe(self.landed.set)

        monkeypatch.setattr(JobFiles, "write", held)

    async def let_go(self) -> None:
        """Let the write go on when what was asked of the other thread so far is done."""
        await asyncio.to_thread(lambda: None)
        self._go.set()


async def saves(_: AgentMemory) -> int:
    """Do as `reindex` that keeps a checkpoint, and never comes to its end."""
    await checkpoint({"step": 1})
    await asyncio.Event().wait()
    return 0


async def test_no_write_puts_a_job_back_that_is_dropped(
    served: Served, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AgentMemory, "reindex", saves)
    http = client(await served(**BARE))
    jobs = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    write = HeldWrite(monkeypatch, lambda record: record["saved"])
    job = (await http.post("/v1/store/reindex", headers=NOW)).json()
    await write.began.wait()

    dropping = asyncio.create_task(http.delete(f"/v1/jobs/{job['id']}"))
    await until(lambda: job["id"] not in jobs._jobs)
    await write.let_go()

    assert (await dropping).status_code == 204
    await write.landed.wait()
    assert records(tmp_path / FOLDER) == set()


async def test_a_job_that_is_dropped_before_it_begins_does_not_begin(
    served: Served, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AgentMemory, "reindex", saves)
    http = client(await served(**BARE))
    jobs = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    write = HeldWrite(monkeypatch, lambda _: True)
    asking = asyncio.create_task(http.post("/v1/store/reindex", headers=NOW))
    await write.began.wait()
    (job_id,) = jobs._jobs

    dropping = asyncio.create_task(http.delete(f"/v1/jobs/{job_id}"))
    await until(lambda: not jobs._jobs)
    await write.let_go()

    assert (await dropping).status_code == 204
    await asking
    await write.landed.wait()
    assert not jobs._tasks
    assert records(tmp_path / FOLDER) == set()


@pytest.mark.parametrize("is_dropped", [False, True], ids=["asked", "dropped"])
async def test_who_leaves_meanwhile_leaves_no_record(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    memory: AgentMemory,
    is_dropped: bool,
) -> None:
    monkeypatch.setattr(AgentMemory, "reindex", saves)
    await served(**BARE)
    jobs = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    write = HeldWrite(monkeypatch, lambda record: record["saved"] if is_dropped else True)
    call: Awaitable[Any] = jobs.begin(REINDEX, Principal("admin"), memory, {})
    if is_dropped:
        call = jobs.drop(await call)
        await write.began.wait()
    leaving = asyncio.ensure_future(call)
    await write.began.wait()
    await asyncio.sleep(0)

    leaving.cancel()
    await until(lambda: not jobs._jobs)
    await write.let_go()

    with pytest.raises(asyncio.CancelledError):
        await leaving
    await jobs.stop()
    await write.landed.wait()
    assert not (tmp_path / FOLDER).exists()


async def test_a_server_that_ends_lets_writes_come_to_their_end(
    served: Served, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AgentMemory, "reindex", saves)
    http = client(await served(**BARE))
    jobs = served.app.state.orbiter.jobs  # type: ignore[attr-defined]
    write = HeldWrite(monkeypatch, lambda record: record["saved"])
    job = (await http.post("/v1/store/reindex", headers=NOW)).json()
    await write.began.wait()

    stopping = asyncio.create_task(jobs.stop())
    await until(lambda: not jobs._tasks)
    await write.let_go()
    await stopping

    found = JobFiles(tmp_path / FOLDER).read(job["id"])
    assert found is not None
    assert found["saved"] == {"step": 1}
    assert jobs._store.files._lock is None
    assert not list((tmp_path / FOLDER).glob("*.lock"))


def test_first_records_written_at_the_same_time_are_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = JobFiles(tmp_path / FOLDER)
    make_folder, is_first, second_began = Path.mkdir, [True], threading.Event()
    second: list[Future[None]] = []

    def mkdir(path: Path, *args: Any, **options: Any) -> None:
        if is_first.pop() if is_first else False:
            assert second_began.wait(HANG)
            wait(second, timeout=0.2)  # the second either overtakes the first or waits for it
        make_folder(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(files.write, {"id": "a"})
        second.append(threads.submit(files.write, {"id": "b"}))
        second_began.set()
        first.result(HANG)
        second[0].result(HANG)

    assert records(tmp_path / FOLDER) == {"a", "b"}
    files.close()


def test_a_report_of_an_erasure_has_the_same_fields_when_it_is_read_from_a_file() -> None:
    operation = next(each for each in OPERATIONS if each.id == "memory.erase")
    for by, kept in (("officer", "officer"), ("bob", None), (None, None)):
        report = Erasure(items=1, erased={"user_id": "bob"}, by=by, at=datetime.now(UTC))
        job = Job(operation, None, {}, by, {"user_id": "bob"}, is_bound=False)
        job.report, job.state, job.ended_at = encode_report(job, report), "done", datetime.now(UTC)

        record = dump_job(job)
        again = load_job(record)

        assert again is not None
        before, after = json.loads(job.report), json.loads(again.report or b"")
        assert after == {**before, "erased": {"user_id": "(not kept)"}, "by": kept}
        assert "bob" not in json.dumps(record)
