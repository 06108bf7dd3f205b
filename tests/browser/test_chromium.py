"""A browser that is not there is told, in one line, and never taken for a test that passed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.browser import _chromium

SCRIPT = Path(__file__).with_name("chromium.sh")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have nothing but a shell's own tools on the path."""
    for name in ("cat", "id", "mkdir", "rm", "sh", "sleep"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ORBITER_CHROMIUM", raising=False)
    return tmp_path


def test_without_a_browser_its_tests_are_not_run(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        _chromium.program()


def test_without_a_browser_they_fail_where_it_is_required(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="ORBITER_CHROMIUM"):
        _chromium.program()


def test_a_browser_elsewhere_can_be_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITER_CHROMIUM", str(bare / "sh"))

    assert _chromium.program() == str(bare / "sh")


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["sh", str(SCRIPT), *words], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stderr == ""
    return done.stdout


def test_the_setup_says_in_one_line_how_to_get_one(bare: Path) -> None:
    assert run(bare, "begin", str(bare)) == ""  # there is no apt here
    told = run(bare, "end", str(bare))

    assert told.count("\n") == 1
    assert "apt-get install chromium" in told


def test_the_setup_gets_one_by_apt_and_waits_for_it(bare: Path) -> None:
    # As root, here: a package list that is too old, then one that is not.
    chmod = shutil.which("chmod", path=os.defpath)
    (bare / "id").unlink()
    _write(bare / "id", "echo 0")
    _write(
        bare / "apt-get",
        f"""
        echo "$@" >>{bare}/asked
        if [ "$1" = update ]; then : >{bare}/fresh; exit 0; fi
        [ -f {bare}/fresh ] || exit 100
        sleep 0.2
        : >{bare}/chromium && {chmod} +x {bare}/chromium
        """,
    )

    assert run(bare, "begin", str(bare)) == ""
    assert run(bare, "end", str(bare)) == ""

    asked = (bare / "asked").read_text().splitlines()
    for_browser = [line for line in asked if "pgbouncer" not in line][:3]
    assert [line.split()[0] for line in for_browser] == ["install", "update", "install"]
    assert all("--no-install-recommends" in line for line in asked if "install" in line)


def _write(path: Path, script: str) -> None:
    path.write_text(f"#!{shutil.which('sh', path=os.defpath)}\n{script}")
    path.chmod(0o755)
