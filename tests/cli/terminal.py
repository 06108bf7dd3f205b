"""The command line in a process of its own, with a terminal or without."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.timing import HANG

__all__ = ["COMMAND", "Ended", "environment", "in_pipe", "in_terminal"]

_AGAIN = 5.0
"""Seconds after which a signal counts as lost."""
COMMAND = (sys.executable, "-m", "orbiter.memory.cli")


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it wrote."""

    code: int
    stdout: str
    stderr: str = ""


def environment(url: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with this store, as alice, in a terminal of 80 columns."""
    dropped = ("NO_COLOR", "FORCE_COLOR", "ORBITER_DEBUG", "COLUMNS", "CI")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {
        **kept,
        "ORBITER_MEMORY_URL": url,
        "ORBITER_MEMORY_USER": "alice",
        "ORBITER_MEMORY_MODEL": "none",
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        "LINES": "60",
        **(more or {}),
    }


def in_pipe(args: Sequence[str], env: Mapping[str, str], *, stdin: str = "") -> Ended:
    """Run a command as a program would."""
    done = subprocess.run(
        [*COMMAND, *args],
        env=env,
        capture_output=True,
        input=stdin.encode(),
        timeout=HANG,
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_terminal(
    args: Sequence[str],
    env: Mapping[str, str],
    *,
    typed: str = "",
    stdout_is_terminal: bool = True,
    interrupt_at: str = "",
    interrupts_again: bool = False,
) -> Ended:
    """Run a command in a terminal; *typed* is typed at once; a text on the screen interrupts it.

    With *interrupts_again*, so it does every few seconds, as someone would at a prompt: a line
    editor loses a signal that comes after the prompt is drawn and before it waits for a key.
    With *stdout_is_terminal* false, stdout is a pipe, and the terminal shows stderr only.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *args],
        env=env,
        stdin=theirs,
        stdout=theirs if stdout_is_terminal else subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = _read(ours, process, interrupt_at, interrupts_again=interrupts_again)
    piped = process.stdout.read().decode() if process.stdout else ""
    if process.stdout:
        process.stdout.close()
    code = process.wait(60)
    os.close(ours)
    return Ended(code, shown if stdout_is_terminal else piped, "" if stdout_is_terminal else shown)


def _read(
    terminal: int, process: subprocess.Popen[bytes], interrupt_at: str, *, interrupts_again: bool
) -> str:
    shown = b""
    until = time.monotonic() + HANG
    next_at = float("inf")
    while time.monotonic() < until:
        if time.monotonic() > next_at:
            process.send_signal(signal.SIGINT)
            next_at = time.monotonic() + _AGAIN
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            read = os.read(terminal, 65_536)
        except OSError:  # how Linux tells that the other side has closed it
            break
        if not read:
            break
        shown += read
        if interrupt_at and interrupt_at in shown.decode(errors="replace"):
            process.send_signal(signal.SIGINT)  # what Ctrl-C sends
            interrupt_at = ""
            next_at = time.monotonic() + _AGAIN if interrupts_again else next_at
    return shown.decode(errors="replace").replace("\r\n", "\n")
