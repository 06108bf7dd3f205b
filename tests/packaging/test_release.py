"""What would be uploaded: built, listed, signed, and started from the files alone."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import orbiter.memory

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
VERSION = orbiter.memory.__version__

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "release"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", str(path)]
    subprocess.run(make, check=True)
    return path


@pytest.fixture(scope="module")
def files(key: Path) -> Path:
    """Build a release as people do, with a key; return its folder."""
    env = {**os.environ, "RELEASE_KEY": str(key)}
    done = subprocess.run(
        ["make", "release"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "dist"


def test_a_release_has_both_distributions_an_sbom_and_checksums(files: Path) -> None:
    names = {path.name for path in files.iterdir()}
    listed = dict(
        line.split("  ")[::-1] for line in (files / "SHA256SUMS").read_text().splitlines()
    )

    assert set(listed) == names - {"SHA256SUMS", "SHA256SUMS.sig"}
    assert {
        f"orbiter_memory-{VERSION}-py3-none-any.whl",
        f"orbiter_memory-{VERSION}.tar.gz",
    } <= names
    assert sum(name.startswith("orbiter_memory_minilm-") for name in names) == 2
    for name, digest in listed.items():
        assert hashlib.sha256((files / name).read_bytes()).hexdigest() == digest


def test_the_sbom_names_what_an_install_brings_and_no_path_of_this_machine(files: Path) -> None:
    text = (files / f"orbiter-memory-{VERSION}.cdx.json").read_text()
    components = {each["name"] for each in json.loads(text)["components"]}

    assert {"pydantic", "onnxruntime", "numpy", "orbiter-memory-minilm"} <= components
    assert str(ROOT) not in text
    assert "file://" not in text


def test_the_signature_is_that_of_the_key(files: Path, key: Path, tmp_path: Path) -> None:
    signers = tmp_path / "signers"
    signers.write_text(f"release {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "release"]
    verify += ["-n", "orbiter-memory", "-s", str(files / "SHA256SUMS.sig")]

    for text, is_good in (((files / "SHA256SUMS").read_bytes(), True), (b"others", False)):
        done = subprocess.run(verify, input=text, capture_output=True, check=False)
        assert (done.returncode == 0) == is_good, done.stderr


@pytest.mark.skipif(not UV.exists(), reason="needs uv")
def test_uvx_starts_it_from_the_wheel_file(files: Path, tmp_path: Path) -> None:
    wheel = files / f"orbiter_memory-{VERSION}-py3-none-any.whl"
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}

    def start(*words: str) -> str:
        command = [str(UV), "tool", "run", "--quiet", "--isolated", "--from", str(wheel)]
        done = subprocess.run(
            [*command, "orbiter-memory", *words],
            env={**env, "XDG_DATA_HOME": str(tmp_path), "UV_TOOL_DIR": str(tmp_path / "tools")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert start("--version").strip() == f"orbiter-memory {VERSION}"
    start("remember", "I love hiking", "--user", "alice")
    assert "I love hiking" in start("recall", "hiking", "--user", "alice")
