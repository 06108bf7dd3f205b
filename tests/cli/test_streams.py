"""Editors, closed streams, colours, and a Ctrl-C that comes early: what a shell may do to it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment, in_pipe, in_terminal
from tests.timing import HANG

from orbiter.memory.cli.commands.demo import _console

posix = pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")


class _Terminal:
    def isatty(self) -> bool:
        return True


@posix
def test_a_dash_that_an_editor_left_is_a_text(cli: Cli, tmp_path: Path) -> None:
    item_id = cli.remember("first")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf -- - > "$1"\n')
    editor.chmod(stat.S_IRWXU)

    ended = in_terminal(["edit", item_id], environment(cli.url, {"VISUAL": str(editor)}))

    assert ended.code == 0, ended.stdout
    assert cli.json("show", item_id)["content"] == "-"


@posix
def test_closed_streams_are_read_as_empty_and_written_to_nobody(cli: Cli) -> None:
    cli.remember("something")
    calls = " ".join(COMMAND)
    script = f"{calls} list >&-; echo $?; {calls} remember - <&-; echo $?"

    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=environment(cli.url),
        capture_output=True,
        timeout=HANG,
        check=False,
    )

    assert done.stdout == b"0\n2\n"
    assert done.stderr == b"error: there is nothing to store: the text is empty\n"


def test_no_color_wins_over_force_color(cli: Cli) -> None:
    cli.remember("tea")

    forced = in_pipe(["list"], environment(cli.url, {"FORCE_COLOR": "1"}))
    both = in_pipe(["list"], environment(cli.url, {"FORCE_COLOR": "1", "NO_COLOR": "1"}))

    assert "\x1b[" in forced.stdout
    assert "\x1b[" not in both.stdout
    assert both.stdout.endswith("\titem\ttea\n")


def test_ctrl_c_while_it_loads_is_quiet() -> None:
    code = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == {name!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts()); sys.argv[1:] = ['list']\n"
        "from orbiter.memory.cli import main; main()"
    )

    for name in ("click", "orbiter.memory.cli.commands.memories"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(name=name)],
            env=dict(os.environ),
            capture_output=True,
            timeout=HANG,
            check=False,
        )

        assert (done.returncode, done.stdout, done.stderr.strip()) == (130, b"", b""), name


@posix
def test_ids_go_to_the_pipe_while_a_bar_is_drawn(cli: Cli) -> None:
    cli.remember("something")
    env = environment(cli.url)
    typed = "".join(f"{number}\n" for number in range(600)) + "\x04"  # and the end of stdin

    ended = in_terminal(["remember", "-", "--lines"], env, typed=typed, stdout_is_terminal=False)

    assert ended.code == 0
    assert len(ended.stdout.split()) == 600
    assert ended.stdout.split()[0] not in ended.stderr


def test_the_tour_takes_no_more_than_80_columns() -> None:
    assert _console().width == 80  # of a pipe, which has no end
