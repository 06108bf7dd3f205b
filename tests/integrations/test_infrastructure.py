"""What holds for every adapter, whatever framework it is for."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src/orbiter/memory/integrations"
FRAMEWORKS = sorted(path.stem for path in (Path(__file__).parent / "frameworks").glob("*.in"))
MODULES = {name: name.replace("-", "_") for name in FRAMEWORKS} | {"anthropic": "anthropic_memory"}
ADAPTERS = [name for name in FRAMEWORKS if (FOLDER / f"{MODULES[name]}.py").exists()]


def test_every_framework_has_an_extra_and_pins() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())

    for name in FRAMEWORKS:
        assert len(settings["project"]["optional-dependencies"][name]) == 1
        pins = (Path(__file__).parent / f"frameworks/{name}.txt").read_text()
        assert all(re.match(r"[\w.\[\]-]+==\S+", line) for line in pins.splitlines())


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_without_its_framework_names_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MODULES[name]
    source = (FOLDER / f"{module}.py").read_text()
    roots = set(re.findall(r"^    (?:from|import) (\w+)", source, re.MULTILINE)) - {"orbiter"}
    for each in [each for each in sys.modules if each.partition(".")[0] in roots]:
        monkeypatch.delitem(sys.modules, each)
    for each in roots:
        monkeypatch.setitem(sys.modules, each, None)
    spec = importlib.util.spec_from_file_location("alone", FOLDER / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    alone = importlib.util.module_from_spec(spec)

    with pytest.raises(ModuleNotFoundError, match=re.escape(f"'orbiter-memory[{name}]'")):
        spec.loader.exec_module(alone)


def test_the_readme_links_to_the_page_of_every_framework() -> None:
    readme = (ROOT / "README.md").read_text()

    missing = [name for name in FRAMEWORKS if f"(docs/integrations/{name}.md)" not in readme]
    assert missing == []
