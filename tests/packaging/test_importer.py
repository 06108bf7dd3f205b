"""An importer that another distribution brings is one like ours: named, recognised, listed."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).with_name("diary_importer")
DIARY = "2024-05-01: Planted tomatoes\nno date\n2024-05-02: It rained\n"
PROGRAM = """
import asyncio, json, sys

from orbiter.memory import AgentMemory
from orbiter.memory.transfer import import_file, import_formats

async def main(path, format):
    async with AgentMemory(":memory:", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        done = await import_file(alice, path, format=format)
        hits = await alice.recall("tomatoes")
        print(json.dumps({
            "format": done.format, "stored": done.stored, "known": import_formats(),
            "problems": [problem.place for problem in done.problems],
            "text": hits[0].item.content, "day": hits[0].item.created_at.isoformat(),
            "source": hits[0].item.metadata.extra["source"],
        }))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a process that has the distribution, from its wheel."""
    folder, site = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return {**os.environ, "PYTHONPATH": str(site)}


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    path = tmp_path / "2024.diary"
    path.write_text(DIARY, encoding="utf-8")
    return path


def _run(env: dict[str, str], *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *args], env=env, check=False, capture_output=True, text=True
    )


def _cli(env: dict[str, str], *args: str) -> "subprocess.CompletedProcess[str]":
    return _run(env, "-m", "orbiter.memory.cli", *args)


@pytest.mark.parametrize("format", ["diary", "auto"])
def test_a_file_is_imported_by_an_importer_of_another_distribution(
    installed: dict[str, str], diary: Path, format: str
) -> None:
    done = _run(installed, "-W", "ignore", "-c", PROGRAM, str(diary), format)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["format"] == "diary"
    assert (told["stored"], told["problems"]) == (2, ["line 2"])
    assert (told["text"], told["day"]) == ("Planted tomatoes", "2024-05-01T00:00:00+00:00")
    assert told["source"] == "import:diary"
    assert told["known"][0] == "jsonl"
    assert "diary" in told["known"]


def test_the_command_line_knows_it(installed: dict[str, str], diary: Path, tmp_path: Path) -> None:
    store = ["--url", str(tmp_path / "memory.db"), "--user", "alice"]

    done = _cli(installed, "import", str(diary), "--format", "diary", *store)
    unknown = _cli(installed, "import", str(diary), "--format", "novel", *store)
    found = _cli(installed, "list", "--json", *store)

    assert "2 new" in done.stdout, done.stderr
    assert unknown.returncode == 2
    assert "novel" in unknown.stderr
    assert "diary" in unknown.stderr
    assert "Planted tomatoes" in found.stdout


def test_without_the_distribution_the_format_is_unknown(diary: Path, tmp_path: Path) -> None:
    store = ["--url", str(tmp_path / "memory.db"), "--user", "alice"]

    done = _cli(dict(os.environ), "import", str(diary), "--format", "diary", *store)

    assert done.returncode == 2
    assert "diary" in done.stderr


def test_an_importer_that_cannot_be_loaded_is_named(
    installed: dict[str, str], diary: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text(
        "[orbiter_memory.importers]\nbroken = no_such_module:Importer\nchatgpt = json:loads\n"
    )
    env = {**installed, "PYTHONPATH": f"{tmp_path}{os.pathsep}{installed['PYTHONPATH']}"}
    store = ["--url", str(tmp_path / "memory.db"), "--user", "alice"]

    named = _cli(env, "import", str(diary), "--format", "broken", *store)
    ours = _cli(env, "import", str(diary), "--format", "chatgpt", *store)

    assert named.returncode == 1
    assert "no_such_module" in named.stderr
    assert "`broken`" in named.stderr
    assert "loads" not in ours.stderr


def test_a_format_that_two_packages_claim_is_refused_with_both_names(
    installed: dict[str, str], diary: Path, tmp_path: Path
) -> None:
    info = tmp_path / "other_diary-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-diary\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[orbiter_memory.importers]\ndiary = json:loads\n")
    both = {**installed, "PYTHONPATH": f"{installed['PYTHONPATH']}:{tmp_path}"}

    done = _run(both, "-W", "ignore", "-c", PROGRAM, str(diary), "diary")

    assert "`orbiter-memory-diary` and `other-diary` add it; uninstall" in done.stderr
