"""The model's own distribution: all that it needs, by licence and by use, and nothing else."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import orbiter_memory_minilm
import pytest

ROOT = Path(__file__).parents[2] / "models/minilm"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("model")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_model_vocabulary_licence_and_notice(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    package = "orbiter_memory_minilm"
    licences = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}

    assert {name for name in names if ".dist-info/" not in name} == {
        f"{package}/__init__.py",
        f"{package}/{orbiter_memory_minilm.DETAILS.name}",
        f"{package}/{orbiter_memory_minilm.MODEL.name}",
        f"{package}/{orbiter_memory_minilm.READER.name}",
        f"{package}/{orbiter_memory_minilm.VOCABULARY.name}",
        f"{package}/py.typed",
    }
    assert licences == {"LICENSE", "NOTICE"}


def test_the_notice_names_the_origin_and_the_changes(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("/NOTICE")]
    notice = wheel.read(name).decode()

    assert "sentence-transformers/all-MiniLM-L6-v2" in notice
    assert "Apache License, Version 2.0" in notice
    assert "quantised to 8-bit integers" in notice


def test_it_needs_nothing_and_names_no_package_index(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    metadata = Parser().parsestr(wheel.read(name).decode())

    assert metadata["Name"] == "orbiter-memory-minilm"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("Requires-Dist") is None
    for name in wheel.namelist():
        content = wheel.read(name)
        for word in (b"index-url", b"find-links", b"pypi.org", b"files.pythonhosted"):
            assert word not in content, name


def test_the_paths_lead_to_files() -> None:
    assert orbiter_memory_minilm.DETAILS.stat().st_size < 100_000
    assert orbiter_memory_minilm.MODEL.stat().st_size > 20_000_000
    assert orbiter_memory_minilm.VOCABULARY.read_text(encoding="utf-8").startswith("[PAD]\n")
