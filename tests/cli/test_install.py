"""`install`: the right file of each program, everything else in it kept, and nothing done twice."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.timing import HANG

from orbiter.memory.cli import _json_edit
from orbiter.memory.cli._json_edit import FileSyntaxError, find, put, remove
from orbiter.memory.cli._launch import project_name

FILES = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "codex": ".codex/config.toml",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "gemini-cli": ".gemini/settings.json",
    "zed": ".config/zed/settings.json",
    "cline": ".cline/data/settings/cline_mcp_settings.json",
    "continue": ".continue/mcpServers/orbiter-memory.json",
    "opencode": ".config/opencode/opencode.json",
}
PROJECT_FILES = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "gemini-cli": ".gemini/settings.json",
    "zed": ".zed/settings.json",
    "continue": ".continue/mcpServers/orbiter-memory.json",
    "opencode": "opencode.json",
}
HOLDERS = {
    "vscode": "servers",
    "codex": "mcp_servers",
    "zed": "context_servers",
    "opencode": "mcp",
}
MOVED = (
    *("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "CLINE_MCP_SETTINGS_PATH"),
    *("CONTINUE_GLOBAL_DIR", "ORBITER_MEMORY_TOKEN"),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home on Linux, which is also where commands are run."""
    for name in MOVED:
        monkeypatch.delenv(name, raising=False)
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.chdir(found)
    return found


def servers(client: str, path: Path) -> Any:
    """Return the servers that a file names."""
    text = path.read_text()
    held = tomllib.loads(text) if client == "codex" else json.loads(text)
    return held[HOLDERS.get(client, "mcpServers")]


def words(entry: Any) -> list[str]:
    """Return the command that an entry starts, with its arguments."""
    command = entry["command"]
    return [*command] if isinstance(command, list) else [command, *entry["args"]]


@pytest.mark.parametrize("client", FILES)
def test_each_program_is_set_up_once(cli: Cli, home: Path, client: str) -> None:
    path = home / FILES[client]

    shown = cli.ok("install", client, "--tools", "kg", "--user", "bob", "--dry-run")
    assert not path.exists()
    done = cli.ok("install", client, "--tools", "kg", "--user", "bob")
    first = path.read_bytes()
    again = cli.ok("install", client, "--tools", "kg", "--user", "bob")

    entry = servers(client, path)["orbiter-memory"]
    assert str(path) in shown
    assert "+" in shown
    assert "orbiter.memory.cli" in shown
    assert f"wrote {path}" in done
    assert "already" in again
    assert path.read_bytes() == first
    assert path.stat().st_mode & 0o077 == 0
    started = words(entry)
    assert started[0] == sys.executable
    assert started[1:6] == ["-m", "orbiter.memory.cli", "mcp", "--tools", "kg"]
    assert started[started.index("--user") + 1] == "bob"
    assert started[started.index("--url") + 1] == cli.url
    kinds = {"claude-code": "stdio", "vscode": "stdio", "opencode": "local"}
    assert entry.get("type") == kinds.get(client)
    assert ("args" in entry) is (client != "opencode")
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == [path.name]


def test_what_is_written_works(cli: Cli, home: Path) -> None:
    cli.ok("install", "cursor")
    entry = servers("cursor", home / FILES["cursor"])["orbiter-memory"]

    ended = subprocess.run(
        [entry["command"], *entry["args"]],
        input=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
        capture_output=True,
        check=True,
        cwd="/",
        timeout=HANG,
    )

    assert json.loads(ended.stdout)["id"] == 1


@pytest.mark.parametrize("client", FILES)
def test_another_entry_of_the_name_is_shown_and_needs_force(
    cli: Cli, home: Path, client: str
) -> None:
    path = home / FILES[client]
    cli.ok("install", client, "--user", "bob")
    before = path.read_text()

    refused = cli("install", client, "--user", "eve")
    kept = path.read_text()
    beside = cli("install", client, "--user", "eve", "--name", "eves")
    cli.ok("install", client, "--user", "eve", "--force")

    assert refused.exit_code == 2
    assert "--user bob" in refused.stderr
    assert "--force" in refused.stderr
    assert kept == before
    assert beside.exit_code == 0
    found = servers(client, path)
    assert "eve" in words(found["orbiter-memory"])
    assert set(found) == {"orbiter-memory", "eves"}
    assert path.with_name(f"{path.name}.bak").read_text() == before


CURSOR = """{
    // mine
    "zeta": [1, 2,   3],
    "mcpServers": {
        "other": {"command": "x", "env": {"KEY": "s3cret"}} // keep
    },
    "alpha": "\u00e4"
}
"""
CODEX = """# my settings
model = "o5"   # the best

[mcp_servers.other]   # keep
command = "x"

[mcp_servers.orbiter-memory]
command = "old"
args = ["[not a header]"]

[mcp_servers.orbiter-memory.env]
A = "1"

# about the profile
[profiles.p]
model = "o4"
"""


def test_a_json_file_keeps_every_other_character(cli: Cli, home: Path) -> None:
    path = home / FILES["cursor"]
    path.parent.mkdir(parents=True)
    path.write_text(CURSOR)
    path.chmod(0o644)

    cli.ok("install", "cursor")

    text = path.read_text()
    lines = text.splitlines()
    assert [line for line in CURSOR.splitlines() if line not in lines] == [
        '        "other": {"command": "x", "env": {"KEY": "s3cret"}} // keep'
    ]
    assert '        "other": {"command": "x", "env": {"KEY": "s3cret"}}, // keep' in lines
    assert find(text, ("mcpServers", "other")) == {"command": "x", "env": {"KEY": "s3cret"}}
    assert find(text, ("mcpServers", "orbiter-memory", "command")) == sys.executable
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.with_name("mcp.json.bak").read_text() == CURSOR


def test_a_toml_file_keeps_its_comments(cli: Cli, home: Path) -> None:
    path = home / FILES["codex"]
    path.parent.mkdir(parents=True)
    path.write_text(CODEX)

    cli.ok("install", "codex", "--force")

    text = path.read_text()
    held = tomllib.loads(text)
    assert text.startswith(CODEX[: CODEX.index("[mcp_servers.orbiter-memory]")])
    assert text.endswith(CODEX[CODEX.index("# about") :])
    assert held["mcp_servers"]["orbiter-memory"]["command"] == sys.executable
    assert "env" not in held["mcp_servers"]["orbiter-memory"]
    assert held["mcp_servers"]["other"] == {"command": "x"}
    assert held["profiles"] == {"p": {"model": "o4"}}


@pytest.mark.parametrize(
    ("client", "broken"),
    [
        ("claude-desktop", '{"mcpServers": {'),
        ("cursor", "[1, 2]"),
        ("vscode", '{"servers": []}'),
        ("claude-code", '{"a": 1} trailing'),
        ("claude-code", "\udcff"),
        ("codex", "model = \n"),
        ("codex", 'mcp_servers = { other = { command = "x" } }\n'),
    ],
)
def test_a_broken_file_is_left_alone(cli: Cli, home: Path, client: str, broken: str) -> None:
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(broken.encode("utf-8", "surrogateescape"))

    result = cli("install", client)

    assert result.exit_code == 1
    assert str(path) in result.stderr
    assert "nothing was changed" in result.stderr
    assert path.read_bytes() == broken.encode("utf-8", "surrogateescape")
    assert [each for each in path.parent.iterdir() if each.is_file()] == [path]


def test_a_key_goes_to_the_environment_and_is_not_shown(cli: Cli, home: Path) -> None:
    options = ("--url", "http://127.0.0.1:8765", "--token", "om_s3cret")

    shown = cli.ok("install", "claude-code", *options, "--dry-run")
    cli.ok("install", "claude-code", *options)
    refused = cli("install", "claude-code", "--token", "om_s3cret", "--force")

    entry = servers("claude-code", home / FILES["claude-code"])["orbiter-memory"]
    assert "om_s3cret" not in shown
    assert entry["env"] == {"ORBITER_MEMORY_TOKEN": "om_s3cret"}
    assert "om_s3cret" not in entry["args"]
    assert "http://127.0.0.1:8765" in entry["args"]
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("notes.db", "{home}/notes.db"),
        ("~/notes.db", "{home}/notes.db"),
        ("sqlite:///notes.db", "sqlite:///{home}/notes.db"),
        ("sqlite:////notes.db", "sqlite:////notes.db"),
    ],
)
def test_a_file_is_written_down_from_the_root_on(
    cli: Cli, home: Path, url: str, written: str
) -> None:
    cli.ok("install", "cursor", "--url", url)

    arguments = servers("cursor", home / FILES["cursor"])["orbiter-memory"]["args"]
    assert arguments[arguments.index("--url") + 1] == written.format(home=home)


@pytest.mark.parametrize("client", PROJECT_FILES)
@pytest.mark.parametrize(
    ("via", "is_on_path"), [(None, True), (None, False), ("command", False), ("uvx", True)]
)
def test_the_file_of_a_project_is_for_everybody(
    cli: Cli,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    via: str | None,
    is_on_path: bool,
) -> None:
    folder = home / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    command = home / "bin" / "orbiter-memory"
    command.parent.mkdir()
    if is_on_path:
        command.touch(mode=0o755)
    command.with_name("uvx").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    _install_from(monkeypatch, None)
    options = ("--project", *(("--via", via) if via else ()))

    told = cli.ok("install", client, *options)
    again = cli.ok("install", client, *options)

    path = folder / PROJECT_FILES[client]
    text = path.read_text()
    started = words(servers(client, path)["orbiter-memory"])
    is_uvx = via == "uvx" or (via is None and not is_on_path)
    begin = ["uvx", "orbiter-memory[mcp]"] if is_uvx else ["orbiter-memory"]
    assert started[: len(begin) + 1] == [*begin, "mcp"]
    assert started[-2:] == ["--task", project_name(folder)]
    assert project_name(folder).startswith("app-")
    for private in (str(home), sys.prefix, cli.url, "alice"):  # of the machine and of its user
        assert private not in text
    assert "set ORBITER_MEMORY_URL" in told
    assert "already" in again


@pytest.mark.parametrize("client", sorted({"claude-code", "cursor", "opencode"}))
def test_a_variable_that_a_program_did_not_replace_is_not_set(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    """As Claude Code 2.1.326 starts it, where the variable of a committed file is not set."""
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    cli.ok("install", client, "--project", "--via", "command")
    entry = servers(client, home / PROJECT_FILES[client])["orbiter-memory"]
    env = entry.get("env") or entry["environment"]
    assert "ORBITER_MEMORY_URL" in env["ORBITER_MEMORY_URL"]

    stored = cli("remember", "the port is 7431", env=env)
    shown = json.loads(cli("config", "--json", env=env).stdout)

    assert stored.exit_code == 0, stored.output
    assert (home / "data/orbiter-memory/memory.db").is_file()
    assert not [*home.glob("*ORBITER*")]
    assert shown["url"]["from"] == "the user's data directory"


@pytest.mark.parametrize("client", sorted(set(FILES) - set(PROJECT_FILES)))
def test_a_program_without_files_of_projects_says_so(cli: Cli, home: Path, client: str) -> None:
    refused = cli("install", client, "--project")

    assert refused.exit_code == 2
    assert "no configuration for one project" in refused.stderr


def test_a_project_has_a_memory_of_its_own(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [home / "a/app", home / "b/app"]
    for folder in folders:
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        cli.ok("install", "cursor", "--project", "--via", "command")
    tasks = [
        words(servers("cursor", each / ".cursor/mcp.json")["orbiter-memory"])[-1]
        for each in folders
    ]
    cli.remember("the port is 8080", "--task", tasks[0])

    assert "8080" in cli.ok("recall", "port", "--task", tasks[0])
    assert "8080" not in cli("recall", "port", "--task", tasks[1]).stdout
    assert "8080" in cli.ok("recall", "port")  # the person's own memory holds all of them
    again = ("--project", "--via", "command", "--force")
    cli.ok("install", "cursor", *again, "--agent", "reviewer")
    assert words(servers("cursor", folders[1] / ".cursor/mcp.json")["orbiter-memory"])[-2:] == [
        "--agent",
        "reviewer",
    ]


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://github.com/acme/app.git", "acme/app"),
        ("https://me:s3cret@git.example.com/acme/app/", "acme/app"),
        ("https://me:s3cret@git.example.com/app", "app"),
        ("git@github.com:acme/app.git", "acme/app"),
        ("ssh://git@git.example.com:2222/group/sub group/app.git", "sub-group/app"),
        ("/home/me/app.git", None),
        ("file:///home/me/app.git", None),
        ("../app", None),
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


def test_a_path_of_this_machine_is_refused_in_a_file_of_a_project(cli: Cli, home: Path) -> None:
    refused = cli("install", "cursor", "--project", "--via", "python")

    assert refused.exit_code == 2
    assert "--via uvx" in refused.stderr
    assert not (home / ".cursor").exists()


def test_an_environment_that_may_be_gone_tomorrow_is_not_written_down(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "cache").mkdir()
    (home / "cache/CACHEDIR.TAG").touch()
    monkeypatch.setattr(sys, "prefix", str(home / "cache/archive/env"))
    _install_from(monkeypatch, None)

    cli.ok("install", "cursor", "--url", "postgresql://localhost/memory")

    started = words(servers("cursor", home / FILES["cursor"])["orbiter-memory"])
    assert started[:3] == ["uvx", "orbiter-memory[mcp,postgres]", "mcp"]


def _install_from(monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None) -> None:
    """Have the package say that it was installed from there; `None` is an index."""
    text = None if origin is None else json.dumps(origin)
    kind = type(distribution("orbiter-memory"))  # the backport's, if an old dependency loaded that
    monkeypatch.setattr(kind, "read_text", lambda _self, _name: text)


@pytest.mark.parametrize(
    ("origin", "reference"),
    [
        ({"url": "file:///w/o-1.whl", "archive_info": {}}, "file:///w/o-1.whl"),
        ({"url": "file:///checkout", "dir_info": {"editable": True}}, "file:///checkout"),
        (
            {"url": "https://h/o", "vcs_info": {"vcs": "git", "commit_id": "4f2"}},
            "git+https://h/o@4f2",
        ),
        (
            {"url": "https://h/o.zip", "archive_info": {}, "subdirectory": "py"},
            "https://h/o.zip#subdirectory=py",
        ),
    ],
)
def test_what_is_not_from_an_index_is_started_from_where_it_was_installed_from(
    cli: Cli,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    origin: dict[str, Any],
    reference: str,
) -> None:
    _install_from(monkeypatch, origin)

    cli.ok("install", "claude-code", "--hooks", "--via", "uvx")

    started = words(servers("claude-code", home / ".claude.json")["orbiter-memory"])
    source = f"orbiter-memory[mcp] @ {reference}"
    assert started[:5] == ["uvx", "--from", source, "orbiter-memory", "mcp"]
    hooks = json.loads((home / ".claude/settings.json").read_text())["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"].startswith(
        f"uvx --from '{source}' orbiter-memory hook"
    )


@pytest.mark.parametrize(
    ("url", "via", "is_on_path"),
    [
        ("file:///checkout", None, False),
        ("file:///w/o-1.whl", "uvx", False),
        ("https://ann:pw@h/o.zip", "uvx", True),
        (None, None, False),
    ],
)
def test_no_entry_that_cannot_start_is_written_into_the_file_of_a_project(
    cli: Cli,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str | None,
    via: str | None,
    is_on_path: bool,
) -> None:
    """The command is not there, and `uvx` is not, or would look for a release that is none."""
    folder = home / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (home / "bin").mkdir()
    if is_on_path:
        (home / "bin/orbiter-memory").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(home / "bin"))
    _install_from(monkeypatch, None if url is None else {"url": url})
    options = ["--hooks", "--project", *(["--via", via] if via else [])]

    refused = cli("install", "claude-code", *options)

    assert refused.exit_code == 2
    assert "pw@" not in refused.stderr
    assert [*folder.iterdir()] == []
    if is_on_path:
        assert "use `--via command`" in refused.stderr
        cli.ok("install", "claude-code", *options[:2], "--via", "command")
        return
    # The line that it names works.
    (line,) = re.findall(r'`export PATH="(.*):\$PATH"`', " ".join(refused.stderr.split()))
    monkeypatch.setenv("PATH", f"{line}:{home / 'bin'}")
    cli.ok("install", "claude-code", *options[:2])
    entry = servers("claude-code", folder / ".mcp.json")["orbiter-memory"]
    assert words(entry)[:2] == ["orbiter-memory", "mcp"]


def test_what_everybody_can_get_is_started_from_there_for_a_project(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    _install_from(
        monkeypatch, {"url": "https://h/o", "vcs_info": {"vcs": "git", "commit_id": "4f2"}}
    )

    cli.ok("install", "claude-code", "--project", "--via", "uvx")

    started = words(servers("claude-code", home / ".mcp.json")["orbiter-memory"])
    assert started[:3] == ["uvx", "--from", "orbiter-memory[mcp] @ git+https://h/o@4f2"]


@pytest.mark.parametrize("client", PROJECT_FILES)
def test_a_project_is_left_without_copies_and_without_what_is_empty(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    folder = home / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (home / "bin").mkdir()
    (home / "bin/orbiter-memory").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(home / "bin"))
    hooks = ["--hooks"] if client == "claude-code" else []

    for user in ("ann", "bob"):
        cli.ok("install", client, "--project", "--force", "--user", user, *hooks)
    made = [path for path in folder.rglob("*") if path.is_file()]
    shown = cli.ok("uninstall", client, "--project", "--dry-run")
    assert all(path.is_file() and f"would remove {path}" in shown for path in made)
    done = cli.ok("uninstall", client, "--project")

    assert made
    assert all(f"removed {path}" in done for path in made)
    assert [*folder.iterdir()] == []


def test_the_folder_of_a_removed_file_stays_if_others_use_it(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_from(monkeypatch, None)
    monkeypatch.chdir(home)
    cli.ok("install", "cursor", "--project", "--via", "uvx")
    other = home / ".cursor/rules"
    other.touch()

    cli.ok("uninstall", "cursor", "--project")

    assert [*(home / ".cursor").iterdir()] == [other]


@pytest.mark.parametrize(
    "text",
    ['{"model": "x"}', '{ "model": "x" }\n', '{\n  "model": "x"\n}\n', '{"a": 1, "b": {"c": []}}'],
)
def test_a_file_is_after_removal_what_it_was(cli: Cli, home: Path, text: str) -> None:
    settings = home / ".claude/settings.json"
    settings.parent.mkdir()
    servers_file = home / ".claude.json"
    settings.write_text(text)
    servers_file.write_text(text)

    cli.ok("install", "claude-code", "--hooks")
    cli.ok("uninstall", "claude-code")

    assert settings.read_text() == text
    assert servers_file.read_text() == text


def test_the_file_behind_a_link_is_emptied_and_stays(cli: Cli, home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".claude.json").symlink_to(real)

    cli.ok("install", "claude-code")
    cli.ok("uninstall", "claude-code")

    assert (home / ".claude.json").is_symlink()
    assert json.loads(real.read_text()) == {}


@pytest.mark.parametrize(
    ("client", "path", "held"),
    [
        ("claude-code", ".mcp.json", ("env", {"ORBITER_MEMORY_TOKEN": "${ORBITER_MEMORY_TOKEN}"})),
        (
            "cursor",
            ".cursor/mcp.json",
            ("env", {"ORBITER_MEMORY_TOKEN": "${env:ORBITER_MEMORY_TOKEN}"}),
        ),
        (
            "vscode",
            ".vscode/mcp.json",
            ("env", {"ORBITER_MEMORY_TOKEN": "${env:ORBITER_MEMORY_TOKEN}"}),
        ),
        ("codex", ".codex/config.toml", ("env_vars", ["ORBITER_MEMORY_TOKEN"])),
        (
            "gemini-cli",
            ".gemini/settings.json",
            ("env", {"ORBITER_MEMORY_TOKEN": "${ORBITER_MEMORY_TOKEN}"}),
        ),
        (
            "continue",
            ".continue/mcpServers/orbiter-memory.json",
            ("env", {"ORBITER_MEMORY_TOKEN": "${ORBITER_MEMORY_TOKEN}"}),
        ),
        (
            "opencode",
            "opencode.json",
            ("environment", {"ORBITER_MEMORY_TOKEN": "{env:ORBITER_MEMORY_TOKEN}"}),
        ),
    ],
)
def test_a_file_that_is_committed_holds_no_secret(
    cli: Cli, home: Path, client: str, path: str, held: tuple[str, object]
) -> None:
    shared = ("--project", "--via", "command")
    options = (*shared, "--url", "https://memory.example.com", "--token", "om_s3cret")

    told = cli.ok("install", client, *options)
    again = cli.ok("install", client, *options)

    name, value = held
    assert servers(client, home / path)["orbiter-memory"][name] == value
    assert "s3cret" not in (home / path).read_text()
    assert "set ORBITER_MEMORY_TOKEN" in told
    assert "already" in again
    cli.ok("install", client, *shared, "--url", "redis://:s3cret@localhost/0", "--force")
    assert "s3cret" not in (home / path).read_text()
    assert "ORBITER_MEMORY_URL" in (home / path).read_text()


def test_nothing_is_written_that_could_not_start(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    _install_from(monkeypatch, {"url": "file:///checkout", "dir_info": {}})

    result = cli("install", "claude-code")

    assert result.exit_code == 1
    assert "pip install 'orbiter-memory[mcp]'" in result.stderr
    assert "pip install '/checkout[mcp]'" in result.stderr
    assert not (home / ".claude.json").exists()


def test_programs_that_were_moved_are_found(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(home / "codex"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "claude"))
    cli.ok("install", "codex")
    cli.ok("install", "claude-code")
    monkeypatch.setattr(sys, "platform", "darwin")
    cli.ok("install", "claude-desktop")

    assert (home / "codex/config.toml").exists()
    assert (home / "claude/.claude.json").exists()
    assert (home / "Library/Application Support/Claude/claude_desktop_config.json").exists()


def test_the_file_that_a_program_reads_is_the_one_that_is_written(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = home / ".config/Code/User/globalStorage/saoudrizwan.claude-dev"
    extension.mkdir(parents=True)
    cli.ok("install", "cline")
    opencode = home / ".config/opencode/opencode.jsonc"
    opencode.parent.mkdir()
    opencode.write_text('{"model": "x", // mine\n}\n')
    cli.ok("install", "opencode")
    monkeypatch.setenv("CLINE_MCP_SETTINGS_PATH", str(home / "cline.json"))
    monkeypatch.setenv("CONTINUE_GLOBAL_DIR", str(home / "continue"))
    cli.ok("install", "cline")
    cli.ok("install", "continue")

    assert "orbiter-memory" in servers("cline", extension / "settings/cline_mcp_settings.json")
    assert "orbiter-memory" in servers("cline", home / "cline.json")
    assert "orbiter-memory" in servers("continue", home / "continue/mcpServers/orbiter-memory.json")
    assert "// mine" in opencode.read_text()
    assert find(opencode.read_text(), ("mcp", "orbiter-memory", "type")) == "local"
    assert not opencode.with_suffix(".json").exists()


def test_a_link_stays_one(cli: Cli, home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".claude.json").symlink_to(real)

    cli.ok("install", "claude-code")

    assert (home / ".claude.json").is_symlink()
    assert "orbiter-memory" in servers("claude-code", real)


@pytest.mark.parametrize("client", FILES)
def test_what_was_added_is_removed_and_nothing_else(cli: Cli, home: Path, client: str) -> None:
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    before = CODEX[: CODEX.index("[mcp_servers.orbiter")] if client == "codex" else CURSOR
    path.write_text(before.replace("mcpServers", HOLDERS.get(client, "mcpServers")))
    cli.ok("install", client)
    added = path.read_text()

    shown = cli.ok("uninstall", client, "--dry-run")
    kept = path.read_text()
    done = cli.ok("uninstall", client)
    again = cli("uninstall", client)

    assert "orbiter-memory" in shown
    assert kept == added
    assert f"wrote {path}" in done
    assert again.exit_code == 3
    assert (
        path.read_text().split()
        == before.replace("mcpServers", HOLDERS.get(client, "mcpServers")).split()
    )


def test_what_is_not_there_is_not_removed(cli: Cli, home: Path) -> None:
    result = cli("uninstall", "cursor")

    assert result.exit_code == 3
    assert FILES["cursor"] in result.stderr
    assert [*home.iterdir()] == []
    assert cli("uninstall", "cline", "--project").exit_code == 2


def test_no_key_of_an_old_entry_is_shown(cli: Cli, home: Path) -> None:
    options = ("--url", "http://127.0.0.1:8765", "--token")
    cli.ok("install", "cursor", *options, "om_s3cret")

    changed = cli.ok("install", "cursor", *options, "om_other", "--force", "--dry-run")
    removed = cli.ok("uninstall", "cursor", "--dry-run")

    for shown in (changed, removed):
        assert "ORBITER_MEMORY_TOKEN" in shown
        assert "s3cret" not in shown


VALUE = {"command": "c", "args": ["a"]}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"s": {"n": 1}}', "{}"),
        ('{"s": {"n": 1,}, "t": {}}', '{"t": {}}'),
        ('{"s": {"n": 1, "m": 2}}', '{"s": {"m": 2}}'),
        ('{"s": {"m": 2, "n": 1}}', '{"s": {"m": 2}}'),
        ('{ "t": 1, "s": { "n": 1 } }', '{ "t": 1 }'),
        ('{"s": {"m": 2, // two\n"n": {"x": []}\n}}', '{"s": {"m": 2 // two\n}}'),
        ('{"s": { // x\n  "n": 1 }}', '{"s": { // x\n   }}'),
        ('{"s": {\r\n\t"n": {\r\n\t},\r\n\t"m": 2\r\n}}', '{"s": {\r\n\t"m": 2\r\n}}'),
        ('{"s": {"m": 2}}', '{"s": {"m": 2}}'),
        ('{"n": 1}', '{"n": 1}'),
        ("", ""),
    ],
)
def test_an_entry_is_removed_from_any_json(text: str, wanted: str) -> None:
    assert remove(text, ("s", "n")) == wanted


def test_a_name_that_is_there_twice_is_not_removed_by_half() -> None:
    with pytest.raises(FileSyntaxError, match="not changed here"):
        remove('{"s": {"n": 1, "n": 2}}', ("s", "n"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{ }\n",
        "{\n  // nothing yet\n}\n",
        '{"mcpServers": {}}',
        '{"mcpServers":{"x":{"command":"y"}},"z":1}',
        '{\r\n\t"mcpServers": {\r\n\t\t"x": {},\r\n\t},\r\n}\r\n',
        '{"a": {"mcpServers": {"n": 1}}, /* c */ "b": "}{,"}',
        '{"mcpServers": {"n": {"command": "old"}, "m": 2}}',
        '{"mcpServers": {"x": 1 /* one */ }}',
    ],
)
def test_an_entry_is_put_into_any_json(text: str) -> None:
    made = put(text, ("mcpServers", "n"), VALUE)

    before = find(text, ()) if text.strip() else {}
    assert isinstance(before, dict)
    within = before.get("mcpServers", {})
    assert find(made, ()) == {**before, "mcpServers": {**within, "n": VALUE}}
    assert find(put(made, ("mcpServers", "n"), VALUE), ()) == find(made, ())
    assert ("\r\n" in made) is ("\r\n" in text)
    if "//" not in text and "/*" not in text and ",\r\n\t}" not in text:
        assert json.loads(made) == find(made, ())


@pytest.mark.parametrize(
    "text", ["{", "{'a': 1}", '{"a" 1}', '{"a": tru}', '{"a": 1 "b": 2}', '{"a": "x\n"}', "[" * 999]
)
def test_what_is_no_json_is_told_with_its_place(text: str) -> None:
    with pytest.raises(FileSyntaxError, match="line 1"):
        put(text, ("mcpServers", "n"), VALUE)


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
        (["--import", "/nowhere/memory.jsonl"], "/nowhere/memory.jsonl"),
        (["--user", ""], "`--user` is empty"),
        (["--no-user"], "no scope is given"),
        (["--tools", "everything"], "everything"),
    ],
)
def test_a_server_that_cannot_begin_says_so_on_stderr(cli: Cli, args: list[str], why: str) -> None:
    result = cli("mcp", *args)

    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert why in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        '{\r\n "servers": {"a": {} // x\n}\r\n}',
        '{"servers": {"a": {} // x\n}}',
        '{\r\n "servers": {"orbiter": {} // x\n}}',
        '{\r\n "a": 1 // x\n}',
        "{ // x\n}",
        '{"servers": { /* x */ }}',
        '{"servers": {"a": {}, // x\n}, // y\n}',
        "// nothing yet\n",
        "// nothing yet",
        "/* nothing */ // yet\r\n",
    ],
)
def test_an_entry_never_ends_up_in_a_comment(text: str) -> None:
    made = put(text, ("servers", "orbiter"), {"command": "y"})

    assert find(made, ("servers", "orbiter")) == {"command": "y"}
    assert find(made, ("servers", "a")) == find(text, ("servers", "a"))
    assert made.count("//") == text.count("//")


def test_what_would_not_be_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_json_edit, "_insert", lambda text, *_, **__: f"{text} // lost")

    with pytest.raises(FileSyntaxError, match="not changed here"):
        put('{"a": 1}', ("servers", "x"), {})


def test_a_place_where_no_file_can_be_is_told(cli: Cli, home: Path) -> None:
    path = home / FILES["cursor"]
    path.parent.write_text("no folder")
    below = cli("install", "cursor")
    path.parent.unlink()
    path.parent.mkdir()
    path.symlink_to(path)
    loop = cli("install", "cursor", "--dry-run")
    path.unlink()
    path.mkdir()
    folder = cli("install", "cursor")
    nameless = cli("install", "vscode", "--name", " ")

    for result, words in ((below, "not a folder"), (loop, "loop"), (folder, "is a folder")):
        assert result.exit_code == 1
        assert words in result.stderr
        assert "nothing was changed" in result.stderr
    assert nameless.exit_code == 2
    assert "--name" in nameless.stderr
    assert not (home / FILES["vscode"]).exists()


def test_what_only_reads_imports_nothing(cli: Cli, home: Path) -> None:
    file = home / "memory.jsonl"
    file.write_text('{"type":"entity","name":"Ann","entityType":"p","observations":["tea"]}\n')
    refused = cli("mcp", "--read-only", "--import", str(file))
    command = [sys.executable, "-m", "orbiter.memory.cli", "mcp", "--tools", "kg", "--read-only"]
    ended = subprocess.run(
        [*command, "--url", cli.url, "--user", "bob", "--model", "none"],
        env={**os.environ, "MEMORY_FILE_PATH": str(file)},
        input=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
        capture_output=True,
        check=True,
        timeout=HANG,
    )

    assert refused.exit_code == 2
    assert "--read-only" in refused.stderr
    assert b"taken in" not in ended.stderr
    assert json.loads(cli.ok("list", "--user", "bob", "--json"))["items"] == []
