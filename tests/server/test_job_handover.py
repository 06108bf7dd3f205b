"""Jobs over Postgres change hands: from an earlier version, and when a server stops."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from tests.server.conftest import Client, Served, until
from tests.server.test_job_table import memories, postgres_dsn, postgres_server, soon
from tests.server.test_jobs import BARE, NOW, Gate, ended
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.server.api import job_table
from orbiter.memory.server.api.job_files import JobFiles, folder_for
from orbiter.memory.server.api.job_record import Job, dump_job
from orbiter.memory.wire import OPERATIONS

__all__ = ["memories", "postgres_dsn", "postgres_server", "soon"]

[VERIFY] = [each for each in OPERATIONS if each.id == "memory.verify"]


def written(files: JobFiles) -> str:
    job = Job(VERIFY, None, {}, None, {}, is_bound=False)
    files.write(dump_job(job))
    return job.id


async def test_jobs_of_the_folder_are_continued_once_its_servers_have_ended(
    memories: list[AgentMemory],
    served: Served,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(job_table, "LEASE", timedelta(seconds=0.2))
    folder = folder_for(memories[0], None)
    assert folder is not None
    gone, lives = JobFiles(folder), JobFiles(folder)
    first, second = written(gone), written(lives)
    damaged = folder / "x.json"
    damaged.write_text('{"format": 1, "id": "x"}')
    gone.close()

    http = client(await served(memories[0], **BARE))
    done = await ended(http, {"id": first, "state": "queued"})

    assert done["report"]["checked"] == 0
    assert (await http.get(f"/v1/jobs/{second}")).status_code == 404
    damaged.unlink()
    lives.close()
    await until(lambda: not folder.exists())
    assert (await ended(http, {"id": second, "state": "queued"}))["state"] == "done"


async def test_a_server_stops_though_its_database_does_not_answer(
    memories: list[AgentMemory], served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    http = client(await served(memories[0], **BARE))
    await http.post("/v1/store/verify", headers=NOW)
    await gate.began.wait()

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(job_table.JobTable, "write", hang)
    async with asyncio.timeout(HANG):
        await served.app.state.orbiter.jobs.stop()  # type: ignore[attr-defined]
