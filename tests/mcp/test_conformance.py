"""The protocol's own suites, from npm: conformance scenarios over HTTP, the inspector over stdio.

They are installed once, into the environment of the tests, as `node/package.json` pins them.
"""

import asyncio
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import COMMAND, environment
from tests.mcp.test_definitions import NAMES
from tests.mcp.test_http import Serve, serve
from tests.timing import HANG

from orbiter.memory import AgentMemory

__all__ = ["serve"]

pytestmark = pytest.mark.full

PACKAGES = Path(__file__).with_name("node") / "package.json"
REVISIONS = ("2025-11-25", "2026-07-28")

_FIXTURE = "it calls a tool, prompt or resource that a server has for this suite alone (`test_…`)"
_LOGGING = "the server sends no log messages to clients, and declares none"
_EXTENSION = "it is about an extension that the server does not declare"
_SUBSCRIBE = "the server has no sessions, so nobody can subscribe, and declares nothing of it"
NOT_APPLICABLE = {
    "elicitation-sep1034-defaults": _FIXTURE,
    "elicitation-sep1330-enums": _FIXTURE,
    "http-custom-header-server-validation": "no tool takes an argument from an HTTP header",
    "input-required-result-basic-elicitation": _FIXTURE,
    "input-required-result-basic-list-roots": _FIXTURE,
    "input-required-result-basic-sampling": _FIXTURE,
    "input-required-result-capability-check": _FIXTURE,
    "input-required-result-multi-round": _FIXTURE,
    "input-required-result-multiple-input-requests": _FIXTURE,
    "input-required-result-non-tool-request": _FIXTURE,
    "input-required-result-request-state": _FIXTURE,
    "input-required-result-result-type": _FIXTURE,
    "input-required-result-tampered-state": _FIXTURE,
    "json-schema-2020-12": _FIXTURE,
    "logging-set-level": _LOGGING,
    "prompts-get-embedded-resource": _FIXTURE,
    "prompts-get-simple": _FIXTURE,
    "prompts-get-with-args": _FIXTURE,
    "prompts-get-with-image": _FIXTURE,
    "resources-read-binary": _FIXTURE,
    "resources-read-text": _FIXTURE,
    "resources-subscribe": _SUBSCRIBE,
    "resources-templates-read": _FIXTURE,
    "resources-unsubscribe": _SUBSCRIBE,
    "sep-2640-skills-directory": _EXTENSION,
    "sep-2640-skills-enumeration": _EXTENSION,
    "sep-2640-skills-manifest": _EXTENSION,
    "tasks-capability-negotiation": _EXTENSION,
    "tasks-dispatch-and-envelope": _EXTENSION,
    "tasks-lifecycle": _EXTENSION,
    "tasks-mrtr-composition": _EXTENSION,
    "tasks-mrtr-input": _EXTENSION,
    "tasks-request-headers": _EXTENSION,
    "tasks-request-state-removal": _EXTENSION,
    "tasks-required-task-error": _EXTENSION,
    "tasks-status-notifications": _EXTENSION,
    "tasks-wire-fields": _EXTENSION,
    "tools-call-audio": _FIXTURE,
    "tools-call-elicitation": _FIXTURE,
    "tools-call-embedded-resource": _FIXTURE,
    "tools-call-image": _FIXTURE,
    "tools-call-mixed-content": _FIXTURE,
    "tools-call-sampling": _FIXTURE,
    "tools-call-with-logging": _LOGGING,
    "tools-call-with-progress": _FIXTURE,
}
"""The scenarios that do not apply, and why."""

NOT_APPLICABLE_CHECKS = {
    ("server-stateless", "sep-2575-missing-capability-http-400"): _FIXTURE,
    ("server-stateless", "sep-2575-server-rejects-undeclared-capability"): _FIXTURE,
}
"""Single checks that do not apply, of scenarios that do."""


@pytest.fixture(scope="module")
def packages() -> Path:
    """Install the suites; return the folder that they are in."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.fail("the suites of the protocol need `node` and `npm`: install Node.js 20 or newer")
    folder = Path(sys.prefix) / "mcp-suites"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = folder / "installed.json"
        if not installed.exists() or installed.read_text() != PACKAGES.read_text():
            shutil.copy(PACKAGES, folder / "package.json")
            install = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
            ended = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)
            if ended.returncode:
                pytest.fail(f"npm could not install the suites of the protocol:\n{ended.stderr}")
            shutil.copy(PACKAGES, installed)
    return folder / "node_modules"


async def node(packages: Path, script: str, *args: str) -> str:
    """Run a script of a package; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        packages / ".bin/node",
        packages / script,
        *args,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": f"{packages / '.bin'}:{os.environ['PATH']}"},
    )
    out, errors = await asyncio.wait_for(process.communicate(), 4 * HANG)
    assert out, errors.decode()
    return out.decode()


async def conformance(packages: Path, *args: str) -> str:
    return await node(packages, "@modelcontextprotocol/conformance/dist/index.js", *args)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_scenario_that_applies_passes(
    packages: Path, serve: Serve, tmp_path: Path, revision: str
) -> None:
    url = await serve()

    settings = ["--suite", "all", "--spec-version", revision, "-o", str(tmp_path)]
    await conformance(packages, "server", "--url", f"{url}/mcp", *settings)

    checks = {
        re.sub(r"^server-(.*?)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name): json.loads(
            file.read_text()
        )
        for file in tmp_path.glob("*/checks.json")
    }
    failures = {
        (scenario, check["id"]): check.get("errorMessage")
        for scenario, each in checks.items()
        for check in each
        if check["status"] == "FAILURE" and (scenario, check["id"]) not in NOT_APPLICABLE_CHECKS
    }
    unexpected = {key: text for key, text in failures.items() if key[0] not in NOT_APPLICABLE}
    assert not unexpected
    # What passes meanwhile is to be taken off the list.
    assert {scenario for scenario, _ in failures} == checks.keys() & NOT_APPLICABLE.keys()
    applying = checks.keys() - NOT_APPLICABLE.keys()
    assert {"tools-list", "resources-list", "prompts-list", "completion-complete"} <= applying


async def test_every_scenario_of_the_suite_is_run_or_listed_with_a_reason(packages: Path) -> None:
    listed = await conformance(packages, "list", "--server")

    scenarios = dict(re.findall(r"^  - (\S+) \[(.+)\]$", listed, re.MULTILINE))
    is_run = {name for name, of in scenarios.items() if set(of.split(",")) & set(REVISIONS)}
    assert scenarios.keys() - is_run <= NOT_APPLICABLE.keys()
    assert NOT_APPLICABLE.keys() <= scenarios.keys()


async def test_the_inspector_lists_and_calls_tools_over_stdio(
    packages: Path, tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    variables = environment(str(path))

    async def inspect(*args: str) -> Any:
        given = [f"{name}={value}" for name, value in variables.items() if "ORBITER" in name]
        start = [*COMMAND, "mcp", *(part for each in given for part in ("-e", each))]
        ran = await node(packages, ".bin/mcp-inspector", "--cli", *start, "--method", *args)
        return json.loads(ran)

    tools = await inspect("tools/list")
    added = await inspect(
        "tools/call", "--tool-name", "memory_know", "--tool-arg", "key=home.city", "value=Oslo"
    )
    resource = await inspect("resources/read", "--uri", "memory://profile")
    prompts = await inspect("prompts/list")

    assert {each["name"] for each in tools["tools"]} == NAMES["memory"].keys()
    assert added["structuredContent"]["value"] == "Oslo"
    [document] = resource["contents"]
    assert json.loads(document["text"])["facts"]["home.city"]["value"] == "Oslo"
    assert {each["name"] for each in prompts["prompts"]} == {"recall", "handoff"}
    async with AgentMemory(path, embeddings=None) as memory:
        assert await memory.scope(user_id="alice").facts.get("home.city") is not None
