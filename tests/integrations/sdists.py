"""Suites of frameworks: source distributions, fetched from the package registry by the tests.

Nothing of them is copied into the project. What was fetched is kept in pytest's cache.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

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
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        pytest.skip(f"{requirement} cannot be fetched: {done.stderr.strip()[-300:]}")
