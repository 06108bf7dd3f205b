"""Our extras beside each framework's newest release, which an installer must be able to keep.

An installer that finds a conflict goes back in time silently, to a release from before it.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.integrations.test_infrastructure import FRAMEWORKS, ROOT

EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
PROJECT: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
WITHOUT_ADAPTER = {
    "agent-framework-core",
    "agno",
    "autogen-core",
    "crewai",
    "dspy",
    "google-adk",
    "haystack-ai",
    "llama-index-core",
    "semantic-kernel",
    "smolagents",
    "strands-agents",
}
"""Frameworks that are served by the ready-made tools, or that people use beside our server."""


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def ours() -> list[str]:
    """Return what all extras need but those of the frameworks."""
    chosen = [each for name, extra in EXTRAS.items() if name not in FRAMEWORKS for each in extra]
    # The package itself, and its model, which is part of this checkout.
    return [each for each in [*PROJECT, *chosen] if not each.startswith("orbiter-memory")]


def resolved(*requirements: str) -> dict[str, str]:
    """Return the versions that an installer would choose, by name."""
    uv = Path(sys.executable).with_name("uv")
    assert uv.exists(), f"`{uv}` is missing: `make` puts it there"
    command = [str(uv), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "-"]
    ended = subprocess.run(
        command, input="\n".join(requirements), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line.partition(" ;")[0] for line in ended.stdout.splitlines()]
    return dict(line.split("==", 1) for line in lines if "==" in line)


FRAMEWORK_PACKAGES = sorted(
    WITHOUT_ADAPTER | {name_of(EXTRAS[name][0]) for name in FRAMEWORKS if name in EXTRAS}
)


@pytest.mark.full  # it asks the package index
@pytest.mark.parametrize("framework", FRAMEWORK_PACKAGES)
def test_a_framework_keeps_its_newest_release_beside_our_extras(framework: str) -> None:
    every = [each for extra in EXTRAS.values() for each in extra]
    extras = [each for each in every if name_of(each) == framework]

    alone = resolved(framework)[framework]
    together = resolved(framework, *ours(), *extras)[framework]

    assert together == alone
