"""What the tour offers in the end: the dashboard on sample data."""

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.cli.terminal import COMMAND, environment
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.cli._sample_data import fill
from orbiter.memory.cli.commands.demo import script


def test_what_to_try_next_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("python", "orbiter-memory"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    away = script()
    monkeypatch.chdir(tmp_path.parent)
    near = script()
    monkeypatch.setenv("PATH", str(tmp_path))

    assert (away, near) == (str(tmp_path / "orbiter-memory"), f"{tmp_path.name}/orbiter-memory")
    assert script() == "orbiter-memory"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_the_sample_has_something_for_every_page_and_leaves_nothing_behind(tmp_path: Path) -> None:
    # `/bin/true` in place of a browser.
    env = environment("/nowhere/at/all.db", {"TMPDIR": str(tmp_path), "BROWSER": "/bin/true"})
    with subprocess.Popen(
        [*COMMAND, "demo", "--dashboard"], env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1].rstrip("/")
            home = httpx.get(f"{url}/memories.json", timeout=HANG).json()
            pages = [
                httpx.get(f"{url}/{path}", timeout=HANG) for path in ("chats.json", "review.json")
            ]
            facts = httpx.get(f"{url}/facts.json", params={"user_id": "alice"}, timeout=HANG)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=HANG)

    assert (len(home["rows"]), home["is_empty"]) == (20, False)
    assert {page.status_code for page in (*pages, facts)} == {200}
    assert "Lisbon" in facts.text
    assert all(pages[1].json()["counts"].values())
    assert process.returncode == 0
    assert list(tmp_path.glob("orbiter-memory-*")) == []


async def test_the_facts_of_the_sample_are_as_old_as_its_memories() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        await fill(memory)
        alice, bob = memory.scope(user_id="alice"), memory.scope(user_id="bob")
        facts = [
            each.fact
            for handle in (alice, bob)
            for key in await handle.facts.keys()
            for each in await handle.facts.history(key)
        ]
        conflicts = await bob.facts.conflicts()
        city, trip = await alice.facts.get("home_city"), await alice.facts.get("next_trip")
        drafts = await alice.facts.drafts()

    yesterday = datetime.now(UTC) - timedelta(days=1)
    assert len(facts) == 10
    assert [
        each.value for each in facts if max(each.created_at, each.recorded_at) > yesterday
    ] == []
    assert [each.key for each in conflicts] == ["editor"]
    assert city is not None
    assert (city.value, trip) == ("Lisbon", None)
    assert [each.key for each in drafts] == ["planned_move"]
