"""The public names: sorted, importable, and the same for Python and for type checkers."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.rows import each_row

import orbiter.memory
from docs import build_names

SOURCE = Path(orbiter.memory.__file__)

MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(orbiter.memory.__path__, "orbiter.memory.")
    if not any(part.startswith("_") for part in info.name.split("."))
)

APART = {"agent_framework", "claude_agent_sdk", "crewai", "google_adk", "llama_index", "strands"}
"""Adapters whose frameworks are too large for everybody's environment; see test-integrations."""


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert orbiter.memory.__all__ == sorted(orbiter.memory.__all__)
    assert set(orbiter.memory.__all__) <= set(dir(orbiter.memory))
    for name in orbiter.memory.__all__:
        assert getattr(orbiter.memory, name) is not None


def test_type_checkers_see_what_python_sees() -> None:
    assert build_names.stub() == build_names.STUB.read_text()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = orbiter.memory.Nothing  # type: ignore[attr-defined]  # that is the point


@each_row("name", MODULES)
def test_a_public_module_lists_its_names(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as exc:
        framework = name.removeprefix("orbiter.memory.integrations.")
        assert framework in APART
        extra = framework.replace("_", "-")
        assert f"pip install 'orbiter-memory[{extra}]'" in str(exc)  # noqa: PT017
        return
    listed = getattr(module, "__all__", [])

    assert listed or _is_only_a_folder(module)
    assert all(hasattr(module, each) for each in listed)


def _is_only_a_folder(module: ModuleType) -> bool:
    """Tell whether a package has nothing but a docstring: its modules are imported by name."""
    return (
        hasattr(module, "__path__")
        and len(ast.parse(Path(str(module.__file__)).read_text()).body) == 1
    )


# One test for all files: to collect one for each, in every worker, takes longer than to look.
def test_a_file_opens_with_why_it_exists_and_runs_no_stored_data() -> None:
    for path in sorted(SOURCE.parent.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)

        assert ast.get_docstring(tree), path
        is_suspect = re.search(r"\b(pickle|marshal|shelve|eval|exec)\b", text)
        for node in ast.walk(tree) if is_suspect else ():  # to walk takes longer than to parse
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "marshal", "shelve"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, path
