"""Documentation runs: every Python block, and the output printed below it."""

import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from docs.build_api import PAGE, page
from packaging.utils import canonicalize_name
from tests.docs.installs import brought_by, imported_by, named_by
from tests.docs.model_server import model_server
from tests.docs.pages import agrees, blocks, run_page
from tests.rows import each_row
from tests.servers.databases import (
    PostgresServer,
    RedisServer,
    postgres_server,
    redis_server,
)

import orbiter.memory

# Before a page starts threads: Python 3.11.7 may fail to parse what pytest rewrites while another
# thread parses (https://github.com/python/cpython/issues/106905).
import orbiter.memory.testing
from docs import build_integrations

__all__ = ["postgres_server", "redis_server"]

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
INTEGRATIONS = sorted({*ROOT.glob("docs/integrations/*.md")} - {build_integrations.INDEX})
CONTRIBUTORS = ROOT / "CONTRIBUTING.md"
"""Its readers have what `make` installs."""
TOOLS_ONLY = {
    "agno": "agno",
    "autogen": "autogen_agentchat",
    "dspy": "dspy",
    "haystack": "haystack",
    "semantic-kernel": "semantic_kernel",
    "smolagents": "smolagents",
}
"""Frameworks without an adapter, whose pages use the ready-made tools: what each is imported as."""
PICTURE = re.compile(r'<picture>.*?srcset="([^"]+)".*?src="([^"]+)"', re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\((?!https?:)([^)#]+)?(#[^)]+)?\)")


@pytest.fixture
def reader(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres_server: PostgresServer,
    redis_server: RedisServer,
) -> Iterator[None]:
    """Stand where a reader stands: in a folder of their own, with servers and a model."""
    dsn = postgres_server.create_database()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.setenv("REDIS_URL", redis_server.url())
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with model_server(_answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        yield
    postgres_server.drop_database(dsn)


def _answer(messages: list[dict[str, Any]]) -> str:
    """Be the model of the documents: what it says depends on what it was told of the user."""
    is_known = "hiking in the mountains" in json.dumps(messages)
    return "To the mountains: you love hiking." if is_known else "I know nothing about you."


@pytest.mark.parametrize(
    ("printed", "is_right"),
    [("0.45  tea (0.46)", True), ("0.48  tea (0.45)", False), ("0.43  ham (0.45)", False)],
)
def test_only_the_last_digits_of_what_is_printed_may_differ(
    printed: str, *, is_right: bool
) -> None:
    assert agrees(printed, "0.43  tea (0.45)") == is_right


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_every_python_block_runs_and_prints_what_it_says(path: Path) -> None:
    if path.parent.name == "integrations" and _lacks_framework(path.stem):
        pytest.skip("its framework is installed by `make test-integrations`")
    run_page(path)


@each_row("path", [p for p in PAGES if p != CONTRIBUTORS], ids=lambda p: p.name)
def test_every_python_block_imports_only_what_its_page_installs(path: Path) -> None:
    if path.parent.name == "integrations" and _lacks_framework(path.stem):
        pytest.skip("its framework is installed by `make test-integrations`")
    text = path.read_text()
    brought = brought_by(["orbiter-memory", *named_by(text)])
    providers = packages_distributions()

    for module in imported_by(text) & providers.keys():
        names = {canonicalize_name(each) for each in providers[module]}
        assert names & brought, f"{path.name}: no line installs {module}"


def _lacks_framework(name: str) -> bool:
    """Tell whether the framework of an integration is not installed here."""
    if name in TOOLS_ONLY:
        return importlib.util.find_spec(TOOLS_ONLY[name]) is None
    module = f"orbiter.memory.integrations.{name.replace('-', '_')}"
    if name == "index" or importlib.util.find_spec(module) is None:
        return False
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return True
    return False


def _docstrings() -> Iterator[tuple[str, str]]:
    for info in pkgutil.walk_packages(orbiter.memory.__path__, "orbiter.memory."):
        if info.name.endswith("_child"):
            continue
        if ".integrations." in info.name and _lacks_framework(info.name.rpartition(".")[2]):
            continue
        module = importlib.import_module(info.name)
        yield info.name, module.__doc__ or ""
        for name, value in vars(module).items():
            # Other values, such as type variables, have the docstring of their class.
            is_ours = inspect.isclass(value) or inspect.isroutine(value)
            if is_ours and getattr(value, "__module__", None) == info.name:
                yield f"{info.name}.{name}", inspect.getdoc(value) or ""
                for inner, method in vars(value).items() if inspect.isclass(value) else ():
                    if inspect.isroutine(method) or isinstance(method, property):
                        yield f"{info.name}.{name}.{inner}", inspect.getdoc(method) or ""


def test_every_python_block_of_a_docstring_runs() -> None:
    ran = 0
    for name, doc in _docstrings():
        assert ">>>" not in doc, f"{name}: write examples as ```python blocks"
        for code, _ in blocks(doc):
            exec(compile(code, name, "exec"), {"__name__": "documentation"})
            ran += 1

    assert ran >= 1


def test_the_readme_programs_are_short_and_the_first_is_on_the_first_screen() -> None:
    text = (ROOT / "README.md").read_text()
    (code, output), (with_model, answer) = blocks(text)

    assert len(code.strip().splitlines()) < 15
    assert output
    assert text.index(code) < 350
    assert len(with_model.strip().splitlines()) < 15
    assert answer
    assert text.index("<picture>") < text.index("\n## ")
    assert "make demo" in text
    assert "make test" in text


def test_every_public_name_is_on_the_api_page() -> None:
    text = PAGE.read_text()

    for name in orbiter.memory.__all__:
        assert f"| `{name}` ●" in text
    assert text == page(), "run: .venv/bin/python docs/build_api.py"


@each_row("path", PAGES, ids=lambda p: p.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text()):
        linked = (path.parent / target).resolve() if target else path
        assert linked.exists(), f"{path.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}
            assert anchor[1:] in slugs, f"{path.name}: {anchor}"


@each_row("path", [p for p in PAGES if p.parent != ROOT], ids=lambda p: p.name)
def test_every_page_is_reached_from_the_index(path: Path) -> None:
    if path.name != "index.md":
        assert f"({path.name})" in path.with_name("index.md").read_text()
    elif path.parent.name != "docs":
        assert f"({path.parent.name}/index.md)" in (ROOT / "docs/index.md").read_text()


@each_row("path", INTEGRATIONS, ids=lambda p: p.name)
def test_the_page_of_an_integration_has_a_whole_program_under_30_lines(path: Path) -> None:
    programs = [code for code, _ in blocks(path.read_text())]

    assert programs, "a page begins with a program that can be copied"
    assert max(code.count("\n") for code in programs) < 30


def test_the_table_of_integrations_is_current() -> None:
    assert build_integrations.INDEX.read_text() == build_integrations.index(), (
        "run: .venv/bin/python docs/build_integrations.py"
    )


def test_every_make_command_the_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for path in PAGES
        for name in re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(), re.MULTILINE)
    }

    assert {"demo", "test", "check", "bench", "help"} <= targets
    assert {"demo", "test"} <= named <= targets


@each_row("path", PAGES, ids=lambda path: path.name)
def test_every_picture_is_there_for_light_and_for_dark(path: Path) -> None:
    for dark, light in PICTURE.findall(path.read_text(encoding="utf-8")):
        assert (path.parent / light).exists(), light
        assert dark == light.replace("-light.", "-dark.") != light
        assert (path.parent / dark).exists(), dark


@each_row("path", sorted(ROOT.glob("docs/**/*.svg")), ids=lambda path: path.name)
def test_a_picture_loads_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}
    ElementTree.fromstring(text)


@each_row("path", PAGES, ids=lambda path: path.name)
def test_no_page_has_a_placeholder_left(path: Path) -> None:
    assert re.findall(r"(?m)^[A-Z]{4,}$", path.read_text(encoding="utf-8")) == []


def test_the_guide_of_the_code_names_every_file_of_recall_and_of_the_sql_stores() -> None:
    guide = (ROOT / "docs/architecture.md").read_text()
    rows = [line.split("|")[1:-1] for line in guide.splitlines() if line.startswith("| ")]
    titles = ("`backends/sql`", "`backends/sqlite`", "`backends/postgres`")
    head = next(n for n, row in enumerate(rows) if tuple(map(str.strip, row[1:])) == titles)
    table = [row for row in rows[head + 1 :] if len(row) == 4]

    for column, title in enumerate(titles, 1):
        named = {name for row in table for name in re.findall(r"`(\w+)`", row[column])}
        folder = ROOT / "src/orbiter/memory" / title.strip("`")
        assert named == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    recall = {path.name for path in (ROOT / "src/orbiter/memory/recall").glob("*.py")}
    assert recall == {row[0].strip(" `") for row in rows if row[0].strip(" `") in recall}


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/pictures/*.svg")), ids=lambda p: p.name)
def test_a_picture_shows_the_program_without_the_path_of_a_machine(path: Path) -> None:
    assert "/bin/orbiter-memory" not in path.read_text(encoding="utf-8")
