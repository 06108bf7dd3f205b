"""Slow parts of a page show a progress bar, then the result; an erasure is a durable job."""

import asyncio
import re
from typing import Any

import pytest
from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key, until

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.errors import StorageError
from orbiter.memory.tasks.progress import advance


@pytest.fixture(autouse=True)
def soon() -> None:
    """Have pages show a bar as soon as they usually do."""


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


def next_of(text: str) -> str:
    found = re.search(r'hx-get="(/ui/progress/[0-9a-f]+)" hx-trigger="load', text)
    assert found, text
    return found[1]


async def test_an_erasure_shows_a_bar_and_then_its_proof(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.scope(user_id="ann").remember("I like tea")
    gate = Gate(monkeypatch, "erase")
    visitor = Visitor(client(await served()))

    bar = await visitor.send("/ui/data/erase", {"user_id": "ann"}, typed="ann")
    page = await visitor.look("/data")
    again = await visitor.http.get(next_of(bar.text))

    assert "25 %" in again.text
    assert '<progress max="120" value="30"' in again.text
    assert '<span class="tag">running</span>' in page
    gate.opened.set()
    done = await visitor.http.get(next_of(again.text))
    while "Proven:" not in done.text:
        done = await visitor.http.get(next_of(done.text))
    jobs = (await visitor.twin("/data"))["jobs"]
    assert [(job["name"], job["state"]) for job in jobs] == [("erase", "done")]  # type: ignore[attr-defined]
    part = (await visitor.http.get("/ui/jobs")).text
    assert "every 2s" not in part
    lost = await visitor.http.get(next_of(again.text))
    assert "was restarted" in lost.text


async def test_what_goes_wrong_behind_a_bar_is_told_in_its_place(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = asyncio.Event()

    async def breaks(*_: object, **__: object) -> None:
        await opened.wait()
        raise StorageError("the disk is full")

    monkeypatch.setattr(AgentMemory, "verify", breaks)
    visitor = Visitor(client(await served()))
    bar = await visitor.send("/ui/doctor/verify", {})
    assert "data-bar" in bar.text

    opened.set()
    told = bar
    while "data-bar" in told.text:
        told = await visitor.http.get(next_of(told.text))

    assert 'role="alert"' in told.text
    assert "disk is full" in told.text


async def test_the_bar_of_another_key_is_not_shown(
    served: Served,
    client: Client,
    keys: KeyFile,
    memory: AgentMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await memory.scope(user_id="ann").remember("I like tea")
    gate = Gate(monkeypatch, "erase")
    url = await served(keys=keys)
    mine = Visitor(client(url, new_key(keys, "admin")))
    other = Visitor(client(url, new_key(keys, "admin", user="bob")))
    bar = await mine.send("/ui/data/erase", {"user_id": "ann"}, typed="ann")

    seen = await other.http.get(next_of(bar.text))

    assert "data-bar" not in seen.text
    assert "jobs-title" not in await other.look("/data")
    gate.opened.set()
    app = served.app  # type: ignore[attr-defined]
    await until(lambda: all(work.task.done() for work in app.state.works.by_id.values()))
