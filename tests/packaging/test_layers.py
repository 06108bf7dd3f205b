"""The list of layers: one contract in pyproject.toml, written out and drawn for people."""

import importlib.util
from types import ModuleType

import pytest
from benchmarks.structure import ROOT, House


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_layers", ROOT / "docs/build_layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_package_has_a_layer_and_a_purpose(build: ModuleType) -> None:
    named = [name for row in build.layers() for name in row]

    assert sorted(named) == sorted(House(ROOT / "src").rooms)
    assert build.PURPOSES.keys() == set(named)


def test_the_table_and_the_picture_are_current(build: ModuleType) -> None:
    cure = "run: .venv/bin/python docs/build_layers.py"
    assert build.CONTRIBUTING.read_text(encoding="utf-8") == build.contributing(), cure
    assert build.PICTURE.read_text(encoding="utf-8") == build.picture(), cure
