"""Builds and checks what would be uploaded as a release: `make release`. Nothing is uploaded.

In `dist/` afterwards: the sdist and the wheel of both distributions, an SBOM of what an install
brings (CycloneDX), `SHA256SUMS`, and `SHA256SUMS.sig` if `RELEASE_KEY` names a private SSH key.
The wheels were installed in an empty environment, and remembered and recalled there.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = (ROOT, ROOT / "models/minilm")
BIN = Path(sys.executable).parent
NAMESPACE = "orbiter-memory"
"""What a signature is for, in the words of `ssh-keygen -Y`."""

THREE_LINES = """\
from orbiter.memory.sync import AgentMemory
with AgentMemory("agent.db") as memory:
    me = memory.default_user
    me.remember("I love hiking in the mountains")
    (hit,) = me.recall("outdoor activities")
import orbiter.memory
print(hit.item.content, "|", hit.why, "|", orbiter.memory.__version__, orbiter.memory.__file__)
"""


def run(*command: str | Path, **options: object) -> str:
    """Return what a command prints; its failure is ours, with what it said."""
    done = subprocess.run(  # noqa: S603, PLW1510 - our own tools; told below
        command, capture_output=True, text=True, **options
    )
    if done.returncode:
        words = " ".join(str(each) for each in command)
        sys.exit(f"failed: {words}\n{done.stdout}{done.stderr}")
    return done.stdout


def project(folder: Path) -> dict[str, str]:
    """Return the name, version and other metadata of a distribution."""
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def build(target: Path) -> list[Path]:
    """Build sdist and wheel of both distributions; the same commit gives the same bytes."""
    env = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
    for folder in DISTRIBUTIONS:
        run(sys.executable, "-m", "hatchling", "build", "-d", target, cwd=folder, env=env)
    built = sorted([*target.glob("*.tar.gz"), *target.glob("*.whl")])
    expected = 2 * len(DISTRIBUTIONS)
    if len(built) != expected:
        sys.exit(f"expected {expected} files, built {[path.name for path in built]}")
    return built


def commit_time() -> str:
    """Return when the commit was made, in seconds; a folder without git has a time of its own."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"],  # noqa: S607 - whichever git there is
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "1577836800"


def install(target: Path, folder: Path) -> Path:
    """Install the built files in an empty environment, and run the three lines of the README."""
    venv.create(folder / "clean", with_pip=True)
    python = folder / "clean/bin/python"
    version = project(ROOT)["version"]
    wanted = f"{project(ROOT)['name']}[local]=={version}"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--find-links", target, wanted, cwd=folder)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools", cwd=folder)
    printed = run(python, "-W", "error", "-c", THREE_LINES, cwd=folder)
    if "similar meaning" not in printed or f"{version} {folder}" not in printed:
        sys.exit(f"the installed package answers wrongly: {printed}")
    return python


def sbom(python: Path, target: Path) -> Path:
    """Write which packages an install brings, as CycloneDX."""
    path = target / f"{project(ROOT)['name']}-{project(ROOT)['version']}.cdx.json"
    run(
        *(BIN / "cyclonedx-py", "environment", "--short-PURLs", "--output-reproducible"),
        *("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library"),
        *("--output-format", "JSON", "--output-file", path, "--validate", python),
        env={**os.environ, "SOURCE_DATE_EPOCH": commit_time()},
    )
    return path


def checksums(paths: list[Path], target: Path) -> Path:
    """Write SHA-256 of each file, as `sha256sum --check` reads it."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    listed = target / "SHA256SUMS"
    listed.write_text("".join(lines), encoding="utf-8")
    return listed


def sign(path: Path, key: str) -> Path:
    """Sign a file with an SSH key; `ssh-keygen -Y verify` checks it."""
    run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, path)
    return path.with_name(f"{path.name}.sig")


def main() -> None:
    """Do all of it."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = build(target)
    run(BIN / "twine", "check", "--strict", *files)
    with tempfile.TemporaryDirectory(prefix="orbiter-release-") as folder:
        python = install(target, Path(folder).resolve())
        files.append(sbom(python, target))
    files.append(checksums(files, target))
    if key := os.environ.get("RELEASE_KEY"):
        files.append(sign(files[-1], key))
    for path in files:
        print(f"{path.stat().st_size:>12,}  {path.name}")
    print("built, checked and installed; nothing was uploaded")
    if not key:
        print("not signed: name a private SSH key with RELEASE_KEY=…")


if __name__ == "__main__":
    main()
