"""`install`: what a program's own command is called with, what is printed, what is written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.timing import HANG

from orbiter.memory.cli._launch import project_name

OTHERS: dict[str, Any] = {
    "model": "opus",
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home, which is also where commands are run."""
    monkeypatch.delenv("ORBITER_MEMORY_TOKEN", raising=False)
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.setenv("PATH", f"{found}/bin:/usr/bin:/bin")
    monkeypatch.chdir(found)
    return found


def program(home: Path, name: str, code: int = 0) -> Path:
    """Put a program on the PATH that writes down its arguments; return the file of these."""
    written = home / f"{name}.arguments"
    path = home / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {written}\necho no >&2\nexit {code}\n')
    path.chmod(0o700)
    return written


def written_by(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize(
    ("client", "name", "before"),
    [
        ("claude-code", "claude", ["mcp", "add", "--scope", "user", "orbiter-memory", "--"]),
        ("codex", "codex", ["mcp", "add", "orbiter-memory", "--"]),
        ("gemini-cli", "gemini", ["mcp", "add", "--scope", "user", "orbiter-memory"]),
    ],
)
def test_the_programs_own_command_adds_it(
    cli: Cli, home: Path, client: str, name: str, before: list[str]
) -> None:
    ran = program(home, name)

    cli.ok("install", client, "--dry-run")
    assert not ran.exists()
    cli.ok("install", client, "--tools", "kg")

    words = written_by(ran)
    assert words[: len(before)] == before
    started = [each for each in words[len(before) :] if each != "--"]
    assert started[:6] == [sys.executable, "-m", "orbiter.memory.cli", "mcp", "--tools", "kg"]
    assert started[started.index("--url") + 1] == cli.url
    assert started[started.index("--user") + 1] == "alice"


def test_a_command_that_fails_or_is_not_there_is_named(cli: Cli, home: Path) -> None:
    missing = cli.ok("install", "claude-code")
    program(home, "claude", code=1)
    failed = cli("install", "claude-code")

    assert missing.startswith("claude mcp add --scope user orbiter-memory -- ")
    assert failed.exit_code == 1
    assert "failed: no" in failed.stderr


def test_code_is_given_one_object(cli: Cli, home: Path) -> None:
    ran = program(home, "code")

    cli.ok("install", "vscode")

    flag, entry = written_by(ran)
    assert flag == "--add-mcp"
    assert json.loads(entry)["name"] == "orbiter-memory"


@pytest.mark.parametrize(
    ("client", "holder"),
    [("cursor", "mcpServers"), ("zed", "context_servers"), ("opencode", "mcp")],
)
def test_what_has_no_command_is_printed_or_put_into_a_file_that_is_named(
    cli: Cli, home: Path, client: str, holder: str
) -> None:
    path = home / "deep" / "settings.json"
    printed = json.loads(cli.ok("install", client))

    cli.ok("install", client, "--file", str(path))
    path.write_text(json.dumps({"theme": "dark", **json.loads(path.read_text())}))
    cli.ok("install", client, "--file", str(path), "--name", "second")
    changed = json.loads(path.read_text())

    assert list(printed[holder]) == ["orbiter-memory"]
    assert list(changed[holder]) == ["orbiter-memory", "second"]
    assert changed["theme"] == "dark"
    assert path.stat().st_mode & 0o077 == 0
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_what_is_written_works(cli: Cli, home: Path) -> None:
    entry = json.loads(cli.ok("install", "cursor"))["mcpServers"]["orbiter-memory"]

    ended = subprocess.run(
        [entry["command"], *entry["args"]],
        input=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
        capture_output=True,
        check=True,
        cwd="/",
        timeout=HANG,
    )

    assert json.loads(ended.stdout)["id"] == 1


@pytest.mark.parametrize("broken", ['{"a": 1,}', "// why\n{}", "[]", '{"mcpServers": []}'])
def test_a_file_that_is_no_plain_json_is_left_alone(cli: Cli, home: Path, broken: str) -> None:
    path = home / "mcp.json"
    path.write_text(broken)

    refused = cli("install", "cursor", "--file", str(path))

    assert refused.exit_code == 1
    assert "nothing was changed" in refused.stderr
    assert path.read_text() == broken


def test_a_link_stays_one(cli: Cli, home: Path) -> None:
    (home / "real.json").write_text("{}")
    (home / "mcp.json").symlink_to(home / "real.json")

    cli.ok("install", "cursor", "--file", str(home / "mcp.json"))

    assert (home / "mcp.json").is_symlink()
    assert "orbiter-memory" in (home / "real.json").read_text()


def test_a_key_goes_to_the_environment_and_is_not_shown(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = program(home, "claude")
    monkeypatch.setenv("ORBITER_MEMORY_TOKEN", "om_1_secret")
    args = ("install", "claude-code", "--url", "https://memory.example.com")

    shown = cli.ok(*args, "--dry-run")
    done = cli.ok(*args)

    words = written_by(ran)
    assert words[words.index("--env") + 1] == "ORBITER_MEMORY_TOKEN=om_1_secret"
    assert "om_1_secret" not in words[words.index("--") :]
    assert "om_1_secret" not in shown + done


def test_what_a_project_commits_holds_no_secret_and_no_path(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = program(home, "claude")
    program(home, "orbiter-memory")
    told = cli.ok("install", "claude-code", "--project")
    entry = cli.ok("install", "cursor", "--project", "--file", ".cursor/mcp.json")

    words = written_by(ran)
    assert words[words.index("--scope") + 1] == "project"
    assert words[words.index("--env") + 1] == "ORBITER_MEMORY_URL=${ORBITER_MEMORY_URL}"
    assert words[words.index("--") + 1] == "orbiter-memory"
    assert words[words.index("--task") + 1] == project_name(home)
    written = (home / ".cursor/mcp.json").read_text()
    assert "${env:ORBITER_MEMORY_URL}" in written
    for text in (" ".join(words), written):
        assert cli.url not in text
        assert sys.executable not in text
        assert "alice" not in text
    assert "set ORBITER_MEMORY_URL where Claude Code is started" in told
    assert "set ORBITER_MEMORY_URL where Cursor is started" in entry


@pytest.mark.parametrize("value", ["${ORBITER_MEMORY_URL}", "{env:ORBITER_MEMORY_URL}"])
def test_a_variable_that_a_program_did_not_replace_is_not_set(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))

    stored = cli("remember", "the port is 7431", env={"ORBITER_MEMORY_URL": value})

    assert stored.exit_code == 0, stored.output
    assert (home / "data/orbiter-memory/memory.db").is_file()


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://me:s3cret@git.example.com/acme/app/", "acme/app"),
        ("git@github.com:acme/app.git", "acme/app"),
        ("ssh://git@git.example.com:2222/group/sub group/app.git", "sub-group/app"),
        ("/home/me/app.git", None),
        ("file:///home/me/app.git", None),
    ],
)
def test_a_project_has_one_name_in_every_clone(
    tmp_path: Path, remote: str, name: str | None
) -> None:
    for clone in ("one", "two"):
        folder = tmp_path / clone
        subprocess.run(["git", "init", "--quiet", folder], check=True)
        subprocess.run(["git", "-C", folder, "remote", "add", "origin", remote], check=True)

        assert name is None or project_name(folder) == name
        assert name is not None or project_name(folder).startswith(f"{clone}-")


def test_hooks_are_added_once_and_those_of_others_stay(cli: Cli, home: Path) -> None:
    program(home, "claude")
    path = home / "settings.json"
    path.write_text(json.dumps(OTHERS))

    cli.ok("install", "claude-code", "--hooks", str(path))
    cli.ok("install", "claude-code", "--hooks", str(path))

    settings = json.loads(path.read_text())
    commands = [hook["command"] for each in settings["hooks"]["Stop"] for hook in each["hooks"]]
    assert settings["model"] == "opus"
    assert commands[0] == "say done"
    assert len(commands) == 2
    assert commands[1].endswith("|| exit 0")
    assert [*settings["hooks"]] == ["Stop", "SessionStart"]
    assert cli("install", "cursor", "--hooks", str(path)).exit_code == 2


def test_nothing_is_written_that_could_not_start(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.cli.commands.install.find_spec", lambda _: None)

    refused = cli("install", "cursor", "--file", str(home / "mcp.json"))

    assert refused.exit_code == 1
    assert "pip install 'orbiter-memory[mcp]'" in refused.stderr
    assert not (home / "mcp.json").exists()


def test_a_server_without_its_sdk_makes_no_store(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    result = cli("mcp")

    assert result.exit_code == 1
    assert "pip install 'orbiter-memory[mcp]'" in result.stderr
    assert not Path(cli.url).exists()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--url", "/nowhere/at/all/memory.db"], "/nowhere/at/all"),
        (["--user", ""], "`--user` is empty"),
        (["--no-user"], "no scope is given"),
        (["--tools", "everything"], "everything"),
    ],
)
def test_a_server_that_cannot_begin_says_so_on_stderr(cli: Cli, args: list[str], why: str) -> None:
    result = cli("mcp", *args)

    assert result.exit_code in (1, 2)
    assert why in result.stderr
    assert result.stdout == ""
