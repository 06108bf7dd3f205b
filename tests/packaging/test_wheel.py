"""What people install: the wheel's content, and a clean environment with nothing but it."""

import json
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import orbiter.memory

ROOT = Path(__file__).parents[2]
MEGABYTE = 2**20
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def _install(python: Path, wanted: str) -> None:
    """Install with uv where it is there and can reach an index, else with pip, as make does."""
    uv = [str(UV), "pip", "install", "--python", str(python)]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    if UV.exists():
        done = subprocess.run([*uv, "--quiet", wanted], check=False, capture_output=True)
        if done.returncode == 0:
            return
    subprocess.run([*pip, "--quiet", wanted], check=True, capture_output=True)


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    _install(python, str(wheel))
    return python


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]

    outside = [name for name in names if not name.startswith("orbiter/memory/")]
    assert outside == ["synaptic/core/base/memory.py"]
    assert "orbiter/memory/py.typed" in names
    assert "orbiter/__init__.py" not in names
    pages = "orbiter/memory/server/dashboard/"
    assert {f"{pages}templates/base.html", f"{pages}static/app.css"} <= set(names)
    code = [name for name in names if not name.startswith((f"{pages}templates", f"{pages}static"))]
    lists = {"german_parts", "irregular_forms", "stop_words"}
    others = {name for name in code if not name.endswith((".py", ".pyi", "py.typed"))}
    assert others == {
        "orbiter/memory/recall/time_names.txt",
        "orbiter/memory/recall/time_words.txt",
        *(f"orbiter/memory/text/{name}.txt" for name in lists),
    }


def test_the_metadata_says_what_the_project_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(archive.read(name).decode())

    assert metadata["Name"] == "orbiter-memory"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra") or ()) == {
        *(
            "all",
            "ann",
            "cli",
            "client",
            "local",
            "mcp",
            "oidc",
            "openai",
            "otel",
            "postgres",
            "redis",
        ),
        *("server", "testing", "vector"),
        *("agent-framework", "crewai"),
        *("agno", "autogen", "dspy", "haystack", "semantic-kernel", "smolagents"),
        *("anthropic", "claude-agent-sdk", "google-adk", "langchain", "langgraph", "llama-index"),
        *("openai-agents", "pydantic-ai", "strands"),
    }
    core = [r for r in metadata.get_all("Requires-Dist") or () if "extra ==" not in r]
    assert sorted(r.split(">")[0] for r in core) == [
        "click",
        *("platformdirs", "pydantic", "pyyaml"),
        "rich",  # for the command line, as click is
        "typing-extensions",  # whose protocols are quick to ask
    ]


def test_only_the_extra_for_tests_brings_the_tools_of_tests(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(archive.read(name).decode())
    extras = metadata.get_all("Provides-Extra") or ()
    needed: dict[str, set[str]] = {extra: set() for extra in extras}
    for line in metadata.get_all("Requires-Dist") or ():
        requirement = Requirement(line)
        for extra in extras:
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                # An extra may be others of ours.
                named = requirement.extras if requirement.name == "orbiter-memory" else ()
                needed[extra] |= {requirement.name, *(f"[{each}]" for each in named)}
    tools = {name for name in needed["testing"] if name.startswith(("pytest", "hypothesis"))}

    assert tools >= {"hypothesis", "pytest"}
    brings = {extra for extra in extras if needed[extra] & {*tools, "[testing]"}}
    assert brings == {"testing"}


def test_a_clean_environment_imports_every_public_name(clean_python: Path, tmp_path: Path) -> None:
    code = """
import json, synaptic.core.base.memory
from orbiter.memory import *
from orbiter.memory.summarizers import OpenAISummarizer
import orbiter.memory
names = [n for n in orbiter.memory.__all__ if globals()[n] is getattr(orbiter.memory, n)]
try:
    OpenAISummarizer()
except ModuleNotFoundError as exc:
    cure = str(exc)
cures = []
for embedder in (OpenAIEmbeddings, LocalEmbeddings):
    try:
        embedder()
    except ModuleNotFoundError as exc:
        cures.append(str(exc).partition(": ")[2])
print(json.dumps([names, cure, cures, orbiter.memory.__file__, orbiter.memory.__version__]))
"""
    done = subprocess.run(
        [clean_python, "-I", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    names, cure, cures, where, version = json.loads(done.stdout)

    assert "site-packages" in where
    assert names == orbiter.memory.__all__
    assert cure == "OpenAISummarizer needs openai: pip install 'orbiter-memory[openai]'"
    assert cures == [f"pip install 'orbiter-memory[{extra}]'" for extra in ("openai", "local")]
    assert version == orbiter.memory.__version__


def test_the_core_imports_nothing_of_its_command_line(clean_python: Path) -> None:
    code = "import sys, orbiter.memory; print({'rich', 'click'} & set(sys.modules))"

    done = subprocess.run(
        [clean_python, "-I", "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "set()\n"


@pytest.mark.slow
@pytest.mark.skipif(not UV.exists(), reason="needs uv")
@pytest.mark.parametrize(
    ("words", "stdin", "answer"),
    [
        (["orbiter-memory", "--version"], "", f"orbiter-memory {orbiter.memory.__version__}"),
        (
            ["orbiter-memory[mcp]", "mcp", "--user", "bob"],
            '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
            '{"jsonrpc":"2.0","id":1,"result":{}}',
        ),
    ],
    ids=["core", "mcp"],
)
def test_uvx_runs_it_in_an_empty_environment(
    wheel: Path, tmp_path: Path, words: list[str], stdin: str, answer: str
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}

    done = subprocess.run(
        [UV, "tool", "run", "--quiet", "--isolated", "--find-links", wheel.parent, *words],
        env={**env, "XDG_DATA_HOME": str(tmp_path), "UV_TOOL_DIR": str(tmp_path / "tools")},
        cwd=tmp_path,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == answer, done.stderr


def test_the_core_is_light(clean_python: Path) -> None:
    installed = clean_python.parents[1] / "lib"
    size = sum(path.stat().st_size for path in installed.rglob("*") if path.is_file())

    assert size < 30 * MEGABYTE


def test_nothing_in_the_repository_names_a_package_index() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    suffixes = {".toml", ".txt", ".in", ".lock", ".cfg", ".json", ".yml", ""}
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in suffixes and path.name != "LICENSE" and path.exists():
            text = path.read_text(encoding="utf-8")
            for word in ("index-url", "find-links", "pypi.org", "files.pythonhosted"):
                assert word not in text, f"{name} names a package index ({word})"
