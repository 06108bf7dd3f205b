"""What `list --follow` takes for new, whatever is forgotten, and however much comes at once."""

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment

from orbiter.memory.agent import AgentMemory, ScopedMemory, events


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_what_was_there_is_not_new_when_newer_ones_are_forgotten(cli: Cli) -> None:
    ids = cli.ok("remember", "-", "--lines", stdin="\n".join(map(str, range(206)))).split()
    args = ("list", "--follow", "--json", "-n", "1")
    with subprocess.Popen(
        [*COMMAND, *args], env=environment(cli.url), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        cli.ok("forget", *ids[-3:])
        cli.remember("fresh")

        second = json.loads(process.stdout.readline())
        process.kill()

    assert first["content"] == "205"
    assert second["content"] == "fresh"


def _look(path: Path, monkeypatch: pytest.MonkeyPatch, *, known: int = 10_000) -> list[list[str]]:
    """Return what three looks find: after forgetting, after a burst, and after a late one."""
    monkeypatch.setattr(events, "PAGE", 4)
    monkeypatch.setattr(events, "_MAX_SEEN", known)

    async def look() -> list[list[str]]:
        async with AgentMemory(path, embeddings=None) as memory:
            alice = memory.scope(user_id="alice")
            await alice.remember_many([f"old {n}" for n in range(12)])
            page = await alice.list(limit=4)
            seen = events.SeenIds(page, is_all=page.next is None)
            found = []
            for step in (_forget_two, _add_many, _add_late):
                await step(alice)
                fresh = await events.since(alice, seen)
                seen.add(fresh)
                found.append([item.content for item in fresh])
            return found

    return asyncio.run(look())


async def _forget_two(alice: ScopedMemory) -> None:
    for item in await alice.list(limit=2):
        await alice.forget(item)


async def _add_many(alice: ScopedMemory) -> None:
    await alice.remember_many([f"new {n}" for n in range(11)])


async def _add_late(alice: ScopedMemory) -> None:
    # One before each of six, so that what is new and what is known take turns.
    for place, item in enumerate(await alice.list(limit=6)):
        at = item.created_at - timedelta(microseconds=1)
        await alice.remember(f"late {place}", created_at=at)


def test_a_burst_of_several_pages_is_told_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten, burst, late = _look(tmp_path / "memory.db", monkeypatch)

    assert forgotten == []
    assert burst == [f"new {n}" for n in range(11)]
    assert sorted(late) == [f"late {n}" for n in range(6)]  # of a clock that is slow


def test_only_the_newest_are_known_by_id_and_the_rest_stays_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten, burst, late = _look(tmp_path / "memory.db", monkeypatch, known=3)

    assert forgotten == []
    assert len(burst) == 11
    assert "late 0" in late
    assert all(text.startswith("late") for text in late)
