"""The lowest versions that pyproject.toml admits, and what a vulnerability database says of them.

`python -m tests.packaging.minimums` asks pip-audit. Where that or its database cannot be had, only
the list in advisories.toml, which `test_advisories` reads, has been asked.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

__all__ = ["declared"]

ROOT = Path(__file__).parents[2]
OWN = ("orbiter-memory", "orbiter-memory-minilm")
_LOWER = (">=", "==", "~=")


def declared() -> Iterator[tuple[str, Version]]:
    """Yield every package that an extra or the core asks for, with the lowest version."""
    for folder in (ROOT, ROOT / "models" / "minilm"):
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        extras = project.get("optional-dependencies", {}).values()
        for line in (
            *project.get("dependencies", ()),
            *(each for extra in extras for each in extra),
        ):
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            if name not in OWN:
                bounds = [each for each in requirement.specifier if each.operator in _LOWER]
                assert bounds, f"`{line}` has no lowest version"
                yield name, max(Version(each.version) for each in bounds)


def _audit() -> int:
    lines = sorted({f"{name}=={version}" for name, version in declared()})
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.txt")
        # Several extras may ask for one package; pip-audit takes it once.
        wanted.write_text("\n".join({line.partition("==")[0]: line for line in lines}.values()))
        command = ("tool", "run", "pip-audit", "--no-deps", "--disable-pip", "--format", "json")
        uv = Path(sys.executable).with_name("uv")
        try:
            line = [str(uv), *command, "-r", str(wanted)]
            # It exits with 1 for what it finds.
            done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=300)
            found = json.loads(done.stdout)["dependencies"]
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
            found = []
    asked = [each for each in found if "vulns" in each]
    if not asked:
        print("no vulnerability database can be reached; the list advisories.toml alone is asked")
        return 0
    affected = [each for each in asked if each["vulns"]]
    for each in affected:
        ids = ", ".join(vuln["id"] for vuln in each["vulns"])
        print(f"{each['name']} {each['version']}: {ids}; raise it in pyproject.toml")
    print(f"{len(asked)} of {len(found)} lowest versions asked, {len(affected)} with an advisory")
    return 1 if affected else 0


if __name__ == "__main__":
    sys.exit(_audit())
