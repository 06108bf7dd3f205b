"""The program itself, as a shell runs it: in a terminal, in a pipe, interrupted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment, in_pipe, in_terminal
from tests.timing import HANG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")

STYLE = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "\x1b]0;owned\x07\x1b[2J gone \x9b5m\u202e [red]not red[/red]"


def test_a_terminal_shows_colours_but_obeys_no_memory(cli: Cli) -> None:
    cli.remember_all("older", HOSTILE)

    seen = in_terminal(["list", "-n", "1"], environment(cli.url))
    plain = in_terminal(["recall", "gone"], environment(cli.url, {"NO_COLOR": "1"}))

    assert seen.code == plain.code == 0
    assert STYLE.search(seen.stdout)
    assert "note: there are more" in seen.stdout
    assert not re.search(r"\x1b\[[0-9;]*[34579][0-9]?m", plain.stdout)  # no colour, blinking, …
    for screen in (seen.stdout, plain.stdout):
        left = STYLE.sub("", screen)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", left)
        assert r"\x1b]0;owned\x07\x1b[2J gone \x9b5m\u{202e} [red]not red[/red]" in left


def test_progress_and_notes_are_on_stderr_and_only_in_a_terminal(cli: Cli) -> None:
    lines = "\n".join(f"line {n}" for n in range(1_200))

    cli.ok("forget", cli.remember("gone"))
    watched = in_terminal(["list", "-n", "1"], environment(cli.url), stdout_is_terminal=False)
    piped = in_pipe(["remember", "-", "--lines"], environment(cli.url), stdin=lines)
    copied = in_terminal(
        ["backup", f"{cli.url}.copy"], environment(cli.url), stdout_is_terminal=False
    )

    one = in_terminal(["list", "-n", "1"], environment(cli.url), stdout_is_terminal=False)

    assert watched.stdout == ""
    assert "note: no memories here" in watched.stderr
    assert one.stderr == ""  # `$(…)` reads one and wants no more
    assert len(piped.stdout.splitlines()) == 1_200
    assert piped.stderr == ""
    assert "copying" in copied.stderr
    assert copied.stdout.startswith(f"{cli.url}.copy")


def test_a_context_draws_its_tokens_on_stderr(cli: Cli) -> None:
    cli.remember("Mia is allergic to peanuts")

    seen = in_terminal(
        ["context", "lisbon", "What may Mia eat?", "--budget", "200"],
        environment(cli.url),
        stdout_is_terminal=False,
    )

    assert seen.code == 0
    assert "of 200 tokens" in seen.stderr
    assert "█" in seen.stderr
    assert "■ memories" not in seen.stdout
    assert "What may Mia eat?" in seen.stdout


def test_a_reader_who_leaves_ends_it_quietly(cli: Cli) -> None:
    cli.ok("remember", "-", "--lines", stdin="\n".join(f"{n} {'x' * 900}" for n in range(400)))

    done = subprocess.run(
        ["/bin/bash", "-c", f"{' '.join(COMMAND)} list -n 400 | head -1; echo ${{PIPESTATUS[0]}}"],
        env=environment(cli.url),
        capture_output=True,
        timeout=HANG,
        check=False,
    )

    assert done.stderr == b""
    assert done.stdout.splitlines()[-1] == b"141"


def test_ctrl_c_ends_following_quietly(cli: Cli) -> None:
    cli.remember("the first")

    ended = in_terminal(["list", "--follow"], environment(cli.url), interrupt_at="the first")

    assert ended.code == 130
    assert "Traceback" not in ended.stdout
    assert "rror" not in ended.stdout


def test_forgetting_by_filter_asks_and_takes_no_for_an_answer(cli: Cli) -> None:
    cli.remember_all("tea", "coffee")

    no = in_terminal(["forget", "--everything"], environment(cli.url), typed="n\n")
    kept = len(cli.json("list")["items"])
    yes = in_terminal(["forget", "--everything"], environment(cli.url), typed="y\n")

    assert "Forget 2 memories? [y/N]" in no.stdout
    assert (no.code, kept) == (1, 2)
    assert yes.code == 0
    assert cli.json("list")["items"] == []


def test_a_narrow_terminal_breaks_no_hash(cli: Cli) -> None:
    narrow = environment(cli.url, {"COLUMNS": "60"})

    missing = in_terminal(["list"], narrow)
    cli.remember("tea")
    cli.ok("audit", "begin")
    checked = in_terminal(["audit", "verify"], narrow)
    head = cli.ok("audit", "verify")

    lines = missing.stdout.splitlines()
    assert lines[0].startswith("error: there is no store at")
    assert head in checked.stdout


def test_an_edit_without_text_opens_the_editor(cli: Cli, tmp_path: Path) -> None:
    item_id = cli.remember("first")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "edited: " | cat - "$1" > "$1.new" && mv "$1.new" "$1"\n')
    editor.chmod(0o700)

    ended = in_terminal(
        ["edit", item_id], environment(cli.url, {"EDITOR": str(editor), "VISUAL": ""})
    )

    assert ended.code == 0, ended.stdout
    assert cli.json("show", item_id)["content"] == "edited: first"


def test_the_tour_fits_a_narrow_terminal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    narrow = {"TMPDIR": str(tmp_path), "COLUMNS": "50", "PATH": path}
    env = environment("/nowhere/at/all.db", narrow)

    seen = in_terminal(["demo"], env, typed="n\n")

    lines = STYLE.sub("", seen.stdout).splitlines()
    assert seen.code == 0, seen.stdout
    assert max(map(len, lines)) <= 50
    for part in ("get_weather", "allergic", "of 480 tokens", "{+150+}", "bob    finds  nothing"):
        assert part in "\n".join(lines)
    assert [line.split()[1] for line in lines if line.startswith("   orbiter-memory ")] == [
        *("remember", "recall", "doctor", "demo")
    ]
    elsewhere = [line.split()[-1] for line in lines if "gets sick on long bus rides" in line]
    assert 0 < float(elsewhere[-1]) <= 1  # its relevance, as in every other step
    assert "Open the dashboard on sample data? [Y/n]" in lines[-1]
    assert list(tmp_path.glob("orbiter-memory-*")) == []


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    env = environment("/nowhere/at/all.db")
    path = tmp_path / "orbiter-memory"
    path.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    path.chmod(0o700)
    script = (
        'eval "$(_ORBITER_MEMORY_COMPLETE=bash_source orbiter-memory)"\n'
        "ask() { COMP_WORDS=(orbiter-memory $1); COMP_CWORD=$2; COMPREPLY=(); "
        '_orbiter_memory_completion orbiter-memory; echo "${COMPREPLY[@]}"; }\n'
        'ask "re" 1; ask "recall --ex" 2'
    )

    done = subprocess.run(
        ["/bin/bash", "-c", script],
        env={**env, "PATH": f"{tmp_path}{os.pathsep}{env['PATH']}"},
        capture_output=True,
        timeout=HANG,
        check=True,
    )

    commands, options = done.stdout.decode().splitlines()
    assert commands == "remember recall restore review reindex"
    assert options == "--explain"


def test_help_loads_neither_pydantic_nor_rich() -> None:
    code = (
        "import sys; sys.argv[1:] = {args!r}\n"
        "from orbiter.memory.cli import main\n"
        "try: main()\n"
        "finally: print(*(set(sys.modules) & {{'pydantic', 'rich', 'asyncio', 'sqlite3'}}))"
    )

    for args in (["--help"], ["recall", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(args=args)],
            capture_output=True,
            timeout=HANG,
            check=False,
        )
        assert done.stdout.startswith(b"Usage: orbiter-memory")
        loaded = set(done.stdout.splitlines()[-1].decode().split())
        assert loaded <= ({"asyncio"} if args != ["--help"] else set())
