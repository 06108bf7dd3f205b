"""No circle of imports, and no import of another package's private module."""

from pathlib import Path

import pytest
from benchmarks.structure import House, circles, figures


def test_there_are_no_circles_and_no_private_imports() -> None:
    assert [item for figure in figures() for item in figure.items] == []


def test_circles_are_found() -> None:
    graph = {"cli": {"agent"}, "agent": {"client", "model"}, "client": {"agent"}, "model": set()}

    assert circles(graph) == [["agent", "client"]]


@pytest.mark.parametrize(
    "text",
    [
        "import orbiter.memory.model.items",
        "from orbiter.memory.model import items",
        "def load():\n    from orbiter.memory.model.items import MemoryItem",
        "if TYPE_CHECKING:\n    import orbiter.memory.model.items",
        "PLACE = 'orbiter.memory.model.items'",
        "PLACE = 'orbiter.memory.model.items:MemoryItem'",
        "TABLE = {'MemoryItem': 'model.items'}\nimport_module(f'orbiter.memory.{TABLE[name]}')",
        "TABLE = {'toy': 'items:MemoryItem'}\nimport_module(f'orbiter.memory.model.{name}')",
        "__getattr__, __dir__ = lazy_names(__name__, {'A': 'orbiter.memory.model.items'})",
    ],
)
def test_an_import_is_counted_however_it_is_written(text: str, tmp_path: Path) -> None:
    house = _house(tmp_path, agent=text)

    assert "orbiter.memory.model.items" in house.imports["orbiter.memory.agent"]


def test_names_that_a_package_puts_together_are_of_its_own_modules(tmp_path: Path) -> None:
    lazy = _house(tmp_path, model="lazy_names(__name__, {'MemoryItem': 'items'})")
    loading = _house(tmp_path, model="NAMES = ('items',)\nimport_module(f'{__name__}.{name}')")

    for house in (lazy, loading):
        assert house.imports["orbiter.memory.model"] == {"orbiter.memory.model.items"}


def test_a_string_that_imports_nothing_is_not_counted(tmp_path: Path) -> None:
    house = _house(
        tmp_path, agent="WORD = 'items'\nrun([executable, '-m', 'orbiter.memory.model.items'])"
    )

    assert house.imports["orbiter.memory.agent"] == set()


def _house(folder: Path, *, agent: str = "", model: str = "") -> House:
    """Return a package of an `agent` and a `model` with a module `items`."""
    for name, text in {
        "__init__.py": "",
        "agent.py": agent,
        "model/__init__.py": model,
        "model/items.py": "",
    }.items():
        path = folder / "orbiter/memory" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return House(folder)
