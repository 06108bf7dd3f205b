"""Suites of frameworks: source distributions, fetched from the package registry by the tests.

Nothing of them is copied into the project. What was fetched is kept in pytest's cache.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest


def unpacked_sdist(distribution: str, cache: pytest.Cache) -> Path:
    """Return the folder of the source distribution of the installed version."""
    number = version(distribution)
    folder = cache.mkdir("sdists") / f"{distribution}-{number}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _fetch(f"{distribution}=={number}", Path(scratch))
            archive = next(Path(scratch).glob("*.tar.gz"))
            with tarfile.open(archive) as packed:
                packed.extractall(scratch, filter="data")
            unpacked = next(path for path in Path(scratch).iterdir() if path.is_dir())
            try:
                unpacked.rename(folder)
            except OSError:  # another worker was first
                shutil.rmtree(unpacked)
    return folder


def _fetch(requirement: str, folder: Path) -> None:
    name = requirement.partition("==")[0]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", name, "--dest", str(folder), requirement]
    # Its metadata is made by a build tool: often one that is here, else a fetched one.
    for isolation in (["--no-build-isolation"], []):
        done = subprocess.run(command + isolation, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    problem = f"{requirement} cannot be fetched: {done.stderr.strip()[-300:]}"
    pytest.fail(problem) if os.environ.get("ORBITER_INTEGRATION_RESULTS") else pytest.skip(problem)


def run_sdist_tests(
    folder: Path, files: list[str], *, plugin: str, leave_out: Collection[str] = ()
) -> tuple[int, int]:
    """Run tests of an unpacked source distribution; return how many passed, of how many.

    *plugin* is a module of this folder that puts ours in the place of theirs, *leave_out* the names
    of tests. What fails is printed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        settings, report = Path(scratch, "pytest.ini"), Path(scratch, "report.xml")
        settings.write_text("[pytest]\nasyncio_mode = auto\n")
        command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-c", str(settings)]
        command += ["--rootdir", str(folder), "-p", "no:cacheprovider", "-p", plugin]
        command += [f"--junitxml={report}", *(f"--deselect={name}" for name in leave_out), *files]
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        # The settings for our own tests, those of plugins among them, stay.
        done = subprocess.run(
            command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        print(done.stdout[-20_000:], done.stderr[-5_000:])
        suite = ElementTree.parse(report).getroot()[0].attrib
    failed = int(suite["failures"]) + int(suite["errors"])
    total = int(suite["tests"]) - int(suite["skipped"])
    return total - failed, total
