"""Tests each adapter in an environment of its own: `make test-integrations FRAMEWORKS="NAME…"`.

First with the versions pinned in `frameworks/NAME.txt`: what fails there fails the run, and the
counts go into the table of docs/integrations/index.md. Then with the newest ones of `NAME.in`: that
run only reports, as a framework may change any day.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = "test_every_python_block_runs_and_prints_what_it_says"
ALLOWED = (
    "recall uses words:UserWarning",  # these environments have no model
    # CrewAI imports its own modules oddly, and uses what it calls deprecated.
    "Cannot set an attribute on 'crewai:ImportWarning",
    "function_calling_llm is deprecated:DeprecationWarning",
    "deprecated:DeprecationWarning",
    # LlamaIndex looks at all attributes of its agents, which are models of pydantic.
    ":pydantic.warnings.PydanticDeprecationWarning:inspect",
)
"""Warnings that a page may give."""


def main(venv: Path, names: list[str]) -> int:
    """Test the frameworks *names*, or all; return 1 if an adapter fails with pinned versions."""
    chosen = names or sorted(path.stem for path in (HERE / "frameworks").glob("*.in"))
    failed: list[str] = []
    notes: list[str] = []
    for name in chosen:
        if not run_tests(venv, name, is_newest=False):
            failed.append(name)
        if not run_tests(venv, name, is_newest=True):
            notes.append(name)
    subprocess.run([venv / "bin/python", ROOT / "docs/build_integrations.py"], check=True)
    print("with pinned versions:", f"failed: {', '.join(failed)}" if failed else "all passed")
    print("with the newest:", f"to look at: {', '.join(notes)}" if notes else "all passed")
    return bool(failed)


def run_tests(venv: Path, name: str, *, is_newest: bool) -> bool:
    """Make the environment of a framework and run its tests there; tell whether they passed."""
    folder = venv.with_name(f"{venv.name}-{name}{'-newest' if is_newest else ''}")
    python = folder / "bin/python"
    pins = HERE / f"frameworks/{name}.{'in' if is_newest else 'txt'}"
    uv = venv / "bin/uv"
    create = [uv, "venv", "--quiet", "--allow-existing", "--python", venv / "bin/python", folder]
    install = [uv, "pip", "install", "--quiet", "--python", python]
    install += ["--upgrade"] if is_newest else []
    install += ["-r", pins, "-e", f"{ROOT}[{name}]"]
    modules = sorted(HERE.glob(f"test_{name.replace('-', '_')}*.py"))
    test = [python, "-m", "pytest", "-q", "-n", "0", *modules]
    test += [f"{ROOT}/tests/docs/test_docs.py::{PAGE}[{name}.md]"]
    test += [part for warning in ALLOWED for part in ("-W", f"ignore:{warning}")]
    if is_newest:  # a warning of theirs is not a fault of ours
        test += ["-W", "default"]
    settings = os.environ | {"ORBITER_REQUIRE_SERVERS": "1"}
    if not is_newest:
        settings["ORBITER_INTEGRATION_RESULTS"] = str(ROOT / "docs/integrations/results.json")
    print(f"\n{name}, {'newest' if is_newest else 'pinned'} versions", flush=True)
    return all(
        subprocess.run([str(part) for part in command], cwd=ROOT, env=settings, check=False)
        .returncode == 0
        for command in (create, install, test)
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).absolute(), sys.argv[2:]))
