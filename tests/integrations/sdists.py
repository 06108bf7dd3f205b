"""Suites of frameworks: source distributions, fetched from the package registry by the tests.

Nothing of them is copied into the project. What was fetched is kept in pytest's cache.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Collection
from html import unescape
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen
from xml.etree import ElementTree

import pytest


def unpacked_sdist(distribution: str, cache: pytest.Cache) -> Path:
    """Return the folder of the source distribution of the installed version."""
    number = version(distribution)
    folder = cache.mkdir("sdists") / f"{distribution}-{number}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _fetch(distribution, number, Path(scratch))
            archive = next(Path(scratch).glob("*.tar.gz"))
            with tarfile.open(archive) as packed:
                packed.extractall(scratch, filter="data")
            unpacked = next(path for path in Path(scratch).iterdir() if path.is_dir())
            try:
                unpacked.rename(folder)
            except OSError:  # another worker was first
                shutil.rmtree(unpacked)
    return folder


def _fetch(distribution: str, number: str, folder: Path) -> None:
    """Download by the registry's list of files: pip would build the package to look at it."""
    page = (
        f"{os.environ.get('PIP_INDEX_URL', 'https://pypi.org/simple').rstrip('/')}/{distribution}/"
    )
    wanted = f"{distribution.replace('-', '_')}-{number}.tar.gz"
    try:
        with urlopen(page, timeout=60) as answer:
            links = re.findall(r'href="([^"]+)"', answer.read().decode())
        (link,) = (each for each in links if urlsplit(each).path.endswith(f"/{wanted}"))
        with urlopen(urljoin(page, unescape(link)), timeout=120) as answer:
            content = answer.read()
    except (OSError, ValueError) as exc:
        problem = f"{wanted} cannot be fetched: {exc}"
        is_needed = os.environ.get("ORBITER_INTEGRATION_RESULTS")
        pytest.fail(problem) if is_needed else pytest.skip(problem)
    kind, _, digest = urlsplit(link).fragment.partition("=")
    assert hashlib.new(kind, content).hexdigest() == digest
    (folder / wanted).write_bytes(content)


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
