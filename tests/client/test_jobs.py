"""Long calls of a client: as long as it takes, once, with progress, and through lost answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from tests.client.test_network import port_of
from tests.crash._proxy import Proxy
from tests.server.conftest import Served
from tests.timing import HANG

from orbiter.memory import MemoryConnectionError
from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.client import RemoteMemory, _remote_calls
from orbiter.memory.errors import QueryError
from orbiter.memory.model.reports import Verification
from orbiter.memory.server.api.job_record import Job
from orbiter.memory.tasks.progress import advance


class Held:
    """A `verify` that counts how often it was asked for, and waits to be let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.began, self.opened = asyncio.Event(), asyncio.Event()

        async def verify(_: SQLMemoryStore, **__: Any) -> Verification:
            self.calls += 1
            advance(3, 10)
            self.began.set()
            await self.opened.wait()
            advance(10, 10)
            return Verification(10, (), repaired=False)

        monkeypatch.setattr(SQLMemoryStore, "verify", verify)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@pytest.fixture
async def proxy(served: Served) -> AsyncIterator[Proxy]:
    """Return what stands between a client and its server, which answers at once."""
    async with Proxy(0) as proxy:
        url = await served(
            allowed_hosts=(f"127.0.0.1:{proxy.port}",), rate=1e6, burst=10**6, job_wait=0.0
        )
        proxy.upstream = port_of(url)
        yield proxy


async def test_a_lost_answer_finds_the_job_that_it_began(proxy: Proxy, held: Held) -> None:
    async with RemoteMemory(f"http://127.0.0.1:{proxy.port}") as memory:
        held.opened.set()
        proxy.drop_reply(b"POST /v1/store/verify")
        found = await memory.verify()

    assert proxy.lost == 1
    assert (found.checked, held.calls) == (10, 1)


async def test_a_connection_that_breaks_while_one_waits_is_made_again(
    proxy: Proxy, held: Held
) -> None:
    async with RemoteMemory(f"http://127.0.0.1:{proxy.port}") as memory:
        proxy.drop_reply(b"GET /v1/jobs/")
        steps: list[tuple[int, int]] = []
        verifying = asyncio.create_task(memory.verify(progress=lambda *step: steps.append(step)))
        await held.began.wait()
        while proxy.lost < 1:  # noqa: ASYNC110 - the proxy tells nobody
            await asyncio.sleep(0.01)
        held.opened.set()
        found = await verifying

    assert (found.checked, held.calls) == (10, 1)
    assert steps[-1] == (10, 10)
    assert (3, 10) in steps


@pytest.mark.parametrize("seconds", [1.0, 3.0])
async def test_a_job_may_take_longer_than_a_call(
    served: Served, held: Held, seconds: float
) -> None:
    over = asyncio.Event()
    async with RemoteMemory(await served(job_wait=0.0), timeout=seconds) as memory:
        verifying = asyncio.create_task(memory.verify())
        asyncio.get_running_loop().call_later(1.5 * seconds, over.set)
        await over.wait()
        assert not verifying.done()
        held.opened.set()

        assert (await verifying).checked == 10


async def test_what_a_job_raises_is_raised_here(served: Served) -> None:
    async with RemoteMemory(await served(job_wait=0.0)) as memory:
        with pytest.raises(QueryError, match="nothing came from the source `nowhere`"):
            await memory.scope(user_id="ann").undo("nowhere")
        assert await memory.scope(user_id="ann").duplicates() == []
        assert await memory.flush() is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"id": "../x", "state": "running", "progress": {"done": 0, "total": None}},
        {"id": "a", "state": "lost", "progress": {"done": 0, "total": None}},
        {"id": "a", "state": "failed", "progress": {"done": 0, "total": None}, "problem": None},
        {"id": "a", "state": "done", "progress": {"done": 0, "total": None}, "report": None},
        {"id": "a", "state": "running", "progress": {"done": "0", "total": None}},
    ],
)
async def test_what_is_no_job_is_told(
    served: Served, held: Held, job: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "to_json", lambda _: json.dumps(job).encode())
    monkeypatch.setattr(_remote_calls, "_SELDOM", 0)  # the server does not wait for its end
    async with RemoteMemory(await served(job_wait=0.0), timeout=HANG) as memory:
        with pytest.raises(MemoryConnectionError, match="job|report"):
            await memory.verify()
    held.opened.set()  # a server that stops waits for its jobs
