"""Slow parts of a page stream their progress, then the result; an erasure is a durable job."""

import asyncio
from typing import Any

import pytest
from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, until

from orbiter.memory import AgentMemory
from orbiter.memory.errors import StorageError
from orbiter.memory.server.dashboard import slow_parts
from orbiter.memory.tasks.progress import advance


@pytest.fixture(autouse=True)
def soon() -> None:
    """Have pages stream their progress as soon as they usually do."""


class Gate:
    """Holds an erasure or a check in the middle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.opened = asyncio.Event()
        work = getattr(AgentMemory, name)

        async def held(memory: AgentMemory, **given: Any) -> Any:
            if not given.get("dry_run"):
                advance(30, 120)
                await self.opened.wait()
            return await work(memory, **given)

        monkeypatch.setattr(AgentMemory, name, held)


async def test_an_erasure_streams_its_progress_and_then_its_proof(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.scope(user_id="ann").remember("I like tea")
    gate = Gate(monkeypatch, "erase")
    http = client(await served())
    visitor = Visitor(http)
    page = await visitor.look("/data")
    headers = {"X-Orbiter-Token": visitor.token, "HX-Request": "true"}

    async with http.stream(
        "POST", "/ui/data/erase?user_id=ann", data={"typed": "ann"}, headers=headers
    ) as answer:
        pieces = answer.aiter_text()
        first = await anext(pieces)
        page = await visitor.look("/data")
        gate.opened.set()
        rest = "".join([piece async for piece in pieces])

    assert "<!-- 30/120 -->" in first
    assert '<span class="tag">running</span>' in page
    assert "Proven:" in rest
    jobs = (await visitor.twin("/data"))["jobs"]
    assert [(job["name"], job["state"]) for job in jobs] == [("erase", "done")]  # type: ignore[attr-defined]
    assert "every 2s" not in (await http.get("/ui/jobs")).text


async def test_what_goes_wrong_after_the_stream_began_is_told_in_its_place(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*_: object, **__: object) -> None:
        await asyncio.sleep(2 * slow_parts._SOON)
        raise StorageError("the disk is full")

    monkeypatch.setattr(AgentMemory, "verify", breaks)
    told = await Visitor(client(await served())).send("/ui/data/verify", {})

    assert told.text.startswith("<!-- 0/0 -->")
    assert 'role="alert"' in told.text
    assert "disk is full" in told.text


async def test_the_work_goes_on_if_its_page_is_left_and_a_key_has_only_so_much_of_it(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.scope(user_id="ann").remember("I like tea")
    monkeypatch.setattr(slow_parts, "_MAX_TASKS", 1)
    gate = Gate(monkeypatch, "verify")
    http = client(await served())
    visitor = Visitor(http)
    await visitor.look("/data")
    headers = {"X-Orbiter-Token": visitor.token}

    async with http.stream("POST", "/ui/data/verify", headers=headers) as answer:
        await anext(answer.aiter_text())
    tasks = served.app.state.slow_parts.tasks  # type: ignore[attr-defined]
    [task] = tasks
    second = await visitor.send("/ui/data/verify", {})
    gate.opened.set()
    await until(lambda: not tasks)

    assert second.status_code == 429
    assert task.result()["checks"][0].state == "ok"
