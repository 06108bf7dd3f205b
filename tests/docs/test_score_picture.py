"""The picture of how a score is made is that of today's weights."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "docs/build_score.py"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_score", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_picture_of_a_score_is_current(build: ModuleType) -> None:
    drawn, kept = build.draw(await build.hits()), build.PICTURE.read_text(encoding="utf-8")
    cure = "run: .venv/bin/python docs/build_score.py"

    assert NUMBER.sub("0", drawn) == NUMBER.sub("0", kept), cure
    # Another processor may round a vector otherwise: a tenth of a point is no change of weights.
    shown = zip(NUMBER.findall(drawn), NUMBER.findall(kept), strict=True)
    assert all(
        abs(float(one) - float(other)) <= max(0.11, 12 * ("." not in one)) for one, other in shown
    ), cure
