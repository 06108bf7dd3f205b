"""`docs/cli.md` names every command and option, and the list of commands says what they say."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment
from tests.timing import HANG

from orbiter.memory.cli._root import COMMANDS, NAME, app

PAGE = Path(__file__).parents[2] / "docs/cli.md"


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with the words that call it."""
    yield path, command
    if hasattr(command, "list_commands"):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*path, name))


def _commands() -> dict[str, Any]:
    return {" ".join(path): each for path, each in walk(app, ())}


def _section(text: str, name: str) -> str:
    found = re.search(rf"^### `{re.escape(name)}`.*?(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no heading ### `{name}`"
    return found[0]


def test_every_command_and_option_is_in_the_documentation() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shared = text.partition("## Commands")[0]
    common = set(re.findall(r"^\| `(--[a-z-]+)`", shared, re.MULTILINE))

    for name, command in _commands().items():
        is_group = hasattr(command, "list_commands")
        told = shared if not name or is_group else _section(text, name)
        for option in command.params:
            spellings = [each for each in option.opts if each.startswith("-")]
            for spelling in [*spellings, *option.secondary_opts]:
                is_told = spelling in common or re.search(rf"`{spelling}[` ]", told)
                assert is_told, f"{name}: {spelling}"
            if not spellings:
                argument = (option.metavar or option.name).upper().replace("]", "").strip("[.")
                assert argument in told.splitlines()[2].upper(), f"{name}: {argument}"


def test_the_documentation_names_no_option_that_is_gone() -> None:
    text = PAGE.read_text(encoding="utf-8")
    params = [one for each in _commands().values() for one in each.params]
    there = {option for one in params for option in (*one.opts, *one.secondary_opts)}

    for name in re.findall(r"`(--[a-z-]+)", text):
        assert name in there | {"--help"}, name


def test_no_line_of_any_help_is_wider_than_a_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")

    wide = {
        f"{name}: {line}"
        for name in _commands()
        for line in cli.ok(*name.split(), "--help").splitlines()
        if len(line) > 80
    }

    assert wide == set()


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    commands = _commands()

    for name, (_, summary) in COMMANDS.items():
        assert commands[name].help.splitlines()[0] == summary, name
    assert NAME in PAGE.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="a script of a POSIX shell")
def test_the_practice_restore_runs_again_and_fails_if_the_numbers_differ(
    cli: Cli, tmp_path: Path
) -> None:
    page = PAGE.with_name("backup.md").read_text(encoding="utf-8")
    (script,) = (
        block
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        if "practice.db" in block
    )
    cli.remember("one")
    cli.ok("backup", str(tmp_path / "older.db"))
    cli.remember("two")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    more = {"PATH": path, "TMPDIR": str(temporary)}

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", text],
            env=environment(cli.url, more),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=5 * HANG,
            check=False,
        )

    first, second = run(script), run(script)
    differs = run(script.replace('restore "$folder/backup.db"', "restore older.db"))

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert differs.returncode == 1
    assert differs.stderr.startswith("practice restore failed")
    assert not list(temporary.iterdir())
